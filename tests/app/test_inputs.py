"""What goes wrong with what people hand in: a clear answer, and nothing is lost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_extractor import BORN, FOUNDED, QUESTIONS, open_toy

from erda.app.extractor import Extractor
from erda.errors import DataError
from erda.text.marks import example_from_marks
from erda.types import Relation

BAD_SENTENCES = {
    "": "no head is marked",
    "Tesla was founded by Martin.": "no head is marked; put the first entity in",
    "[[Tesla]] was founded by Martin.": "no tail is marked",
    "[[Tesla was founded by {{Martin}}": "stands inside the head",
    "[[Tesla]] was founded by {{Martin": "'{{' is never closed",
    "[[Te\x00sla]] was founded by {{Martin}}": r"holds a control character \(\\x00 at character 4\)",
    "[[Tesla]] \ud800 {{Martin}}": r"holds a control character \(\\ud800",
    "[[a]] " + "b " * 20_000 + "{{c}}": "the text has 40,011 characters, at most 20,000 are read",
}
BAD_ROWS = [
    ({"tokens": ["a", "b"], "head": {"span": [0, 1]}}, "tail: is missing"),
    (
        {"tokens": ["a", "b"], "head": {"span": [0, 1]}, "tail": {"span": [1, 3]}},
        "tail span .1, 3. ends after the last",
    ),
    ({"tokens": ["a", "b\x07"], "head": {"span": [0, 1]}, "tail": {"span": [1, 2]}}, "control character"),
    ({"text": "", "head": {"span": [0, 1]}, "tail": {"span": [1, 2]}}, "the text is empty"),
    ({}, "missing"),
    (7, "expected a text with marks, an Example or a row"),
]


@pytest.mark.parametrize(("text", "said"), BAD_SENTENCES.items(), ids=range(len(BAD_SENTENCES)))
def test_a_sentence_that_is_no_example(extractor: Extractor, text: str, said: str) -> None:
    said = said.replace("{{", r"\{\{")
    for act in (extractor.predict, extractor.explain, lambda one: extractor.teach("born in", [one])):
        with pytest.raises(DataError, match=said):
            act(text)
    assert extractor.version.number == 2


@pytest.mark.parametrize(("row", "said"), BAD_ROWS, ids=range(len(BAD_ROWS)))
def test_a_row_that_is_no_example(extractor: Extractor, row: object, said: str) -> None:
    with pytest.raises(DataError, match=said):
        extractor.teach("born in", [row])
    with pytest.raises(DataError, match=rf"example 2: .*{said}"):
        extractor.predict([QUESTIONS[0], row])


def test_all_faults_are_said_at_once_and_nothing_is_taught(extractor: Extractor) -> None:
    with pytest.raises(DataError) as caught:
        extractor.teach_many({"a": [*FOUNDED, "no marks", "[[half"], "b": ["{{c}}"], "c": BORN})
    assert [line.split(" ")[:3] for line in str(caught.value).splitlines()] == [
        ["a:", "example", "4:"],
        ["a:", "example", "5:"],
        ["b:", "example", "1:"],
    ]
    assert len(extractor.relations) == 3


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "A relation needs a name"),
        ("[[A]] is in {{B}}.", "is a sentence; name the relation first"),
        ("  \t", "A relation needs a name"),
        ("a\x00b", "its id holds a control character"),
        ("x" * 201, "a name has at most 200 characters"),
        (7, "expected the name of a relation, got 7"),
    ],
)
def test_a_name_that_no_relation_can_have(extractor: Extractor, name: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        extractor.teach(name, ["[[a]] b {{c}}"])
    with pytest.raises(DataError, match=said):
        extractor.teach_many({name: ["[[a]] b {{c}}"]})
    assert extractor.version.number == 2


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/", "C:\\x", ".", "a/b", "con", "*", "née à", "关系", "🚀", "'; --"]
)
def test_any_other_name_is_a_name(extractor: Extractor, name: str) -> None:
    before = {path.parent for path in extractor.folder.rglob("*")}
    extractor.teach(name, ["[[a]] b {{c}}"])
    assert {path.parent for path in extractor.folder.rglob("*")} == before, "no name is a path"
    assert open_toy(extractor.folder).relations[-1].id == name
    assert name in [one.relation for one in extractor.predict("[[a]] b {{c}}").ranked]
    extractor.forget(name)


@pytest.mark.parametrize(
    ("what", "examples", "said"),
    [
        ("a", "[[a]] b {{c}}", "expected a list of examples, got a single str"),
        ({}, (), "nothing to teach"),
        ({"a": 7}, (), "expected a list of examples, got a single int"),
        ([], (), "nothing to teach"),
        (["[[a]] b {{c}}"], (), "example 1: it names no relation; give one"),
    ],
)
def test_a_teaching_that_is_none(extractor: Extractor, what: Any, examples: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        extractor.teach(what, examples) if examples else extractor.teach_many(what)


def test_a_method_that_reads_no_names_needs_an_example(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="relation 'a' has no example; this method learns from examples only"):
        open_toy(tmp_path, method="idlvq-c").teach("a", [])


def test_two_spellings_are_one_relation(tmp_path: Path) -> None:
    extractor = open_toy(tmp_path / "new")
    extractor.teach_many({"founded by": [FOUNDED[0]], "founded_by": [FOUNDED[1]]})
    extractor.teach("founded_by", [FOUNDED[2]])
    extractor.teach_many(
        [example_from_marks(BORN[0], relation="born_in"), example_from_marks(BORN[1], relation="born in")]
    )
    assert [one.id for one in extractor.relations] == ["founded by", "born_in"]
    assert [one.name for one in extractor.relations] == ["founded by", "born in"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda one: one.judge(BORN[0], "born in", holds="no"), "holds: expected True or False, got 'no'"),
        (lambda one: one.judge(BORN[0], "born in", holds=1), "holds: expected True or False, got 1"),
        (lambda one: one.judge(BORN[0], None), "expected the name of a relation, got None"),
        (lambda one: one.declare("born in", head_types=5), "head_types: expected a list of names, got 5"),
        (lambda one: one.declare("born in", head_types=["T" * 201]), "head_types: expected names of types"),
        (lambda one: one.describe("born in", 5), "description: expected a text, got 5"),
        (lambda one: one.teach("born in", description=["x"]), r"description: expected a text, got \['x'\]"),
        (lambda one: one.prune(purge="no"), "purge: expected True or False, got 'no'"),
        (lambda one: one.prune(keep=True), "keep: must be at least 0, got True"),
        (lambda one: one.rollback("1"), "has no version '1'"),
        (lambda one: one.rollback(10**400), "has no version 1000"),
        (lambda one: one.forget(Relation("born in", "born in")), "expected the name of a relation"),
        (lambda one: one.tune([], no_relation="Other"), "no_relation: expected a list of names, got a single text"),
        (lambda one: one.evaluate(BORN, no_relation="Other"), "no_relation: expected a list of names"),
        (lambda one: one.evaluate(BORN, min_confidence=2), "min_confidence: must be between 0 and 1, got 2"),
        (lambda one: one.extract(["a", "b"]), r"expected a text, got \['a', 'b'\]"),
        (lambda one: one.suggest("born in", [3]), "texts: expected texts, got 3"),
        (lambda one: one.suggest("born in", "Ada was here."), r"no such file or corpus. Put a text into a list"),
    ],
)
def test_arguments_of_the_wrong_type_change_nothing(extractor: Extractor, call: Callable, said: str) -> None:
    before = extractor.history()
    with pytest.raises(DataError, match=said):
        call(extractor)
    assert extractor.history() == before
