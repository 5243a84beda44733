"""Hashes of the word 8-grams of sentences, computed for many sentences at once.

Words are lower-case letters and digits; case, spacing and punctuation are ignored.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

RUN = 8
NO_RUNS = np.zeros(0, np.uint64)
_END = "\ue000"  # a word appended to each text
_WORD = re.compile(r"[^\W_]+")
_POWERS = np.array([pow(0x9E3779B97F4A7C15, power, 1 << 64) for power in range(RUN)], np.uint64)


def word_runs(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Hash every word 8-gram of the joined texts to 64 bits; also return the word index of the end of each text.

    The end of a text counts as a word, so an 8-gram across two texts matches no 8-gram of a single text.
    """
    joined = "".join(f"{text.replace(_END, ' ')} {_END} " for text in texts)
    words = np.frombuffer(b"".join(map(_WORDS.__getitem__, joined.lower().split())), np.uint64)
    if len(_WORDS) > _MOST_WORDS:
        _WORDS.clear()
    return np.convolve(words, _POWERS, "valid") if len(words) >= RUN else NO_RUNS, np.flatnonzero(words == 0)


def runs_of_each(texts: Sequence[str]) -> Iterator[np.ndarray]:
    """Yield the distinct 8-grams of each text."""
    runs, ends = word_runs(texts)
    start = 0
    for end in ends.tolist():
        yield np.unique(runs[start : max(start, end - RUN + 1)])
        start = end + 1


class _Words(dict[str, bytes]):
    """Cache of the hashes of a token's words (none, one or several), eight bytes each; the end of a text is 0."""

    def __missing__(self, token: str) -> bytes:
        words = _WORD.findall(unicodedata.normalize("NFC", token))
        hashes = b"".join(hashlib.blake2b(word.encode(), digest_size=8).digest() for word in words)
        self[token] = bytes(8) if token == _END else hashes
        return self[token]


_WORDS, _MOST_WORDS = _Words(), 1 << 18
