"""Posterior: a relation is what its name and its examples make likely, in the space of an encoder pretrained on text.

The two-covariance model: relations are drawn around a centre g with covariance B, their sentences around them with
covariance W. What is known of a relation after n sentences with mean m is a normal distribution, and the score of a
sentence is its likelihood under it. So relations with few examples and with many are on one scale. The name and the
description, read as sentences between two blanks, count as `name_weight` sentences more: a relation can be told before
its first example, and its examples soon outweigh its name.

Scores are measured against a relation never seen, and tempered: logarithms of odds (docs/calibration.md). Where fewer
than six relations were taught, the background of the encoder stands for the others (`expected.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from erda.encoders.background import load_background
from erda.encoders.base import embed
from erda.errors import StreamError
from erda.fields import Count, Fraction, Positive, Weight
from erda.learning.loop import descend
from erda.learning.losses import supervised_contrastive
from erda.methods.base import Checkpoint, LearningRate, Method, NotTiny
from erda.methods.expected import MIXED_AT, Background, Expected, NeverSeen
from erda.text.sentences import tokens_of
from erda.types import Entity, Example, Relation, ScoreKind, Span, Task

LEAST_SPREAD = 0.1  # of the relations, in units of that of their sentences: the estimate fails where both are few
EVEN_SENTENCES = 850  # what the same variance everywhere counts for, in sentences, against W_0
DIMENSIONS_AS_ONE = 3.0  # whose log-likelihoods are divided by 1: their evidence counts as it is
EXPECTED = ("precision", "slope", "rest")  # of relations, for an export
HEAD, TAIL, NAME = "HEAD", "TAIL", "NAME"
BLANK = "something"  # what an encoder reads in place of an entity where it knows no mask
TEMPLATES = (  # the description, where there is one, in brackets behind the first four
    "HEAD has NAME TAIL .",
    "HEAD 's NAME is TAIL .",
    "the NAME of HEAD is TAIL .",
    "HEAD NAME TAIL",
    "HEAD NAME TAIL .",
    "HEAD 's NAME is TAIL .",
)
N_DESCRIBED = 4
KEPT_VECTORS = 20_000  # sentences whose vectors are kept while the encoder stays as it is
# Common words that names of relations consist of, which may themselves be names: what names have in common.
COMMON_NAMES = ("part of", "member of", "place", "time", "author", "owner", "kind", "cause", "user", "relative")


@dataclass(eq=False)
class Posterior(Method):
    """Nothing is trained: likelihoods by name, mean and covariance, over an encoder that stays as it is.

    Scores are logarithms of likelihoods against that of a relation never seen, divided by sqrt(dim / 3).
    """

    _: KW_ONLY
    score: Literal["two-covariance", "lda", "mean"] = "two-covariance"
    name_weight: Weight = 3.0  # how many examples a relation's name and description count for
    shrinkage: Annotated[float, Field(ge=0.01, le=1)] = 0.7  # of W, at most, toward the same variance everywhere
    between_shrinkage: Fraction = 0.6  # of B
    between_weight: Positive = 0.5  # of B: how far relations lie apart, against the estimate

    name: ClassVar[str] = "posterior"
    score_kind: ClassVar[ScoreKind] = "log-likelihood"
    trains: ClassVar[bool] = False
    reads_names: ClassVar[bool] = True

    def _learn(self, task: Task, generator: torch.Generator) -> None:
        if not self.name_weight:
            task.check_examples()
        vectors, targets = self._vectors(task.examples), self._targets(task.examples)
        counts, means, factors = (self.rows.setdefault(name, {}) for name in ("count", "mean", "factor"))
        for relation in task.relations:
            own = vectors[targets == self.index[relation.id]].double()
            n = int(counts.get(relation.id, 0))
            mean = means.get(relation.id, own.new_zeros(own.shape[1])).double()
            factor = factors.get(relation.id, own.new_zeros(0, own.shape[1])).double()
            factors[relation.id] = grown_factor(factor, n, mean, own).float()
            means[relation.id] = ((n * mean + own.sum(dim=0)) / max(n + len(own), 1)).float()
            counts[relation.id] = torch.tensor(n + len(own), device=own.device)
        self._read_names(task.relations)
        self._remember(task.examples, 1, vectors, centres=means)

    def _vectors(self, examples: Sequence[Example]) -> Tensor:
        """Vectors of length 1: [n_examples, dim]."""
        vectors = F.normalize(embed(self.encoder, examples), dim=-1)
        if not vectors.isfinite().all():
            raise StreamError(f"Encoder '{self.encoder.spec.name}' gave vectors that are no numbers.")
        return vectors

    def _read_names(self, relations: Sequence[Relation]) -> None:
        """Keep of each relation the mean of its templates' vectors, and once what names have in common."""
        names = self.rows.setdefault("name", {})
        if not self.name_weight:
            names |= {relation.id: torch.zeros(0, device=self.encoder.device) for relation in relations}
            return
        common = [Relation(name, name) for name in COMMON_NAMES if "common" not in self.shared]
        read = [sentence for relation in (*relations, *common) for sentence in sentences_of(relation)]
        vectors = F.normalize(embed(self.encoder, read, blanked=True), dim=-1)
        vectors = vectors.view(-1, len(TEMPLATES), vectors.shape[1]).mean(dim=1)
        names |= {relation.id: row for relation, row in zip(relations, vectors, strict=False)}
        if common:
            self.shared["common"] = vectors[len(relations) :]

    def _prepare(self) -> None:
        """A basis and a centre, and in it what each relation expects of a sentence, and one never seen."""
        counts, means = self._stack("count").double()[:, None], self._stack("mean").double()
        dim, seen = means.shape[1], counts[:, 0] > 0
        unit = torch.eye(dim, dtype=means.dtype, device=means.device)
        background = self._background(means)
        n_missing = background.n_missing(int(seen.sum()))
        n_known = max(int(seen.sum()) + n_missing, 1)
        self.centre, self.basis = (means[seen].sum(dim=0) + n_missing * background.centre) / n_known, unit
        names = self._centred_names(means)
        means = torch.where(seen[:, None], means - self.centre, 0.0)
        apart = means[seen] if seen.any() else names
        between = (apart.t() @ apart + n_missing * background.between) / max(len(apart) + n_missing - 1, 1)  # B_0
        within = self._within(counts, between, background)  # W_0
        if self.score != "mean":
            share = self._even_share(counts)
            shrunk = (1 - share) * within + share * within.trace() / dim * unit  # W
            lower = torch.linalg.cholesky(shrunk)
            self.basis = torch.linalg.solve_triangular(lower, unit, upper=False).t()  # in it W is the unit matrix
        weights = counts + self.name_weight
        means = (counts * means + self.name_weight * names) / weights.clamp(min=1e-9)
        if self.score == "two-covariance":
            trace = between.trace() - within.trace() * (1 / counts[seen]).sum() / n_known
            trace = torch.maximum(trace, LEAST_SPREAD * within.trace())
            spread = self._diagonalise(between, trace)
            self.expected = Expected.given(weights, means @ self.basis, spread)
            self.never_seen = NeverSeen.of(background, self.centre, self.basis, spread)
        else:
            self._expect_means(counts[:, 0], weights[:, 0], means, within)

    def _diagonalise(self, between: Tensor, trace: Tensor) -> Tensor:
        """Turn the basis so that in it B, of the shape of B_0 and with this trace, is diag(e): e, [dim]."""
        dim = len(between)
        unit = torch.eye(dim, dtype=between.dtype, device=between.device)
        shape = between / between.trace() if between.any() else unit / dim
        shape = (1 - self.between_shrinkage) * shape + self.between_shrinkage / dim * unit
        values, vectors = torch.linalg.eigh(self.basis.t() @ shape @ self.basis)
        self.basis = self.basis @ vectors
        return self.between_weight * trace * values.clamp(min=0)

    def _expect_means(self, counts: Tensor, weights: Tensor, means: Tensor, within: Tensor) -> None:
        """Relations expect their means: `lda` in a basis where W is the unit matrix, `mean` in that of the encoder."""
        own = float((self.basis.t() @ within @ self.basis).trace())
        self.expected = Expected.around(means @ self.basis)
        if self.score == "lda":  # the squared length of a mean of n sentences is too large by tr(W^-1 W_0) / n
            excess = own * counts / weights.clamp(min=1e-9).square()
            self.expected = replace(self.expected, rest=self.expected.rest - excess)
        self.never_seen = NeverSeen(Expected.around(means[:1]), 0.0, -own / 2)

    def _even_share(self, counts: Tensor) -> float:
        """How far W goes toward the same variance everywhere: less where many sentences say what W_0 is."""
        several = counts[counts > 1]
        if not len(several):
            return self.shrinkage
        n = len(several) ** 2 / float((1 / (several - 1)).sum())  # sentences that a mean of covariances is worth
        return min(self.shrinkage, EVEN_SENTENCES / (EVEN_SENTENCES + n))

    def taken_over(self) -> dict[str, Tensor]:
        """The background of the encoder, empty where it has none; nothing where it is trained or not asked for."""
        if self.trains or self.score != "two-covariance":
            return {}
        found = load_background(self.encoder.spec)
        return {"background": torch.zeros(0, self.encoder.dim) if found is None else found.half()}

    def _background(self, like: Tensor) -> Background:
        found = self.shared.get("background")
        if found is None:  # what was learned before it was kept
            found = self.taken_over().get("background", like[:0])
        return Background(found.to(like))

    def _centred_names(self, means: Tensor) -> Tensor:
        """The relations' names without what names have in common: [n_relations, dim], zeros where they do not count."""
        if not self.name_weight:
            return torch.zeros_like(means)
        names, common = self._stack("name").double(), self.shared["common"].double()
        return names - torch.cat([names, common]).mean(dim=0)

    def _within(self, counts: Tensor, between: Tensor, background: Background) -> Tensor:
        """W_0: the mean over relations of the unbiased covariance of their sentences, [dim, dim].

        Where no relation has two different sentences, half of what lies between relations is taken for it.
        """
        factors = [self.rows["factor"][relation] for relation in self.index]
        several = [(factor, int(n)) for factor, n in zip(factors, counts, strict=True) if n > 1]
        rows = torch.cat([between[:0], *(factor.double() / (n - 1) ** 0.5 for factor, n in several)])
        n_missing = background.n_missing(len(several))
        if rows.any() or n_missing:
            return (rows.t() @ rows + n_missing * background.within) / (len(several) + n_missing)
        trace = between.trace() / 2 if between.any() else 1.0
        return torch.eye(len(between), dtype=between.dtype, device=between.device) * trace / len(between)

    @property
    def quadratic(self) -> dict[str, Tensor]:
        """All that `_scores` needs beside vectors of length 1, for an export."""
        never = self.never_seen
        numbers = {"weight": never.weight, "typical": never.typical, "mixed_at": MIXED_AT}
        numbers["temperature"] = self._score_scale(self.basis)
        return {
            "centre": self.centre,
            "basis": self.basis,
            **{name: getattr(self.expected, name) for name in EXPECTED},
            **{f"never_{name}": getattr(never.relations, name) for name in EXPECTED},
            **{name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()},
        }

    def _score_scale(self, z: Tensor) -> float:
        """What log-likelihoods are divided by, since directions of a vector repeat each other's evidence."""
        return (z.shape[1] / DIMENSIONS_AS_ONE) ** 0.5

    def _scores(self, examples: Sequence[Example]) -> Tensor:
        z = (self._vectors(examples).double() - self.centre) @ self.basis
        return (self.expected.log_likelihoods(z) - self.never_seen.log_likelihood(z)) / self._score_scale(z)


