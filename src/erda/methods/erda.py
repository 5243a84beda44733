"""ERDA: embedding space regularisation and data augmentation (the paper's Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from erda.corpus.augment import MOST_NEIGHBOURS, PAPERS, Augmentation, Augmenter, AugmentSettings
from erda.encoders.base import embed
from erda.errors import StreamError
from erda.fields import Count, Number, Weight
from erda.learning.loop import descend
from erda.learning.losses import contrastive, cosine_similarity, cross_entropy, multi_margin, pairwise_margin
from erda.learning.memory import Memory
from erda.learning.negatives import hard_negatives
from erda.learning.prototypes import relation_embeddings
from erda.methods.base import LearningRate, Method, NotTiny, State
from erda.methods.saving import memory_from_json, memory_to_json
from erda.text.keys import sentence_key
from erda.types import Example, Relation, Task


@dataclass(eq=False)
class Erda(Method):
    """Margin losses in embedding space, a memory with hard negatives, and extra examples from unlabelled text.

    Without an `augmenter` there is nothing to draw extra examples from (the paper's "w.o. DA"). `future` are all
    relations of the stream, for `future_relations` alone; nothing else looks at them.
    """

    _: KW_ONLY
    augmenter: Augmenter | None = None
    future: tuple[Relation, ...] = ()
    new_iterations: Number = 1  # iter_1: epochs on the new task
    memory_iterations: Number = 2  # iter_2: epochs on the new task and the memory
    batch_size: Count = 5
    learning_rate: LearningRate = 0.0  # 0: the encoder's own
    temperature: NotTiny = 0.2  # of the softmax in L_ce; 1: the released code's
    cross_entropy_weight: Weight = 1.0  # lambda_ce
    multi_margin_weight: Weight = 1.0  # lambda_mm
    pairwise_margin_weight: Weight = 1.0  # lambda_pm
    contrastive_weight: Weight = 0.1  # lambda_con
    multi_margin: Weight = 0.2  # m_1
    pairwise_margin: Weight = 0.2  # m_2
    contrastive_margin: Weight = 0.01  # m_3
    average_multi_margin: bool = True  # divide L_mm by the number of wrong relations
    unit_embeddings: bool = True  # name and exemplars weigh the same in a relation's embedding, whatever their length
    future_relations: bool = False  # the released code's: names that have not come yet stand in the losses as well
    memory_size: Number = 1  # exemplars a relation; 0: without memory
    max_gradient_norm: NotTiny = 1.0
    augmentation: bool = True  # off: "w.o. DA"
    augment: AugmentSettings = PAPERS
    # beyond the paper: neighbours of each earlier exemplar, found anew for every task
    n_rehearsed: Annotated[int, Field(ge=0, le=MOST_NEIGHBOURS)] = 0

    name: ClassVar[str] = "erda"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.memory = Memory()
        self.prototypes = torch.zeros(0, self.encoder.dim)
        self.found: list[dict[str, Any]] = []  # what augmentation found for each task, with its provenance
        self.known: set[int] = set()  # keys of every sentence learned from: none comes back as an extra example

    def _learn(self, task: Task, generator: torch.Generator) -> None:
        earlier = list(self.memory)
        extras = self._augment(task)
        rehearsed = self._rehearse(task, earlier, extras)
        new = [*task.examples, *extras]
        self.prototypes = self._relation_embeddings()  # new relations: their names
        self._descend([(example, False) for example in new], generator, epochs=self.new_iterations)
        if self.memory_size:
            self.memory.select_all(task.examples, embed(self.encoder, task.examples), n=self.memory_size)
        exemplars = list(self.memory)
        kept = {id(example) for example in exemplars}
        both = [(example, False) for example in new if id(example) not in kept]
        both += [(example, True) for example in exemplars]
        both += [(example, False) for example in rehearsed]
        for _ in range(self.memory_iterations):
            self.prototypes = self._relation_embeddings()
            self._descend(both, generator, epochs=1)
        self.prototypes = self._relation_embeddings()[: len(self.relations)]  # what has not come is never predicted

    def _augment(self, task: Task) -> tuple[Example, ...]:
        """A of Algorithm 1: extra examples for a few-shot task; the first task has enough of its own."""
        self.known |= {sentence_key(" ".join(example.tokens)) for example in task.examples}
        if self.augmenter is None or not self.augmentation or self.n_tasks == 0:
            return ()
        found = self._find(self.augmenter, task.examples, tuple(self.memory), known=self.known)
        self.found.append({"task": task.index, **found.to_json()})
        return found.examples

    def _rehearse(
        self, task: Task, exemplars: Sequence[Example], extras: Sequence[Example] = ()
    ) -> tuple[Example, ...]:
        """Sentences of the corpus near the exemplars of earlier relations; none of them is kept for later tasks."""
        if self.augmenter is None or not self.augmentation or not self.n_rehearsed or not exemplars:
            return ()
        known = self.known | {sentence_key(" ".join(example.tokens)) for example in extras}
        changes = {"max_matches": self.n_rehearsed, "n_neighbours": self.n_rehearsed, "search_matched": True}
        found = self._find(self.augmenter, exemplars, task.examples, known=known, **changes)
        self.found[-1]["rehearsed"] = found.to_json()
        return found.examples

    def _find(
        self,
        augmenter: Augmenter,
        examples: Sequence[Example],
        exemplars: Sequence[Example],
        *,
        known: Set[int],
        **changes: Any,
    ) -> Augmentation:
        """Extra examples by the method's settings; `exemplars` stand for the other relations (`agreement`)."""
        return augmenter.find(examples, exemplars=exemplars, known_keys=known, settings=self.augment, **changes)

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
        """r_i of every known relation under the current encoder, without gradients; then those of the future."""
        relations = [*self.relations, *self._unlearned()]
        was_training = self.encoder.training
        self.encoder.eval()
        with torch.no_grad():
            names = self.encoder.encode_texts([relation.name for relation in relations])
        self.encoder.train(was_training)
        exemplars = list(self.memory)
        vectors = iter(embed(self.encoder, exemplars))
        grouped = {
            relation: torch.stack([next(vectors) for _ in examples])
            for relation, examples in self.memory.exemplars.items()
        }
        return relation_embeddings(relations, names, grouped, unit=self.unit_embeddings)

    def _unlearned(self) -> list[Relation]:
        """Relations that have not come yet, where the losses are to know of them: a learner of its own never can."""
        if not self.future_relations:
            return []
        unknown = {relation.id for relation in self.relations} - {relation.id for relation in self.future}
        if unknown:
            raise StreamError(
                f"future_relations is on, but 'future' does not have {', '.join(sorted(unknown))}: hand in all "
                "relations of the stream, or leave it off."
            )
        return [relation for relation in self.future if relation.id not in self.index]

    def notes(self) -> dict[str, Any]:
        """The extra examples of each task, with rule, score and source sentence."""
        if self.augmenter is None or not self.found:
            return {}
        return {"corpus": self.augmenter.origin(), "augmentation": self.found}

    def _scores(self, examples: Sequence[Example]) -> Tensor:
        return cosine_similarity(embed(self.encoder, examples), self.prototypes)

    def _state(self) -> State:
        values = {"memory": memory_to_json(self.memory), "found": list(self.found), "known": sorted(self.known)}
        return State({"prototypes": self.prototypes}, values)

    def _restore(self, state: State) -> None:
        self.prototypes = state.tensors["prototypes"].to(self.encoder.device)
        self.memory = memory_from_json(state.values["memory"])
        self.found = list(state.values["found"])
        self.known = set(state.values.get("known", ()))
