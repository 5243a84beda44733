"""How good a similarity model is: two numbers that training never saw.

AUC: how often a pair of sentences with the same two entities is more similar than a pair that shares only one of them,
on held-out entity pairs; with the names as they are, and with every name blanked. Agreement: how often the nearest
other sentence of labelled validation data has the same relation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from erda.corpus.pairs import NONE, PairSet
from erda.errors import DataError
from erda.types import Example

if TYPE_CHECKING:
    from erda.corpus.similarity import SimilarityModel

MAX_PAIRS = 3_000
VALIDATION_FILE = Path("fewrel/validation.jsonl.gz")  # in the data folder; FewRel's test data is never read here


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Numbers between 0 and 1, None where there was nothing to measure on; chance is 0.5 for `auc`."""

    auc: float | None
    auc_blanked: float | None
    agreement: float | None
    n_pairs: int
    n_validation: int


def auc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Chance that a random positive scores above a random negative; ties count half (Mann-Whitney)."""
    if not len(positive) or not len(negative):
        raise DataError("an AUC needs at least one positive and one negative score.")
    ordered = np.sort(negative)
    below, upto = (np.searchsorted(ordered, positive, side) for side in ("left", "right"))
    return float((below + upto).sum() / 2 / (len(positive) * len(negative)))


def neighbour_agreement(vectors: np.ndarray, relations: Sequence[str], *, block_size: int = 1024) -> float:
    """How often the nearest other vector (by product; of two as near the first) has the same relation."""
    if len(vectors) < 2:
        raise DataError("neighbours need at least two labelled sentences.")
    names = np.asarray(relations)
    n_right = 0
    for start in range(0, len(vectors), block_size):
        similarities = vectors[start : start + block_size] @ vectors.T
        rows = np.arange(len(similarities))
        similarities[rows, start + rows] = -np.inf
        n_right += int((names[similarities.argmax(axis=1)] == names[start + rows]).sum())
    return n_right / len(vectors)


def pair_auc(model: SimilarityModel, pairs: PairSet, *, blank_names: bool = False) -> float:
    """AUC of S(first).S(second) against S(first).S(negative) over pairs that have a negative."""
    rows, where = np.unique(np.stack([pairs.first, pairs.second, pairs.negative]), return_inverse=True)
    vectors = model.encode([pairs.examples[row] for row in rows], blank_names=blank_names, progress=True)
    first, second, negative = vectors[where.reshape(3, -1)]
    return auc((first * second).sum(axis=1), (first * negative).sum(axis=1))


def evaluate(
    model: SimilarityModel, *, held_out: PairSet | None = None, validation: Sequence[Example] = ()
) -> Evaluation:
    """Both numbers; `held_out` pairs without a hard negative, and those past the first 3,000, are left out."""
    kept = np.flatnonzero(held_out.negative != NONE)[:MAX_PAIRS] if held_out is not None else np.empty(0, int)
    aucs: tuple[float | None, float | None] = (None, None)
    if held_out is not None and len(kept):
        pairs = held_out.take(kept)
        aucs = (pair_auc(model, pairs), pair_auc(model, pairs, blank_names=True))
    agreement = None
    if validation:
        unlabelled = [example for example in validation if example.relation is None]
        if unlabelled:
            raise DataError(f"validation data needs relations; {len(unlabelled)} of {len(validation)} have none.")
        vectors = model.encode(validation, progress=True)
        agreement = neighbour_agreement(vectors, [str(example.relation) for example in validation])
    return Evaluation(*aucs, agreement, len(kept), len(validation))
