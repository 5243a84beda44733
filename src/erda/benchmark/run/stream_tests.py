"""The tests of a stream as a method meets them: examples without answers, asked at once, marked task by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from erda.benchmark.metrics import Answers, Marks, mark
from erda.benchmark.records import TestPredictions, half_precision
from erda.errors import StreamError
from erda.types import Example, Predictions, TestSet

if TYPE_CHECKING:
    from erda.data.streams import TaskStream

Arrays = Mapping[str, np.ndarray]


class StreamTests:
    """The tests of a stream's tasks, and their answers, which the method is never handed."""

    def __init__(self, stream: TaskStream, evaluate_on: str) -> None:
        ask = stream.validation if evaluate_on == "validation" else stream.test
        self.tests: list[TestSet] = [ask(k) for k in range(len(stream))]
        empty = [str(k + 1) for k, test in enumerate(self.tests) if not test.examples]
        if empty:
            raise StreamError(f"Stream '{stream.name}' has no {evaluate_on} examples for task {', '.join(empty)}.")
        self.answers = [Answers.of(test) for test in self.tests]

    def examples(self, k: int) -> list[Example]:
        """The test examples of tasks 0..k, one after another."""
        return [example for test in self.tests[: k + 1] for example in test.examples]

    def mark(self, predictions: Predictions, k: int) -> list[Marks]:
        """Mark the predictions for `examples(k)`, task by task."""
        ends = np.cumsum([len(test.examples) for test in self.tests[: k + 1]])
        if len(predictions) != ends[-1]:
            raise StreamError(f"The method answered {len(predictions)} of {ends[-1]} questions.")
        starts = [0, *ends[:-1]]
        return [
            mark(predictions[int(start) : int(end)], answers)
            for start, end, answers in zip(starts, ends, self.answers[: k + 1], strict=True)
        ]

    def test_predictions(self, tasks: Sequence[Arrays]) -> TestPredictions:
        """What `task_arrays` kept after each task as one: the file beside the record."""
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
        )


def task_arrays(predictions: Predictions, marks: Sequence[Marks]) -> dict[str, np.ndarray]:
    """What is kept after one task for every test example; `best` points into `relations`."""
    protocols = [name for name in marks[0].right if all(name in one.right for one in marks)]
    return {
        "relations": np.array(predictions.relations, dtype=np.str_),
        "best": predictions.scores.argmax(axis=1).astype(np.int32),
        "scores": half_precision(predictions.scores),
        **{f"right_{name}": np.concatenate([one.right[name] for one in marks]) for name in protocols},
    }
