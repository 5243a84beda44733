"""Select the rows of a corpus near some examples, by the vectors of its index or, without an index, by words.

By words, a sentence is a TF-IDF vector of the words outside its two entities. Words between the entities count twice.
The weight of a word is log(1 + count) * log((1 + n) / (1 + n with the word)), n being the number of sentences. This is
much faster than embedding, so words can preselect which of millions of sentences are worth an index.
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

TOP = 50  # neighbours per example
_BATCH_SIZE = 512  # examples
_FETCH_SIZE = 10_000  # rows per query


def near_by_vectors(
    augmenter: Augmenter, examples: Sequence[Example], *, top: int = TOP, per_relation: int | None = None
) -> np.ndarray:
    """Select every sentence of the examples' entity pairs and the `top` nearest rows of each example, sorted.

    A corpus of these rows gives the same extra examples while K + `SPARE` <= `top`. `per_relation` is the number of
    neighbours that the examples of a relation share.
    """
    from tqdm import tqdm

    shares = _shares(examples, top, per_relation)
    rows = augmenter.store.find([EntityPair.of(example) for example in examples])
    for start in tqdm(range(0, len(examples), _BATCH_SIZE), desc="searching", unit="batch", disable=None):
        vectors = augmenter.model.encode(examples[start : start + _BATCH_SIZE])
        found = augmenter.index.search(vectors, int(shares.max())).rows
        within = np.arange(found.shape[1]) < shares[start : start + _BATCH_SIZE, None]
        rows.append(found[within & (found >= 0)])
    return np.unique(np.concatenate(rows))


def near_by_words(
    store: CorpusStore, examples: Sequence[Example], *, top: int = TOP, per_relation: int | None = None
) -> np.ndarray:
    """Select as `near_by_vectors`, but nearest by words. Needs no index; streams the corpus twice."""
    require("duckdb", "sklearn")
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.preprocessing import normalize

    shares = _shares(examples, top, per_relation)
    counter = HashingVectorizer(analyzer=context_words, norm=None, alternate_sign=False, dtype=np.float32)
    n_with = np.zeros(counter.n_features, np.int64)
    for part in _batches(store, "counting words"):
        n_with += np.bincount(counter.transform(part).indices, minlength=len(n_with))
    rarity = np.log((1 + len(store)) / (1 + n_with)).astype(np.float32)

    def weighted(part: Sequence[Example]) -> Any:
        words = counter.transform(part)
        words.data = np.log1p(words.data) * rarity[words.indices]
        return normalize(words, copy=False)

    groups = [slice(start, start + _BATCH_SIZE) for start in range(0, len(examples), _BATCH_SIZE)]
    nearest = [_Nearest(weighted(examples[group]), shares[group]) for group in groups]
    start = 0
    for part in _batches(store, "comparing"):
        vectors = weighted(part)
        for one in nearest:
            one.update(vectors, start)
        start += len(part)
    of_pairs = store.find([EntityPair.of(example) for example in examples])
    return np.unique(np.concatenate([*of_pairs, *(one.rows() for one in nearest)]))


def context_words(example: Example) -> list[str]:
    """Lower-case words outside the two entities; words between the entities come twice."""
    first, second = sorted((example.head.span, example.tail.span))
    between = example.tokens[first.end : second.start]
    return " ".join((*example.tokens[: first.start], *between, *between, *example.tokens[second.end :])).lower().split()


def write_rows(store: CorpusStore, rows: np.ndarray, path: Path) -> None:
    """Write rows of a corpus as tagged JSONL for `erda corpus build`; a name ending in .gz compresses."""
    parts = (rows[start : start + _FETCH_SIZE] for start in range(0, len(rows), _FETCH_SIZE))
    examples = (example for part in parts for example in store.rows(part))
    write_lines(path, (json.dumps(example_to_json(example), ensure_ascii=False) for example in examples))


class _Nearest:
    """Running nearest rows of a batch of examples."""

    def __init__(self, vectors: Any, shares: np.ndarray) -> None:
        self._words = np.unique(vectors.indices)  # other words matter only for the length of a row's vector
        self._vectors = vectors[:, self._words].T.toarray()  # [n_words, n_examples]
        self._shares, self._top = shares, int(shares.max())
        self._scores = np.zeros((len(shares), 0), np.float32)
        self._rows = np.zeros((len(shares), 0), np.int64)

    def update(self, vectors: Any, start: int) -> None:
        """Compare with the rows from `start` on: sparse [n_rows, n_features]."""
        found = np.ascontiguousarray((vectors[:, self._words] @ self._vectors).T)
        best = np.argpartition(found, max(0, found.shape[1] - self._top), axis=1)[:, -self._top :]
        scores = np.hstack([self._scores, np.take_along_axis(found, best, 1)])
        rows = np.hstack([self._rows, best + start])
        order = np.argsort(-scores, axis=1, kind="stable")[:, : self._top]
        self._scores, self._rows = (np.take_along_axis(one, order, 1) for one in (scores, rows))

    def rows(self) -> np.ndarray:
        """The nearest rows of each example, up to its share; rows without a common word are left out."""
        within = np.arange(self._rows.shape[1]) < self._shares[:, None]
        return self._rows[within & (self._scores > 0)]


def _shares(examples: Sequence[Example], top: int, per_relation: int | None) -> np.ndarray:
    """Number of neighbours of each example, at least one: [n_examples]."""
    given = {"top": top, "per-relation": top if per_relation is None else per_relation}
    faults = [f"--{name}: must be at least 1, got {n}." for name, n in given.items() if n < 1]
    if faults:
        raise SettingsError(join_faults(faults))
    if not examples:
        raise DataError("no examples given.")
    if per_relation is None:
        return np.full(len(examples), top)
    n_of = Counter(example.relation for example in examples)
    return np.array([min(top, max(1, per_relation // n_of[example.relation])) for example in examples])


def _batches(store: CorpusStore, task: str) -> Iterator[list[Example]]:
    """Yield all rows in order, with a progress bar."""
    from tqdm import tqdm

    with tqdm(total=len(store), desc=task, unit="row", unit_scale=True, disable=None) as bar:
        for batch in store.batches(size=_FETCH_SIZE):
            yield [sentence.example for sentence in batch]
            bar.update(len(batch))
