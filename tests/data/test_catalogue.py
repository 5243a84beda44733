"""Datasets by name and by path, and their streams."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from toy_examples import row, write_lines
from toy_fewrel import wiki_files, write_derived, write_split

from erda.data import fewrel_dataset
from erda.data.catalogue import load_dataset, open_stream
from erda.data.fewrel_dataset import fewrel_half
from erda.data.own_data import detect_format, read_examples
from erda.data.streams import text_key
from erda.errors import DataError, SettingsError, StreamError
from erda.files import write_arrays


def own_rows(n_relations: int = 6, n_each: int = 12) -> list[object]:
    return [
        row(tokens=["Ann", f"w{relation}x{number}", "Bob"], relation=f"rel_{relation}")
        for relation in range(n_relations)
        for number in range(n_each)
    ]


def test_own_jsonl_opens_as_a_stream(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "mine.jsonl", own_rows())
    stream = open_stream(path, shots=3)
    assert [len(task.relations) for task in stream] == [5, 1]
    assert {len(task.examples) // len(task.relations) for task in stream} == {3}
    assert stream.manifest.dataset == "mine"
    assert open_stream(str(path), shots=3).manifest == stream.manifest
    assert [len(task.relations) for task in open_stream(path, shots=3, way=2)] == [2, 2, 2]
    write_lines(path, [*own_rows(), row(relation="rare")])
    with pytest.raises(StreamError, match="--set min_examples=4"):
        open_stream(path, shots=3)
    without_rare = open_stream(path, shots=3, min_examples=4)
    assert {relation.id for relation in without_rare.relations} == {relation.id for relation in stream.relations}
    assert without_rare.manifest.checksum != stream.manifest.checksum


def test_own_relations_get_their_texts_from_a_list_beside(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "mine.jsonl", own_rows(3))
    assert [relation.name for relation in load_dataset(path).relations] == ["rel 0", "rel 1", "rel 2"]
    texts = [{"id": f"rel_{i}", "name": f"name {i}", "description": f"text {i}"} for i in (2, 1, 0, 7)]
    (tmp_path / "mine.relations.json").write_text(json.dumps(texts))
    relations = load_dataset(path).relations
    assert [(relation.id, relation.name) for relation in relations] == [(f"rel_{i}", f"name {i}") for i in (2, 1, 0)]
    (tmp_path / "mine.relations.json").write_text(json.dumps(texts[:2]))
    with pytest.raises(DataError, match="unknown relation 'rel_0'"):
        load_dataset(path)


def test_an_own_folder_brings_its_pools(tmp_path: Path) -> None:
    write_lines(tmp_path / "train.jsonl", own_rows(3, 8))
    test = [row(tokens=["Eve", f"t{i}", "Bob"], relation=f"rel_{i % 3}") for i in range(9)]
    (tmp_path / "test.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, test)).encode()))
    dataset = load_dataset(tmp_path)
    assert (len(dataset.train), len(dataset.validation), len(dataset.test)) == (24, 0, 9)
    stream = open_stream(tmp_path, shots=2, way=3)
    assert len(stream.test(0).gold) == 9
    assert len(stream.validation(0).gold) == 9


def test_rows_without_a_relation_are_unrelated_under_any_name(tmp_path: Path) -> None:
    none = [row(tokens=["Al", f"x{i}", "Bo"], relation=name) for i, name in enumerate((None, "no_relation", "Other"))]
    path = write_lines(tmp_path / "mine.jsonl", [*own_rows(3), *none])
    assert [len(load_dataset(path).unrelated), len(load_dataset(path).relations)] == [2, 4]
    dataset = load_dataset(path, no_relation=["Other"])
    assert [example.relation for example in dataset.unrelated] == [None, "no_relation", "Other"]
    assert len(dataset.relations) == 3
    stream = open_stream(path, shots=3, way=3, no_relation="none at all, Other")
    assert {relation.id for relation in stream.relations} == {"rel_0", "rel_1", "rel_2"}
    (tmp_path / "mine.relations.json").write_text(json.dumps([{"id": f"rel_{i}"} for i in range(3)]))
    assert len(load_dataset(path, no_relation=["Other"]).unrelated) == 3
    with pytest.raises(DataError, match="unknown relation 'Other'"):
        load_dataset(path)


def test_unknown_names_and_missing_paths(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"Unknown dataset 'fewrl'\. Did you mean 'fewrel'\? Known: atlas, fewrel"):
        load_dataset("fewrl")
    with pytest.raises(DataError, match="no such file or folder"):
        load_dataset(tmp_path / "missing.jsonl")
    with pytest.raises(DataError, match=r"contains no train\.jsonl"):
        load_dataset(tmp_path)
    path = write_lines(tmp_path / "none.jsonl", [row(relation=None)])
    with pytest.raises(DataError, match="no example has a relation"):
        load_dataset(path)


@pytest.mark.parametrize(
    ("name", "remedy"), [("fewrel-full", "erda data get"), ("tacred", "LDC2018T24"), ("redoc41", "ERDA_DATA")]
)
def test_a_missing_dataset_says_what_to_do(tmp_path: Path, name: str, remedy: str) -> None:
    with pytest.raises(DataError, match=remedy):
        load_dataset(name, folder=tmp_path)


def test_tacred_joins_its_files_and_names_its_relations(tmp_path: Path) -> None:
    (tmp_path / "tacred").mkdir()
    ends = {"subj_start": 0, "subj_end": 0, "obj_start": 2, "obj_end": 2}
    for number, name in enumerate(("train", "dev", "test")):
        rows = [
            {"token": ["Ann", f"{name}{relation}x{i}", "Bob"], "relation": relation, **ends}
            for relation in ("per:city_of_birth", "org:founded", "no_relation")
            for i in range(3 + number)
        ]
        (tmp_path / "tacred" / f"{name}.json").write_text(json.dumps(rows))
    dataset = load_dataset("tacred", folder=tmp_path)
    assert [relation.name for relation in dataset.relations] == ["organization founded", "person city of birth"]
    assert len(dataset.train) == 2 * (3 + 4 + 5)
    assert len(dataset.unrelated) == 3 + 4 + 5
    stream = open_stream("tacred", shots=2, way=1, first_shots=2, folder=tmp_path)
    assert [len(task.relations) for task in stream] == [1, 1]


@pytest.mark.parametrize(
    ("content", "format"),
    [
        ('{"tokens": ["a"]}', "jsonl"),
        ('{"id": "x", "text": "a"}', "jsonl"),
        ('{"relation": ["odd"]}', "jsonl"),
        ('{"P1": [{"tokens": []}]}', "fewrel"),
        ('\n [{"token": ["a"]}]', "tacred"),
        ("1\t2 3\ta b\ta\t0\tb\t1\tQ1\tQ2", "cfrl"),
        ('[{"id": 1, "data": {"text": "a"}, "annotations": []}]', "labelstudio"),
        ('{"text": "a", "_input_hash": 1, "relations": []}', "prodigy"),
        ('{"text": "a b", "spans": [], "head": {"span": [0, 1]}, "tail": {"span": [2, 3]}}', "jsonl"),
        ('{"text": "the \\"relations\\": of [[a]] and {{b}}"}', "jsonl"),
        ("id;Text;relation\n1;[[a]] b {{c}};r", "csv"),
        ("text\trelation\n", "csv"),
        ("[[a]] met {{b}}", "marked"),
        ("{{a}} met [[b]]", "marked"),
    ],
)
def test_format_detection(tmp_path: Path, content: str, format: str) -> None:
    path = tmp_path / "x"
    path.write_text(content)
    assert detect_format(path) == format
    path.write_bytes(gzip.compress(content.encode()))
    assert detect_format(path) == format


def test_unknown_formats_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("just words")
    with pytest.raises(DataError, match="--format"):
        read_examples(path)
    with pytest.raises(SettingsError, match="Did you mean 'jsonl'"):
        read_examples(path, "json")


def list_fresh(folder: Path, monkeypatch: pytest.MonkeyPatch, *, n_missing: int = 0) -> None:
    """List the toy's sentences outside the splits as those of fewrel-fresh."""
    published = {text_key(example) for example in load_dataset("fewrel", folder=folder).train}
    half = fewrel_half(load_dataset("fewrel-full", folder=folder), "fewrel-fresh", fresh=True)
    keys = {*map(text_key, half.train)} - published | {*range(n_missing)}
    write_arrays(folder / "keys.npz", {"keys": np.array(sorted(keys), dtype=np.uint64)})
    monkeypatch.setattr(fewrel_dataset, "FRESH_KEYS", folder / "keys.npz")


