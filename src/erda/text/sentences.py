"""Raw text to sentences and tokens, by rule.

Every function works on offsets, so that entity marks made on the text can be carried over to tokens.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from erda.types import Span

TOKEN = re.compile(
    r"(?:[^\W\d_]\.){2,}"  # U.S.
    r"|\b(?:Mr|Mrs|Ms|Dr|St|Jr|Sr|Prof|Rev|Gen|Col|Lt|Sgt|Capt|No|vs|etc)\.(?=\s)"
    r"|\b[A-Z]\.(?=\s)"  # an initial
    r"|\d+(?:[.,:]\d+)*"
    r"|['’](?:s|re|ve|ll|d|m|t)\b"
    r"|[^\W_]+"
    r"|\.\.\.|--|[^\w\s]|_",
)
_END = re.compile(r"(?:[.!?]|\.\.\.)[\"'”’)\]]*(?=\s+[\"'“‘(\[]*[\w])|\n+")
_ABBREVIATION = re.compile(
    r"mrs?|ms|dr|st|jr|sr|prof|rev|gen|col|lt|sgt|capt|no|vs|etc|e\.g|i\.e|ca?|cf|al|inc|ltd|co|corp|dept|est|fig|vol|pp"
    r"|eds?|trans|approx|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|mt|ft|op|ph\.d|b\.a|m\.a|u\.s|u\.k|a\.d|b\.c"
    r"|[^\W\d_]",  # an initial
    re.IGNORECASE,
)


def split_sentences(text: str, kept: Sequence[tuple[int, int]] = ()) -> Iterator[tuple[int, int]]:
    """Offsets of the sentences of a text. No sentence ends inside one of the `kept` stretches (sorted), or at a line's
    middle after an abbreviation, an initial, or before a small letter.
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
    """Offsets of the words and punctuation marks between two offsets of a text.

    >>> text = "Oslo's mayor met the U.S. envoy."
    >>> [text[a:b] for a, b in tokens_of(text)]
    ['Oslo', "'s", 'mayor', 'met', 'the', 'U.S.', 'envoy', '.']
    """
    return [found.span() for found in TOKEN.finditer(text, start, len(text) if end is None else end)]


def token_span(tokens: Sequence[tuple[int, int]], start: int, end: int) -> Span | None:
    """The tokens that a stretch of characters touches, None where it touches none."""
    first = bisect_right(tokens, start, key=lambda token: token[1])
    last = bisect_left(tokens, end, key=lambda token: token[0])
    return Span(first, last) if first < last else None


def _ends(text: str, at: int, end: int) -> bool:
    """Whether the stop at `at` ends a sentence that the text goes on after at `end`."""
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
