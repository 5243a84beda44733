"""Properties of every stream, tested on streams drawn from toy data."""

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_examples import sentence, toy_dataset

from erda.data.dataset import Dataset
from erda.data.drawn_streams import draw_candidates, draw_stream, split_pools
from erda.data.streams import Pool, StreamManifest, TaskStream, build_stream, text_key
from erda.errors import StreamError
from erda.types import Entity, Example, Relation, Span, Task

ABOUT = StreamManifest("x", "", "drawn", seed=0, shots=1, first_shots=1)


def questions(stream: TaskStream) -> list:
    return [part(k) for part in (stream.test, stream.validation) for k in range(len(stream))]


SHAPES = st.fixed_dictionaries(
    {"way": st.integers(1, 5), "first_way": st.integers(1, 6), "shots": st.integers(1, 4), "seed": st.integers(0, 3)}
)


@given(st.integers(2, 12), st.integers(2, 30), SHAPES)
def test_every_drawn_stream_is_sound(n_relations: int, n_each: int, shape: dict[str, int]) -> None:
    way, first_way, shots = shape["way"], shape["first_way"], shape["shots"]
    dataset = toy_dataset(n_relations, n_each)
    asked = {**shape, "first_shots": shots + 1}
    n_train = max(shots, math.ceil(0.6 * n_each))
    if first_way > n_relations or n_train == n_each or n_train < shots + 1 or n_each <= shots:
        with pytest.raises(StreamError):
            draw_stream(dataset, **asked)
        return
    stream = draw_stream(dataset, **asked)
    relations = [relation.id for task in stream for relation in task.relations]
    assert Counter(relations) == Counter(relation.id for relation in dataset.relations)
    assert [len(task.relations) for task in stream][1:-1] == [way] * max(0, len(stream) - 2)
    assert len(stream[0].relations) == first_way
    ids = [example.id for task in stream for example in task.examples]
    ids += [example.id for asked_set in questions(stream) for example in asked_set.examples]
    assert len(ids) == len(set(ids))
    for k, task in enumerate(stream):
        assert type(task) is Task  # a method has no way to the tests
        wanted = shots + 1 if k == 0 else shots
        assert Counter(e.relation for e in task.examples) == {relation.id: wanted for relation in task.relations}
        assert set(stream.test(k).gold) == {relation.id for relation in task.relations}
        assert all(example.relation is None for example in stream.test(k).examples + stream.validation(k).examples)
    again = draw_stream(dataset, **asked)
    assert again.manifest == stream.manifest
    assert list(again) == list(stream)


def test_the_seed_changes_training_but_not_the_questions() -> None:
    one, two = (draw_stream(toy_dataset(), way=3, shots=2, seed=seed, first_shots=None) for seed in (1, 2))
    for pool in ("test", "validation"):
        ids = [{i for task in getattr(stream.manifest, pool) for i in task} for stream in (one, two)]
        assert ids[0] == ids[1]
    assert {i for task in one.manifest.train for i in task} != {i for task in two.manifest.train for i in task}
    assert one.manifest.relations != two.manifest.relations


def test_n_tasks_stops_early_and_notes_the_omitted_relations() -> None:
    full, short = (draw_stream(toy_dataset(), way=3, shots=2, seed=1, first_shots=3, n_tasks=n) for n in (None, 2))
    assert list(short) == list(full)[:2]
    assert short.test(1).gold == full.test(1).gold
    whole, begun = full.manifest, short.manifest
    assert (whole.notes, "notes" in whole.to_json(), "notes" in whole.summary()) == ((), False, False)
    assert begun.notes == (f"n_tasks=2 leaves out 1 of 7 relations: {whole.relations[2][0]}",)
    assert begun.summary()["notes"] == list(begun.notes)
    assert begun.digest == replace(begun, notes=()).digest
    summary = whole.summary()
    assert (summary["digest"], summary["n_train"], "train" in summary) == (whole.digest, [9, 6, 2], False)


def rare_dataset() -> Dataset:
    """Return seven relations with twenty examples each, and three with two, one and five."""
    whole = toy_dataset()
    numbers = iter(range(1000, 2000))
    rare = [
        sentence(next(numbers), relation) for relation, n in (("two", 2), ("one", 1), ("five", 5)) for _ in range(n)
    ]
    relations = (*whole.relations, *(Relation(name, name) for name in ("two", "one", "five")))
    return replace(whole, relations=relations, train=(*whole.train, *rare))


def test_rare_relations_are_left_out_and_noted() -> None:
    shape = {"way": 3, "shots": 3, "seed": 1, "first_shots": None}
    with pytest.raises(StreamError) as caught:
        draw_stream(rare_dataset(), **shape)
    assert "relation 'two' has 2 training examples" in str(caught.value)
    assert str(caught.value).endswith("min_examples=4 (erda run: --set min_examples=4).")
    stream = draw_stream(rare_dataset(), **shape, min_examples=4)
    assert {relation.id for relation in stream.relations} == {*(f"r{i}" for i in range(7)), "five"}
    assert stream.manifest.notes == ("left out, fewer than 4 examples or none in the test: two (2), one (1)",)
    plain = draw_stream(toy_dataset(), **shape).manifest
    assert draw_stream(rare_dataset(), **shape, min_examples=6).manifest.digest == plain.digest
    assert draw_stream(toy_dataset(), **shape, min_examples=6).manifest == plain
    with pytest.raises(StreamError, match="has 21 examples"):
        draw_stream(toy_dataset(), **shape, min_examples=21)


