"""A rule-based sentence splitter and tokeniser.

Offsets count characters of the original text, so that entity marks map to tokens. A letter and its combining marks stay
together: decomposed text (NFD) has the same tokens as composed text (NFC).
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

from erda.types import Example, Span

# Characters that continue a word: combining marks, and letters between them in scripts that mix the two.
_MARKS = (
    r"\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1-\u05c2\u05c4-\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    r"\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0711-\u07f3\u07fd\u0816-\u082d\u0859-\u085b\u0898-\u08e1\u08e3-\u0963"
    r"\u0981-\u09e3\u09fe-\u0a75\u0a81-\u0ae3\u0afa-\u0b63\u0b82-\u0bd7\u0c00-\u0c63\u0c81-\u0c83\u0cbc-\u0d4d\u0d57-\u0d63"
    r"\u0d81-\u0df3\u0e31-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ecd\u0f18-\u0f19\u0f35\u0f37\u0f39\u0f3e-\u0f84\u0f86-\u0fbc\u0fc6"
    r"\u102b-\u103e\u1056-\u109d\u135d-\u135f\u1712-\u1734\u1752-\u17d3\u17dd\u180b-\u180d\u180f-\u193b\u1a17-\u1a1b"
    r"\u1a55-\u1a7f\u1ab0-\u1b44\u1b6b-\u1b73\u1b80-\u1bf3\u1c24-\u1c37\u1cd0-\u1cd2\u1cd4-\u1dff\u20d0-\u20f0\u2cef-\u2cf1"
    r"\u2d7f-\u2dff\u302a-\u302f\u3099-\u309a\ua66f-\ua672\ua674-\ua67d\ua69e-\ua6f1\ua802-\ua827\ua82c\ua880-\ua8c5"
    r"\ua8e0-\ua8f1\ua8ff-\ua92d\ua947-\ua953\ua980-\ua9c0\ua9e5-\uaa4d\uaa7b-\uaac1\uaaeb-\uaaef\uaaf5-\uaaf6\uabe3-\uabea"
    r"\uabec-\uabed\ufb1e\ufe00-\ufe0f\ufe20-\ufe2f"
)
_ACCENT = r"[\u0300-\u036f\u1160-\u11ff\u20d0-\u20f0\u3099\u309a\ufe00-\ufe0f]"  # marks that may follow any character
TOKEN = re.compile(
    rf"(?:[^\W\d_]{_ACCENT}*\.){{2,}}"  # U.S.
    rf"|\b(?<!{_ACCENT})(?:Mr|Mrs|Ms|Dr|St|Jr|Sr|Prof|Rev|Gen|Col|Lt|Sgt|Capt|No|vs|etc)\.(?=\s)"
    rf"|\b(?<!{_ACCENT})[A-Z]\.(?=\s)"  # an initial
    rf"|\d+(?:[.,:]\d+)*[^\W_]*(?:[{_MARKS}]+[^\W_]*)*"  # 1,000; 20th
    rf"|['’](?:s|re|ve|ll|d|m|t)\b(?!{_ACCENT})"
    rf"|[^\W_]+(?:[{_MARKS}]+[^\W_]*)*"
    rf"|\.\.\.|--|[^\w\s]{_ACCENT}*|_",
)
_END = re.compile(r"(?:[.!?]|\.\.\.)[\"'”’)\]]*(?=\s+[\"'“‘(\[]*[\w])|\n+")
_ABBREVIATION = re.compile(
    r"mrs?|ms|dr|st|jr|sr|prof|rev|gen|col|lt|sgt|capt|no|vs|etc|e\.g|i\.e|ca?|cf|al|inc|ltd|co|corp|dept|est|fig|vol|pp"
    r"|eds?|trans|approx|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|mt|ft|op|ph\.d|b\.a|m\.a|u\.s|u\.k|a\.d|b\.c"
    rf"|[^\W\d_]{_ACCENT}*",  # an initial
    re.IGNORECASE,
)


def split_sentences(text: str, kept: Sequence[tuple[int, int]] = ()) -> Iterator[tuple[int, int]]:
    """Yield the offsets of the sentences of a text.

    A sentence never ends inside one of the `kept` spans (sorted). Within a line, it also never ends after an
    abbreviation or an initial, or before a lower-case letter.
    """
    start, k = 0, 0
    for found in _END.finditer(text):
        end = found.end()
        while k < len(kept) and kept[k][1] < end:
            k += 1
        inside = k < len(kept) and kept[k][0] < end < kept[k][1]
        if inside or not (found.group().startswith("\n") or _ends(text, found.start(), end)):
            continue
        yield from _trimmed(text, start, found.start() if found.group().startswith("\n") else end)
        start = end
    yield from _trimmed(text, start, len(text))


def tokens_of(text: str, start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    """Return the offsets of the words and punctuation marks between two offsets of a text.

    >>> text = "Oslo's mayor met the U.S. envoy."
    >>> [text[a:b] for a, b in tokens_of(text)]
    ['Oslo', "'s", 'mayor', 'met', 'the', 'U.S.', 'envoy', '.']
    """
    return [found.span() for found in TOKEN.finditer(text, start, len(text) if end is None else end)]


def words_of(text: str, start: int = 0, end: int | None = None) -> list[str]:
    """Return the words and punctuation marks as strings in composed form (NFC): "e" with an accent is "é"."""
    return words_at(text, tokens_of(text, start, end))


def words_at(text: str, offsets: Iterable[tuple[int, int]]) -> list[str]:
    """Return the words at some offsets of a text, in composed form (NFC)."""
    words = [text[left:right] for left, right in offsets]
    return words if text.isascii() else [unicodedata.normalize("NFC", word) for word in words]


def words_before(example: Example) -> tuple[int, int]:
    """Return the number of words before head and tail: our words, not the tokens, which may be those of another tool.

    >>> from erda.types import Entity
    >>> words_before(Example(("Oslo's", "mayor", "left"), Entity("mayor", Span(1, 2)), Entity("left", Span(2, 3))))
    (2, 3)
    """
    before = _word_counts(example.tokens)
    return before[example.head.span.start], before[example.tail.span.start]


@lru_cache(maxsize=64)  # the pairs of a sentence come one after another
def _word_counts(tokens: tuple[str, ...]) -> list[int]:
    """Number of words before each token."""
    return list(accumulate((1 if token.isalnum() else len(tokens_of(token)) for token in tokens), initial=0))


def token_span(tokens: Sequence[tuple[int, int]], start: int, end: int) -> Span | None:
    """Return the tokens that a character span touches; None if it touches none."""
    first = bisect_right(tokens, start, key=lambda token: token[1])
    last = bisect_left(tokens, end, key=lambda token: token[0])
    return Span(first, last) if first < last else None


def _ends(text: str, at: int, end: int) -> bool:
    """Return whether the punctuation mark at `at` ends a sentence; the text continues at `end`."""
    rest = text[end : end + 40].lstrip()
    first = next((char for char in rest if char.isalnum()), "")
    if first.islower():
        return False
    if text[at] != ".":
        return True
    word = text[max(0, at - 20) : at].rsplit(None, 1)[-1:] or [""]
    return not _ABBREVIATION.fullmatch(word[0].lstrip("(['\"“‘"))


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    piece = text[start:end]
    left = len(piece) - len(piece.lstrip())
    right = len(piece.rstrip())
    if right > left:
        yield start + left, start + right
