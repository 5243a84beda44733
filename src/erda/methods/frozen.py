"""Frozen: nothing is trained; a relation is the mean and the spread of its sentences' vectors.

The two-covariance model: relations are drawn around a centre g with covariance B, their sentences around them with
covariance W. What is known of a relation after n sentences with mean m is a normal distribution, and the score of a
sentence is its likelihood under it. So relations with few examples and with many are on one scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from erda.encoders.base import embed
from erda.errors import StreamError
from erda.fields import Fraction, Positive
from erda.methods.base import Method
from erda.types import Example, ScoreKind, Task

LEAST_SPREAD = 0.1  # of the relations, in units of that of their sentences: the estimate fails where both are few


@dataclass(eq=False)
class Frozen(Method):
    """Nothing is trained: the likelihood of a sentence by mean and covariance, over an encoder that stays as it is.

    Scores are logarithms of likelihoods, up to a constant of each sentence.
    """

    _: KW_ONLY
    score: Literal["two-covariance", "lda", "mean"] = "two-covariance"
    shrinkage: Annotated[float, Field(ge=0.01, le=1)] = 0.8  # of W, toward the same variance everywhere
    between_shrinkage: Fraction = 0.6  # of B
    between_weight: Positive = 0.5  # of B: how far relations lie apart, against the estimate

    name: ClassVar[str] = "frozen"
    score_kind: ClassVar[ScoreKind] = "log-likelihood"
    trains: ClassVar[bool] = False

    def _learn(self, task: Task, generator: torch.Generator) -> None:
        vectors, targets = self._vectors(task.examples), self._targets(task.examples)
        if not vectors.isfinite().all():
            raise StreamError(f"Encoder '{self.encoder.spec.name}' gave vectors that are no numbers.")
        counts, means, factors = (self.rows.setdefault(name, {}) for name in ("count", "mean", "factor"))
        for relation in task.relations:
            own = vectors[targets == self.index[relation.id]].double()
            n = int(counts.get(relation.id, 0))
            mean = means.get(relation.id, own.new_zeros(own.shape[1])).double()
            factor = factors.get(relation.id, own.new_zeros(0, own.shape[1])).double()
            factors[relation.id] = grown_factor(factor, n, mean, own).float()
            means[relation.id] = ((n * mean + own.sum(dim=0)) / (n + len(own))).float()
            counts[relation.id] = torch.tensor(n + len(own), device=own.device)
        self._remember(task.examples, 1, vectors)

    def _vectors(self, examples: Sequence[Example]) -> Tensor:
        """Vectors of length 1: [n_examples, dim]."""
        return F.normalize(embed(self.encoder, examples), dim=-1)

    def _prepare(self) -> None:
        """A basis and a centre, and of each relation what multiplies z^2 and z in it, and what is left."""
        counts, means = self._stack("count").double()[:, None], self._stack("mean").double()
        dim, device = means.shape[1], means.device
        unit = torch.eye(dim, dtype=means.dtype, device=device)
        self.centre, self.basis = means.mean(dim=0), unit
        means = means - self.centre
        between = means.t() @ means / max(len(means) - 1, 1)  # B_0
        within = self._within(counts, between)  # W_0
        if self.score != "mean":
            shrunk = (1 - self.shrinkage) * within + self.shrinkage * within.trace() / dim * unit  # W
            lower = torch.linalg.cholesky(shrunk)
            self.basis = torch.linalg.solve_triangular(lower, unit, upper=False).t()  # in it W is the unit matrix
        spread = torch.zeros_like(means)
        if self.score == "two-covariance":
            trace = between.trace() - within.trace() * (1 / counts).mean()
            trace = torch.maximum(trace, LEAST_SPREAD * within.trace())
            shape = between / between.trace() if between.any() else unit / dim
            shape = (1 - self.between_shrinkage) * shape + self.between_shrinkage / dim * unit
            values, vectors = torch.linalg.eigh(self.basis.t() @ shape @ self.basis)
            self.basis = self.basis @ vectors  # in it B is diag(e)
            spread = counts * (self.between_weight * trace * values.clamp(min=0))  # n e
            shrink = spread / (spread + 1)  # k: of the mean toward the centre
            variance = 1 + spread / counts / (spread + 1)  # v: of a sentence, given n others of its relation
        else:
            shrink, variance = torch.ones_like(means), torch.ones_like(means)
        expected = shrink * (means @ self.basis)
        self.precision, self.slope = (1 / variance).t(), (expected / variance).t()
        self.rest = (expected.square() / variance).sum(dim=1)
        if self.score == "lda":  # the squared length of a mean of n sentences is too large by tr(W^-1 W_0) / n
            self.rest = self.rest - (self.basis.t() @ within @ self.basis).trace() / counts[:, 0]

    def _within(self, counts: Tensor, between: Tensor) -> Tensor:
        """W_0: the mean over relations of the unbiased covariance of their sentences, [dim, dim].

        Where no relation has two different sentences, half of what lies between relations is taken for it.
        """
        factors = [self.rows["factor"][relation] for relation in self.index]
        several = [(factor, int(n)) for factor, n in zip(factors, counts, strict=True) if n > 1]
        rows = torch.cat([between[:0], *(factor.double() / (n - 1) ** 0.5 for factor, n in several)])
        if rows.any():
            return rows.t() @ rows / len(several)
        trace = between.trace() / 2 if between.any() else 1.0
        return torch.eye(len(between), dtype=between.dtype, device=between.device) * trace / len(between)

    @property
    def quadratic(self) -> dict[str, Tensor]:
        """All that `_scores` needs beside vectors of length 1, for an export."""
        return {name: getattr(self, name) for name in ("centre", "basis", "precision", "slope", "rest")}

    def _scores(self, examples: Sequence[Example]) -> Tensor:
        """-1/2 sum_i (z_i - k_ci mu_ci)^2 / v_ci, multiplied out."""
        z = (self._vectors(examples).double() - self.centre) @ self.basis
        return z @ self.slope - (z.square() @ self.precision + self.rest) / 2


def grown_factor(factor: Tensor, n: int, mean: Tensor, vectors: Tensor) -> Tensor:
    """F of n + k vectors, F^T F their scatter around their mean, from that of n with a mean, and k new ones.

    One row for each vector but the first: sqrt(m / (m + 1)) (x - mean of the m before it). At most [dim, dim].
    """
    seen = n + torch.arange(len(vectors), dtype=vectors.dtype, device=vectors.device)[:, None]
    before = (n * mean + vectors.cumsum(dim=0) - vectors) / seen.clamp(min=1)
    rows = (seen / (seen + 1)).sqrt() * (vectors - before)
    factor = torch.cat([factor, rows if n else rows[1:]])
    return torch.linalg.qr(factor, mode="r").R if len(factor) > factor.shape[1] else factor
