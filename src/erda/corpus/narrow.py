"""Select the rows of a corpus near some examples, by the vectors of its index."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from erda.data.formats import example_to_json
from erda.errors import DataError, SettingsError, join_faults
from erda.files import write_lines
from erda.text.keys import EntityPair
from erda.types import Example

if TYPE_CHECKING:
    from erda.corpus.augment import Augmenter
    from erda.corpus.corpus_store import CorpusStore

TOP = 50  # neighbours per example
_BATCH_SIZE = 512  # examples
_FETCH_SIZE = 10_000  # rows per query


def near_rows(
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


def write_rows(store: CorpusStore, rows: np.ndarray, path: Path) -> None:
    """Write rows of a corpus as tagged JSONL for `erda corpus build`; a name ending in .gz compresses."""
    parts = (rows[start : start + _FETCH_SIZE] for start in range(0, len(rows), _FETCH_SIZE))
    examples = (example for part in parts for example in store.rows(part))
    write_lines(path, (json.dumps(example_to_json(example), ensure_ascii=False) for example in examples))


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
