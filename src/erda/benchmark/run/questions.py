"""The tests of a stream as a method meets them: questions without answers, asked at once, marked task by task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from erda.benchmark.metrics import Answers, Marks, mark
from erda.errors import StreamError
from erda.types import Example, Predictions, TestSet

if TYPE_CHECKING:
    from erda.data.streams import TaskStream


class Questions:
    """The tests of a stream's tasks, and their answers, which the method is never handed."""

    def __init__(self, stream: TaskStream, evaluate_on: str) -> None:
        ask = stream.validation if evaluate_on == "validation" else stream.test
        self.tests: list[TestSet] = [ask(k) for k in range(len(stream))]
        empty = [str(k + 1) for k, test in enumerate(self.tests) if not test.examples]
        if empty:
            raise StreamError(f"Stream '{stream.name}' has no {evaluate_on} examples for task {', '.join(empty)}.")
        self.answers = [Answers.of(test) for test in self.tests]

    def until(self, k: int) -> list[Example]:
        """The questions of tasks 0..k, one after another."""
        return [example for test in self.tests[: k + 1] for example in test.examples]

    def mark(self, predictions: Predictions, k: int) -> list[Marks]:
        """Mark the predictions for `until(k)`, task by task."""
        ends = np.cumsum([len(test.examples) for test in self.tests[: k + 1]])
        if len(predictions) != ends[-1]:
            raise StreamError(f"The method answered {len(predictions)} of {ends[-1]} questions.")
        starts = [0, *ends[:-1]]
        return [
            mark(predictions[int(start) : int(end)], answers)
            for start, end, answers in zip(starts, ends, self.answers[: k + 1], strict=True)
        ]
