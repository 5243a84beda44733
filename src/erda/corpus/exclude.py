"""Sentences that must never enter a corpus: test and validation data, in any format that we read.

A corpus sentence is refused where it is an excluded one (case and spacing do not matter), and where it is a
near-duplicate: it holds at least the share `overlap` of the runs of eight words of an excluded sentence. Words are
letters and digits in lower case, so that punctuation does not matter either. Sentences of fewer than eight words have
no such run and count by their key alone.
"""

from __future__ import annotations

import hashlib
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from erda.data.formats.cfrl import N_FIELDS
from erda.errors import DataError, SettingsError
from erda.files import decode_json, read_arrays, read_bytes, write_arrays
from erda.text.keys import sentence_key
from erda.text.reading import JsonWalk, read_lines

OVERLAP = 0.5
SAME = "sentence given with --exclude"
NEAR = "near-duplicate of a sentence given with --exclude"
_RUN = 8
_END = "\ue000"  # stands after each text, as a word of its own
_WORD = re.compile(r"[^\W_]+")
_POWERS = np.array([pow(0x9E3779B97F4A7C15, power, 1 << 64) for power in range(_RUN)], np.uint64)
_NO_RUNS = np.zeros(0, np.uint64)
_SIEVE_BITS = 22


@dataclass(frozen=True, slots=True)
class _Sentence:
    """The word runs of an excluded sentence, and how many of them a near-duplicate shares at least."""

    runs: np.ndarray
    needed: int


@dataclass(frozen=True, slots=True)
class _Known:
    """The runs of all sentences, sorted, to look into; `owners` are places among the keys."""

    runs: np.ndarray
    owners: np.ndarray
    needed: np.ndarray
    sieve: np.ndarray  # whether any run begins with these bits


class Excluded:
    """Excluded sentences by their keys; answers for every sentence of a source whether it may enter."""

    def __init__(self, sentences: dict[int, _Sentence] | None = None) -> None:
        self._sentences = sentences or {}

    @classmethod
    def read(cls, paths: Iterable[Path], *, overlap: float = OVERLAP) -> Excluded:
        """The sentences of these files. `overlap` 1: only what holds every run of one, 0: near-duplicates may enter.

        JSONL (`tokens` or `text`), CFRL splits (tab-separated), JSON lists or objects of lists whose items hold
        `tokens`, `token`, `text` or `sents` (FewRel, TACRED, DocRED), or plain text with one sentence a line.
        """
        if not 0 <= overlap <= 1:
            raise SettingsError(f"--exclude-overlap is a share from 0 to 1, got {overlap:g}.")
        found: dict[int, _Sentence] = {}
        for path in paths:
            texts = list(_sentences(path))
            runs = _runs_of_each(texts) if overlap else repeat(_NO_RUNS)
            for text, held in zip(texts, runs, strict=False):
                found.setdefault(sentence_key(text), _Sentence(held, max(1, ceil(overlap * len(held) - 1e-9))))
            if not texts:
                raise DataError(
                    f"{path}: no sentence in it; nothing would be excluded. Expected JSONL, a CFRL split, ..."
                )
        return cls(found)

    def __len__(self) -> int:
        return len(self._sentences)

    def __or__(self, other: Excluded) -> Excluded:
        both = {**self._sentences, **other._sentences}
        for key in self._sentences.keys() & other._sentences.keys():
            both[key] = min(
                self._sentences[key], other._sentences[key], key=lambda one: (not len(one.runs), one.needed)
            )
        return Excluded(both)

    @cached_property
    def keys(self) -> np.ndarray:
        """The keys of the sentences, sorted."""
        return np.sort(np.fromiter(self._sentences, np.uint64, len(self._sentences)))

    @property
    def digest(self) -> str:
        """What tells two sets of excluded sentences apart."""
        whole = hashlib.sha256(self.keys.tobytes())
        arrays = self._arrays()
        if len(arrays["runs"]):
            for array in arrays.values():
                whole.update(array.tobytes())
        return whole.hexdigest()

    def refused(self, keys: Mapping[str, int]) -> dict[str, str]:
        """Of these sentences, given with their keys, those that may not enter, with the reason."""
        refused = {text: SAME for text, key in keys.items() if key in self._sentences}
        known, texts = self._known, list(keys)
        if not texts or not len(known.runs):
            return refused
        runs, ends = _runs(texts)
        places = np.flatnonzero(known.sieve[runs >> np.uint64(64 - _SIEVE_BITS)])
        left, right = (known.runs.searchsorted(runs[places], side) for side in ("left", "right"))
        there = right > left
        places, left, right = places[there], left[there], right[there]
        shared: dict[int, set[tuple[int, int]]] = {}  # text -> excluded sentences and the runs shared with each
        for number, run, start, end in zip(ends.searchsorted(places), runs[places], left, right, strict=True):
            for owner in known.owners[start:end].tolist():
                shared.setdefault(int(number), set()).add((owner, int(run)))
        for number, found in shared.items():
            counts = Counter(owner for owner, _ in found)
            if any(n >= known.needed[owner] for owner, n in counts.items()):
                refused.setdefault(texts[number], NEAR)
        return refused

    def save(self, path: Path) -> None:
        """Write everything that `load` needs."""
        write_arrays(path, self._arrays())

    @classmethod
    def load(cls, path: Path) -> Excluded:
        """What `save` wrote; a file of an earlier version (`.npy`) holds keys alone."""
        if path.suffix == ".npy":
            keys = np.load(io.BytesIO(read_bytes(path)), allow_pickle=False)
            return cls({key: _Sentence(_NO_RUNS, 1) for key in keys.tolist()})
        arrays = read_arrays(path)
        runs = np.split(arrays["runs"], np.cumsum(arrays["n_runs"])[:-1])
        parts = zip(arrays["keys"].tolist(), runs, arrays["needed"].tolist(), strict=True)
        return cls({key: _Sentence(held, needed) for key, held, needed in parts})

    @cached_property
    def _known(self) -> _Known:
        arrays = self._arrays()
        order = np.argsort(arrays["runs"], kind="stable")
        runs = arrays["runs"][order]
        sieve = np.zeros(1 << _SIEVE_BITS, np.bool_)
        sieve[runs >> np.uint64(64 - _SIEVE_BITS)] = True
        return _Known(runs, np.repeat(np.arange(len(self)), arrays["n_runs"])[order], arrays["needed"], sieve)

    def _arrays(self) -> dict[str, np.ndarray]:
        ordered = [self._sentences[key] for key in self.keys.tolist()]
        return {
            "keys": self.keys,
            "runs": np.concatenate([_NO_RUNS, *(one.runs for one in ordered)]),
            "n_runs": np.array([len(one.runs) for one in ordered], np.int64),
            "needed": np.array([one.needed for one in ordered], np.int64),
        }


