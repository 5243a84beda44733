"""How well a stream was learned, by both protocols, from the scores that a method gave.

One rule decides a question in both protocols: the gold relation's score must be *strictly greater* than the score of
every rival. A tie is a miss, and so is a score that is not a number. The rivals are

- `all-seen`: every other relation learned so far;
- `candidates`: those of the example's listed relations that are learned, without the gold one. Where none of them is
  learned yet the question falls back to `all-seen`, and such questions are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from erda.errors import DataError
from erda.types import Predictions, TestSet

ALL_SEEN = "all-seen"
CANDIDATES = "candidates"
PROTOCOLS = (ALL_SEEN, CANDIDATES)


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """The answers of one test set as integers, made once and used after every task.

    `gold` [n_examples] and `listed` [n_examples, longest list] point into `names`; lists are padded with -1 and
    hold neither the gold relation nor a relation twice. `listed` is None where the dataset lists nothing.
    """

    names: tuple[str, ...]
    gold: np.ndarray
    listed: np.ndarray | None

    @classmethod
    def of(cls, test: TestSet) -> Answers:
        """The answers of `test`, which is left as it is."""
        index: dict[str, int] = {}
        gold = np.array([index.setdefault(name, len(index)) for name in test.gold], dtype=np.int64)
        listed = None
        if test.candidates is not None:
            rivals = [
                [index.setdefault(name, len(index)) for name in dict.fromkeys(names) if name != answer]
                for names, answer in zip(test.candidates, test.gold, strict=True)
            ]
            listed = np.full((len(rivals), max(map(len, rivals), default=0)), -1, dtype=np.int64)
            for row, ids in enumerate(rivals):
                listed[row, : len(ids)] = ids
        return cls(tuple(index), gold, listed)


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """Which questions of one test set were answered rightly, and how likely a guess was right; all [n_examples]."""

    right: dict[str, np.ndarray]  # protocol -> bool
    guess: dict[str, np.ndarray]  # protocol -> 1 / (1 + number of rivals)
    fallback: np.ndarray  # bool: no listed relation was learned yet (never where nothing is listed)


def mark(predictions: Predictions, answers: Answers) -> Marks:
    """Mark the answers of one test set; `predictions` [n_examples, n_relations] is only read."""
    scores = predictions.scores
    n_examples, n_relations = scores.shape
    if n_examples != len(answers.gold):
        raise DataError(f"{n_examples} predictions cannot be marked against {len(answers.gold)} answers.")
    column_of = {name: column for column, name in enumerate(predictions.relations)}
    columns = np.array([column_of.get(name, -1) for name in answers.names], dtype=np.int64)
    gold = columns[answers.gold]
    if n_examples and gold.min() < 0:
        missing = sorted({answers.names[i] for i in answers.gold[gold < 0]})
        raise DataError(f"a test set asks for relations that were never learned: {', '.join(missing)}.")
    gold_score = scores[np.arange(n_examples), gold]
    # `not less` rather than `greater or equal`: a rival that is not a number is not beaten either
    unbeaten = (~(scores < gold_score[:, None])).sum(axis=1)  # counts the gold relation itself
    all_seen = (unbeaten == 1) & np.isfinite(gold_score)
    right = {ALL_SEEN: all_seen}
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
    return Marks(right, guess, fallback)


@dataclass(frozen=True, slots=True)
class Measures:
    """What was measured after one task, on the tests of all tasks learned so far; fractions, keyed by protocol."""

    accuracy: dict[str, float]  # micro: right answers over all questions
    macro: dict[str, float]  # mean of the tasks' own accuracies
    chance: dict[str, float]  # accuracy to be expected of guessing among gold and rivals
    row: dict[str, tuple[float, ...]]  # accuracy on each task's own test
    n_test: tuple[int, ...]
    n_fallback: int


def measure(marks: Sequence[Marks]) -> Measures:
    """The measures after task k from the marks of tests 1..k. A protocol counts only where every test has it."""
    for index, one in enumerate(marks):
        if not len(one.fallback):
            raise DataError(f"task {index + 1} has no test examples, so its accuracy is not defined.")
    protocols = [name for name in PROTOCOLS if all(name in one.right for one in marks)]
    row = {name: tuple(float(one.right[name].mean()) for one in marks) for name in protocols}
    return Measures(
        accuracy={name: float(np.concatenate([one.right[name] for one in marks]).mean()) for name in protocols},
        macro={name: float(np.mean(row[name])) for name in protocols},
        chance={name: float(np.concatenate([one.guess[name] for one in marks]).mean()) for name in protocols},
        row=row,
        n_test=tuple(len(one.fallback) for one in marks),
        n_fallback=int(sum(one.fallback.sum() for one in marks)),
    )


def forgetting(matrix: Sequence[Sequence[float]]) -> float | None:
    """Mean over all tasks but the last of the best earlier accuracy minus the final one.

    `matrix[k][j]` is the accuracy on task j after task k, j <= k. With K tasks:
    F = 1/(K-1) * sum over j < K of ( max over j <= k < K of matrix[k][j]  -  matrix[K][j] ).
    Negative where later tasks helped earlier ones; None for a single task.
    """
    last = len(matrix) - 1
    if last < 1:
        return None
    drops = [max(matrix[k][j] for k in range(j, last)) - matrix[last][j] for j in range(last)]
    return sum(drops) / last
