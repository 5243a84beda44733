"""The formats of published datasets: CFRL's split files, FewRel's JSON and TACRED's JSON."""

import json
from functools import partial
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from toy_examples import examples

from erda.data.formats.jsonl_examples import read_relation_list
from erda.data.formats.published_formats import read_cfrl
from erda.data.own_data import read_examples
from erda.errors import DataError
from erda.types import Example, Relation, Span

LINE = "2\t1 2 3\tann met bob\tann\t0\tbob\t2\tQ1\tQ2"
FEWREL_ROW = {"tokens": ["Ann", "met", "Bob"], "h": ["ann", "Q1", [[0]]], "t": ["bob", "Q2", [[2]]]}
TACRED_ROW = {
    "id": "e1",
    "token": ["-LRB-", "Ann", "Lee", "-RRB-", "met", "Bob"],
    **{"subj_start": 1, "subj_end": 2, "obj_start": 5, "obj_end": 5, "relation": "per:friend", "subj_type": "PERSON"},
}


# -- CFRL --------------------------------------------------------------------------------------------------------------


def cfrl_line(example: Example) -> str:
    head, tail = (
        " ".join(str(index) for index in range(entity.span.start, entity.span.end))
        for entity in (example.head, example.tail)
    )
    sentence = " ".join(example.tokens)
    ids = [example.head.id or "", example.tail.id or ""]
    return "\t".join(["1", "2 3", sentence, example.head.name, head, example.tail.name, tail, *ids])


@given(st.lists(examples(), min_size=1, max_size=4))
def test_cfrl_round_trip(tmp_path_factory: pytest.TempPathFactory, written: list[Example]) -> None:
    path = tmp_path_factory.mktemp("5-shot") / "train_0.txt"
    path.write_text("\n".join(map(cfrl_line, written)), encoding="utf-8")
    reading = read_cfrl(path, {"1": "P1", "2": "P2", "3": "P3"})
    for example, read in zip(written, reading.examples, strict=True):
        assert (read.tokens, read.head, read.tail) == (example.tokens, example.head, example.tail)
        assert read.relation == "P1"
    assert reading.candidates == (("P2", "P3"),) * len(written)


def test_cfrl_candidates_leave_out_gold_and_ids_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "5-shot" / "test_0.txt"
    path.parent.mkdir()
    path.write_text(f"{LINE}\n{LINE}\n", encoding="utf-8")
    reading = read_cfrl(path, {"1": "P1", "2": "P2", "3": "P3"})
    assert [example.id for example in reading.examples] == ["5-shot/test_0:1", "5-shot/test_0:2"]
    assert reading.candidates == (("P1", "P3"), ("P1", "P3"))
    assert reading.duplicates == ((2, 1),)
    assert read_examples(path, "cfrl").examples[0].relation == "2"


# -- FewRel ------------------------------------------------------------------------------------------------------------


@given(st.lists(examples(), min_size=1, max_size=4), st.sampled_from([None, 1]))
def test_fewrel_round_trip(
    tmp_path_factory: pytest.TempPathFactory, written: list[Example], indent: int | None
) -> None:
    path = tmp_path_factory.mktemp("fewrel") / "train_wiki.json"
    rows = [
        {
            "tokens": list(example.tokens),
            **{
                key: [entity.name, entity.id, [list(range(entity.span.start, entity.span.end))]]
                for key, entity in (("h", example.head), ("t", example.tail))
            },
        }
        for example in written
    ]
    path.write_text(json.dumps({"P1": rows[:2], "P2": rows[2:]}, indent=indent), encoding="utf-8")
    read = read_examples(path, "fewrel").examples
    assert [(e.tokens, e.head, e.tail) for e in read] == [(e.tokens, e.head, e.tail) for e in written]
    assert [example.relation for example in read] == ["P1"] * len(rows[:2]) + ["P2"] * len(rows[2:])
    assert [example.id for example in read] == [f"train_wiki:{number}" for number in range(1, len(rows) + 1)]


