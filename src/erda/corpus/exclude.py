"""Sentences that must never enter a corpus: test and validation data.

A sentence is refused if it equals an excluded one (ignoring case and spacing), or if it is a near-duplicate: it holds
at least the share `overlap` of the runs of eight words of an excluded sentence (`word_runs.py`). Excluded sentences of
fewer than eight words have no near-duplicates.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from math import ceil
from pathlib import Path

import numpy as np

from erda.corpus.excluded_files import sentences_of_file
from erda.corpus.word_runs import NO_RUNS, runs_of_each, word_runs
from erda.errors import DataError, SettingsError
from erda.files import read_arrays, write_arrays
from erda.text.keys import sentence_key

OVERLAP = 0.5
SAME = "sentence given with --exclude"
NEAR = "near-duplicate of a sentence given with --exclude"
_SIEVE_BITS = 22


@dataclass(frozen=True, slots=True)
class _Sentence:
    """The word runs of an excluded sentence, and the number of them that makes a near-duplicate."""

    runs: np.ndarray
    needed: int


@dataclass(frozen=True, slots=True)
class _Known:
    """The runs of all sentences, sorted; `owners` are positions among the keys."""

    runs: np.ndarray
    owners: np.ndarray
    needed: np.ndarray
    sieve: np.ndarray  # whether any run begins with these bits


class Excluded:
    """Excluded sentences by key; decides for each sentence of a source whether it may enter."""

    def __init__(self, sentences: dict[int, _Sentence] | None = None) -> None:
        self._sentences = sentences or {}

    @classmethod
    def read(cls, paths: Iterable[Path], *, overlap: float = OVERLAP) -> Excluded:
        """Exclude the sentences of files. With `overlap` 0, near-duplicates may enter."""
        if not 0 <= overlap <= 1:
            raise SettingsError(f"--exclude-overlap is a share from 0 to 1, got {overlap:g}.")
        found: dict[int, _Sentence] = {}
        for path in paths:
            texts = list(sentences_of_file(path))
            runs = runs_of_each(texts) if overlap else repeat(NO_RUNS)
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
        """Identifies a set of excluded sentences."""
        whole = hashlib.sha256(self.keys.tobytes())
        arrays = self._arrays()
        if len(arrays["runs"]):
            for array in arrays.values():
                whole.update(array.tobytes())
        return whole.hexdigest()

    def refused(self, keys: Mapping[str, int]) -> dict[str, str]:
        """The reason for each sentence that may not enter; `keys` maps sentences to their keys."""
        refused = {text: SAME for text, key in keys.items() if key in self._sentences}
        known, texts = self._known, list(keys)
        if not texts or not len(known.runs):
            return refused
        runs, ends = word_runs(texts)
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
        """Write a file for `load`."""
        write_arrays(path, self._arrays())

    @classmethod
    def load(cls, path: Path) -> Excluded:
        """Read a file that `save` wrote."""
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
            "runs": np.concatenate([NO_RUNS, *(one.runs for one in ordered)]),
            "n_runs": np.array([len(one.runs) for one in ordered], np.int64),
            "needed": np.array([one.needed for one in ordered], np.int64),
        }
