"""Posterior's score over the encoder that another method trains: `NAME-rescored` for every method that trains.

After each task, count, mean and scatter of each new relation are stored in the vector space of that moment. Training
moves this space, so the mean of an old relation moves with its exemplars, and names are read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from erda.encoders.contract import unit_rows
from erda.methods.emar import Emar
from erda.methods.erda import Erda
from erda.methods.idlvq import IdlvqC
from erda.methods.posterior import Posterior
from erda.methods.sequential import Emr, Joint, SeqRun
from erda.methods.trained import Trained
from erda.types import Example, Relation, ScoreKind, Task
from erda_peers.cpl import Cpl
from erda_peers.dcre import Dcre
from erda_peers.sckd import Sckd
from erda_peers.sirus import Sirus

NAME_WEIGHT = 3.0  # as in Posterior
ROWS = ("count", "mean", "factor", "name")  # of Posterior
OWN = "posterior "  # start of the names of its rows
EXEMPLARS = OWN + "exemplars"  # row: the mean vector of a relation's exemplars; empty if it has none
COMMON = OWN + "common"  # shared array: vectors of common names

Rows = Mapping[str, Mapping[str, np.ndarray]]  # name -> relation -> array


if TYPE_CHECKING:
    Base = Trained
else:
    Base = object  # a mixin brings no fields of `Trained`, whose defaults would win over those of the method


@dataclass(eq=False)
class Rescored(Base):
    """Mixin: learn as the other base class does, and score like Posterior."""

    _: KW_ONLY
    names: bool = True  # means include the relation's name
    whiten: bool = True  # score by the two-covariance model; off: by the nearest mean

    score_kind: ClassVar[ScoreKind] = Posterior.score_kind

    def _learn(self, task: Task, generator: Any) -> None:
        super()._learn(task, generator)  # type: ignore[safe-super]  # of the method that is rescored
        found, common = self._learn_rows(task)
        for name, each in found.items():
            self.rows[name] = {owner: self._from_array(row) for owner, row in each.items()}
        self.shared[COMMON] = self._from_array(common)

    def _learn_rows(self, task: Task) -> tuple[dict[str, dict[str, np.ndarray]], np.ndarray]:
        """Return the rows of all relations after a task, and the vectors of common names."""
        rows, owners = self._row_arrays(), np.array([str(example.relation) for example in self.kept])
        vectors = unit_rows(self.encoder.embed(self.kept))
        centres = {owner: vectors[owners == owner].mean(axis=0) for owner in dict.fromkeys(owners.tolist())}
        known = [relation for relation in self.relations if relation.id in rows.get(OWN + "count", {})]
        posterior = self._posterior(rows, None, known)
        means, before = posterior.rows.get("mean", {}), rows.get(EXEMPLARS, {})
        taught = {relation.id for relation in task.relations}
        for relation in [one for one in means if one in centres and len(before[one]) and one not in taught]:
            means[relation] = means[relation] + (centres[relation] - before[relation])
        posterior.learn(replace(task, relations=tuple(self.relations)) if self.names else task)
        nothing = np.zeros(0, dtype=np.float32)
        found = {OWN + name: posterior.rows[name] for name in ROWS}
        found[EXEMPLARS] = {relation.id: centres.get(relation.id, nothing) for relation in self.relations}
        return found, posterior.shared.get("common", nothing)

    def _row_arrays(self) -> dict[str, dict[str, np.ndarray]]:
        return {name: {one: self._to_array(row) for one, row in rows.items()} for name, rows in self.rows.items()}

    def _prepare(self) -> None:
        super()._prepare()  # type: ignore[safe-super]  # of the method that is rescored
        self._rescorer: Posterior | None = None  # built lazily, at the first prediction

    def _score_array(self, examples: Sequence[Example]) -> np.ndarray:
        if self._rescorer is None:
            self._rescorer = self._posterior(self._row_arrays(), self._to_array(self.shared[COMMON]), self.relations)
        return self._rescorer.predict(examples).scores

    def _posterior(self, rows: Rows, common: np.ndarray | None, known: Iterable[Relation]) -> Posterior:
        """Build Posterior over the current encoder from its rows."""
        posterior = Posterior(
            self.encoder,
            score="two-covariance" if self.whiten else "mean",
            name_weight=NAME_WEIGHT if self.names else 0.0,
        )
        own = {name: {**rows.get(OWN + name, {})} for name in ROWS}
        posterior.rows = own if own["count"] else {}
        # the encoder's own background does not fit trained weights
        posterior.shared = {"background": np.zeros((0, self.encoder.dim))}
        posterior.shared |= {} if common is None else {"common": common}
        posterior._know(known)
        posterior._prepare()
        return posterior


def rescored(method: type[Trained]) -> Any:
    """Derive `NAME-rescored` from a method."""
    about = f"{method.name}, scored like Posterior over the encoder that it trains."
    members = {"name": f"{method.name}-rescored", "__doc__": about, "__module__": __name__}
    return dataclass(eq=False)(type(f"Rescored{method.__name__}", (Rescored, method), members))


RescoredSeqRun = rescored(SeqRun)
RescoredJoint = rescored(Joint)
RescoredEmr = rescored(Emr)
RescoredEmar = rescored(Emar)
RescoredIdlvqC = rescored(IdlvqC)
RescoredSckd = rescored(Sckd)
RescoredCpl = rescored(Cpl)
RescoredDcre = rescored(Dcre)
RescoredSirus = rescored(Sirus)
RescoredErda = rescored(Erda)
