"""Normal distributions of a sentence's vector under each relation, taught or unseen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log

import numpy as np

ENOUGH = 6  # relations needed to estimate both covariances from them alone; with fewer, the background helps
WITHIN_SHARE = 0.65  # share of the variance of sentences that remains once their relation is known
CENTRE_COUNT = 3.0  # number of sentences that a background centre counts for
MIXED_AT = 9.0  # temperature of the mixture of centres
DIMENSIONS_AS_ONE = 3.0  # up to this many dimensions, log-likelihoods count in full; beyond, they are tempered
EXPECTED = ("precisions", "kinds", "slope", "rest")  # the fields of `Expected`
NEVER_WEIGHT = 0.9  # weight of an unseen relation in the reference that scores are measured against


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """One normal distribution per relation, in a basis with diagonal covariances: factors of z^2 and z, and the rest.

    Constants common to all relations and the determinants are omitted (docs/method.md).
    """

    precisions: np.ndarray  # [dim, n_kinds]: one column per distinct number of sentences
    kinds: np.ndarray  # [n]: the column in `precisions` of each relation
    slope: np.ndarray  # [dim, n]
    rest: np.ndarray  # [n]

    @classmethod
    def of(cls, means: np.ndarray, variances: np.ndarray, kinds: np.ndarray) -> Expected:
        """Build from means [n, dim] and variances [n_kinds, dim]."""
        slope = means / variances[kinds]
        return cls(np.ascontiguousarray((1 / variances).T), kinds, slope.T, (means * slope).sum(axis=1))

    @classmethod
    def given(cls, counts: np.ndarray, means: np.ndarray, spread: np.ndarray) -> Expected:
        """Build from `counts` sentences [n] with means [n, dim], where relations have variances `spread` [dim].

        The variance of sentences around their relation is 1 in every direction.
        """
        numbers, kinds = np.unique(counts, return_inverse=True)
        counted = numbers[:, None] * spread
        shrink = counted / (counted + 1)  # k: of the mean toward the centre
        variance = 1 + spread / (counted + 1)  # v: of a sentence, given n others of its relation
        return cls.of(shrink[kinds] * means, variance, kinds)

    @classmethod
    def around(cls, means: np.ndarray) -> Expected:
        """Build from means [n, dim], where all variances are 1."""
        return cls.of(means, np.ones_like(means[:1]), np.zeros(len(means), dtype=np.int64))

    def log_likelihoods(self, z: np.ndarray) -> np.ndarray:
        """-1/2 sum_i (z_i - k_ci mu_ci)^2 / v_ci, multiplied out: [n_sentences, n]."""
        return np.asarray(z @ self.slope - ((np.square(z) @ self.precisions)[:, self.kinds] + self.rest) / 2)


@dataclass(frozen=True, slots=True, eq=False)
class Background:
    """Cluster centres of general sentences (`erda.encoders.contract`), [n, dim]: they model untaught relations."""

    centres: np.ndarray

    def n_missing(self, n_relations: int) -> int:
        """Return the number of relations that the background replaces, given `n_relations` taught relations."""
        return max(ENOUGH - n_relations, 0) if len(self.centres) else 0

    @property
    def centre(self) -> np.ndarray:
        """Mean of all centres, [dim]; zeros where there are none."""
        return np.asarray(self.centres.sum(axis=0) / max(len(self.centres), 1))

    @property
    def within(self) -> np.ndarray:
        """Covariance of sentences around their relation, with equal variance in every direction: [dim, dim]."""
        dim = self.centres.shape[1]
        return np.eye(dim) * (WITHIN_SHARE * self._variance() / dim)

    @property
    def between(self) -> np.ndarray:
        """Covariance of relations, [dim, dim]: that of the centres, scaled to the variance that `within` leaves."""
        apart = self.centres - self.centre
        scale = (1 - WITHIN_SHARE) * self._variance() / max(float(np.square(apart).sum()), 1e-9)
        return np.asarray(apart.T @ apart * scale)

    def _variance(self) -> float:
        """Return the variance of sentences (vectors of length 1) around their common mean."""
        return 1 - float(np.square(self.centre).sum())


@dataclass(frozen=True, slots=True, eq=False)
class NeverSeen:
    """Log-likelihood of a sentence under an unseen relation.

    It averages a relation without sentences and the mixture of background centres, and counts with `weight`. The rest
    of the weight goes to `typical`, the log-likelihood of a relation's own sentences. So a sentence far from everything
    stays unlikely to belong to a known relation.
    """

    relations: Expected  # the relation without sentences, then the background centres
    weight: float
    typical: float

    @classmethod
    def of(cls, background: Background, centre: np.ndarray, basis: np.ndarray, spread: np.ndarray) -> NeverSeen:
        """Build in a basis around a centre, where relations have variances `spread` [dim]."""
        means = np.concatenate([np.zeros_like(spread)[None], (background.centres - centre) @ basis])
        counts = np.full(len(means), CENTRE_COUNT)
        counts[0] = 0
        return cls(Expected.given(counts, means, spread), NEVER_WEIGHT, -len(spread) / 2)

    def log_likelihood(self, z: np.ndarray) -> np.ndarray:
        """Return [n_sentences, 1]."""
        each = self.relations.log_likelihoods(z)
        found, centres = each[:, :1], each[:, 1:] / MIXED_AT
        if centres.shape[1]:
            highest = centres.max(axis=1, keepdims=True)
            mixed = highest + np.log(np.exp(centres - highest).sum(axis=1, keepdims=True)) - log(centres.shape[1])
            found = (found + MIXED_AT * mixed) / 2
        return np.asarray(self.weight * found + (1 - self.weight) * self.typical)


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A fitted model that scores unit vectors: a centre, a basis, and the distributions of all relations in it."""

    centre: np.ndarray  # [dim]
    basis: np.ndarray  # [dim, dim]
    expected: Expected
    never_seen: NeverSeen

    @property
    def scale(self) -> float:
        """Divisor of log-likelihoods, since the directions of a vector are not independent evidence."""
        return float((self.basis.shape[1] / DIMENSIONS_AS_ONE) ** 0.5)

    @property
    def spread(self) -> np.ndarray:
        """Variances of relations in this basis, [dim]; those of sentences are 1."""
        return np.asarray(1 / self.never_seen.relations.precisions[:, self.never_seen.relations.kinds[0]] - 1)

    def scores(self, vectors: np.ndarray) -> np.ndarray:
        """Log-likelihood ratios of each relation against an unseen one, tempered: [n, n_relations]."""
        z = (vectors.astype(np.float64) - self.centre) @ self.basis
        return np.asarray((self.expected.log_likelihoods(z) - self.never_seen.log_likelihood(z)) / self.scale)

    def named(self, names: np.ndarray, count: float) -> Expected:
        """Relations known by name alone: centred name vectors [n, dim], which count for `count` sentences each."""
        return Expected.given(np.full(len(names), count), names @ self.basis, self.spread)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays of the model in 32 bits, for a file; `from_arrays` restores it."""
        never = self.never_seen
        arrays = {
            "centre": self.centre,
            "basis": self.basis,
            **{name: getattr(self.expected, name) for name in EXPECTED},
            **{f"never_{name}": getattr(never.relations, name) for name in EXPECTED},
            "never": np.array([never.weight, never.typical]),
        }
        kinds = {name: np.int32 if array.dtype.kind == "i" else np.float32 for name, array in arrays.items()}
        return {name: np.ascontiguousarray(array, dtype=kinds[name]) for name, array in arrays.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Fitted:
        """Restore a model from its `arrays`. Scores are computed in 64 bits."""
        wide = {name: array if array.dtype.kind == "i" else array.astype(np.float64) for name, array in arrays.items()}
        expected, unseen = (Expected(*(wide[f"{whose}{name}"] for name in EXPECTED)) for whose in ("", "never_"))
        weight, typical = wide["never"].tolist()
        never_seen = NeverSeen(unseen, weight, typical)
        return cls(wide["centre"], wide["basis"], expected, never_seen)
