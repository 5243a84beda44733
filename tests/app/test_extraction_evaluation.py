"""Triples of annotated texts: precision, recall and F1."""

import json
from pathlib import Path
from typing import Any

import pytest
from toy_extractor import taught

from erda.answers import Answer, Extraction, Ranked, RelationScore, TextPlace, TripleEvaluation
from erda.app.extractor import Extractor
from erda.app.version import Version
from erda.errors import DataError
from erda.text.marks import example_from_marks


def answer(text: str, relation: str | None, confidence: float) -> Answer:
    example = example_from_marks(text)
    starts = [len(" ".join((*example.tokens[: one.span.start], ""))) for one in (example.head, example.tail)]
    ends = [start + len(one.name) for start, one in zip(starts, (example.head, example.tail), strict=True)]
    place = TextPlace(starts[0], ends[0], starts[1], ends[1])
    relations = (relation,) if relation else ()
    return Answer(example, relation, (Ranked(relation or "x", confidence, 0.0),), place, relations)


def row(text: str, *relations: tuple[int, str, int], names: tuple[str, ...] = ("Ann", "Bob")) -> dict[str, Any]:
    entities = [{"span": [text.index(name), text.index(name) + len(name)]} for name in names]
    facts = [{"head": head, "relation": relation, "tail": tail} for head, relation, tail in relations]
    return {"text": text, "entities": entities, "relations": facts, "source": "mine"}


def with_answers(monkeypatch: pytest.MonkeyPatch, *answers: Answer) -> None:
    def extract(self: Version, text: str, entities: object = None, **asked: object) -> Extraction:
        own = [one for one in answers if " ".join(one.example.tokens) == text]
        return Extraction(tuple(own), "given", 2)

    monkeypatch.setattr(Version, "extract", extract)


def test_triples_are_counted_by_relation_and_overall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extractor = taught(tmp_path / "store")
    with_answers(
        monkeypatch,
        answer("[[Ann]] knows {{Bob}}", "founded by", 0.9),
        answer("[[Ann]] met {{Bob}}", "born in", 0.9),
        answer("{{Ann}} saw [[Bob]]", None, 0.2),
    )
    rows = [
        row("Ann knows Bob", (0, "founded_by", 1)),
        row("Ann met Bob", (0, "founded by", 1), (1, "never taught", 0)),
        row("Ann saw Bob", (1, "born in", 0)),
    ]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    found = extractor.evaluate_extraction(path)
    assert found == TripleEvaluation(
        3,
        RelationScore(3, 1, 2),
        {"founded by": RelationScore(2, 1, 1), "born in": RelationScore(1, 0, 1), "capital of": RelationScore(0, 0, 0)},
        ("never taught",),
    )
    assert (found.overall.precision, found.overall.recall, found.overall.f1) == (1 / 2, 1 / 3, 2 / 5)
    assert found.relations["capital of"].f1 is None
    assert extractor.evaluate_extraction(rows) == found
    with pytest.raises(DataError, match="evaluate_extraction"):
        extractor.evaluate(rows)


@pytest.mark.usefixtures("no_tagger")
def test_a_found_mention_stands_for_the_annotated_one_it_overlaps(tmp_path: Path) -> None:
    extractor: Extractor = taught(tmp_path)
    fact = row("Tesla Motors was founded by Martin .", (0, "founded by", 1), names=("Tesla Motors", "Martin"))
    for found in (False, True):
        counts = extractor.evaluate_extraction([fact], find_entities=found, min_confidence=0.0).overall
        assert counts.n_right == 1
