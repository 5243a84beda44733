"""Answers of the product, and their measures, for the open-text benchmark."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from erda.app.state import NOTHING, Lesson, Stamp, State, TaughtRelation
from erda.app.version import Version
from erda.encoders.contract import Encoder
from erda.methods.posterior import Posterior
from erda.types import Example, Relation, Task

N_BINS = 15
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Taught:
    """A relation with examples, counterexamples, and judged pairs in which it holds."""

    relation: Relation
    examples: Sequence[Example]
    counterexamples: Sequence[Example] = ()
    judged: Sequence[Example] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """Confidences of each relation, and which relations are answers at the default: [n, n_relations] each."""

    confidences: np.ndarray
    holds: np.ndarray

    @property
    def best(self) -> np.ndarray:
        """Column of the answer, or -1: [n]."""
        return np.where(self.holds.any(axis=1), np.where(self.holds, self.confidences, -1).argmax(axis=1), -1)


def answers(
    encoder: Encoder,
    taught: Sequence[Taught],
    questions: Sequence[Example],
    sentences: Sequence[Hashable] | None = None,
) -> Answered:
    """Teach an extractor in memory, and ask marked pairs, or all pairs of `sentences`: all that calls the product."""
    numbers, relations = count(), tuple(one.relation for one in taught)
    known = []
    for one in taught:
        lessons, judged, against = (
            tuple(Lesson(next(numbers), 0, replace(example, relation=one.relation.id), is_judged) for example in some)
            for some, is_judged in ((one.examples, False), (one.judged, True), (one.counterexamples, True))
        )
        known.append(TaughtRelation(one.relation, 0, lessons + judged, against))
    method = Posterior(encoder)
    method.learn(Task(0, relations, tuple(lesson.example for one in known for lesson in one.lessons)))
    version = Version(State(Stamp(1, None, "", "", NOTHING), tuple(known)), lambda state: method, method)
    columns = {relation.id: column for column, relation in enumerate(relations)}
    confidences = np.zeros((len(questions), len(relations)))
    holds = np.zeros_like(confidences, dtype=bool)
    plain = [replace(one, relation=None) for one in questions]
    for row, answer in enumerate(version.answer_pairs(plain, sentences, top=len(relations))):
        for ranked in answer.ranked:
            confidences[row, columns[ranked.relation]] = ranked.confidence
        holds[row, [columns[name] for name in answer.relations]] = True
    return Answered(confidences, holds)


# -- measures ---------------------------------------------------------------------------------------------------------


def ranked(scores: np.ndarray, gold: np.ndarray) -> tuple[float, float]:
    """Average precision, and precision at recall 0.5. Gold: 1 holds, 0 does not, -1 ignored."""
    counted = gold >= 0
    right = gold[counted][np.argsort(-scores[counted], kind="stable")]
    found = np.cumsum(right)
    precision = found / np.arange(1, len(right) + 1)
    half = int(np.searchsorted(found, found[-1] / 2))
    return 100 * float((precision * right).sum() / found[-1]), 100 * float(precision[half])


def calibration_error(confidences: np.ndarray, right: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Mean of |confidence - share of right answers| over bins of equal width, in percent."""
    weights = np.ones(len(right)) if weights is None else weights
    bins = np.minimum((confidences * N_BINS).astype(int), N_BINS - 1)
    gap = np.bincount(bins, weights * (confidences - right), N_BINS)
    return 100 * float(np.abs(gap).sum() / max(weights.sum(), 1e-9))


def reliability(confidences: np.ndarray, right: np.ndarray, *, n_bins: int = 10) -> list[list[float]]:
    """Number of answers, mean confidence and share of right ones, for each bin with answers."""
    bins = np.minimum((confidences * n_bins).astype(int), n_bins - 1)
    kept = [bins == number for number in range(n_bins)]
    return [[int(b.sum()), round(confidences[b].mean(), 3), round(right[b].mean(), 3)] for b in kept if b.any()]


def share(some: np.ndarray) -> float | None:
    """Percent of true values; None of none."""
    return 100 * float(some.mean()) if len(some) else None


def means(rows: Sequence[Row]) -> Row:
    """Mean of every number over the rows that have it."""
    found = {name: [row[name] for row in rows if row.get(name) is not None] for name in rows[0]}
    return {name: float(np.mean(values)) if values else None for name, values in found.items()}
