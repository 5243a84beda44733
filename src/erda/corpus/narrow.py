"""The part of a corpus that some examples would find: small enough to carry along, and good for the same answers.

A narrowed corpus holds, for each example, every sentence of its entity pair and its `top` nearest sentences. So an
augmentation of these examples finds in it what it finds in the whole corpus, as long as K and what a search takes
beyond it (`augment.SPARE`, for sentences that are turned down) are no more than `top`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from erda.data.formats import example_to_json
from erda.errors import DataError, SettingsError
from erda.files import write_lines
from erda.text.keys import EntityPair
from erda.types import Example

if TYPE_CHECKING:
    from erda.corpus.index import VectorIndex
    from erda.corpus.similarity import SimilarityModel
    from erda.corpus.store import CorpusStore

TOP = 50
_BATCH = 512  # examples searched at once
_FETCHED = 10_000  # rows fetched by one query


def narrow_rows(
    store: CorpusStore, index: VectorIndex, model: SimilarityModel, examples: Sequence[Example], *, top: int = TOP
) -> np.ndarray:
    """The rows that these examples would find, sorted."""
    from tqdm import tqdm

    if top < 1:
        raise SettingsError(f"--top: must be at least 1, got {top}.")
    if not examples:
        raise DataError("no examples were given, so there is nothing that they would find.")
    rows = [np.concatenate(store.find([EntityPair.of(example) for example in examples]))]
    for start in tqdm(range(0, len(examples), _BATCH), desc="searching", unit="batch", disable=None):
        vectors = model.encode(examples[start : start + _BATCH])
        found = index.search(vectors, top).rows
        rows.append(found[found >= 0].ravel())
    return np.unique(np.concatenate(rows))


def write_rows(store: CorpusStore, rows: np.ndarray, path: Path) -> None:
    """Write rows of a corpus as tagged JSONL (gzip by its name), which `erda corpus build` takes."""
    parts = (rows[start : start + _FETCHED] for start in range(0, len(rows), _FETCHED))
    examples = (example for part in parts for example in store.rows(part))
    write_lines(path, (json.dumps(example_to_json(example), ensure_ascii=False) for example in examples))