def test_the_fresh_half_of_fewrel_has_no_sentence_of_a_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "fewrel"
    for shots in (2, 5, 10):
        write_split(folder, shots=shots)
    write_derived(folder)
    for name, content in wiki_files().items():
        (folder / name).write_bytes(content)
    list_fresh(tmp_path, monkeypatch)
    full, fresh = (load_dataset(name, folder=tmp_path) for name in ("fewrel-full", "fewrel-fresh"))
    assert len(fresh.relations) == 40
    assert {*fresh.relations} < {*full.relations}
    assert {example.relation for example in fresh.train} == {relation.id for relation in fresh.relations}
    published = {text_key(example) for example in load_dataset("fewrel", folder=tmp_path).train}
    assert any(text_key(example) in published for example in full.train)
    assert not any(text_key(example) in published for example in fresh.train)
    assert full.validation
    assert not fresh.validation
    list_fresh(tmp_path, monkeypatch, n_missing=2)
    with pytest.raises(DataError, match="lacks 2 of the"):
        fewrel_dataset.read_fresh(folder)


@pytest.mark.long
@pytest.mark.fewrel
@pytest.mark.parametrize(
    ("name", "asked", "sizes"),
    [
        ("redoc41", {"shots": 10}, [600, *[50] * 7]),
        ("fewrel-full", {}, [1000] * 8),
        ("fewrel-fresh", {"seed": 1}, [1000, 50, 50, 50]),
    ],
)
def test_streams_of_the_real_datasets(data_folder: Path, name: str, asked: dict, sizes: list[int]) -> None:
    stream = open_stream(name, folder=data_folder, **asked)
    assert [len(task.examples) for task in stream] == sizes
    assert stream.manifest.hygiene["test_in_train"] == 0
