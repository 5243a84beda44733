"""Entity pairs of one's own texts: order, parts of long texts, vectors on disk, suggestions."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_extractor import ROWS, Words, open_toy

from erda.app import candidates
from erda.app.candidates import LIKELY, Candidate, CandidatePool, most_useful_first
from erda.app.extractor import Extractor
from erda.app.review import open_review
from erda.app.review_journal import FOLDER
from erda.app.texts import TextRow, text_rows
from erda.errors import DataError
from erda.text.marks import example_from_marks
from erda.types import Example, pair_key

pytestmark = pytest.mark.usefixtures("no_tagger")


def candidate(text: str, relation: str, confidence: float) -> Candidate:
    example = example_from_marks(text)
    return Candidate(example, relation, confidence, pair_key(example))


def test_likely_and_uncertain_ones_relations_and_sentences_take_turns() -> None:
    sure, likely, doubtful, other = (
        candidate(text, relation, confidence)
        for text, relation, confidence in (
            ("[[a]] x {{b}}", "r", 0.9),
            ("[[a]] y {{b}}", "r", 0.8),
            ("[[a]] z {{b}}", "r", 0.5),
            ("[[a]] x {{c}} d", "s", 0.7),
        )
    )
    weak = candidate("[[a]] w {{b}}", "r", 0.1)
    same = candidate("[[x]] y {{b}}", "s", 0.6)
    assert most_useful_first([weak, doubtful, likely, sure]) == [sure, likely, doubtful, weak]
    many = [candidate(f"[[a]] {place} {{{{b}}}}", "r", 0.99 - place / 100) for place in range(9)]
    assert most_useful_first([*many, doubtful])[: LIKELY + 2] == [*many[:LIKELY], doubtful, many[LIKELY]]
    assert most_useful_first([sure, likely, other]) == [sure, other, likely]
    twice = candidate("{{a}} x [[b]]", "r", 0.85)
    assert most_useful_first([sure, twice, weak, same])[-1] == twice, "the second pair of a sentence comes last"


def test_what_a_review_expects_follows_the_confidences(extractor: Extractor) -> None:
    pool = CandidatePool(extractor.version, ROWS[:2], extractor.folder)
    pool.keys, pool.n_unlikely = {"a", "b"}, 1.0
    left = [replace(candidate(f"[[a]] {n} {{{{b}}}}", "r", 0.5), is_answer=n < 6) for n in range(8)]
    said, is_enough = pool.expected({"a", "of another text"}, left, 4)
    assert not is_enough
    # now: 1 + 6 x 0.5 right of 7 answers, of 1 + 8 x 0.5 + 1 facts; later: 1 + 4 x 0.5 sure, 2 answers of 0.5
    assert (
        said == "Expected: 57 % of the answers right, 67 % of the facts found; 4 more judgements add 23 and 0 points."
    )
    said, is_enough = pool.expected({"a"}, [replace(one, confidence=0.9999) for one in left[:5]], 4)
    assert is_enough
    assert said.endswith("4 more judgements would change neither by a point.")
    assert pool.expected(set(), [], 4) == ("", False)


def test_texts_are_tagged_in_parts_and_those_like_the_examples_first(
    extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keys(found: list[Candidate]) -> set[str]:
        return {one.key for one in found}

    version, rows = extractor.version, [TextRow("Nobody Known saw Some Body ."), *ROWS]
    whole = CandidatePool(version, rows, extractor.folder)
    assert whole.n_texts == len(rows)
    monkeypatch.setattr(candidates, "TAGGED_AT_ONCE", 8)
    parts = CandidatePool(version, rows, extractor.folder)
    assert (parts.n_texts, parts.n_entities) == (len(rows), 16)
    seen, found = set[str](), parts.ranked(version)
    assert "Nobody Known" not in {one.example.head.name for one in found}
    assert 0 < len(found) < len(whole.ranked(version)), "the first part"
    while found:
        seen |= keys(found)
        found = parts.ranked(version, without=seen)
    assert parts.n_pairs == whole.n_pairs
    assert seen >= keys(whole.ranked(version))
    with pytest.raises(DataError, match="control character"):
        CandidatePool(version, [TextRow("a \x07 b")], extractor.folder)


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[Example]:
    """The examples that are embedded."""
    seen, embed = list[Example](), Words.embed

    def counting(self: Words, examples: list[Example], **options: bool) -> np.ndarray:
        seen.extend(() if options.get("blanked") else examples)
        return embed(self, examples)

    monkeypatch.setattr(Words, "embed", counting)
    return seen


def test_vectors_are_kept_for_the_next_session(extractor: Extractor, embedded: list[Example]) -> None:
    with open_review(extractor, ROWS) as review:
        order = [review.view.current]
        n_first = len(embedded)
        assert n_first >= 2 * len(ROWS)
    with open_review(open_toy(extractor.folder), ROWS) as review:
        assert review.view.current == order[0]
    assert len(embedded) == n_first
    (file,) = (extractor.folder / FOLDER).glob("vectors-*.npz")
    file.write_bytes(b"damaged")
    with open_review(extractor, ROWS) as review:
        assert review.view.current == order[0]
    assert len(embedded) == 2 * n_first


def test_many_pairs_are_embedded_in_parts_the_promising_ones_first(
    extractor: Extractor, embedded: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erda.app.candidates.AT_ONCE", 4)
    rows = [TextRow(f"Ab{place} likes Cd{place}.") for place in range(5)] + [TextRow("Bob was born in Oslo.")]
    done = []
    with open_review(extractor, rows, relation="born in", progress=lambda *now: done.append(now)) as review:
        assert embedded[0].tokens == ("Bob", "was", "born", "in", "Oslo", ".")
        n_before = len(embedded)
        assert n_before < 2 * len(rows)
        while review.view.current:
            review.judge(holds=None)
        assert len({pair_key(one) for one in embedded}) == 2 * len(rows)
    assert done[-1][0] == done[-1][1]


def test_another_relation_reuses_vectors_before_it_embeds_more(
    extractor: Extractor, embedded: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erda.app.candidates.AT_ONCE", 16)
    texts = [row.text for row in ROWS]
    extractor.suggest("born in", texts)
    assert len(embedded) >= 16
    embedded.clear()
    assert extractor.suggest("founded by", texts)
    assert len(embedded) <= 2, "a tenth of a part"


def test_suggestions_from_plain_texts(extractor: Extractor, tmp_path: Path) -> None:
    texts = [row.text for row in ROWS]
    found = extractor.suggest("born in", texts, n=5)
    assert len({one.example.tokens for one in found}) == 5
    assert all(one.similarity is None and 0 <= one.confidence <= 1 for one in found)
    extractor.judge(found[0].example, "born in")
    extractor.judge(found[1].example, "born in", holds=False)
    with open_review(extractor, ROWS, relation="born in") as review:
        skipped = review.view.current.example
        review.judge(holds=None)
    again = [one.example for one in extractor.suggest("born in", texts, n=100)]
    assert not {found[0].example, found[1].example, skipped} & set(again)
    file = tmp_path / "texts.csv"
    file.write_text("id,text\n" + "".join(f"{place},{text}\n" for place, text in enumerate(texts)))
    assert [one.example for one in extractor.suggest("born in", file, n=100)] == again
    with pytest.raises(DataError, match="n: must be at least 1, got 0"):
        extractor.suggest("born in", texts, n=0)


def test_texts_are_read_from_lines_objects_and_tables(tmp_path: Path) -> None:
    contents = {
        "a.txt": "One.\n\nTwo, and more.\n",
        "a.jsonl": '{"text": "One."}\n{"text": "Two, and more.", "id": "x"}\n',
        "a.csv": 'id;text\n;One.\nx;"Two, and more."\n',
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
        assert [row.text for row in text_rows(tmp_path / name)] == ["One.", "Two, and more."]
    (tmp_path / "bad.jsonl").write_text('{"text": 3}\n')
    with pytest.raises(DataError, match=r"bad\.jsonl:1: text"):
        text_rows(tmp_path / "bad.jsonl")
    (tmp_path / "bad.csv").write_text("id,words\n1,x\n")
    with pytest.raises(DataError, match=r"bad\.csv:1: the header has no column 'text'"):
        text_rows(tmp_path / "bad.csv")
    (tmp_path / "bad.txt").write_text("Fine.\nNot \x07 fine.\n")
    with pytest.raises(DataError, match=r"bad\.txt:2: the text holds a control character"):
        text_rows(tmp_path / "bad.txt")
    with pytest.raises(DataError, match=r"\.ods is not read; save it as \.xlsx or CSV"):
        text_rows(tmp_path / "a.ods")
