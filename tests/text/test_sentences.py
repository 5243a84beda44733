"""Tokens, sentences and sentence keys."""

import doctest
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from erda.text import descriptions, keys, marks, names, sentences
from erda.text.keys import plain, sentence_key
from erda.text.sentences import split_sentences, token_span, tokens_of, words_of
from erda.types import Span


@pytest.mark.parametrize("module", [descriptions, keys, marks, names, sentences], ids=lambda module: module.__name__)
def test_docstring_examples(module: object) -> None:
    assert doctest.testmod(module, extraglobs={"Span": Span}).failed == 0


@given(st.text())
def test_tokens_cover_all_text_except_space_in_order(text: str) -> None:
    offsets = tokens_of(text)
    assert "".join(text[a:b] for a, b in offsets) == "".join(text.split())
    assert all(a < b for a, b in offsets)
    assert all(left[1] <= right[0] for left, right in pairwise(offsets))


@given(st.text(alphabet="aBU.?! \n'’(1),-_sé²", max_size=40))
def test_tokens_joined_by_spaces_are_the_same_tokens(text: str) -> None:
    tokens = [text[a:b] for a, b in tokens_of(text)]
    joined = " ".join(tokens)
    assert [joined[a:b] for a, b in tokens_of(joined)] == tokens


@given(st.text(alphabet="aEéÉấữ각हि≠ \u0301\u0327.'s1_-", max_size=30))
def test_decomposed_text_has_the_tokens_of_composed_text(text: str) -> None:
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert words_of(decomposed) == words_of(composed)
    pieces = [decomposed[a:b] for a, b in tokens_of(decomposed)]  # offsets count the original
    assert [unicodedata.normalize("NFC", piece) for piece in pieces] == words_of(composed)


@given(st.text(alphabet="aB.?! \n'(1)", max_size=80))
def test_sentences_cover_all_text_except_space_in_order(text: str) -> None:
    assert "".join("".join(text[a:b].split()) for a, b in split_sentences(text)) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He came. She left.", ["He came.", "She left."]),
        ("Dr. Lee met J. R. Roe in the U.S. in 1950. Then?", ["Dr. Lee met J. R. Roe in the U.S. in 1950.", "Then?"]),
        ('"It works!" He said so. (Yes.) End', ['"It works!"', "He said so.", "(Yes.)", "End"]),
        ("It cost 3.5 million. 20 people came", ["It cost 3.5 million.", "20 people came"]),
        ("one line\nanother line", ["one line", "another line"]),
        ("He said no. but went", ["He said no. but went"]),
        ("", []),
    ],
)
def test_split_sentences(text: str, expected: list[str]) -> None:
    assert [text[a:b] for a, b in split_sentences(text)] == expected


@given(st.text(alphabet="ab .", max_size=20), st.integers(0, 20), st.integers(0, 20))
def test_a_token_span_holds_the_touched_tokens(text: str, start: int, end: int) -> None:
    offsets = tokens_of(text)
    touched = [i for i, (left, right) in enumerate(offsets) if left < end and right > start]
    assert token_span(offsets, start, end) == (Span(touched[0], touched[-1] + 1) if touched else None)


@given(st.text(max_size=30), st.data())
def test_the_key_ignores_case_and_spacing(text: str, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=4).map(sorted))
    spaced = " ".join(text[a:b] for a, b in pairwise([0, *cuts, len(text)]))
    if plain(spaced) == plain(text):  # a space may separate a letter from its accent
        assert sentence_key(spaced) == sentence_key(text)
    assert 0 <= sentence_key(text) < 2**64
