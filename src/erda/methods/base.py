"""What every method promises: learn, predict, forget, checkpoint, restore, save, load.

A method is a dataclass. Its parts (the encoder, an augmenter) are handed in; its fields of a plain type (see
`erda.fields`) are its settings, each with its range and the paper's value, so that the command line, saved methods and
records know them without being told.

A subclass writes `_learn`, `_prepare` and `_scores`. What belongs to a relation is kept here, in one place: `kept`
(examples) and `rows` (named tensors). So adding, forgetting, undoing and saving one are the same for all methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn

from erda.encoders.base import Encoder, embed
from erda.errors import ModelError, StreamError, unknown_name
from erda.fields import Count, Seed, Settings, checked_settings, flat_values, settings_model
from erda.learning.loop import descend, seeded, threads
from erda.learning.memory import nearest_of_each
from erda.types import Example, Predictions, Relation, ScoreKind, Task

LearningRate = Annotated[float, Field(ge=0, lt=10)]  # 0: the encoder's own
NotTiny = Annotated[float, Field(ge=1e-6)]
M = TypeVar("M", bound="Method")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """What a method had learned at one moment. Nothing in it is ever changed, so only trained weights are copied.

    `rows` are named tensors of each relation; `shared` are those that belong to none.
    """

    method: str
    n_tasks: int
    relations: tuple[Relation, ...]
    kept: tuple[Example, ...]
    rows: Mapping[str, Mapping[str, Tensor]]  # name -> relation -> tensor
    shared: Mapping[str, Tensor]
    weights: Mapping[str, Tensor]  # trained parameters of the encoder
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Method(ABC):
    """A learner of relations, task by task."""

    encoder: Encoder
    _: KW_ONLY
    seed: Seed = 0

    name: ClassVar[str]
    score_kind: ClassVar[ScoreKind]  # what its scores are; large is likely
    trains: ClassVar[bool] = True  # whether learning changes an encoder that can be changed
    reads_names: ClassVar[bool] = False  # whether a relation can be learned by its name, without an example

    def __post_init__(self) -> None:
        model = settings_model(type(self))
        settings = checked_settings(model, {name: getattr(self, name) for name in model.model_fields})
        for name in model.model_fields:
            setattr(self, name, getattr(settings, name))
        self.encoder.eval()  # but for the steps of `_descend`
        self.relations: list[Relation] = []
        self.index: dict[str, int] = {}  # relation id -> its row, in the order of learning
        self.kept: tuple[Example, ...] = ()  # exemplars, in the order of learning
        self.rows: dict[str, dict[str, Tensor]] = {}  # name -> relation id -> tensor, replaced but never changed
        self.shared: dict[str, Tensor] = {}
        self.n_tasks = 0
        self.noted: dict[str, Any] = {}

    # -- the contract --------------------------------------------------------------------------------------------------

    def learn(self, task: Task) -> None:
        """Learn new relations, and more about known ones. A task that fails leaves the method as it was."""
        if not self.reads_names:
            task.check_examples()
        before = self.checkpoint()
        try:
            self.noted = {}
            new = {name: one for name, one in self.taken_over().items() if name not in self.shared}
            self.shared |= {name: one.to(self.encoder.device) for name, one in new.items()}
            self._know({relation.id: relation for relation in (*self.relations, *task.relations)}.values())
            with seeded(self.seed, self.n_tasks) as generator, threads(self.encoder.n_threads):
                self._learn(task, generator)
                self._prepare()
            self.n_tasks += 1
        except BaseException:
            self.restore(before)
            raise

    def predict(self, examples: Sequence[Example]) -> Predictions:
        """Scores of all known relations for each example, of the kind `score_kind`.

        Nothing changes, in the method or around it: several threads may ask at once, though not while it learns.
        """
        if not self.relations:
            raise StreamError("Nothing was learned yet: call learn(task) before predict(examples).")
        with torch.no_grad():
            scores = self._scores(examples)
        return Predictions(tuple(self.index), scores.float().cpu().numpy(), self.score_kind)

    def forget(self, relation_id: str) -> None:
        """Drop a relation and all that is kept of it; what it taught the encoder stays."""
        if relation_id not in self.index:
            raise StreamError(unknown_name("relation", relation_id, self.index))
        before = self.checkpoint()
        try:
            self._know([relation for relation in self.relations if relation.id != relation_id])
            self.kept = tuple(example for example in self.kept if example.relation != relation_id)
            self.rows = {
                name: {owner: row for owner, row in rows.items() if owner != relation_id}
                for name, rows in self.rows.items()
            }
            if self.relations:
                self._prepare()
        except BaseException:
            self.restore(before)
            raise

    def checkpoint(self) -> Checkpoint:
        """What was learned so far, for `restore`. Only what can change is copied; a frozen encoder is not."""
        return Checkpoint(
            self.name,
            self.n_tasks,
            tuple(self.relations),
            self.kept,
            {name: dict(rows) for name, rows in self.rows.items()},
            dict(self.shared),
            {name: weights.clone() for name, weights in self.encoder.trained_state().items()},
            dict(self.noted),
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Be what the method was at `checkpoint`, to the last bit."""
        if checkpoint.method != self.name:
            raise ModelError(f"A checkpoint of method '{checkpoint.method}' cannot be restored to '{self.name}'.")
        device = self.encoder.device
        self.encoder.load_trained_state(checkpoint.weights)
        self.encoder.eval()
        self.n_tasks, self.kept, self.noted = checkpoint.n_tasks, checkpoint.kept, dict(checkpoint.notes)
        self.rows = {
            name: {owner: row.to(device) for owner, row in rows.items()} for name, rows in checkpoint.rows.items()
        }
        self.shared = {name: tensor.to(device) for name, tensor in checkpoint.shared.items()}
        self._know(checkpoint.relations)
        if self.relations:
            self._prepare()

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

    def notes(self) -> dict[str, Any]:
        """What a record should tell of the last task learned, as plain JSON; nothing unless a method has something."""
        return dict(self.noted)

    def taken_over(self) -> dict[str, Tensor]:
        """What lies beside the encoder now and goes into `shared` with the first task, so that no later change of it
        reaches what was learned."""
        return {}

    # -- what a subclass writes ----------------------------------------------------------------------------------------

    @abstractmethod
    def _learn(self, task: Task, generator: torch.Generator) -> None:
        """Update the encoder, `rows` and `kept`. The task's relations are in `relations`; new ones have no rows yet."""

    @abstractmethod
    def _scores(self, examples: Sequence[Example]) -> Tensor:
        """[n_examples, n_relations], large is likely, columns in the order of `self.relations`."""

    @abstractmethod
    def _prepare(self) -> None:
        """Compute from `rows` what `_scores` needs; called after every change of them."""

    # -- what belongs to a relation ------------------------------------------------------------------------------------

    def _know(self, relations: Iterable[Relation]) -> None:
        self.relations = list(relations)
        self.index = {relation.id: row for row, relation in enumerate(self.relations)}

    def _targets(self, examples: Sequence[Example]) -> Tensor:
        """Rows of the examples' relations, on the encoder's device: [n_examples]."""
        rows = [self.index[example.relation or ""] for example in examples]
        return torch.tensor(rows, dtype=torch.long, device=self.encoder.device)

    def _n_without(self, name: str) -> int:
        """How many relations have no row of that name yet: the last ones."""
        return len(self.relations) - len(self.rows.get(name, {}))

    def _stack(self, name: str, new: Tensor | None = None) -> Tensor:
        """The rows of that name, and `new` ones for the relations without: [n_relations, ...]."""
        known = self.rows.get(name, {})
        rows = [known[relation] for relation in self.index if relation in known]
        return torch.stack([*rows, *(() if new is None else new)])

    def _keep(self, name: str, rows: Tensor) -> None:
        """Keep a row of each relation, [n_relations, ...], under a name."""
        self.rows[name] = dict(zip(self.index, rows.detach().unbind(), strict=True))

    def _vectors(self, examples: Sequence[Example]) -> Tensor:
        """Vectors as the method compares them, without gradient: [n_examples, dim]."""
        return embed(self.encoder, examples)

    def _remember(
        self,
        examples: Sequence[Example],
        n: int,
        vectors: Tensor | None = None,
        *,
        centres: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Keep the `n` examples of each relation that are nearest to its centroid; those kept before compete."""
        taught = {example.relation for example in examples}
        others = tuple(example for example in self.kept if example.relation not in taught)
        earlier = [example for example in self.kept if example.relation in taught and example not in examples]
        if n:
            vectors = self._vectors(examples) if vectors is None else vectors
            vectors = torch.cat([vectors, self._vectors(earlier)])
            others += tuple(nearest_of_each([*examples, *earlier], vectors, n=n, centres=centres))
        self.kept = others


@dataclass(eq=False)
class Trained(Method):
    """A method that learns by gradients."""

    _: KW_ONLY
    batch_size: Count = 5
    learning_rate: LearningRate = 0.0  # 0: the encoder's own
    max_gradient_norm: NotTiny = 1.0
    train_encoder: bool = True  # off: the encoder stays as it is, and only what the method adds to it learns

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.train_encoder:
            self.encoder.requires_grad_(False)

    def _descend(
        self,
        items: Sequence[Item],
        loss: Callable[[list[Item]], Tensor],
        generator: torch.Generator,
        *,
        epochs: int,
        parameters: Sequence[nn.Parameter] = (),
        own_rate: float = 0.0,
    ) -> None:
        """Epochs that change the encoder, where it can be changed, and the method's own `parameters`.

        `own_rate` is the learning rate of the latter; 0: the same as the encoder's.
        """
        rate, encoders = self.learning_rate or self.encoder.learning_rate, self.encoder.trained_parameters()
        self.encoder.train(bool(encoders))
        try:
            descend(
                items,
                loss,
                [*encoders, *parameters],
                learning_rate=[rate] * len(encoders) + [own_rate or rate] * len(parameters),
                generator=generator,
                epochs=epochs,
                batch_size=self.batch_size,
                max_gradient_norm=self.max_gradient_norm,
            )
        finally:
            self.encoder.eval()


def method_settings(method: type[Method]) -> type[Settings]:
    """The settings that a user may give a method, with their ranges; the seed is the run's."""
    return settings_model(method, without=("seed",))