@dataclass(eq=False)
class PosteriorTuned(Posterior):
    """Posterior over an encoder that is trained on the first task, and then stays as it is.

    Sentences of one relation are drawn together and apart from the others' (supervised contrastive). The encoder then
    goes only part of the way from where it was to where training led: what ten relations taught must serve the next.
    """

    _: KW_ONLY
    epochs: Count = 4
    batch_size: Count = 64
    temperature: Positive = 0.2
    part: Fraction = 0.5  # of the way from the weights before training to those after
    learning_rate: LearningRate = 3e-5  # 0: the encoder's own
    max_gradient_norm: NotTiny = 1.0

    name: ClassVar[str] = "posterior-tuned"
    trains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._known: dict[Example, Tensor] = {}  # vectors of sentences that were read since the encoder last changed

    def _learn(self, task: Task, generator: torch.Generator) -> None:
        if not self.n_tasks:
            self._tune(task.examples, generator)
        super()._learn(task, generator)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Be what the method was at `checkpoint`, to the last bit."""
        self._known = {}
        super().restore(checkpoint)

    def _vectors(self, examples: Sequence[Example]) -> Tensor:
        """Vectors of length 1, each sentence read once: [n_examples, dim]."""
        known = self._known
        new = [one for one in dict.fromkeys(examples) if one not in known]
        if len(known) + len(new) > KEPT_VECTORS:
            return super()._vectors(examples)
        known |= dict(zip(new, super()._vectors(new), strict=True))
        return torch.stack([known[one] for one in examples]) if examples else super()._vectors(examples)

    def _tune(self, examples: Sequence[Example], generator: torch.Generator) -> None:
        self._known = {}
        before = {name: weights.clone() for name, weights in self.encoder.trained_state().items()}
        self.encoder.train()
        try:
            descend(
                examples,
                self._loss,
                self.encoder.trained_parameters(),
                learning_rate=self.learning_rate or self.encoder.learning_rate,
                generator=generator,
                epochs=self.epochs,
                batch_size=self.batch_size,
                max_gradient_norm=self.max_gradient_norm,
            )
        finally:
            self.encoder.eval()
        after = self.encoder.trained_state()
        self.encoder.load_trained_state({name: start.lerp(after[name], self.part) for name, start in before.items()})

    def _loss(self, batch: list[Example]) -> Tensor:
        vectors, targets = F.normalize(self.encoder.encode(batch), dim=-1), self._targets(batch)
        others = ~torch.eye(len(batch), dtype=torch.bool, device=vectors.device)
        same = targets[:, None] == targets
        return supervised_contrastive(vectors @ vectors.t(), same, temperature=self.temperature, counted=others)


def sentences_of(relation: Relation) -> list[Example]:
    """A relation's name, and its description, as sentences between two entities without a name."""
    name, description = _words(relation.name), _words(relation.description)
    described = ["(", *description, ")"] if description else []
    return [_sentence(text, name, described if i < N_DESCRIBED else []) for i, text in enumerate(TEMPLATES)]