def test_a_relation_without_a_test_example_is_left_out_too() -> None:
    whole = toy_dataset(4, 12)
    test = tuple(replace(e, id=f"t{e.id}", tokens=("Eve", *e.tokens[1:])) for e in whole.train if e.relation != "r3")
    dataset = replace(whole, test=test)
    with pytest.raises(StreamError, match="relation 'r3' has no test example"):
        draw_stream(dataset, way=2, shots=2, seed=1, first_shots=None)
    stream = draw_stream(dataset, way=2, shots=2, seed=1, first_shots=None, min_examples=1)
    assert stream.manifest.notes[0] == "left out, fewer than 1 examples or none in the test: r3 (12)"


def test_digest_depends_on_data_seed_and_shots() -> None:
    def digest(dataset: Dataset, **asked: int) -> str:
        return draw_stream(dataset, **{"way": 3, "shots": 2, "seed": 1, "first_shots": 3} | asked).manifest.digest

    same = digest(toy_dataset())
    assert digest(toy_dataset()) == same
    others = [
        digest(toy_dataset(), seed=2),
        digest(toy_dataset(), shots=3),
        digest(toy_dataset(), first_shots=2),
        digest(toy_dataset(checksum="other")),
        digest(toy_dataset(n_each=21)),
    ]
    assert len({same, *others}) == 6


def test_pools_of_the_dataset_are_used_unchanged() -> None:
    whole = toy_dataset(4, 12)
    train, validation, test = (whole.train[start::3] for start in range(3))
    dataset = replace(whole, train=train, validation=validation, test=test)
    stream = draw_stream(dataset, way=2, shots=2, seed=1, first_shots=None)
    for pool, given_pool in (("train", train), ("validation", validation), ("test", test)):
        assert {i for task in getattr(stream.manifest, pool) for i in task} <= {example.id for example in given_pool}
    assert sum(len(stream.test(k).gold) for k in range(2)) == len(test)
    only_test = replace(dataset, validation=())
    stream = draw_stream(only_test, way=2, shots=2, seed=1, first_shots=None)
    validated = {i for task in stream.manifest.validation for i in task}
    assert validated
    assert validated <= {example.id for example in train}


def test_a_sentence_with_several_pairs_is_never_in_two_pools() -> None:
    relations = (Relation("a", "a"), Relation("b", "b"))
    spans = [Span(0, 1), Span(2, 3), Span(4, 5)]
    examples = []
    for number in range(60):
        tokens = ("Ann", f"w{number // 2}", "Bob", "and", "Eve")
        head, tail = (0, 1) if number % 2 else (1, 2)
        pair = Entity("x", spans[head]), Entity("y", spans[tail])
        examples.append(Example(tokens, *pair, "ab"[number % 2], f"n:{number}"))
    dataset = Dataset("pairs", relations, tuple(examples))
    pools = split_pools(dataset, shots=3, test_per_relation=100)
    keys = [
        {text_key(e) for part in pool.values() for e in part} for pool in (pools.train, pools.validation, pools.test)
    ]
    assert all(keys)
    assert len(set.union(*keys)) == sum(map(len, keys))
    assert min(len(part) for part in pools.train.values()) >= 18
    assert draw_stream(dataset, way=1, shots=3, seed=1, first_shots=None).manifest.hygiene["test_in_train"] == 0


def test_the_first_task_is_drawn_from_relations_with_enough_examples() -> None:
    rich, poor = toy_dataset(3, 40), toy_dataset(9, 10)
    poorer = [replace(e, id=f"p{e.id}", tokens=("Oh", *e.tokens[1:])) for e in poor.train if e.relation > "r2"]
    dataset = Dataset("mixed", poor.relations, (*rich.train, *poorer))
    for seed in range(5):
        stream = draw_stream(dataset, way=3, shots=2, seed=seed, first_shots=20)
        assert {relation.id for relation in stream[0].relations} == {"r0", "r1", "r2"}
    with pytest.raises(StreamError, match="needs 4 relations with 20 training examples each; 3 have"):
        draw_stream(dataset, way=4, shots=2, seed=1, first_shots=20)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"shots": 0}, "at least 1 shot, got 0."),
        ({"way": 8}, "7 relations; a first task of 8"),
        ({"shots": 21}, "relation 'r0' has 20 training examples; 21 shots"),
        ({"shots": 20}, "relation 'r0' has 20 examples; 20 shots"),
        ({"n_tasks": 4}, "3 tasks; 4"),
        ({"first_shots": 100}, "3 relations with 100 training examples each; 0 have"),
    ],
)
def test_impossible_requests_are_rejected_with_numbers(asked: dict, message: str) -> None:
    with pytest.raises(StreamError) as caught:
        draw_stream(toy_dataset(), **{"way": 3, "shots": 2, "seed": 1, "first_shots": None} | asked)
    assert message in str(caught.value)


def test_candidate_lists_hold_wrong_relations_and_ignore_the_seed() -> None:
    lists = []
    for seed in (1, 2):
        stream = draw_stream(toy_dataset(), way=3, shots=2, seed=seed, first_shots=None, candidates=4)
        for asked in questions(stream):
            for gold, listed in zip(asked.gold, asked.candidates, strict=True):
                assert len(set(listed)) == 4
                assert gold not in listed
        lists.append(
            {e.id: c for part in questions(stream) for e, c in zip(part.examples, part.candidates, strict=True)}
        )
    assert lists[0] == lists[1]
    assert len(draw_candidates([sentence(1, "a")], ["a", "b"], 10)[0]) == 1


def test_inconsistent_streams_are_rejected() -> None:
    task, example, empty = [Relation("a", "a")], sentence(1, "a"), Pool([])
    with pytest.raises(StreamError, match="'toy:1' is in both train and test"):
        build_stream("x", ABOUT, [task], train=Pool([example]), validation=empty, test=Pool([example]))
    with pytest.raises(StreamError, match="task 1 has no example of: a"):
        build_stream("x", ABOUT, [task], train=empty, validation=empty, test=empty)
