"""Which rows of a corpus some examples would find: by the vectors of its index, or by words where it has none.

By words, a sentence is the words outside its two entities, those between them counted twice, each with the weight
log(1 + count) * log((1 + n) / (1 + n with the word)) of n sentences; near is a large cosine. That is far quicker than
embedding, so that words can choose among millions of sentences those that are worth an index.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from erda.data.formats import example_to_json
from erda.errors import DataError, SettingsError, join_faults, require
from erda.files import write_lines
from erda.text.keys import EntityPair
from erda.types import Example

if TYPE_CHECKING:
    from erda.corpus.augment import Augmenter
    from erda.corpus.corpus_store import CorpusStore

TOP = 50  # neighbours of an example
_AT_ONCE = 512  # examples compared at once
_READ = 10_000  # rows fetched by one query


def near_by_vectors(
    augmenter: Augmenter, examples: Sequence[Example], *, top: int = TOP, per_relation: int | None = None
) -> np.ndarray:
    """The rows that these examples would find, sorted: every sentence of their entity pairs, their `top` nearest.

    A corpus of these rows alone gives the same extra examples as long as K + `SPARE` is no more than `top`. With
    `per_relation` the examples of a relation share so many neighbours: fewer each, where a relation has many.
    """
    from tqdm import tqdm

    shares = _shares(examples, top, per_relation)
    rows = _of_their_pairs(augmenter.store, examples)
    for start in tqdm(range(0, len(examples), _AT_ONCE), desc="searching", unit="batch", disable=None):
        vectors = augmenter.model.encode(examples[start : start + _AT_ONCE])
        found = augmenter.index.search(vectors, int(shares.max())).rows
        within = np.arange(found.shape[1]) < shares[start : start + _AT_ONCE, None]
        rows.append(found[within & (found >= 0)])
    return np.unique(np.concatenate(rows))


def near_by_words(
    store: CorpusStore, examples: Sequence[Example], *, top: int = TOP, per_relation: int | None = None
) -> np.ndarray:
    """As `near_by_vectors`, but the nearest by words; needs no index. Reads the corpus twice, a few rows at a time."""
    require("duckdb", "sklearn")
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.preprocessing import normalize

    shares = _shares(examples, top, per_relation)
    counter = HashingVectorizer(analyzer=context_words, norm=None, alternate_sign=False, dtype=np.float32)
    n_with = np.zeros(counter.n_features, np.int64)
    for part in _parts(store, "counting words"):
        n_with += np.bincount(counter.transform(part).indices, minlength=len(n_with))
    rarity = np.log((1 + len(store)) / (1 + n_with)).astype(np.float32)

    def weighed(part: Sequence[Example]) -> Any:
        words = counter.transform(part)
        words.data = np.log1p(words.data) * rarity[words.indices]
        return normalize(words, copy=False)

    groups = [slice(start, start + _AT_ONCE) for start in range(0, len(examples), _AT_ONCE)]
    nearest = [_Nearest(weighed(examples[group]), shares[group]) for group in groups]
    start = 0
    for part in _parts(store, "comparing"):
        vectors = weighed(part)
        for one in nearest:
            one.look(vectors, start)
        start += len(part)
    return np.unique(np.concatenate([*_of_their_pairs(store, examples), *(one.rows() for one in nearest)]))


def context_words(example: Example) -> list[str]:
    """The words outside the two entities in lower case, those between them twice."""
    first, second = sorted((example.head.span, example.tail.span))
    between = example.tokens[first.end : second.start]
    return " ".join((*example.tokens[: first.start], *between, *between, *example.tokens[second.end :])).lower().split()


def write_rows(store: CorpusStore, rows: np.ndarray, path: Path) -> None:
    """Write rows of a corpus as tagged JSONL (gzip by its name), which `erda corpus build` takes."""
    parts = (rows[start : start + _READ] for start in range(0, len(rows), _READ))
    examples = (example for part in parts for example in store.rows(part))
    write_lines(path, (json.dumps(example_to_json(example), ensure_ascii=False) for example in examples))


class _Nearest:
    """The nearest rows of some examples among those seen so far."""

    def __init__(self, vectors: Any, shares: np.ndarray) -> None:
        self._words = np.unique(vectors.indices)  # no other word counts, but for the length of a vector
        self._vectors = vectors[:, self._words].T.toarray()  # [n_words, n_examples]
        self._shares, self._top = shares, int(shares.max())
        self._scores = np.zeros((len(shares), 0), np.float32)
        self._rows = np.zeros((len(shares), 0), np.int64)

    def look(self, vectors: Any, start: int) -> None:
        """Look at the rows from `start` on, sparse [n_rows, n_features]."""
        found = np.ascontiguousarray((vectors[:, self._words] @ self._vectors).T)
        best = np.argpartition(found, max(0, found.shape[1] - self._top), axis=1)[:, -self._top :]
        scores = np.hstack([self._scores, np.take_along_axis(found, best, 1)])
        rows = np.hstack([self._rows, best + start])
        order = np.argsort(-scores, axis=1, kind="stable")[:, : self._top]
        self._scores, self._rows = (np.take_along_axis(one, order, 1) for one in (scores, rows))

    def rows(self) -> np.ndarray:
        """Each example's share, of those that have a word in common with it."""
        within = np.arange(self._rows.shape[1]) < self._shares[:, None]
        return self._rows[within & (self._scores > 0)]


def _shares(examples: Sequence[Example], top: int, per_relation: int | None) -> np.ndarray:
    """How many neighbours each example gets, at least one: [n_examples]."""
    asked = {"top": top, "per-relation": top if per_relation is None else per_relation}
    faults = [f"--{name}: must be at least 1, got {n}." for name, n in asked.items() if n < 1]
    if faults:
        raise SettingsError(join_faults(faults))
    if not examples:
        raise DataError("no examples were given, so there is nothing that they would find.")
    if per_relation is None:
        return np.full(len(examples), top)
    n_of = Counter(example.relation for example in examples)
    return np.array([min(top, max(1, per_relation // n_of[example.relation])) for example in examples])


def _of_their_pairs(store: CorpusStore, examples: Sequence[Example]) -> list[np.ndarray]:
    return store.find([EntityPair.of(example) for example in examples])


def _parts(store: CorpusStore, doing: str) -> Iterator[list[Example]]:
    """All rows in order, some at a time, with a bar."""
    from tqdm import tqdm

    with tqdm(total=len(store), desc=doing, unit="row", unit_scale=True, disable=None) as bar:
        for batch in store.batches(size=_READ):
            yield [sentence.example for sentence in batch]
            bar.update(len(batch))
