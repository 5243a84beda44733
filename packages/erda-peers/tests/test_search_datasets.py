"""The datasets for choosing settings share no relation with those for tests."""

import os
from pathlib import Path

import pytest
from toy_fewrel import wiki_files, write_derived, write_split

from erda.data.catalogue import DATASETS, load_dataset, missing_files, open_stream
from erda.data.fewrel_dataset import fewrel_half


def test_fewrel_search_has_the_relations_that_are_not_fresh(tmp_path: Path) -> None:
    folder = tmp_path / "fewrel"
    for shots in (2, 5, 10):
        write_split(folder, shots=shots)
    write_derived(folder)
    for name, content in wiki_files().items():
        (folder / name).write_bytes(content)
    full, search = (load_dataset(name, folder=tmp_path) for name in ("fewrel-full", "fewrel-search"))
    fresh = fewrel_half(full, "fewrel-fresh", fresh=True)
    assert len(search.relations) == 40
    assert {*fresh.relations} | {*search.relations} == {*full.relations}
    assert search.validation


def test_redoc13_needs_the_relations_of_fewrel_too(tmp_path: Path) -> None:
    (tmp_path / "redoc41").mkdir()
    for name in ("examples.jsonl.gz", "relations.json"):
        (tmp_path / "redoc41" / name).touch()
    assert not missing_files(DATASETS["redoc41"], tmp_path)
    assert missing_files(DATASETS["redoc13"], tmp_path) == ["fewrel/pid2name.json", "fewrel/cfrl/relation_name.txt"]


@pytest.mark.long
@pytest.mark.fewrel
def test_streams_of_real_data() -> None:
    if "ERDA_DATA" not in os.environ:
        pytest.skip("needs real data: set ERDA_DATA to the data folder (docs/data.md says what it holds)")
    for name, sizes in (("fewrel-search", [1000, 50, 50, 50]), ("redoc13", [500, 20, 20])):
        stream = open_stream(name, seed=1)
        assert [len(task.examples) for task in stream] == sizes
        assert stream.manifest.hygiene["test_in_train"] == 0
    fewrel = {relation.id for relation in load_dataset("fewrel").relations}
    assert not fewrel & {relation.id for relation in stream.relations}
