"""What every method promises: `learn(task)`, `predict(examples)`, `save(directory)`, `load(directory)`.

A method is a dataclass. Its parts (the encoder, an augmenter) are handed in; its fields of a plain type (see
`erda.fields`) are its settings, each with its range and the paper's value, so that the command line, saved methods and
records know them without being told.
A subclass writes four short functions: `_learn`, `_scores`, `_state` and `_restore`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import torch
from pydantic import Field
from torch import Tensor

from erda.encoders.base import Encoder
from erda.errors import ModelError, StreamError
from erda.fields import Seed, Settings, checked_settings, flat_values, settings_model
from erda.types import Example, Predictions, Relation, Task

LearningRate = Annotated[float, Field(ge=0, lt=10)]  # 0: the encoder's own
NotTiny = Annotated[float, Field(ge=1e-6)]
M = TypeVar("M", bound="Method")


@dataclass(frozen=True, slots=True)
class State:
    """What a method must remember beyond its settings, relations and encoder weights."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)  # plain JSON


@dataclass(eq=False)
class Method(ABC):
    """A learner of a stream of tasks."""

    encoder: Encoder
    _: KW_ONLY
    seed: Seed = 0

    name: ClassVar[str]

    def __post_init__(self) -> None:
        model = settings_model(type(self))
        settings = checked_settings(model, {name: getattr(self, name) for name in model.model_fields})
        for name in model.model_fields:
            setattr(self, name, getattr(settings, name))
        self.relations: list[Relation] = []
        self.index: dict[str, int] = {}  # relation id -> its row, in the order of learning
        self.n_tasks = 0

    # -- the contract ------------------------------------------------------------------------------------------------

    def learn(self, task: Task) -> None:
        """Learn the relations of one task. A task that fails leaves the method as it was."""
        known = [relation.id for relation in task.relations if relation.id in self.index]
        if known:
            raise StreamError(f"Task {task.index + 1} brings relations that are already known: {', '.join(known)}.")
        before = self._snapshot()
        try:
            for relation in task.relations:
                self.index[relation.id] = len(self.relations)
                self.relations.append(relation)
            with seeded(self.seed, self.n_tasks) as generator, threads(self.encoder.n_threads):
                self._learn(task, generator)
            self.n_tasks += 1
        except BaseException:
            self._return_to(before)
            raise

    def predict(self, examples: Sequence[Example]) -> Predictions:
        """Scores of all known relations for each example."""
        if not self.relations:
            raise StreamError("Nothing was learned yet: call learn(task) before predict(examples).")
        with torch.no_grad(), threads(self.encoder.n_threads):
            scores = self._scores(examples)
        return Predictions(tuple(self.index), scores.float().cpu().numpy())

    def save(self, directory: Path) -> None:
        """Write the method to a folder (safetensors, JSON); what was there stays until the new one is whole."""
        from erda.methods.saving import save_method

        save_method(self, Path(directory))

    @classmethod
    def load(cls, directory: Path, *, encoder: Encoder | None = None, **parts: Any) -> Method:
        """A method as it was saved. Without `encoder` the one named in the folder is built."""
        from erda.methods.saving import load_method

        method = load_method(Path(directory), encoder=encoder, **parts)
        if not isinstance(method, cls):
            raise ModelError(f"{directory} holds method '{method.name}', not '{cls.name}'.")
        return method

    @classmethod
    def from_settings(cls: type[M], encoder: Encoder, settings: Mapping[str, Any], **parts: Any) -> M:
        """A method of settings as `settings()` gives them: flat, those of nested models under their own names."""
        checked = checked_settings(settings_model(cls), settings)
        return cls(encoder, **parts, **{name: getattr(checked, name) for name in type(checked).model_fields})

    def settings(self) -> dict[str, bool | int | float | str]:
        """The value of every setting: all fields but the parts, those of nested models under their own names."""
        model = settings_model(type(self))
        return flat_values(model.model_construct(**{name: getattr(self, name) for name in model.model_fields}))

    def _rows(self, examples: Sequence[Example]) -> Tensor:
        """Rows of the examples' relations, on the encoder's device: [n_examples]."""
        rows = [self.index[example.relation or ""] for example in examples]
        return torch.tensor(rows, dtype=torch.long, device=self.encoder.device)

    def notes(self) -> dict[str, Any]:
        """What a record should tell beyond accuracy, as plain JSON; nothing unless a method has something to say."""
        return {}

    # -- what a subclass writes --------------------------------------------------------------------------------------

    @abstractmethod
    def _learn(self, task: Task, generator: torch.Generator) -> None:
        """Update the encoder and the method's own state; the task's relations already have their rows."""

    @abstractmethod
    def _scores(self, examples: Sequence[Example]) -> Tensor:
        """[n_examples, n_relations], large is likely, columns in the order of `self.relations`."""

    @abstractmethod
    def _state(self) -> State:
        """What `_restore` needs to go on."""

    @abstractmethod
    def _restore(self, state: State) -> None:
        """Take over a saved state; relations and encoder weights are already back."""

    # -- keeping what was learned --------------------------------------------------------------------------------------

    def _snapshot(self) -> tuple[int, dict[str, Tensor], State]:
        state = self._state()
        tensors = {name: tensor.detach().clone() for name, tensor in state.tensors.items()}
        weights = {name: tensor.clone() for name, tensor in self.encoder.trained_state().items()}
        return len(self.relations), weights, State(tensors, dict(state.values))

    def _return_to(self, snapshot: tuple[int, dict[str, Tensor], State]) -> None:
        n_relations, weights, state = snapshot
        self.relations = self.relations[:n_relations]
        self.index = {relation.id: row for row, relation in enumerate(self.relations)}
        self.encoder.load_trained_state(weights)
        self._restore(state)


def method_settings(method: type[Method]) -> type[Settings]:
    """The settings that a user may give a method, with their ranges; the seed is the run's."""
    return settings_model(method, without=("seed",))


@contextmanager
def seeded(seed: int, step: int) -> Iterator[torch.Generator]:
    """A generator for step `step` of a run, and dropout that follows it; global random state is left as it was."""
    derived = (seed * 1_000_003 + step * 7_919 + 17) % (2**63)
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(derived)
        yield torch.Generator().manual_seed(derived)


@contextmanager
def threads(n: int | None) -> Iterator[None]:
    """So many threads of PyTorch's, and as many as before afterwards; None changes nothing."""
    before = torch.get_num_threads()
    if n is None or n == before:
        yield
        return
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