def _runs(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """A 64-bit hash of every run of eight words, and the place at which each text ends among the words.

    An end is a word of its own, so that no run of an excluded sentence goes over one.
    """
    joined = "".join(f"{text.replace(_END, ' ')} {_END} " for text in texts)
    words = np.frombuffer(b"".join(map(_WORDS.__getitem__, joined.lower().split())), np.uint64)
    if len(_WORDS) > _MOST_WORDS:
        _WORDS.clear()
    return np.convolve(words, _POWERS, "valid") if len(words) >= _RUN else _NO_RUNS, np.flatnonzero(words == 0)


def _runs_of_each(texts: Sequence[str]) -> Iterator[np.ndarray]:
    """The runs of each text, every one once."""
    runs, ends = _runs(texts)
    start = 0
    for end in ends.tolist():
        yield np.unique(runs[start : max(start, end - _RUN + 1)])
        start = end + 1


class _Words(dict[str, bytes]):
    """The words of a token (none, one or several) as hashes of eight bytes each, computed once; an end is 0."""

    def __missing__(self, token: str) -> bytes:
        words = _WORD.findall(unicodedata.normalize("NFC", token))
        hashes = b"".join(hashlib.blake2b(word.encode(), digest_size=8).digest() for word in words)
        self[token] = bytes(8) if token == _END else hashes
        return self[token]


_WORDS, _MOST_WORDS = _Words(), 1 << 18


def _sentences(path: Path) -> Iterator[str]:
    endings = [ending for ending in path.suffixes if ending not in (".gz", ".bz2")]
    if endings and endings[-1] == ".json":
        yield from _from_json(path)
        return
    for number, line in read_lines(path):
        if not line.strip():
            continue
        if line.startswith("{"):
            yield from _from_value(decode_json(line, dict, place=f"{path}:{number}"), f"{path}:{number}")
        else:
            fields = line.split("\t")
            yield fields[2] if len(fields) == N_FIELDS else line


def _from_json(path: Path) -> Iterator[str]:
    walk = JsonWalk(path)
    for _ in [None] if walk.begins_with("[") else walk.fields():
        for line, value in walk.array():
            yield from _from_value(value, f"{path}:{line}")
    walk.end()


def _from_value(value: Any, place: str) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("sents"), list):
            yield from (" ".join(map(str, sentence)) for sentence in value["sents"])
            return
        for name in ("tokens", "token"):
            if isinstance(value.get(name), list):
                yield " ".join(map(str, value[name]))
                return
        if isinstance(value.get("text"), str):
            yield value["text"]
            return
    raise DataError(f"{place}: no sentence in it; expected 'tokens', 'token', 'text' or 'sents'.")
