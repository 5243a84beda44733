"""Tests of a stream: examples without gold relations, predicted in one call and marked task by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from erda.benchmark.metrics import Answers, Marks, mark
from erda.benchmark.records import TestPredictions
from erda.errors import StreamError
from erda.types import Example, Predictions, TestSet

if TYPE_CHECKING:
    from erda.data.streams import TaskStream

Arrays = Mapping[str, np.ndarray]


class StreamTests:
    """Tests of a stream's tasks, with the answers that the method never sees."""

    def __init__(self, stream: TaskStream, evaluate_on: str) -> None:
        test_of = stream.validation if evaluate_on == "validation" else stream.test
        self.tests: list[TestSet] = [test_of(k) for k in range(len(stream))]
        empty = [str(k + 1) for k, test in enumerate(self.tests) if not test.examples]
        if empty:
            raise StreamError(f"Stream '{stream.name}' has no {evaluate_on} examples for task {', '.join(empty)}.")
        self.answers = [Answers.of(test) for test in self.tests]

    def examples(self, k: int) -> list[Example]:
        """Test examples of tasks 0..k, concatenated."""
        return [example for test in self.tests[: k + 1] for example in test.examples]

    def mark(self, predictions: Predictions, k: int) -> list[Marks]:
        """Mark the predictions of `examples(k)`, task by task."""
        ends = np.cumsum([len(test.examples) for test in self.tests[: k + 1]])
        if len(predictions) != ends[-1]:
            raise StreamError(f"The method predicted {len(predictions)} of {ends[-1]} examples.")
        starts = [0, *ends[:-1]]
        return [
            mark(predictions[int(start) : int(end)], answers)
            for start, end, answers in zip(starts, ends, self.answers[: k + 1], strict=True)
        ]

    def test_predictions(self, tasks: Sequence[Arrays]) -> TestPredictions:
        """Join the `task_arrays` of all tasks into the content of `predictions.npz`."""
        last = tasks[-1]
        relations: list[str] = last["relations"].tolist()
        column = {name: i for i, name in enumerate(relations)}
        best = np.full((len(tasks), len(last["best"])), -1, dtype=np.int32)
        protocols = [name.removeprefix("right_") for name in last if name.startswith("right_")]
        right = {protocol: np.zeros(best.shape, dtype=bool) for protocol in protocols}
        for k, task in enumerate(tasks):
            n_asked = len(task["best"])
            best[k, :n_asked] = np.array([column[name] for name in task["relations"].tolist()])[task["best"]]
            for protocol, rows in right.items():
                rows[k, :n_asked] = task[f"right_{protocol}"]
        return TestPredictions(
            relations=tuple(relations),
            examples=tuple(example.id for test in self.tests for example in test.examples),
            task=np.repeat(np.arange(len(self.tests)), [len(test.examples) for test in self.tests]),
            gold=np.array([column[name] for test in self.tests for name in test.gold]),
            best=best,
            right=right,
            scores=last["scores"],
            winner={protocol: last[f"winner_{protocol}"] for protocol in protocols},
        )


def task_arrays(predictions: Predictions, marks: Sequence[Marks]) -> dict[str, np.ndarray]:
    """Arrays saved after one task, one row per test example; `best` indexes `relations`."""
    protocols = [name for name in marks[0].right if all(name in one.right for one in marks)]
    limit = float(np.finfo(np.float16).max)
    return {
        "relations": np.array(predictions.relations, dtype=np.str_),
        "best": predictions.scores.argmax(axis=1).astype(np.int32),
        "scores": np.clip(predictions.scores, -limit, limit).astype(np.float16),
        **{f"right_{name}": np.concatenate([one.right[name] for one in marks]) for name in protocols},
        **{f"winner_{name}": np.concatenate([one.winner[name] for one in marks]) for name in protocols},
    }
