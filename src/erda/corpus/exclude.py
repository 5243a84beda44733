"""Keep test and validation sentences out of a corpus.

A sentence is rejected if it equals an excluded sentence, ignoring case and spacing, or if it is a near-duplicate: it
contains at least the share `overlap` of the word 8-grams of an excluded sentence. Excluded sentences of fewer than
eight words have no near-duplicates. Words are lower-case letters and digits; punctuation is ignored.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from erda.data.formats.published_formats import N_FIELDS
from erda.errors import DataError
from erda.files import decode_json
from erda.text.keys import sentence_key
from erda.text.reading import JsonWalk, read_lines

SAME = "sentence given with --exclude"
NEAR = "near-duplicate of a sentence given with --exclude"
RUN = 8
NO_RUNS = np.zeros(0, np.uint64)
_END = "\ue000"  # a word appended to each text
_FIELDS = {"sents": list, "tokens": list, "token": list, "text": str}  # of an item in JSON
_WORD = re.compile(r"[^\W_]+")
_POWERS = np.array([pow(0x9E3779B97F4A7C15, power, 1 << 64) for power in range(RUN)], np.uint64)


class Excluded:
    """Excluded sentences: `sentences` maps a sentence key to the distinct 8-grams of the sentence."""

    def __init__(self, sentences: Mapping[int, np.ndarray], *, overlap: float) -> None:
        self._known = set(sentences)
        keys = np.sort(np.fromiter(sentences, np.uint64, len(sentences)))
        runs = [sentences[key] for key in keys.tolist()]
        n_runs = np.array([len(one) for one in runs], np.int64)
        all_runs = np.concatenate([NO_RUNS, *runs])
        self._needed = np.maximum(1, np.ceil(overlap * n_runs - 1e-9)).astype(np.int64)  # 8-grams of a near-duplicate
        whole = hashlib.sha256(keys.tobytes())
        for array in (keys, all_runs, n_runs, self._needed) if len(all_runs) else ():
            whole.update(array.tobytes())
        self.digest = whole.hexdigest()
        order = np.argsort(all_runs, kind="stable")
        self._runs, self._owners = all_runs[order], np.repeat(np.arange(len(keys)), n_runs)[order]

    @classmethod
    def read(cls, paths: Iterable[Path], *, overlap: float = 0.5) -> Excluded:
        """Exclude the sentences of files; `overlap` 0 accepts near-duplicates."""
        found: dict[int, np.ndarray] = {}
        for path in paths:
            if not (texts := list(sentences_of_file(path))):
                raise DataError(f"{path}: no sentences to exclude; expected JSONL, a CFRL split, JSON or plain text.")
            for text, runs in zip(texts, runs_of_each(texts) if overlap else repeat(NO_RUNS), strict=False):
                found.setdefault(sentence_key(text), runs)
        return cls(found, overlap=overlap)

    def rejected(self, keys: Mapping[str, int]) -> dict[str, str]:
        """Map each rejected sentence to the reason; `keys` maps sentences to their keys."""
        rejected = {text: SAME for text, key in keys.items() if key in self._known}
        texts = list(keys)
        if not texts or not len(self._runs):
            return rejected
        runs, ends = word_runs(texts)
        left = self._runs.searchsorted(runs)
        places = np.flatnonzero(self._runs.take(left, mode="clip") == runs)
        right = self._runs.searchsorted(runs[places], "right")
        found = zip(ends.searchsorted(places).tolist(), runs[places].tolist(), left[places], right, strict=True)
        shared = {  # texts with their excluded sentences and shared 8-grams
            (number, owner, run) for number, run, start, end in found for owner in self._owners[start:end].tolist()
        }
        for (number, owner), n in Counter((number, owner) for number, owner, _ in shared).items():
            if n >= self._needed[owner]:
                rejected.setdefault(texts[number], NEAR)
        return rejected


# -- word 8-grams ------------------------------------------------------------------------------------------------------


def word_runs(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Hash every word 8-gram of the joined texts to 64 bits; also return the word index of the end of each text.

    The end of a text counts as a word, so an 8-gram across two texts matches no 8-gram of a single text.
    """
    joined = "".join(f"{text.replace(_END, ' ')} {_END} " for text in texts)
    words = np.frombuffer(b"".join(map(_hashes, joined.lower().split())), np.uint64)
    return np.convolve(words, _POWERS, "valid") if len(words) >= RUN else NO_RUNS, np.flatnonzero(words == 0)


def runs_of_each(texts: Sequence[str]) -> Iterator[np.ndarray]:
    """Yield the distinct 8-grams of each text."""
    runs, ends = word_runs(texts)
    start = 0
    for end in ends.tolist():
        yield np.unique(runs[start : max(start, end - RUN + 1)])
        start = end + 1


@lru_cache(maxsize=1 << 18)
def _hashes(token: str) -> bytes:
    """Hash a token's words (none, one or several) to eight bytes each; the end of a text is 0."""
    words = _WORD.findall(unicodedata.normalize("NFC", token))
    hashes = (hashlib.blake2b(word.encode(), digest_size=8).digest() for word in words)
    return bytes(8) if token == _END else b"".join(hashes)


# -- files of test and validation data ---------------------------------------------------------------------------------


def sentences_of_file(path: Path) -> Iterator[str]:
    """Yield the sentences of a file.

    JSONL (`tokens` or `text`), CFRL splits (tab-separated), JSON lists or objects of lists whose items hold `tokens`,
    `token`, `text` or `sents` (FewRel, TACRED, DocRED), or plain text with one sentence per line.
    """
    endings = [ending for ending in path.suffixes if ending not in (".gz", ".bz2")]
    if endings and endings[-1] == ".json":
        walk = JsonWalk(path)
        for _ in [None] if walk.begins_with("[") else walk.fields():
            for at, value in walk.array():
                yield from _from_value(value, f"{path}:{at}")
        walk.end()
        return
    for number, line in read_lines(path):
        if not line.strip():
            continue
        if line.startswith("{"):
            yield from _from_value(decode_json(line, dict, place=f"{path}:{number}"), f"{path}:{number}")
        else:
            fields = line.split("\t")
            yield fields[2] if len(fields) == N_FIELDS else line


def _from_value(value: Any, place: str) -> Iterator[str]:
    for name, kind in _FIELDS.items() if isinstance(value, dict) else ():
        if isinstance(found := value.get(name), kind):
            sentences = found if name == "sents" else [found]
            yield from (one if kind is str else " ".join(map(str, one)) for one in sentences)
            return
    raise DataError(f"{place}: no sentence; expected 'tokens', 'token', 'text' or 'sents'.")
