"""The published splits: a toy folder, and the real splits if the data folder is available."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from toy_fewrel import wiki_files, write_derived, write_split

from erda.data.fewrel_dataset import (
    ORDERS,
    draw_validation,
    published_order,
    published_stream,
    read_full,
    read_relations,
    read_split,
)
from erda.data.streams import text_key
from erda.errors import DataError, StreamError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_split(tmp_path)
    write_derived(tmp_path)
    return tmp_path


def test_tasks_follow_the_order_and_candidate_lists_leave_out_gold(folder: Path) -> None:
    stream = published_stream(folder, shots=5, family="erda", seed=110)
    assert stream.manifest.order == ORDERS["erda"][110]
    for task, cluster in zip(stream, ORDERS["erda"][110], strict=True):
        # toy files: relation 80 - i belongs to cluster i % 8
        assert {relation.id for relation in task.relations} == {f"P{80 - i}" for i in range(cluster, 80, 8)}
    assert len({relation.id for relation in stream.relations}) == 80
    for k in range(len(stream)):
        asked = stream.test(k)
        assert len(asked.gold) == 20
        for part in (asked, stream.validation(k)):
            for gold, listed in zip(part.gold, part.candidates, strict=True):
                assert len(set(listed)) == 10
                assert gold not in listed
            assert {example.relation for example in part.examples} == {None}


def test_orders_share_their_examples_and_differ_in_their_digest(folder: Path) -> None:
    streams = [published_stream(folder, shots=5, family=f, seed=s) for f, seeds in ORDERS.items() for s in seeds]
    assert len({stream.manifest.digest for stream in streams}) == 12
    assert len({stream.manifest.checksum for stream in streams}) == 1
    assert len({frozenset(i for task in stream.manifest.test for i in task) for stream in streams}) == 1
    assert len({frozenset(i for task in stream.manifest.train for i in task) for stream in streams}) == 1


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"shots": 7}, "dataset 'fewrel-full' draws"),
        ({"family": "erdaa"}, "Did you mean 'erda'? Known: erda, sckd."),
        ({"seed": 101}, "Known: 100, 110, 120, 130, 140, 150."),
        ({"n_tasks": 9}, "8 tasks; 9"),
    ],
)
def test_unpublished_streams_are_rejected(folder: Path, asked: dict, message: str) -> None:
    with pytest.raises(StreamError) as caught:
        published_stream(folder, **{"shots": 5} | asked)
    assert message in str(caught.value)


def test_missing_and_damaged_files_are_reported(folder: Path) -> None:
    labels = folder / "cfrl/5-shot/rel_cluster_label_0.npy"
    np.save(labels, np.zeros(80, dtype=int))
    with pytest.raises(DataError, match="no relation belongs to cluster 1"):
        published_stream(folder, shots=5)
    whole = labels.read_bytes()
    for damaged in (whole[:100], whole.replace(b"(80,), }" + 30 * b" ", b"(" + 32 * b"9" + b",), }", 1)):
        assert damaged != whole
        labels.write_bytes(damaged)
        with pytest.raises(DataError, match=r"rel_cluster_label_0\.npy: not a NumPy array .* erda data get fewrel"):
            published_stream(folder, shots=5)
    labels.unlink()
    with pytest.raises(DataError) as caught:
        published_stream(folder, shots=5)
    assert str(labels) in str(caught.value)
    assert "erda data get fewrel" in str(caught.value)


# -- with the public files alone ---------------------------------------------------------------------------------------


@pytest.fixture
def public_folder(tmp_path: Path) -> Path:
    write_split(tmp_path)
    for name, content in wiki_files().items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_validation_is_drawn_from_outside_the_splits(public_folder: Path) -> None:
    relations = read_relations(public_folder)
    assert [relation.id for relation in relations] == [f"P{index}" for index in range(1, 81)]
    assert relations[4].description == "description 5"
    stream = published_stream(public_folder, shots=5)
    asked = [stream.validation(k) for k in range(8)]
    assert Counter(gold for part in asked for gold in part.gold) == {f"P{index}": 50 for index in range(1, 81)}
    assert all(example.tokens[1].startswith("wiki") for part in asked for example in part.examples)
    assert stream.manifest.hygiene["validation_in_train"] == 0


def test_full_fewrel_separates_its_validation_examples(public_folder: Path) -> None:
    full, split = read_full(public_folder), read_split(public_folder).dataset
    assert full.validation == split.validation
    assert len(full.train) == 80 * 5
    assert not set(map(text_key, full.train)) & set(map(text_key, full.validation))
    examples = [*full.train, *full.validation]
    assert len({example.id for example in examples}) == 80 * 55
    assert ("ann", "train1x0", "bob") in {example.tokens for example in examples}
    taken = {text_key(example) for example in examples if example.relation == "P7"}
    with pytest.raises(DataError, match="'P7' has 1 sentences"):
        draw_validation(examples, sorted(taken)[1:])


# -- the real ones -----------------------------------------------------------------------------------------------------


@pytest.mark.fewrel
def test_the_twelve_orders_are_the_published_ones(data_folder: Path) -> None:
    published = json.loads((data_folder / "fewrel/task_orders.json").read_text())
    for family, seeds in ORDERS.items():
        assert {str(seed): list(order) for seed, order in seeds.items()} == published[family]
        for seed, order in seeds.items():
            assert sorted(order) == list(range(8))
            assert published_order(family, seed)[0] == 7


@pytest.mark.fewrel
@pytest.mark.parametrize(
    ("shots", "overlaps"),
    [pytest.param(2, 13, marks=pytest.mark.long), (5, 11), pytest.param(10, 20, marks=pytest.mark.long)],
)
def test_the_real_splits(data_folder: Path, shots: int, overlaps: int) -> None:
    stream = published_stream(data_folder / "fewrel", shots=shots, family="sckd", seed=600)
    assert [len(task.relations) for task in stream] == [10] * 8
    assert [len(task.examples) for task in stream] == [1000, *[10 * shots] * 7]
    assert [len(stream.test(k).gold) for k in range(8)] == [1000] * 8
    assert [len(stream.validation(k).gold) for k in range(8)] == [500] * 8
    assert all(len(c) == 10 for k in range(8) for c in stream.test(k).candidates)
    hygiene = stream.manifest.hygiene
    assert (hygiene["test_in_train"], hygiene["validation_in_train"], hygiene["validation_in_test"]) == (overlaps, 0, 0)
    names = {relation.id: relation.name for relation in stream.relations}
    assert names["P931"] == "place served by transport hub"
