"""Accuracy, chance and forgetting of a stream, by both protocols, from the scores of a method.

In both protocols a prediction is right if the gold relation's score is *strictly greater* than the score of every
rival. Ties and NaN are misses. The rivals are

- `all-seen`: every other relation learned so far;
- `candidates`: the example's listed relations that are learned, except the gold one. If none is learned yet, the
  example falls back to `all-seen`; the fallbacks are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from erda.errors import DataError, StreamError
from erda.types import Predictions, TestSet

ALL_SEEN = "all-seen"
CANDIDATES = "candidates"
PROTOCOLS = (ALL_SEEN, CANDIDATES)


@dataclass(frozen=True, slots=True, eq=False)
class TestAnswers:
    """Gold and candidate relations of test sets as integers, computed once and used after every task.

    `gold` [n_examples] and `listed` [n_examples, longest list] index `names`. Lists are padded with -1 and contain
    neither the gold relation nor duplicates. `listed` is None if the dataset lists no candidates.
    """

    __test__ = False  # for pytest

    names: tuple[str, ...]
    gold: np.ndarray
    listed: np.ndarray | None

    @classmethod
    def of(cls, *tests: TestSet) -> TestAnswers:
        """Answers of test sets, one after another."""
        index: dict[str, int] = {}
        gold = np.array([index.setdefault(name, len(index)) for test in tests for name in test.gold], dtype=np.int64)
        listed = None
        if all(test.candidates is not None for test in tests):
            rivals = [
                [index.setdefault(name, len(index)) for name in dict.fromkeys(names) if name != answer]
                for test in tests
                for names, answer in zip(test.candidates or (), test.gold, strict=True)
            ]
            listed = np.full((len(rivals), max(map(len, rivals), default=0)), -1, dtype=np.int64)
            for row, ids in enumerate(rivals):
                listed[row, : len(ids)] = ids
        return cls(tuple(index), gold, listed)

    def first(self, n: int) -> TestAnswers:
        """The first `n` answers."""
        return TestAnswers(self.names, self.gold[:n], None if self.listed is None else self.listed[:n])


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """Marks of predictions, and the probability of a right guess; all [n_examples]."""

    right: dict[str, np.ndarray]  # protocol -> bool
    guess: dict[str, np.ndarray]  # protocol -> 1 / (1 + number of rivals)
    fallback: np.ndarray  # bool: no listed relation is learned yet (False if the dataset lists none)
    winner: dict[str, np.ndarray]  # protocol -> column of the best relation among gold and rivals; -1: a tie with gold


def mark(predictions: Predictions, answers: TestAnswers) -> Marks:
    """Mark predictions [n_examples, n_relations]."""
    scores = predictions.scores
    n_examples, n_relations = scores.shape
    if n_examples != len(answers.gold):
        raise StreamError(f"The method predicted {n_examples} of {len(answers.gold)} examples.")
    column_of = {name: column for column, name in enumerate(predictions.relations)}
    columns = np.array([column_of.get(name, -1) for name in answers.names], dtype=np.int64)
    gold = columns[answers.gold]
    if n_examples and gold.min() < 0:
        missing = sorted({answers.names[i] for i in answers.gold[gold < 0]})
        raise DataError(f"a test set asks for relations that were never learned: {', '.join(missing)}.")
    gold_score = scores[np.arange(n_examples), gold]
    # `not less` rather than `greater or equal`: a NaN rival counts as unbeaten
    unbeaten = (~(scores < gold_score[:, None])).sum(axis=1)  # counts the gold relation itself
    all_seen = (unbeaten == 1) & np.isfinite(gold_score)
    right = {ALL_SEEN: all_seen}
    best = np.where(np.isnan(scores), -np.inf, scores).argmax(axis=1)
    winner = {ALL_SEEN: np.where(~all_seen & (best == gold), -1, best)}
    guess = {ALL_SEEN: np.full(n_examples, 1.0 / n_relations)}
    fallback = np.zeros(n_examples, dtype=bool)
    if answers.listed is not None:
        rivals = np.where(answers.listed >= 0, columns[answers.listed], -1)
        learned = rivals >= 0
        rival_scores = np.take_along_axis(scores, np.maximum(rivals, 0), axis=1)
        lost = (learned & ~(rival_scores < gold_score[:, None])).any(axis=1) | ~np.isfinite(gold_score)
        n_rivals = learned.sum(axis=1)
        fallback = n_rivals == 0
        right[CANDIDATES] = np.where(fallback, all_seen, ~lost)
        guess[CANDIDATES] = np.where(fallback, 1.0 / n_relations, 1.0 / (1 + n_rivals))
        heights = np.where(learned & ~np.isnan(rival_scores), rival_scores, -np.inf)
        strongest = np.column_stack([heights, np.full(n_examples, -np.inf)]).argmax(axis=1)
        rival = np.column_stack([rivals, gold])[np.arange(n_examples), strongest]
        winner[CANDIDATES] = np.where(fallback, winner[ALL_SEEN], np.where(right[CANDIDATES], gold, rival))
    return Marks(right, guess, fallback, winner)


def forgetting(matrix: Sequence[Sequence[float]]) -> float | None:
    """Mean drop from the best earlier accuracy to the final one, over all tasks but the last.

    `matrix[k][j]` is the accuracy on task j after task k, j <= k. With K tasks:
    F = 1/(K-1) * sum over j < K of ( max over j <= k < K of matrix[k][j]  -  matrix[K][j] ).
    Negative if later tasks improve earlier ones; None for a single task.
    """
    last = len(matrix) - 1
    if last < 1:
        return None
    drops = [max(matrix[k][j] for k in range(j, last)) - matrix[last][j] for j in range(last)]
    return sum(drops) / last
