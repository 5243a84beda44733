"""Logistic regression over the frozen encoder's vectors of all examples: what the vectors alone are worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from erda.encoders.contract import unit_rows
from erda.fields import Positive
from erda.methods.base import Method
from erda.types import Example, ScoreKind, Task

MOST_STEPS = 1000  # of scikit-learn's optimiser


@dataclass(eq=False)
class LogisticProbe(Method):
    """scikit-learn's multinomial logistic regression over standardised vectors, fitted again after every task.

    It keeps the vectors of all examples. Every relation has the same total weight, so that the relations of the first
    task, which have more examples, do not win by their number.
    """

    _: KW_ONLY
    inverse_regularisation: Positive = 1.0  # C of scikit-learn; 1 is its default

    name: ClassVar[str] = "logistic-probe"
    score_kind: ClassVar[ScoreKind] = "logit"
    trains: ClassVar[bool] = False

    def _learn(self, task: Task, generator: Any) -> None:
        vectors, targets = unit_rows(self.encoder.embed(task.examples)), self._target_rows(task.examples)
        known = dict(self.rows.get("vectors", {}))
        for relation in task.relations:
            new = vectors[targets == self.index[relation.id]]
            known[relation.id] = np.concatenate([known.get(relation.id, new[:0]), new])
        self.rows["vectors"] = known
        self._remember(task.examples, 1, vectors)

    def _prepare(self) -> None:
        self._fitted: Any = None  # fitted lazily, at the first prediction

    def _scores(self, examples: Sequence[Example]) -> np.ndarray:
        if len(self.index) == 1 or not examples:
            return np.zeros((len(examples), len(self.index)))
        if self._fitted is None:
            self._fitted = self._fit()
        scores: np.ndarray = self._fitted.decision_function(unit_rows(self.encoder.embed(examples)))
        return scores if scores.ndim == 2 else np.stack([np.zeros(len(scores)), scores], axis=1)  # two relations

    def _fit(self) -> Any:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        each = [self.rows["vectors"][relation] for relation in self.index]
        owners = np.repeat(np.arange(len(each)), [len(one) for one in each])
        model = LogisticRegression(C=self.inverse_regularisation, class_weight="balanced", max_iter=MOST_STEPS)
        return make_pipeline(StandardScaler(), model).fit(np.concatenate(each), owners)
