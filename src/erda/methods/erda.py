"""ERDA: embedding space regularisation and data augmentation (the paper's Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from erda.encoders.base import embed
from erda.learning.losses import contrastive, cosine_similarity, cross_entropy, multi_margin, pairwise_margin
from erda.learning.loop import descend
from erda.learning.memory import Memory, by_relation
from erda.learning.negatives import hard_negatives
from erda.learning.prototypes import relation_embeddings
from erda.methods.base import Method, State
from erda.methods.saving import examples_from_json, examples_to_json
from erda.types import Example, Task


@dataclass(eq=False)
class Erda(Method):
    """Margin losses in embedding space, and a memory of one exemplar a relation with hard negatives."""

    _: KW_ONLY
    new_iterations: int = 1  # iter_1: epochs on the new task
    memory_iterations: int = 2  # iter_2: epochs on the new task and the memory
    batch_size: int = 5
    learning_rate: float = 0.0  # 0: the encoder's own
    temperature: float = 1.0  # of the softmax in L_ce
    cross_entropy_weight: float = 1.0  # lambda_ce
    multi_margin_weight: float = 1.0  # lambda_mm
    pairwise_margin_weight: float = 1.0  # lambda_pm
    contrastive_weight: float = 0.1  # lambda_con
    multi_margin: float = 0.2  # m_1
    pairwise_margin: float = 0.2  # m_2
    contrastive_margin: float = 0.01  # m_3
    average_multi_margin: bool = False  # divide L_mm by the number of wrong relations
    memory_size: int = 1  # exemplars a relation; 0: without memory
    max_gradient_norm: float = 1.0

    name: ClassVar[str] = "erda"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.memory = Memory()
        self.prototypes = torch.zeros(0, self.encoder.dim)

    def _learn(self, task: Task, generator: torch.Generator) -> None:
        new = list(task.examples)
        self.prototypes = self._relation_embeddings()  # new relations: their names
        self._descend([(example, False) for example in new], generator, epochs=self.new_iterations)
        for relation, examples in by_relation(task.examples).items():
            if self.memory_size:
                self.memory.select(relation, examples, embed(self.encoder, examples), n=self.memory_size)
        exemplars = list(self.memory)
        kept = {id(example) for example in exemplars}
        both = [(example, False) for example in new if id(example) not in kept]
        both += [(example, True) for example in exemplars]
        for _ in range(self.memory_iterations):
            self.prototypes = self._relation_embeddings()
            self._descend(both, generator, epochs=1)
        self.prototypes = self._relation_embeddings()

    def _descend(self, items: Sequence[tuple[Example, bool]], generator: torch.Generator, *, epochs: int) -> None:
        self.encoder.train()
        descend(
            items,
            lambda batch: self._loss(batch, generator),
            self.encoder.trained_parameters(),
            learning_rate=self.learning_rate or self.encoder.learning_rate,
            generator=generator,
            epochs=epochs,
            batch_size=self.batch_size,
            max_gradient_norm=self.max_gradient_norm,
        )

    def _loss(self, batch: Sequence[tuple[Example, bool]], generator: torch.Generator) -> Tensor:
        """L_new (Eq. 4) of a batch, plus L_con of its exemplars (Eq. 7)."""
        examples = [example for example, _ in batch]
        exemplars, negatives = [], []
        if self.contrastive_weight:
            for row, (example, remembered) in enumerate(batch):
                swapped = hard_negatives(example, examples, generator) if remembered else []
                if swapped:
                    exemplars.append(row)
                    negatives += swapped
        vectors = self.encoder.encode([*examples, *negatives])
        similarities = cosine_similarity(vectors, self.prototypes)
        targets = torch.tensor([self.index[example.relation or ""] for example in examples], device=vectors.device)
        known = similarities[: len(examples)]
        loss = self.cross_entropy_weight * cross_entropy(known, targets, temperature=self.temperature)
        if self.multi_margin_weight:
            loss = loss + self.multi_margin_weight * multi_margin(
                known, targets, margin=self.multi_margin, average=self.average_multi_margin
            )
        if self.pairwise_margin_weight:
            loss = loss + self.pairwise_margin_weight * pairwise_margin(known, targets, margin=self.pairwise_margin)
        if exemplars:
            columns = targets[exemplars]
            true = known[exemplars, columns]
            false = similarities[len(examples) :].view(len(exemplars), -1, similarities.shape[1])
            false = false.gather(2, columns[:, None, None].expand(-1, false.shape[1], 1)).squeeze(2)
            loss = loss + self.contrastive_weight * contrastive(true, false, margin=self.contrastive_margin)
        return loss

    def _relation_embeddings(self) -> Tensor:
        """r_i of every known relation under the current encoder, without gradients."""
        was_training = self.encoder.training
        self.encoder.eval()
        with torch.no_grad():
            names = self.encoder.encode_texts([relation.name for relation in self.relations])
        self.encoder.train(was_training)
        exemplars = list(self.memory)
        vectors = iter(embed(self.encoder, exemplars))
        found = {
            relation: torch.stack([next(vectors) for _ in examples])
            for relation, examples in self.memory.exemplars.items()
        }
        return relation_embeddings(self.relations, names, found)

    def _scores(self, examples: Sequence[Example]) -> Tensor:
        return cosine_similarity(embed(self.encoder, examples), self.prototypes)

    def _state(self) -> State:
        memory = {relation: examples_to_json(examples) for relation, examples in self.memory.exemplars.items()}
        return State({"prototypes": self.prototypes}, {"memory": memory})

    def _restore(self, state: State) -> None:
        self.prototypes = state.tensors["prototypes"].to(self.encoder.device)
        self.memory = Memory({relation: examples_from_json(rows) for relation, rows in state.values["memory"].items()})
