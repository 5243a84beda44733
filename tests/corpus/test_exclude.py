"""Excluded sentences and their near-duplicates."""

import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_corpus import erda_corpus, random_rows, row, write_rows

from erda.corpus.corpus_store import CorpusStore
from erda.corpus.exclude import NEAR, SAME, Excluded
from erda.errors import DataError
from erda.text.keys import sentence_key

TEST = "Anna met Bob in Oslo on a cold day in March of 1999 with dog Rex ."  # 16 words, nine 8-grams
WORDS = TEST.split()[:-1]


def excluded(folder: Path, *sentences: str, overlap: float = 0.5) -> Excluded:
    path = folder / "test.txt"
    path.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    return Excluded.read([path], overlap=overlap)


def reason(found: Excluded, text: str) -> str | None:
    return found.rejected({"x": 0, text: sentence_key(text)}).get(text)


@pytest.mark.parametrize(
    ("n_shared", "overlap", "expected"),
    [(12, 0.5, NEAR), (11, 0.5, None), (11, 0.4, NEAR), (15, 1, None), (16, 1, NEAR), (16, 0, None), (8, 0.01, NEAR)],
)
def test_near_duplicates_share_enough_8_grams(tmp_path, n_shared, overlap, expected):
    """The first n words of the test sentence contain n - 7 of its nine 8-grams."""
    text = " ".join([*WORDS[:n_shared], "and", "then", "left"])
    assert reason(excluded(tmp_path, TEST, overlap=overlap), text) == expected


def test_case_spacing_and_punctuation_are_ignored(tmp_path):
    found = excluded(tmp_path, TEST)
    assert reason(found, TEST.upper().replace(" ", "   ")) == SAME
    assert reason(found, "Yesterday , " + TEST.upper().replace(" ON ", " - ON ( ").replace("REX", '"REX"')) == NEAR
    assert reason(excluded(tmp_path, "Zo\u00e9 " + TEST), "so Zoe\u0301 " + TEST.lower()) == NEAR


@given(st.randoms(use_true_random=False), st.floats(0.05, 1))
def test_rejected_equals_a_loop(tmp_path_factory, rng: random.Random, overlap: float):
    def sentence() -> str:
        return " ".join(rng.choice("abc") for _ in range(rng.randint(1, 14)))

    def runs(text: str) -> set[tuple[str, ...]]:
        words = re.findall(r"[a-z]+", text)
        return {tuple(words[at : at + 8]) for at in range(len(words) - 7)}

    tests = [sentence() for _ in range(4)]
    found = excluded(tmp_path_factory.mktemp("x"), *tests, overlap=overlap)
    for text in (*tests, *(sentence() for _ in range(5)), " ".join(tests)):
        near = any(len(runs(text) & runs(test)) >= max(1, overlap * len(runs(test)) - 1e-9) for test in tests)
        slow = SAME if text.replace(" ", "") in {test.replace(" ", "") for test in tests} else NEAR if near else None
        assert reason(found, text) == slow


def test_the_digest_depends_on_sentences_and_overlap(tmp_path):
    found = [excluded(tmp_path, TEST, overlap=overlap).digest for overlap in (0.2, 1, 0, 1)]
    assert len({*found, excluded(tmp_path, "Another sentence .").digest}) == 4


NEAR_ROW = row(f"Later {TEST}", "Anna", "Oslo", source="page 7")


def test_a_build_counts_near_duplicates_separately(tmp_path, capsys):
    (tmp_path / "test.txt").write_text(TEST + "\n")
    rows = write_rows(tmp_path / "rows.jsonl", [row(TEST, "Anna", "Bob"), NEAR_ROW, *random_rows(3)])
    erda_corpus("build", rows, "--out", tmp_path / "c", "--exclude", tmp_path / "test.txt")
    said = capsys.readouterr().out
    assert re.search(rf"1  {NEAR}  \(first: page 7\)", said)
    assert re.search(rf"1  {SAME}\n", said)
    off = ["--exclude", tmp_path / "test.txt", "--set", "exclude_overlap=0"]
    erda_corpus("build", rows, "--out", tmp_path / "d", *off)
    assert CorpusStore.open(tmp_path / "d").manifest.n_rows == 4


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a": ' * 100_000, json.dumps([{"tokens": ["a", "\ud800"]}]), "[" + "1" * 5000 + "]"]
)
@pytest.mark.parametrize("name", ["test.json", "test.jsonl"])
def test_malformed_files_are_named_with_the_line(tmp_path, name, text):
    (tmp_path / name).write_text("{" + text if name == "test.jsonl" and text[0] != "{" else text)
    with pytest.raises(DataError, match=re.escape(f"{name}:1: ")):
        Excluded.read([tmp_path / name])
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match="no sentences"):
        Excluded.read([tmp_path / "empty.txt"])
