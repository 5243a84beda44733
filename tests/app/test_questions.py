"""Extracting from a text, explaining an answer, answers beside the truth, suggestions out of a corpus."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_extractor import BORN, CAPITAL, FOUNDED, QUESTIONS

from erda.answers import Answer, Ranked, TextPlace, likelier
from erda.app.entities import tagged_sentences
from erda.app.extractor import Extractor
from erda.app.state import Thresholds
from erda.app.version import Version
from erda.data.formats.jsonl_examples import example_to_json
from erda.errors import DataError
from erda.text.marks import Mark, example_from_marks

TEXT = "SpaceX was founded by Elon Musk in Texas. Later Elon Musk left. Rome is the capital of Italy."


def test_every_ordered_pair_of_a_sentence_is_asked(extractor: Extractor) -> None:
    found = extractor.extract(TEXT, ["SpaceX", "Elon Musk", "Texas", "Rome", "Italy"])
    pairs = [(answer.example.head.name, answer.example.tail.name) for answer in found.answers]
    assert len(pairs) == len(set(pairs)) == 3 * 2 + 2
    assert ("Rome", "Italy") in pairs
    assert ("Rome", "Texas") not in pairs, "they share no sentence"
    assert (found.tagger, found.n_entities, found.n_left_out) == ("names", 6, 0)
    assert {answer.relation for answer in found.found} <= {"founded by", "born in", "capital of"}


def test_a_possessive_without_a_name_adds_nothing_to_the_fact_of_a_name() -> None:
    def answered(sentence: str, relation: str, resolved: str | None = None) -> Answer:
        example = example_from_marks(sentence)
        ranked = (Ranked(relation, 0.9, 0.0),)
        return Answer(replace(example, head=replace(example.head, resolved=resolved)), relation, ranked)

    name = answered("[[Microsoft]] announced its purchase of {{Acme}}.", "bought")
    its = "Microsoft announced [[its]] purchase of {{Acme}}."
    assert likelier([name, answered(its, "bought")]) == (name,)
    for other in (
        answered(its, "sold"),
        answered(its, "bought", resolved="Contoso"),
        answered("[[He]] announced its purchase of {{Acme}}.", "bought"),
        answered("Contoso announced [[its]] purchase of {{Acme}}.", "bought"),
    ):
        assert likelier([name, other]) == (name, other)


def test_the_confidence_is_that_of_the_relation_in_the_answer(extractor: Extractor) -> None:
    version = extractor.version
    first, second = version.predict([QUESTIONS[0]])[0].ranked[:2]
    own = Thresholds(1.0, {second.relation: 0.0}, 0.9, 2)
    tuned = Version(replace(version.state, thresholds=own), lambda state: version.method)
    (answer,) = tuned.predict([QUESTIONS[0]], top=1)
    assert (answer.relation, answer.confidence, answer.held) == (second.relation, second.confidence, (second,))
    assert answer.ranked == (first, second)
    assert first.confidence > second.confidence


def test_entities_by_their_characters(extractor: Extractor) -> None:
    marks = [Mark(0, 6), Mark(22, 31), Mark(64, 68), Mark(86, 91, "the Republic", "Q38")]
    found = extractor.extract(TEXT, marks)
    assert found.tagger == "given"
    assert [(one.example.head.name, one.example.tail.name) for one in found.answers] == [
        ("SpaceX", "Elon Musk"),
        ("Elon Musk", "SpaceX"),
        ("Rome", "the Republic"),
        ("the Republic", "Rome"),
    ]
    assert found.answers[2].example.tail.id == "Q38"
    assert found.answers[2].place == TextPlace(64, 68, 87, 91), "the mark begins with a space"
    inside = tagged_sentences("Dr. A. Bc. Def met Ghi.", [Mark(0, 14)], taught=None).sentences
    assert [sentence.entities[0].name for sentence in inside] == ["Dr. A. Bc. Def"]
    with pytest.raises(DataError, match=r"entity \(90, 900\) covers no word of the text"):
        extractor.extract(TEXT, [Mark(90, 900)])


@pytest.mark.usefixtures("no_tagger")
def test_without_entities_capital_letters_and_taught_names_are_found(extractor: Extractor) -> None:
    extractor.teach("treats", ["[[insulin]] treats {{diabetes}}.", "{{He}} treats [[that]].", "[[who]] treats {{It}}."])
    found = extractor.extract("Was Acme founded by Jo Lee with insulin? He and It asked who did that.")
    assert {answer.example.head.name for answer in found.answers} == {"Acme", "Jo Lee", "insulin"}, "none to ask with"
    assert (found.tagger, found.n_entities) == ("capitalised", 3)
    assert found.hint.endswith("A trained tagger: pip install 'erda[entities]'; erda data get entities")
    nothing = extractor.extract("it rained.")
    assert (nothing.answers, nothing.n_entities) == ((), 0)
    assert nothing.hint.startswith("No entity was found in the text. ")
    assert extractor.extract("Ada met Bob.", ["Ada", "Bob"]).hint == ""


def test_pronouns_are_asked_about_and_carry_the_name_they_stand_for(extractor: Extractor) -> None:
    text = "Ada Poe is a pilot. She was born in Rome, and he left. Ada Poe, who met Bob Roe, is old."
    found = extractor.extract(text, ["Ada Poe", "Rome", "Bob Roe"])
    asked = {(one.example.head.name, one.example.tail.name): one for one in found.answers}
    assert set(asked) == {
        pair
        for one, other in (("She", "Rome"), ("Rome", "he"), ("Ada Poe", "Bob Roe"), ("who", "Bob Roe"))
        for pair in ((one, other), (other, one))
    }
    she = asked["She", "Rome"]
    assert (she.head_name, she.tail_name, she.example.head.type) == ("Ada Poe", "Rome", "PERSON")
    assert (she.to_json()["head"], she.to_json()["head_resolved"]) == ("She", "Ada Poe")
    assert text[she.place.head_start : she.place.head_end] == "She"
    assert "head_resolved" not in asked["he", "Rome"].to_json()
    assert found.n_entities == 4, "pronouns do not count"
    assert len([one for one in found.found if "Bob Roe" in (one.head_name, one.tail_name)]) <= 1, "who is Ada Poe"
    names = extractor.extract(text, ["Ada Poe", "Rome", "Bob Roe"], pronouns=False)
    assert [one.head_name for one in names.answers] == ["Ada Poe", "Bob Roe"]
    marked = extractor.extract(text, [Mark(20, 23), Mark(36, 40), Mark(46, 48)])
    assert len(marked.answers) == 6, "every marked mention is asked, and no other"


@pytest.mark.parametrize(
    ("text", "entities", "said"),
    [
        ("", ["a"], "the text is empty"),
        (" \n", None, "the text is empty"),
        ("a b", "a", "expected a list of names or marks"),
        ("a b", ["a", Mark(0, 1)], "give names or marks, not both"),
        ("a b", [7], "expected names, or character spans"),
        ("a b", ["..", " "], "the name ' ' has no word"),
        ("a\x00b c", ["c"], "control character"),
    ],
)
def test_a_text_that_nothing_can_be_found_in(extractor: Extractor, text: str, entities: object, said: str) -> None:
    with pytest.raises(DataError, match=said):
        extractor.extract(text, entities)


def test_a_text_without_pairs_and_a_huge_one(extractor: Extractor, monkeypatch: pytest.MonkeyPatch) -> None:
    assert extractor.extract("Nobody is here.", ["Ada"]).answers == ()
    monkeypatch.setattr("erda.app.questions.MOST_PAIRS", 50)
    found = extractor.extract("Ada met Bob. " * 5000, ["Ada", "Bob"])
    assert len(found.answers) == 50
    assert found.n_left_out == 9950


def test_an_explanation_names_the_examples_and_the_words_that_count(extractor: Extractor) -> None:
    explained = extractor.explain(QUESTIONS[2])
    assert explained.answer == extractor.predict(QUESTIONS[2])
    assert [one.similarity for one in explained.nearest] == sorted(
        (n.similarity for n in explained.nearest), reverse=True
    )
    assert explained.nearest[0].example.relation == "capital of"
    tokens = explained.answer.example.tokens
    assert sorted(one.place for one in explained.words) == [1, 2, 3, 4, 6], "not the entities"
    assert all(tokens[one.place] == one.word for one in explained.words)
    changes = [abs(one.change) for one in explained.words]
    assert changes == sorted(changes, reverse=True)
    again = extractor.predict("[[Rome]] is the of {{Italy}} .", top=3)
    (word,) = [one for one in explained.words if one.word == "capital"]
    after = next(one for one in again.ranked if one.relation == explained.answer.ranked[0].relation)
    assert word.change == pytest.approx(after.confidence - explained.answer.confidence)
    assert word.relation == again.relation


def test_answers_beside_the_truth(extractor: Extractor, tmp_path: Path) -> None:
    rows = [example_to_json(answer.example) for answer in extractor.predict([*FOUNDED, *BORN, *CAPITAL, *QUESTIONS])]
    truth = ["founded by"] * 3 + ["born in"] * 2 + ["capital of"] * 2 + ["founded by", None, "never taught"]
    file = tmp_path / "questions.jsonl"
    lines = [
        json.dumps({**row, "relation": relation, "id": str(i)})
        for i, (row, relation) in enumerate(zip(rows, truth, strict=True))
    ]
    file.write_text("\n".join(lines))
    found = extractor.evaluate(file)
    answers = [answer.relation for answer in extractor.predict(rows)]
    expected = [one if one != "never taught" else None for one in truth]
    assert found.n == 10
    assert found.accuracy == np.mean([one == right for one, right in zip(answers, expected, strict=True)])
    assert found.accuracy_of_known == 1.0
    assert (found.untaught, found.n_taught) == (("never taught",), 7)
    assert sum(found.confusion.values()) == 10
    assert found.confusion["capital of", "capital of"] == 2
    score = found.relations["founded by"]
    assert (score.n, score.n_right, score.recall) == (4, 4, 1.0)
    assert score.precision == 4 / score.n_answered
    with pytest.raises(DataError, match="no questions"):
        extractor.evaluate([])
    with pytest.raises(DataError, match=r"nothing\.jsonl"):
        extractor.evaluate(tmp_path / "nothing.jsonl")
