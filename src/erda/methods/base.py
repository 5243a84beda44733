"""The contract of every method: learn, predict, forget, checkpoint, restore, save, load.

A method is a dataclass. Its parts (the encoder, an augmenter) are passed in. Its fields of a plain type (see
`erda.fields`) are its settings, each with a range and a default. The command line, saved methods and records read the
settings from the class.

A subclass implements `_learn`, `_prepare` and `_scores`. The base class stores everything that belongs to a relation:
`kept` (exemplars) and `rows` (named arrays). So adding, forgetting, undoing and saving work the same way for all
methods. The contract speaks NumPy; methods that learn by gradients use tensors inside (`erda.methods.trained`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from erda.encoders.contract import Encoder
from erda.errors import ModelError, SettingsError, StreamError, unknown_name
from erda.fields import Seed, Settings, checked_settings, flat_values, settings_model
from erda.learning.memory import nearest_of_each
from erda.types import Example, Predictions, Relation, ScoreKind, Task

M = TypeVar("M", bound="Method")
# settings of earlier saves and records -> the value that every method has today
FORMER_SETTINGS = {
    **dict.fromkeys(("names", "whiten", "classifier", "centred", "search_rejected"), False),
    **{"unit_embeddings": True, "max_gradient_norm": 1.0, "mean_weight": 0.0},
}


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """Everything a method had learned at one moment. Its arrays are never modified.

    `rows` are named arrays of each relation; `shared` are arrays that belong to no single relation.
    """

    method: str
    n_tasks: int
    relations: tuple[Relation, ...]
    kept: tuple[Example, ...]
    rows: Mapping[str, Mapping[str, np.ndarray]]  # name -> relation -> array
    shared: Mapping[str, np.ndarray]
    weights: Mapping[str, np.ndarray]  # trained parameters of the encoder
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Method(ABC):
    """A learner of relations, task by task."""

    encoder: Encoder
    _: KW_ONLY
    seed: Seed = 0

    name: ClassVar[str]
    score_kind: ClassVar[ScoreKind]  # the kind of scores; large is likely
    trains: ClassVar[bool] = True  # whether learning changes the encoder, unless it is frozen
    reads_names: ClassVar[bool] = False  # whether a relation can be learned from its name, without an example
    uses_names: ClassVar[bool] = False  # whether relation names or descriptions enter training or scores

    def __post_init__(self) -> None:
        model = settings_model(type(self))
        settings = checked_settings(model, {name: getattr(self, name) for name in model.model_fields})
        for name in model.model_fields:
            setattr(self, name, getattr(settings, name))
        self.relations: list[Relation] = []
        self.index: dict[str, int] = {}  # relation id -> row, in the order of learning
        self.kept: tuple[Example, ...] = ()  # exemplars, in the order of learning
        self.rows: dict[str, dict[str, Any]] = {}  # name -> relation id -> array, replaced but never modified
        self.shared: dict[str, Any] = {}
        self.n_tasks = 0
        self.noted: dict[str, Any] = {}

    # -- the contract --------------------------------------------------------------------------------------------------

    def learn(self, task: Task) -> None:
        """Learn new relations, and further examples of known ones. A failing task leaves the method unchanged."""
        if not self.reads_names:
            task.check_examples()
        with self._undone_on_failure():
            self.noted = {}
            if not self.n_tasks:
                taken = {name: self._from_array(array) for name, array in self.taken_over().items()}
                self.shared = {**taken, **self.shared}
            self._know({relation.id: relation for relation in (*self.relations, *task.relations)}.values())
            with self._learning() as generator:
                self._learn(task, generator)
                self._prepare()
            self.n_tasks += 1

    @contextmanager
    def _undone_on_failure(self) -> Iterator[Checkpoint]:
        before = self.checkpoint()
        try:
            yield before
        except BaseException:
            self.restore(before)
            raise

    def predict(self, examples: Sequence[Example]) -> Predictions:
        """Score all known relations for each example; `score_kind` names the kind of scores.

        Prediction changes nothing: several threads may predict at once, though not while the method learns.
        """
        if not self.relations:
            raise StreamError("Nothing has been learned yet: call learn(task) before predict(examples).")
        return Predictions(tuple(self.index), self._score_array(examples), self.score_kind)

    def forget(self, relation_id: str) -> None:
        """Drop a relation with its exemplars and rows. Its effect on a trained encoder remains."""
        if relation_id not in self.index:
            raise StreamError(unknown_name("relation", relation_id, self.index))
        with self._undone_on_failure() as before:
            rows = {
                name: {one: row for one, row in own.items() if one != relation_id} for name, own in before.rows.items()
            }
            relations = tuple(relation for relation in before.relations if relation.id != relation_id)
            kept = tuple(example for example in before.kept if example.relation != relation_id)
            self.restore(replace(before, relations=relations, kept=kept, rows=rows))

    def checkpoint(self) -> Checkpoint:
        """Return everything learned so far, for `restore`. Trained weights are copied; arrays are shared."""
        return Checkpoint(
            self.name,
            self.n_tasks,
            tuple(self.relations),
            self.kept,
            {name: {one: self._to_array(row) for one, row in rows.items()} for name, rows in self.rows.items()},
            {name: self._to_array(array) for name, array in self.shared.items()},
            self.encoder.trained_state(),
            dict(self.noted),
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore a checkpoint, bit for bit."""
        if checkpoint.method != self.name:
            raise ModelError(f"Method '{self.name}' cannot restore a checkpoint of method '{checkpoint.method}'.")
        self.encoder.load_trained_state(checkpoint.weights)
        self.n_tasks, self.kept, self.noted = checkpoint.n_tasks, checkpoint.kept, dict(checkpoint.notes)
        self.rows = {
            name: {owner: self._from_array(row) for owner, row in rows.items()}
            for name, rows in checkpoint.rows.items()
        }
        self.shared = {name: self._from_array(array) for name, array in checkpoint.shared.items()}
        self._know(checkpoint.relations)
        if self.relations:
            self._prepare()

    def save(self, directory: Path) -> None:
        """Write the method to a folder (safetensors). An earlier save stays until the new one is complete."""
        from erda.methods.saving import save_method

        save_method(self, Path(directory))

    @classmethod
    def load(cls, directory: Path, *, encoder: Encoder | None = None, **parts: Any) -> Method:
        """Load a saved method. Without `encoder`, the encoder named in the folder is built."""
        from erda.methods.saving import load_method

        method = load_method(Path(directory), encoder=encoder, **parts)
        if not isinstance(method, cls):
            raise ModelError(f"{directory} holds method '{method.name}', not '{cls.name}'.")
        return method

    @classmethod
    def from_settings(cls: type[M], encoder: Encoder, settings: Mapping[str, Any], **parts: Any) -> M:
        """Build a method from flat settings, as `settings()` returned them in this or an earlier version."""
        model = settings_model(cls)
        former = {name: value for name, value in FORMER_SETTINGS.items() if name not in model.model_fields}
        for name in former.keys() & settings.keys():
            if settings[name] != former[name]:
                raise SettingsError(f"{name}: is not a setting any more; every method has {former[name]}.")
        checked = checked_settings(model, {name: value for name, value in settings.items() if name not in former})
        return cls(encoder, **parts, **{name: getattr(checked, name) for name in model.model_fields})

    def settings(self) -> dict[str, bool | int | float | str]:
        """Return the value of every setting; nested settings appear under their own names."""
        model = settings_model(type(self))
        return flat_values(model.model_construct(**{name: getattr(self, name) for name in model.model_fields}))

    def notes(self) -> dict[str, Any]:
        """Return notes about the last task for its record, as plain JSON; empty for most methods."""
        return dict(self.noted)

    def taken_over(self) -> dict[str, np.ndarray]:
        """Return arrays from files of the encoder, to be copied into `shared` with the first task.

        Later changes of those files then do not affect what was learned.
        """
        return {}

    def derived(self) -> dict[str, np.ndarray]:
        """Return arrays computed from everything learned so far that are slow to compute; empty for most methods."""
        return {}

    def use_derived(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Use the arrays that `derived` returned in another process instead of computing them."""
        raise ModelError(f"Method '{self.name}' derives no arrays.")

    # -- what a subclass implements ------------------------------------------------------------------------------------

    @abstractmethod
    def _learn(self, task: Task, generator: Any) -> None:
        """Update the encoder, `rows` and `kept`. `relations` includes the task's relations; new ones have no rows."""

    @abstractmethod
    def _scores(self, examples: Sequence[Example]) -> Any:
        """Return [n_examples, n_relations], large is likely, columns in the order of `self.relations`."""

    @abstractmethod
    def _prepare(self) -> None:
        """Compute from `rows` what `_scores` needs. Called after every change of `rows`."""

    # -- conversion between NumPy arrays and the arrays of a subclass --------------------------------------------------

    @contextmanager
    def _learning(self) -> Iterator[Any]:
        """Context of `_learn`; yields its random generator, which depends only on the seed and the task number."""
        yield np.random.default_rng([self.seed, self.n_tasks])

    def _score_array(self, examples: Sequence[Example]) -> np.ndarray:
        return np.asarray(self._scores(examples), dtype=np.float32)

    def _to_array(self, row: Any) -> np.ndarray:
        return np.asarray(row)

    def _from_array(self, array: np.ndarray) -> Any:
        return array

    # -- relations, their rows and exemplars ---------------------------------------------------------------------------

    def _know(self, relations: Iterable[Relation]) -> None:
        self.relations = list(relations)
        self.index = {relation.id: row for row, relation in enumerate(self.relations)}

    def _target_rows(self, examples: Sequence[Example]) -> np.ndarray:
        """Return the row of each example's relation: [n_examples] int64."""
        return np.array([self.index[example.relation or ""] for example in examples], dtype=np.int64)

    def _stacked(self, name: str) -> np.ndarray:
        """Stack the rows of that name, in float64: [n_relations, ...]."""
        return np.stack([self._to_array(self.rows[name][relation]) for relation in self.index]).astype(np.float64)

    def vectors(self, examples: Sequence[Example]) -> np.ndarray:
        """Embed examples in the space where the method compares them: [n_examples, dim]."""
        return self.encoder.embed(examples)

    def _remember(
        self,
        examples: Sequence[Example],
        n: int,
        vectors: np.ndarray | None = None,
        *,
        centres: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Keep the `n` examples of each relation nearest to its centroid, earlier exemplars included."""
        taught = {example.relation for example in examples}
        others = tuple(example for example in self.kept if example.relation not in taught)
        earlier = [example for example in self.kept if example.relation in taught and example not in examples]
        if n:
            vectors = self.vectors(examples) if vectors is None else vectors
            if earlier:
                vectors = np.concatenate([vectors, self.vectors(earlier)])
            others += tuple(nearest_of_each([*examples, *earlier], vectors, n=n, centres=centres))
        self.kept = others


def method_settings(method: type[Method]) -> type[Settings]:
    """Return the model of a method's settings that a user may set; the seed belongs to the run."""
    return settings_model(method, without=("seed",))