def write_fewrel(path: Path, *rows: object) -> Path:
    path.write_text('{"P1": [\n' + ",\n".join(map(json.dumps, rows)) + "]}", encoding="utf-8")
    return path


def test_fewrel_drops_blank_tokens_and_uses_the_first_mentions_that_do_not_overlap(tmp_path: Path) -> None:
    row = {"tokens": ["Ann", " ", "met", "\u00a0", "Bob", "Lee"], "h": ["ann", "Q1", [[0]]], "t": ["b", "Q2", [[4, 5]]]}
    (example,) = read_examples(write_fewrel(tmp_path / "x.json", row), "fewrel").examples
    assert example.tokens == ("Ann", "met", "Bob", "Lee")
    assert example.tail.span == Span(2, 4)
    several = {**FEWREL_ROW, "h": ["ann", "Q1", [[0, 1], [1]]], "t": ["b", "Q2", [[0], [2]]]}
    never = {**FEWREL_ROW, "h": ["ann", "Q1", [[0, 1]]], "t": ["b", "Q2", [[1]]]}
    reading = read_examples(write_fewrel(tmp_path / "x.json", several, never), "fewrel")
    assert [(e.head.span, e.tail.span) for e in reading.examples] == [(Span(0, 2), Span(2, 3))]
    assert list(reading.left_out.values()) == [1]


# -- TACRED ------------------------------------------------------------------------------------------------------------


def test_tacred_ends_are_inclusive_and_no_relation_is_unrelated(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps([TACRED_ROW, {**TACRED_ROW, "relation": "no_relation"}, TACRED_ROW]), encoding="utf-8")
    reading = read_examples(path, "tacred")
    first = reading.examples[0]
    assert first.tokens == ("(", "Ann", "Lee", ")", "met", "Bob")
    assert (first.head.span, first.tail.span) == (Span(1, 3), Span(5, 6))
    assert (first.head.name, first.tail.name, first.relation) == ("Ann Lee", "Bob", "per:friend")
    assert (first.head.type, first.tail.type) == ("PERSON", None)
    assert [example.id for example in reading.examples] == ["train:1", "train:3"]
    assert len(reading.unrelated) == 1
    assert reading.duplicates == ((3, 1),)


@given(examples())
def test_tacred_round_trip(tmp_path_factory: pytest.TempPathFactory, example: Example) -> None:
    assume(not any(token.startswith("-") for token in example.tokens))  # "-LRB-" is read as "("
    path = tmp_path_factory.mktemp("tacred") / "dev.json"
    head, tail = example.head.span, example.tail.span
    ends = {"subj_start": head.start, "subj_end": head.end - 1, "obj_start": tail.start, "obj_end": tail.end - 1}
    path.write_text(json.dumps([{**TACRED_ROW, "token": list(example.tokens), **ends}]), encoding="utf-8")
    (read,) = read_examples(path, "tacred").examples
    assert (read.tokens, read.head.span, read.tail.span) == (example.tokens, head, tail)


