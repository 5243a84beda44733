"""CPL: contrastive prompt learning (Ma et al., LREC-COLING 2024), without a prompt and without generated sentences.

The encoder's vector of a marked sentence replaces the publication's [MASK] state in a learned template.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from erda.encoders.trainable import embed
from erda.fields import Count, Fraction, Number
from erda.learning.losses import cosine_similarity
from erda.methods.trained import NotTiny, Trained
from erda.types import Example, ScoreKind, Task
from erda_peers.contrastive_losses import relaxed, supervised_contrastive


@dataclass(eq=False)
class Cpl(Trained):
    """A margin-weighted contrastive loss and the nearest mean of exemplars. Scores are cosines."""

    _: KW_ONLY
    batch_size: Count = 16  # contrast needs several relations in a batch, some with two sentences
    new_epochs: Number = 3  # on the new task
    memory_epochs: Number = 2  # on the new task and the memory
    temperature: NotTiny = 0.1  # tau
    margin: Fraction = 0.3  # m: tolerated distance of a similarity from 1 (same relation) or from 0 (other)
    shot_means: bool = False  # prototypes are means of all shots and move with their exemplars; not in the publication
    memory_size: Number = 1  # exemplars per relation; 0: prototypes are means of the shots and stay fixed

    name: ClassVar[str] = "cpl"
    score_kind: ClassVar[ScoreKind] = "cosine"

    def _learn(self, task: Task, generator: torch.Generator) -> None:
        new = list(task.examples)
        for _ in range(self.new_epochs):
            self._contrast(new, self._prototypes(new), generator)
        self._remember(new, self.memory_size)
        kept = {id(example) for example in self.kept}
        both = [*(example for example in new if id(example) not in kept), *self.kept]
        for _ in range(self.memory_epochs):
            self._contrast(both, self._prototypes(new), generator)
        of_shots = self._prototypes(new)
        taught = self._targets(new).unique()
        of_exemplars = (self._prototypes(()) - self._offsets())[taught] if self.kept else of_shots[taught]
        offsets = self._offsets().index_copy(0, taught, of_shots[taught] - of_exemplars)
        self._keep("offset", offsets if self.shot_means else torch.zeros_like(offsets))
        self._keep("prototype", of_shots if self.shot_means else of_shots.index_copy(0, taught, of_exemplars))

    def _contrast(self, examples: Sequence[Example], prototypes: Tensor, generator: torch.Generator) -> None:
        """Train one epoch of L_mcl. `prototypes` [n_relations, dim] are computed before it, without gradients."""
        self._descend(examples, lambda batch: self._loss(batch, prototypes), generator, epochs=1)

    def _loss(self, batch: Sequence[Example], prototypes: Tensor) -> Tensor:
        """L_mcl: each sentence against the others of its batch and one prototype per relation."""
        vectors, targets = self.encoder.encode(batch), self._targets(batch)
        similarities = cosine_similarity(vectors, torch.cat([vectors, prototypes]))
        same = targets[:, None] == torch.cat([targets, torch.arange(len(prototypes), device=targets.device)])
        others = ~torch.eye(*same.shape, dtype=torch.bool, device=same.device)
        weighed = relaxed(similarities, same, margin=self.margin)
        return supervised_contrastive(weighed, same, temperature=self.temperature, counted=others)

    def _prototypes(self, shots: Sequence[Example]) -> Tensor:
        """Compute means of unit vectors under the current encoder: [n_relations, dim].

        The relations of `shots` use their shots. Others use their exemplars, moved by the relation's offset. A relation
        without either keeps its prototype.
        """
        taught = {example.relation for example in shots}
        exemplars = [example for example in self.kept if example.relation not in taught]
        used = [*shots, *exemplars]
        rows = self._targets(used)
        vectors = F.normalize(embed(self.encoder, used), dim=-1)
        means = self._zeros().index_add(0, rows, vectors)
        means = means / torch.bincount(rows, minlength=len(means)).clamp(min=1)[:, None]
        moved = self._targets(exemplars).unique()
        means = means.index_add(0, moved, self._offsets()[moved])
        for relation, prototype in self.rows.get("prototype", {}).items():
            if not (rows == self.index[relation]).any():
                means[self.index[relation]] = prototype
        return means

    def _offsets(self) -> Tensor:
        """Return the mean of each relation's shots minus that of its exemplars, from its task; 0 for new relations."""
        return self._stack("offset", self._zeros()[: self._n_without("offset")])

    def _zeros(self) -> Tensor:
        return torch.zeros(len(self.relations), self.encoder.dim, device=self.encoder.device)

    def _prepare(self) -> None:
        self.prototypes = self._stack("prototype")

    def _scores(self, examples: Sequence[Example]) -> Tensor:
        return cosine_similarity(embed(self.encoder, examples), self.prototypes)
