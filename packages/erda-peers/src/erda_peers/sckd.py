"""SCKD: serial contrastive knowledge distillation (Wang, Wang and Hu, Findings of ACL 2023).

A model has three stages: features f = encoder(x), a hidden layer h = LN(W f + b), a softmax classifier. At each stage,
the previous model is distilled into the new one, on one exemplar per relation and on pseudo samples drawn around its
prototype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from erda.encoders.trainable import embed
from erda.fields import Number, Weight
from erda.learning.losses import cosine_similarity, cross_entropy
from erda.methods.trained import LearningRate, NotTiny, Trained
from erda.types import Example, ScoreKind, Task
from erda_peers.contrastive_losses import distillation, supervised_contrastive


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """The layers of a model above its features."""

    weight: Tensor  # W [dim, dim]
    bias: Tensor  # b [dim]
    rows: Tensor  # of the classifier, [n_relations, dim]
    biases: Tensor  # [n_relations]

    def hidden(self, features: Tensor) -> Tensor:
        """h: [n, dim] -> [n, dim]."""
        return F.layer_norm(F.linear(features, self.weight, self.bias), features.shape[-1:])

    def logits(self, hidden: Tensor) -> Tensor:
        """[n, dim] -> [n, n_relations]."""
        return F.linear(hidden, self.rows, self.biases)


@dataclass(frozen=True, slots=True, eq=False)
class Teacher:
    """The model before the task."""

    head: Head
    features: dict[int, Tensor]  # `id` of an exemplar -> its features

    @property
    def n_relations(self) -> int:
        """Number of relations the previous model had learned."""
        return len(self.head.rows)


@dataclass(eq=False)
class Sckd(Trained):
    """A softmax classifier with distilled features, hidden states and predictions. Scores are logits."""

    _: KW_ONLY
    new_epochs: Number = 3  # epoch_1: on the new task
    memory_epochs: Number = 2  # epoch_2: on the memory, with pseudo samples and distillation
    n_pseudo: Number = 5  # pseudo samples per relation, drawn for each batch
    spread: Weight = 1.0  # of the pseudo samples, in standard deviations of a relation's sentences
    temperature: NotTiny = 0.1  # of the contrast between hidden states
    distillation_temperature: NotTiny = 2.0  # of the predictions
    feature_weight: Weight = 1.0  # of L_fd
    contrastive_weight: Weight = 1.0  # of L_cl and L_hd
    prediction_weight: Weight = 1.0  # of L_pd
    own_rate: LearningRate = 0.0  # learning rate of hidden layer and classifier; 0: the encoder's
    memory_size: Number = 1  # exemplars per relation; 0: no distillation

    name: ClassVar[str] = "sckd"
    score_kind: ClassVar[ScoreKind] = "logit"

    def __post_init__(self) -> None:
        super().__post_init__()
        dim, device = self.encoder.dim, self.encoder.device
        self.shared["weight"] = torch.eye(dim, device=device)  # starts with the encoder's geometry
        self.shared["bias"] = torch.zeros(dim, device=device)

    def _learn(self, task: Task, generator: torch.Generator) -> None:
        teacher = self._teacher()
        own = self._parameters(generator)
        student = Head(*own)
        descend = partial(self._descend, generator=generator, parameters=own, own_rate=self.own_rate)

        def initial(batch: Sequence[Example]) -> Tensor:
            """L_init: cross-entropy over the known relations."""
            return cross_entropy(student.logits(student.hidden(self.encoder.encode(batch))), self._targets(batch))

        descend(task.examples, initial, epochs=self.new_epochs)
        vectors = embed(self.encoder, task.examples)
        self._remember(task.examples, self.memory_size, self._to_array(vectors))
        self._keep("deviation", self._deviations(task.examples, vectors))
        for _ in range(self.memory_epochs if self.kept else 0):
            centres, owners = self._prototypes()

            def replay(batch: Sequence[Example], centres: Tensor = centres, owners: Tensor = owners) -> Tensor:
                noise = torch.randn(len(owners), self.n_pseudo, centres.shape[1], generator=generator)
                pseudo = self._pseudo(centres, owners, noise.to(centres.device))
                return self._memory_loss(batch, pseudo, owners.repeat_interleave(self.n_pseudo), student, teacher)

            descend(self.kept, replay, epochs=1)
        self.shared |= {"weight": student.weight.detach(), "bias": student.bias.detach()}
        self._keep("row", student.rows)
        self._keep("row_bias", student.biases)

    def _teacher(self) -> Teacher | None:
        """Return the model before the task; None before the first task."""
        if not self.rows.get("row"):
            return None
        head = Head(self.shared["weight"], self.shared["bias"], self._stack("row"), self._stack("row_bias"))
        return Teacher(head, dict(zip(map(id, self.kept), embed(self.encoder, self.kept), strict=True)))

    def _parameters(self, generator: torch.Generator) -> list[nn.Parameter]:
        """Return trainable parameters of the head; rows of new relations are initialised like `nn.Linear`."""
        dim, bound = self.encoder.dim, 1 / math.sqrt(self.encoder.dim)
        drawn = torch.empty(self._n_without("row"), dim + 1).uniform_(-bound, bound, generator=generator)
        drawn = drawn.to(self.encoder.device)
        rows, biases = self._stack("row", drawn[:, :dim]), self._stack("row_bias", drawn[:, dim])
        return [nn.Parameter(part.clone()) for part in (self.shared["weight"], self.shared["bias"], rows, biases)]

    # -- the memory and its pseudo samples -----------------------------------------------------------------------------

    def _deviations(self, examples: Sequence[Example], vectors: Tensor) -> Tensor:
        """Return the standard deviation of each relation's features, from its own task: [n_relations, dim].

        A relation with a single sentence gets the mean of the others.
        """
        targets, found = self._targets(examples), dict(self.rows.get("deviation", {}))
        for relation, row in self.index.items():
            shown = vectors[targets == row]
            if len(shown) > 1:
                found[relation] = shown.std(dim=0)
        usual = torch.stack([*found.values()]).mean(dim=0) if found else torch.zeros_like(vectors[0])
        return torch.stack([found.get(relation, usual) for relation in self.index])

    def _prototypes(self) -> tuple[Tensor, Tensor]:
        """Return mean features of the relations with exemplars, [n, dim], and the rows of these relations, [n]."""
        vectors, targets = embed(self.encoder, self.kept), self._targets(self.kept)
        owners = targets.unique()
        return torch.stack([vectors[targets == owner].mean(dim=0) for owner in owners]), owners

    def _pseudo(self, centres: Tensor, owners: Tensor, noise: Tensor) -> Tensor:
        """Draw features from N(p_r, sigma_r^2): [n, dim], [n], [n, n_pseudo, dim] -> [n * n_pseudo, dim]."""
        deviations = self.spread * self._stack("deviation")[owners]
        return (centres[:, None] + deviations[:, None] * noise).flatten(0, 1)

    def _memory_loss(
        self, batch: Sequence[Example], pseudo: Tensor, owners: Tensor, student: Head, teacher: Teacher | None
    ) -> Tensor:
        """L = L_ce + feature_weight L_fd + contrastive_weight (L_cl + L_hd) + prediction_weight L_pd.

        `pseudo` [m, dim] are features of pseudo samples, `owners` [m] their relations. The three distillation losses
        use only exemplars and pseudo samples of the teacher's relations.
        """
        targets, features = self._targets(batch), self.encoder.encode(batch)
        hidden, pseudo_hidden = student.hidden(features), student.hidden(pseudo)
        logits, pseudo_logits = student.logits(hidden), student.logits(pseudo_hidden)
        similarities = cosine_similarity(hidden, pseudo_hidden)
        same = targets[:, None] == owners
        loss = cross_entropy(logits, targets)
        if len(pseudo):
            loss = loss + cross_entropy(pseudo_logits, owners)
            loss = loss + self.contrastive_weight * supervised_contrastive(
                similarities, same, temperature=self.temperature
            )
        old = [row for row, example in enumerate(batch) if teacher and id(example) in teacher.features]
        if teacher is None or not old:
            return loss
        known = owners < teacher.n_relations
        then = torch.stack([teacher.features[id(batch[row])] for row in old])
        hidden_then, pseudo_then = teacher.head.hidden(then), teacher.head.hidden(pseudo[known])
        loss = loss + self.feature_weight * (1 - F.cosine_similarity(features[old], then)).mean()  # L_fd
        loss = loss + self.contrastive_weight * distillation(  # L_hd
            similarities[old][:, known] / self.temperature,
            cosine_similarity(hidden_then, pseudo_then) / self.temperature,
            temperature=1.0,
        )
        found = torch.cat([logits[old], pseudo_logits[known]])[:, : teacher.n_relations]
        taught = teacher.head.logits(torch.cat([hidden_then, pseudo_then]))
        return loss + self.prediction_weight * distillation(found, taught, temperature=self.distillation_temperature)

    def _prepare(self) -> None:
        self.head = Head(self.shared["weight"], self.shared["bias"], self._stack("row"), self._stack("row_bias"))

    def _scores(self, examples: Sequence[Example]) -> Tensor:
        return self.head.logits(self.head.hidden(embed(self.encoder, examples)))
