"""What relations expect of a sentence, taught ones and those never seen: normal distributions of its vector."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

ENOUGH = 6  # relations to estimate by how their means and their sentences lie apart; else the background helps
WITHIN_SHARE = 0.65  # of the variance of any sentences: what is left of it when their relation is known
CENTRE_COUNT = 3.0  # how many sentences a centre of the background counts for
MIXED_AT = 9.0  # temperature at which the centres are mixed
NEVER_WEIGHT = 0.9  # of a relation never seen, in what a sentence is measured against


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """One normal distribution a relation, in a basis where it has no covariances: what multiplies z^2 and z, the rest.

    Constants of all relations are left out, and so are the determinants (docs/method.md).
    """

    precisions: Tensor  # [dim, n_kinds]: one for each number of sentences, since few differ
    kinds: Tensor  # [n]: which of them is a relation's own
    slope: Tensor  # [dim, n]
    rest: Tensor  # [n]

    @classmethod
    def of(cls, means: Tensor, variances: Tensor, kinds: Tensor) -> Expected:
        """Of means, [n, dim], and variances, [n_kinds, dim]."""
        slope = means / variances[kinds]
        return cls((1 / variances).t().contiguous(), kinds, slope.t(), (means * slope).sum(dim=1))

    @classmethod
    def given(cls, counts: Tensor, means: Tensor, spread: Tensor) -> Expected:
        """After `counts` sentences, [n, 1], with means [n, dim], where relations have variances `spread`, [dim].

        The variance of sentences around their relation is 1 in every direction.
        """
        numbers, kinds = counts[:, 0].unique(return_inverse=True)
        counted = numbers[:, None] * spread
        shrink = counted / (counted + 1)  # k: of the mean toward the centre
        variance = 1 + spread / (counted + 1)  # v: of a sentence, given n others of its relation
        return cls.of(shrink[kinds] * means, variance, kinds)

    @classmethod
    def around(cls, means: Tensor) -> Expected:
        """Of means, [n, dim], where all variances are 1."""
        kinds = torch.zeros(len(means), dtype=torch.long, device=means.device)
        return cls.of(means, torch.ones_like(means[:1]), kinds)

    @property
    def precision(self) -> Tensor:
        """Of each relation, [dim, n]."""
        return self.precisions[:, self.kinds]

    def log_likelihoods(self, z: Tensor) -> Tensor:
        """-1/2 sum_i (z_i - k_ci mu_ci)^2 / v_ci, multiplied out: [n_sentences, n]."""
        return z @ self.slope - ((z.square() @ self.precisions)[:, self.kinds] + self.rest) / 2


@dataclass(frozen=True, slots=True, eq=False)
class Background:
    """Centres of the vectors of any sentences (`erda.encoders.background`), [n, dim]: relations that nobody taught."""

    centres: Tensor

    def n_missing(self, n_relations: int) -> int:
        """For how many relations it has to stand, beside those that were taught."""
        return max(ENOUGH - n_relations, 0) if len(self.centres) else 0

    @property
    def centre(self) -> Tensor:
        """The mean of all, [dim]; zeros where there are none."""
        return self.centres.sum(dim=0) / max(len(self.centres), 1)

    @property
    def within(self) -> Tensor:
        """The covariance of sentences around their relation: the same variance everywhere, [dim, dim]."""
        dim = self.centres.shape[1]
        return torch.eye(dim).to(self.centres) * (WITHIN_SHARE * self._variance() / dim)

    @property
    def between(self) -> Tensor:
        """The covariance of relations, [dim, dim]: that of the centres, scaled to what `within` leaves."""
        apart = self.centres - self.centre
        scale = (1 - WITHIN_SHARE) * self._variance() / apart.square().sum().clamp(min=1e-9)
        return apart.t() @ apart * scale

    def _variance(self) -> Tensor:
        """Of sentences, whose vectors have length 1, around the mean of all."""
        return 1 - self.centre.square().sum()


@dataclass(frozen=True, slots=True, eq=False)
class NeverSeen:
    """What a relation never seen makes of a sentence: one without a sentence and the background's, half and half.

    `weight` of that counts; the rest is `typical`, what a relation makes of its own sentences. So a sentence that is
    far from everything stays less likely to be of a known relation.
    """

    relations: Expected  # the one without a sentence, and the centres of the background
    weight: float
    typical: float

    @classmethod
    def of(cls, background: Background, centre: Tensor, basis: Tensor, spread: Tensor) -> NeverSeen:
        """In a basis around a centre, where relations have variances `spread`, [dim]."""
        means = torch.cat([torch.zeros_like(spread)[None], (background.centres - centre) @ basis])
        counts = torch.full_like(means[:, :1], CENTRE_COUNT)
        counts[0] = 0
        return cls(Expected.given(counts, means, spread), NEVER_WEIGHT, -len(spread) / 2)

    def log_likelihood(self, z: Tensor) -> Tensor:
        """[n_sentences, 1]."""
        each = self.relations.log_likelihoods(z)
        found, centres = each[:, :1], each[:, 1:]
        if centres.shape[1]:
            mixed = torch.logsumexp(centres / MIXED_AT, dim=1, keepdim=True) - log(centres.shape[1])
            found = (found + MIXED_AT * mixed) / 2
        return self.weight * found + (1 - self.weight) * self.typical
