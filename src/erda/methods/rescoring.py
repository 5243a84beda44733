"""Posterior's score over the encoder that another method trains: the settings `names` and `whiten` of every method.

After each task, count, mean and scatter of each new relation are stored in the vector space of that moment. Training
moves this space, so the mean of an old relation moves with its exemplars, and names are read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from erda.encoders.contract import Encoder, unit_rows
from erda.methods.posterior import Posterior
from erda.types import Example, Relation, Task

NAME_WEIGHT = 3.0  # as in Posterior
ROWS = ("count", "mean", "factor", "name")  # of Posterior
OWN = "posterior "  # start of the names of its rows
EXEMPLARS = OWN + "exemplars"  # row: the mean vector of a relation's exemplars; empty if it has none
COMMON = OWN + "common"  # shared array: vectors of common names


class Rescoring:
    """Scores by means or by the two-covariance model, with or without names, from rows kept by another method."""

    def __init__(self, encoder: Encoder, *, names: bool, whiten: bool) -> None:
        self.encoder, self.names, self.whiten, self.is_on = encoder, names, whiten, names or whiten
        self.fitted: Posterior | None = None

    def learn(
        self,
        rows: Mapping[str, Mapping[str, np.ndarray]],
        known: Sequence[Relation],
        kept: Sequence[Example],
        task: Task,
    ) -> tuple[dict[str, dict[str, np.ndarray]], np.ndarray]:
        """Return the rows of all `known` relations after a task, and the vectors of common names.

        `rows` are those of the method, before this call; `kept` are its exemplars.
        """
        vectors, owners = unit_rows(self.encoder.embed(kept)), np.array([str(example.relation) for example in kept])
        centres = {owner: vectors[owners == owner].mean(axis=0) for owner in dict.fromkeys(owners.tolist())}
        posterior = self._restored(rows, None, (one for one in known if one.id in rows.get(OWN + "count", {})))
        means, before = posterior.rows.get("mean", {}), rows.get(EXEMPLARS, {})
        taught = {relation.id for relation in task.relations}
        for relation in [one for one in means if one in centres and len(before[one]) and one not in taught]:
            means[relation] = means[relation] + (centres[relation] - before[relation])
        posterior.learn(replace(task, relations=tuple(known)) if self.names else task)
        found = {OWN + name: posterior.rows[name] for name in ROWS}
        nothing = np.zeros(0, dtype=np.float32)
        found[EXEMPLARS] = {relation.id: centres.get(relation.id, nothing) for relation in known}
        return found, posterior.shared.get("common", nothing)

    def scores(
        self,
        examples: Sequence[Example],
        rows: Mapping[str, Mapping[str, np.ndarray]],
        common: np.ndarray,
        known: Iterable[Relation],
    ) -> np.ndarray:
        """Score all `known` relations from their rows: [n_examples, n_relations]. The fit is reused until `reset`."""
        if self.fitted is None:
            self.fitted = self._restored(rows, common, known)
        return self.fitted.predict(examples).scores

    def reset(self) -> None:
        """Fit again at the next call of `scores`."""
        self.fitted = None

    def _restored(
        self,
        rows: Mapping[str, Mapping[str, np.ndarray]],
        common: np.ndarray | None,
        known: Iterable[Relation],
    ) -> Posterior:
        weight = NAME_WEIGHT if self.names else 0.0
        posterior = Posterior(self.encoder, score="two-covariance" if self.whiten else "mean", name_weight=weight)
        own = {name: {**rows.get(OWN + name, {})} for name in ROWS}
        posterior.rows = own if own["count"] else {}
        # the encoder's own background does not fit trained weights
        posterior.shared = {"background": np.zeros((0, self.encoder.dim))} | (
            {} if common is None else {"common": common}
        )
        posterior._know(known)
        posterior._prepare()
        return posterior
