"""The default operating point on hand-written sentences; what counterexamples, types and thresholds change."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sanity_sentences import FRESH_NOTHING_HOLDS, FRESH_TRUE, NOTHING_HOLDS, TAUGHT, TRUE

from erda.app.calibration import MARKED
from erda.app.extractor import Extractor
from erda.app.open_text import open_head
from erda.errors import DataError
from erda.text.marks import Mark
from erda.text.spacy_tagger import Tag, typed_examples
from erda.types import Entity, Example, Span

DOMAINS = Path(__file__).parents[2] / "benchmarks" / "domains.jsonl"


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Extractor:
    extractor = Extractor.open(tmp_path_factory.mktemp("sanity") / "store")
    extractor.teach_many(TAUGHT)
    return extractor


def test_plain_statements_are_answered_and_other_sentences_mostly_refused(taught: Extractor) -> None:
    """Nothing was adjusted to these sentences; those in which nothing holds are close to the taught relations."""
    for true, nothing, refused in ((TRUE, NOTHING_HOLDS, 0.7), (FRESH_TRUE, FRESH_NOTHING_HOLDS, 0.6)):
        assert [one.relation for one in taught.predict(list(true))] == list(true.values())
        assert sum(one.relation is None for one in taught.predict(nothing)) >= refused * len(nothing)


def test_text_unlike_wikipedia_is_not_answered_at_random(tmp_path: Path) -> None:
    """Five relations of each domain of hand-written sentences are taught; questions about the others are refused."""
    rows, answered = [json.loads(line) for line in DOMAINS.read_text(encoding="utf-8").splitlines()], []
    for domain in dict.fromkeys(row["domain"] for row in rows):
        own = defaultdict[str, list[str]](list)
        for row in (one for one in rows if one["domain"] == domain):
            own[row["relation"]].append(row["sentence"])
        extractor, names = Extractor.open(tmp_path / domain), list(own)[:5]
        extractor.teach_many({name: own[name][:5] for name in names})
        asked = [one for name in names for one in own[name][5:]], [one for name in list(own)[5:] for one in own[name]]
        answered.append([np.mean([one.relation is not None for one in extractor.predict(some)]) for some in asked])
    known, unknown = np.transpose(answered)
    assert max(unknown) < 0.5
    assert known.mean() > 2 * unknown.mean()


def test_tokens_of_another_tool_get_the_confidence_of_the_text(taught: Extractor) -> None:
    text = "In the 20th century, [[Madrid]]'s world-famous square was the capital of {{Spain}}."
    tokens = "In the 20th century, Madrid 's world-famous square was the capital of Spain ."
    given = {"tokens": tokens.split(), "head": {"span": [4, 5]}, "tail": {"span": [12, 13]}}
    one, two = taught.predict([text, given])
    assert [r.relation for r in one.ranked] == [r.relation for r in two.ranked]
    assert [r.confidence for r in one.ranked] == pytest.approx([r.confidence for r in two.ranked], abs=1e-6)


def test_min_confidence_decides_what_is_answered(taught: Extractor) -> None:
    sentence = next(iter(TRUE))
    answer = taught.predict(sentence)
    assert answer.relations == (answer.relation,)
    assert answer.confidence >= MARKED
    assert taught.predict(sentence, min_confidence=1.0).relations == ()
    assert len(taught.predict(sentence, min_confidence=0.0).relations) == len(TAUGHT)
    with pytest.raises(DataError, match="between 0 and 1"):
        taught.predict(sentence, min_confidence=1.5)


def test_a_counterexample_is_refused_and_can_be_taken_back(tmp_path: Path) -> None:
    """Judged sentences count in the next version; the head of a version without them is unchanged, bit for bit."""
    extractor = Extractor.open(tmp_path / "store")
    extractor.teach_many(TAUGHT)
    before, wrong = extractor.version, "[[Apple]] hired {{Tim Cook}} as CEO."
    first = extractor.predict(wrong)
    extractor.judge(wrong, "founded by", holds=False)
    assert extractor.predict(wrong).relation is None
    assert extractor.predict(wrong).confidence < first.confidence
    method, state = extractor.version.method, extractor.version.state
    lessons = tuple(replace(one, is_judged=True) for one in state.known[0].lessons)
    known = (replace(state.known[0], lessons=lessons), *state.known[1:])
    constants = [open_head(method, one).constant[:, 0] for one in (state, replace(state, known=known))]
    assert (constants[0] < constants[1]).all(), "judged examples raise the bias, taught ones do not"
    extractor.take_back(extractor.counterexamples("founded by")[0].number)
    heads = [version.fitted[1] for version in (before, extractor.version)]
    assert all(np.array_equal(one, heads[1].arrays()[name]) for name, one in heads[0].arrays().items())


def test_pairs_with_the_same_head_compete(taught: Extractor) -> None:
    """The likeliest of them keeps its confidence; another loses by standing beside it."""
    text = "Apple was founded by Steve Jobs, and Tim Cook runs it."
    places = {
        name: Mark(text.index(name), text.index(name) + len(name)) for name in ("Apple", "Steve Jobs", "Tim Cook")
    }

    def confidences(*names: str) -> dict[tuple[str, str], float]:
        found = taught.extract(text, [places[name] for name in names], top=len(TAUGHT)).answers
        return {
            (one.example.head.name, one.example.tail.name): ranked.confidence
            for one in found
            for ranked in one.ranked
            if ranked.relation == "founded by"
        }

    alone, together = confidences("Apple", "Tim Cook"), confidences(*places)
    expected = confidences("Apple", "Steve Jobs")["Apple", "Steve Jobs"]  # another batch rounds differently
    assert together["Apple", "Steve Jobs"] == pytest.approx(expected, abs=1e-6)
    assert together["Apple", "Tim Cook"] < alone["Apple", "Tim Cook"]


def test_a_tagger_adds_types_to_untyped_examples(taught: Extractor) -> None:
    """Types that the user gave stay; the types of the examples become evidence."""

    def tag(sentences: Iterable[Sequence[str]]) -> list[list[Tag]]:
        return [[Tag(0, 1, "ORG"), Tag(1, len(one), "PERSON")] for one in sentences]

    example = Example(("Acme", "hired", "Ann"), Entity("Acme", Span(0, 1), type="FIRM"), Entity("Ann", Span(2, 3)))
    (typed,) = typed_examples([example], tag)
    assert (typed.head.type, typed.tail.type) == ("FIRM", "PERSON")
    version = taught.version
    plain, tagged = open_head(version.method, version.state), open_head(version.method, version.state, tag)
    assert not plain.types.any()
    person = 1 + tagged.type_names.index("PERSON")
    assert (tagged.types[1, person] > 0).any()
