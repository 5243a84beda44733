"""ERDA: embedding space regularisation and data augmentation (the paper's Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from erda.corpus.augment import MOST_NEIGHBOURS, PAPERS, Augmenter, AugmentSettings
from erda.encoders.trainable import embed
from erda.fields import Number, Weight, changed_settings
from erda.learning import losses
from erda.learning.losses import cosine_similarity, hard_negatives, relation_embeddings
from erda.methods.trained import NotTiny, Trained
from erda.text.keys import sentence_key
from erda.types import Example, Relation, ScoreKind, Task


@dataclass(eq=False)
class Erda(Trained):
    """Margin losses in embedding space, a memory with hard negatives, and extra examples from unlabelled text.

    Without an `augmenter` there are no extra examples (the paper's "w.o. DA"). `future` holds all relations of the
    stream and is used only by `future_relations`. Scores are cosines.
    """

    _: KW_ONLY
    augmenter: Augmenter | None = None
    future: tuple[Relation, ...] = ()
    new_iterations: Number = 1  # iter_1: epochs on the new task
    memory_iterations: Number = 2  # iter_2: epochs on the new task and the memory
    temperature: NotTiny = 0.2  # of the softmax in L_ce; 1: the released code's
    cross_entropy_weight: Weight = 1.0  # lambda_ce
    multi_margin_weight: Weight = 1.0  # lambda_mm
    pairwise_margin_weight: Weight = 1.0  # lambda_pm
    contrastive_weight: Weight = 0.1  # lambda_con
    multi_margin: Weight = 0.2  # m_1
    pairwise_margin: Weight = 0.2  # m_2
    contrastive_margin: Weight = 0.01  # m_3
    average_multi_margin: bool = True  # divide L_mm by the number of wrong relations; off: the paper's sum
    future_relations: bool = False  # as in the released code: names of later relations take part in the losses
    memory_size: Number = 1  # exemplars per relation; 0: without memory
    augmentation: bool = True  # off: "w.o. DA"
    augment_below: Number = 50  # augment only relations with fewer examples than this
    augment: AugmentSettings = PAPERS
    # beyond the paper: neighbours of each earlier exemplar, searched again for every task
    n_rehearsed: Annotated[int, Field(ge=0, le=MOST_NEIGHBOURS)] = 0

    name: ClassVar[str] = "erda"
    uses_names: ClassVar[bool] = True
    score_kind: ClassVar[ScoreKind] = "cosine"

    def _learn(self, task: Task, generator: torch.Generator) -> None:
        extras, rehearsed = self._augment(task)
        new = [*task.examples, *extras]
        self.prototypes = self._relation_embeddings()  # new relations: their names
        self._train([(example, False) for example in new], generator, epochs=self.new_iterations)
        self._remember(task.examples, self.memory_size)
        kept = {id(example) for example in self.kept}
        both = [(example, False) for example in new if id(example) not in kept]
        both += [(example, True) for example in self.kept]
        both += [(example, False) for example in rehearsed]
        for _ in range(self.memory_iterations):
            self.prototypes = self._relation_embeddings()
            self._train(both, generator, epochs=1)
        self._keep("prototype", self._relation_embeddings()[: len(self.relations)])  # later ones are never predicted

    def _augment(self, task: Task) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
        """A in Algorithm 1: extra examples of the task's rare relations, and sentences that rehearse earlier relations.

        A sentence already learned never becomes an extra example. Rehearsed sentences are near the exemplars of earlier
        relations; none of them is kept for later tasks.
        """
        few = self._learn_keys(task)
        if self.augmenter is None or not self.augmentation:
            return (), ()
        known = {key for keys in self.rows["keys"].values() for key in _numbers(keys)}
        earlier = self.kept if self.n_rehearsed else ()
        if not few and not earlier:
            return (), ()
        found = self.augmenter.find(few, exemplars=self.kept, known_keys=known, settings=self.augment)
        noted = {"task": task.index, **found.to_json()}
        self.noted = {"corpus": self.augmenter.origin(), "augmentation": [noted]}
        if not earlier:
            return found.examples, ()
        known = known | {sentence_key(" ".join(example.tokens)) for example in found.examples}
        wider = {"max_matches": self.n_rehearsed, "n_neighbours": self.n_rehearsed, "search_matched": True}
        settings = changed_settings(self.augment, wider)
        rehearsed = self.augmenter.find(earlier, exemplars=task.examples, known_keys=known, settings=settings)
        noted["rehearsed"] = rehearsed.to_json()
        return found.examples, rehearsed.examples

    def _learn_keys(self, task: Task) -> list[Example]:
        """Store the sentence keys of each relation; return the task's examples of relations with few sentences."""
        keys = self.rows["keys"] = dict(self.rows.get("keys", {}))
        for relation in task.relations:
            own = [sentence_key(" ".join(one.tokens)) for one in task.examples if one.relation == relation.id]
            shown = dict.fromkeys([*_numbers(keys[relation.id]), *own] if relation.id in keys else own)
            keys[relation.id] = torch.from_numpy(np.array([*shown], np.uint64).view(np.int64))
        return [one for one in task.examples if len(keys[one.relation or ""]) < self.augment_below]

    def _train(self, items: Sequence[tuple[Example, bool]], generator: torch.Generator, *, epochs: int) -> None:
        self._descend(items, lambda batch: self._loss(batch, generator), generator, epochs=epochs)

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
        return self.objective(vectors, self.prototypes, self._targets(examples), exemplars)

    def objective(self, vectors: Tensor, prototypes: Tensor, targets: Tensor, exemplars: list[int]) -> Tensor:
        """The weighted sum of four losses (Eq. 4 and 7): L_new of a batch, plus L_con of its exemplars.

        `vectors` [n + n_negatives, dim] are the batch, followed by the hard negatives of each row in `exemplars`.
        `prototypes` [n_relations, dim] carry no gradient. `targets` [n] are the columns of the true relations.
        """
        similarities = cosine_similarity(vectors, prototypes)
        known = similarities[: len(targets)]
        loss = self.cross_entropy_weight * losses.cross_entropy(known, targets, temperature=self.temperature)
        if self.multi_margin_weight:
            average = self.average_multi_margin
            hinges = losses.multi_margin(known, targets, margin=self.multi_margin, average=average)
            loss = loss + self.multi_margin_weight * hinges
        if self.pairwise_margin_weight:
            hinges = losses.pairwise_margin(known, targets, margin=self.pairwise_margin)
            loss = loss + self.pairwise_margin_weight * hinges
        if exemplars:
            columns = targets[exemplars]
            true = known[exemplars, columns]
            false = similarities[len(targets) :].view(len(exemplars), -1, similarities.shape[1])
            false = false.gather(2, columns[:, None, None].expand(-1, false.shape[1], 1)).squeeze(2)
            loss = loss + self.contrastive_weight * losses.contrastive(true, false, margin=self.contrastive_margin)
        return loss

    def _relation_embeddings(self) -> Tensor:
        """Compute r_i of all known relations, then of future ones, under the current encoder, without gradients."""
        future = [one for one in self.future if self.future_relations and one.id not in self.index]
        relations = [*self.relations, *future]
        with torch.no_grad():
            names = self.encoder.encode_texts([relation.name for relation in relations])
        rows: dict[str, list[int]] = {}
        for row, example in enumerate(self.kept):
            rows.setdefault(example.relation or "", []).append(row)
        vectors = embed(self.encoder, self.kept)
        return relation_embeddings(relations, names, {relation: vectors[own] for relation, own in rows.items()})

    def _prepare(self) -> None:
        self.prototypes = self._stack("prototype")

    def _scores(self, examples: Sequence[Example]) -> Tensor:
        return cosine_similarity(embed(self.encoder, examples), self.prototypes)


def _numbers(keys: Tensor) -> list[int]:
    """Read unsigned 64-bit sentence keys from a row."""
    numbers: list[int] = keys.cpu().numpy().view(np.uint64).tolist()
    return numbers