CFRL_FAULTS = [
    ("\tQ2", "", "8 tab-separated fields; expected 9."),
    ("2\t1 2 3", "9\t1 2 3", "unknown relation index '9'; known: 1 to 3."),
    ("ann met bob", " ", "the sentence is empty."),
    ("bob\t2", "bob\t2 x", "tail token indices '2 x' are not numbers."),
    ("bob\t2", "bob\t", "tail has no token indices."),
    ("ann\t0", f"ann\t0 {10**30}", "are not consecutive."),
    ("bob\t2", "bob\t3", "tail span (3, 4) ends after the last token (3 tokens)."),
    ("ann\t0\tbob\t2", "ann\t0 1\tbob\t1 2", "overlaps"),
]
FEWREL_FAULTS = [
    ({"t": ["bob", "Q2", [[3]]]}, "tail mention [3] is out of range (3 tokens)."),
    ({"t": ["bob", "Q2", []]}, "t[2]: expected at least 1 values, got 0. Expected {tokens: [word, ...], h: [name"),
    ({"t": ["bob"]}, "t[1]: is missing."),
    ({"tokens": "Ann met Bob"}, "tokens: expected a list, got 'Ann met Bob'."),
    ({"tokens": ["Ann", "met", " "]}, "tail mention [2] covers no word."),
]
TACRED_FAULTS = [
    ({"obj_end": 6}, "tail (obj_start 5, obj_end 6) is out of range (6 tokens)."),
    ({"subj_start": None}, "subj_start: expected a whole number, got None."),
    ({"token": ["a", " "]}, "token[1]: expected text, got ' '."),
    ({"relation": None}, "relation: expected text, got None."),
    ({"obj_start": 2}, "overlaps"),
]


@pytest.mark.parametrize(
    ("format", "lines", "place", "message"),
    [
        *(("cfrl", [LINE, LINE.replace(old, new)], ":2: ", said) for old, new, said in CFRL_FAULTS),
        *(("fewrel", [FEWREL_ROW, {**FEWREL_ROW, **new}], ":2: P1, row 2: ", said) for new, said in FEWREL_FAULTS),
        *(("tacred", [TACRED_ROW, {**TACRED_ROW, **new}], ":2: row 2: ", said) for new, said in TACRED_FAULTS),
    ],
)
def test_faults_are_reported_with_their_line(
    tmp_path: Path, format: str, lines: list[object], place: str, message: str
) -> None:
    path = tmp_path / "x"
    array = "[" + ",\n".join(map(json.dumps, lines)) + "]"
    contents = {"cfrl": "\n".join(map(str, lines)), "fewrel": f'{{"P1": {array}}}', "tacred": array}
    path.write_text(contents[format], encoding="utf-8")
    relations = {"1": "P1", "2": "P2", "3": "P3"}
    read = partial(read_cfrl, relations=relations) if format == "cfrl" else partial(read_examples, format=format)
    with pytest.raises(DataError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}{place}")
    assert message in str(caught.value)


# -- JSON files in general ---------------------------------------------------------------------------------------------


def test_relations_are_sorted_by_their_index(tmp_path: Path) -> None:
    path = tmp_path / "relations.json"
    rows = [{"index": 2, "pid": "P2", "name": "two"}, {"index": 1, "id": "P1", "name": "one", "description": "first"}]
    path.write_text(json.dumps(rows), encoding="utf-8")
    assert read_relation_list(path) == [Relation("P1", "one", "first"), Relation("P2", "two")]


def test_a_description_may_be_a_list_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "relations.json"
    lines = ["who  began it", "[[X]] was set up by {{Y}}."]
    path.write_text(json.dumps([{"id": "a", "description": lines}, {"id": "b", "description": "\n".join(lines)}]))
    assert [one.description for one in read_relation_list(path)] == ["\n".join(lines)] * 2
    path.write_text('[{"id": "a"},\n{"id": "b", "description": ["fine", "[[X]] was set up."]}]')
    with pytest.raises(DataError) as caught:
        read_relation_list(path)
    assert str(caught.value).startswith(f"{path}:2: description, line '[[X]] was set up.': no tail is marked; put the")
    path.write_text('[{"id": "a", "description": ["fine", 3]}]')
    with pytest.raises(DataError, match=r":1: description: expected text, got \['fine', 3\]\.$"):
        read_relation_list(path)


def test_faults_of_a_relation_list(tmp_path: Path) -> None:
    path = tmp_path / "relations.json"
    path.write_text('[{"id": "a"},\n{"id": "a"},\n{"name": "b"},\n3]', encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_relation_list(path)
    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == [f"{path}:{line}" for line in (2, 3, 4)]