def _sentence(template: str, name: list[str], described: list[str]) -> Example:
    tokens: list[str] = []
    places = {}
    for word in template.split():
        if word in (HEAD, TAIL):
            places[word] = Entity(BLANK, Span(len(tokens), len(tokens) + 1))
        tokens += name if word == NAME else [BLANK if word in places else word]
    return Example((*tokens, *described), places[HEAD], places[TAIL])


def _words(text: str) -> list[str]:
    return [text[start:end] for start, end in tokens_of(text)]


def grown_factor(factor: Tensor, n: int, mean: Tensor, vectors: Tensor) -> Tensor:
    """F of n + k vectors, F^T F their scatter around their mean, from that of n with a mean, and k new ones.

    One row for each vector but the first: sqrt(m / (m + 1)) (x - mean of the m before it). At most [dim, dim].
    """
    seen = n + torch.arange(len(vectors), dtype=vectors.dtype, device=vectors.device)[:, None]
    before = (n * mean + vectors.cumsum(dim=0) - vectors) / seen.clamp(min=1)
    rows = (seen / (seen + 1)).sqrt() * (vectors - before)
    factor = torch.cat([factor, rows if n else rows[1:]])
    return torch.linalg.qr(factor, mode="r").R if len(factor) > factor.shape[1] else factor
