"""The open-text score: does a relation hold for a pair of entities, or nothing that was taught? (docs/open-text.md)

Evidence of a relation against unlabelled pairs, each in units of its spread over a sample of unlabelled pairs:
the two-covariance score, two ridge heads in closed form, log odds of the entity types, of the gap between the
entities and of their order. Judged pairs correct the sum by a kernel logistic regression. Pure functions of arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RIDGES = (0.1, 10.0)  # of the mean variance
HEAD_NAME_WEIGHT = 1.0  # examples that a relation's name counts for in a ridge head
TWO_COVARIANCE_WEIGHT = 2.0
TYPE_WEIGHT, TYPE_PRIOR = 0.4, 0.5
GAP_WEIGHT, GAP_PRIOR = 0.4, 2.0
JUDGED_SLOPE, JUDGED_L2, JUDGED_AT = 2.0, 0.03, 0.9975
KERNEL_RIDGE, KERNEL_TYPE, KERNEL_GAP, KERNEL_BIAS = 3.0, 0.25, 0.15, 0.3


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pairs of entities in sentences."""

    vectors: np.ndarray  # [n, dim], of length 1
    types: np.ndarray  # [n, 2], numbers of the types of head and tail; 0 is unknown
    starts: np.ndarray  # [n, 2], first tokens of head and tail

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, rows: np.ndarray) -> Pairs:
        return Pairs(self.vectors[rows], self.types[rows], self.starts[rows])

    def __add__(self, other: Pairs) -> Pairs:
        return Pairs(*(np.concatenate(two) for two in zip(self.parts, other.parts, strict=True)))

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The three arrays."""
        return self.vectors, self.types, self.starts

    @property
    def gaps(self) -> np.ndarray:
        """Log of the distance between the entities: [n]."""
        return np.log1p(np.abs(self.starts[:, 0] - self.starts[:, 1]))

    @property
    def is_head_first(self) -> np.ndarray:
        """[n] booleans."""
        return self.starts[:, 0] < self.starts[:, 1]


@dataclass(frozen=True, slots=True, eq=False)
class Unlabelled:
    """Sufficient statistics of unlabelled pairs, and a sample of them."""

    mean: np.ndarray  # [dim]
    inverses: tuple[np.ndarray, ...]  # of the covariance plus each ridge: [dim, dim]
    whitening: np.ndarray  # [dim, dim], of the covariance plus KERNEL_RIDGE
    sample: Pairs
    type_shares: np.ndarray  # [2, n_types]
    smoothing: np.ndarray  # [n_types, n_types]: share of type t among mentions that could be tagged s
    gap: tuple[float, float]  # mean and deviation

    @classmethod
    def of(cls, vectors: np.ndarray, sample: Pairs, smoothing: np.ndarray) -> Unlabelled:
        """Collect statistics of `vectors`; types, gaps and spreads are those of `sample`."""
        mean = vectors.mean(axis=0)
        centred = vectors - mean
        covariance = centred.T @ centred / len(vectors)
        even = np.eye(len(mean), dtype=np.float32) * np.trace(covariance) / len(mean)
        values, rotation = np.linalg.eigh(covariance + KERNEL_RIDGE * even)
        whitening = rotation / np.sqrt(values)
        whitening /= np.linalg.norm((sample.vectors - mean) @ whitening, axis=1).mean()
        counts = np.stack([np.bincount(column, minlength=len(smoothing)) + 1.0 for column in sample.types.T])
        counts[:, 0] = 0
        gaps = sample.gaps
        return cls(
            mean,
            tuple(np.linalg.inv(covariance + ridge * even) for ridge in RIDGES),
            whitening,
            sample,
            counts / counts.sum(axis=1, keepdims=True),
            smoothing,
            (float(gaps.mean()), float(gaps.std())),
        )


def type_odds(examples: Pairs, unlabelled: Unlabelled, asked: Pairs) -> np.ndarray:
    """Log odds of the types of head and tail: [n]. Unknown types are no evidence."""
    found = np.zeros(len(asked))
    for side in (0, 1):
        shares = unlabelled.type_shares[side]
        counts = np.bincount(examples.types[:, side], minlength=len(shares)).astype(float)
        counts[0] = 0
        smooth = counts @ unlabelled.smoothing
        smooth[0] = 0
        smooth *= counts.sum() / max(smooth.sum(), 1e-9)
        with np.errstate(divide="ignore", invalid="ignore"):
            odds = np.log((smooth + TYPE_PRIOR * shares) / (counts.sum() + TYPE_PRIOR) / shares)
        odds[0] = 0
        found += odds[asked.types[:, side]]
    return found


def gap_odds(examples: Pairs, unlabelled: Unlabelled, asked: Pairs) -> np.ndarray:
    """Log odds of the gap between the entities (normal in its logarithm) and of their order: [n]."""
    mean, spread = unlabelled.gap
    own, weight = examples.gaps, len(examples) + GAP_PRIOR
    own_mean = (own.sum() + GAP_PRIOR * (mean - spread / 2)) / weight
    own_spread = np.sqrt((np.square(own - own_mean).sum() + GAP_PRIOR * spread**2) / weight)
    near = np.square((asked.gaps - mean) / spread) / 2 - np.square((asked.gaps - own_mean) / own_spread) / 2
    first = (examples.is_head_first.sum() + GAP_PRIOR / 2) / weight
    order = np.where(asked.is_head_first, np.log(2 * first), np.log(2 * (1 - first)))
    return near + np.log(spread / own_spread) + order


def ridge_heads(examples: Pairs, name: np.ndarray, unlabelled: Unlabelled) -> np.ndarray:
    """Weights of the ridge heads of a relation, from the mean of its examples and its centred name: [dim, n_heads]."""
    n = len(examples)
    mean = (n * (examples.vectors.mean(axis=0) - unlabelled.mean) + HEAD_NAME_WEIGHT * name) / (n + HEAD_NAME_WEIGHT)
    return np.stack([inverse @ mean for inverse in unlabelled.inverses], axis=1)


def evidence(
    examples: Pairs,
    name: np.ndarray,
    unlabelled: Unlabelled,
    asked: Pairs,
    *,
    likelihoods: np.ndarray,
    sample_likelihoods: np.ndarray,
) -> np.ndarray:
    """Sum of the evidence for a relation, [n]; the likelihoods are two-covariance scores of asked pairs and sample."""
    heads = ridge_heads(examples, name, unlabelled)
    parts = np.column_stack([likelihoods, (asked.vectors - unlabelled.mean) @ heads])
    reference = np.column_stack([sample_likelihoods, (unlabelled.sample.vectors - unlabelled.mean) @ heads])
    weights = np.array([TWO_COVARIANCE_WEIGHT, *np.ones(heads.shape[1])]) / reference.std(axis=0)
    spread = (reference @ weights).std()
    total = (parts - reference.mean(axis=0)) @ weights / spread
    types = type_odds(examples, unlabelled, asked)
    return np.asarray(total + TYPE_WEIGHT * types + GAP_WEIGHT * gap_odds(examples, unlabelled, asked))


def compete(scores: np.ndarray, sentences: np.ndarray) -> np.ndarray:
    """Subtract how far the best pair of the same sentence is ahead: [n]. `sentences` numbers them, in order."""
    starts = np.flatnonzero(np.r_[True, sentences[1:] != sentences[:-1]])
    best = np.repeat(np.maximum.reduceat(scores, starts), np.diff(np.r_[starts, len(scores)]))
    return np.asarray(2 * scores - best)


def kernel_rows(pairs: Pairs, unlabelled: Unlabelled) -> np.ndarray:
    """What a judgement generalises over: whitened vector, types, gap, order, a constant: [n, k]."""
    n_types = len(unlabelled.smoothing)
    types = np.zeros((len(pairs), 2 * n_types), dtype=np.float32)
    types[np.arange(len(pairs)), pairs.types[:, 0]] = KERNEL_TYPE
    types[np.arange(len(pairs)), n_types + pairs.types[:, 1]] = KERNEL_TYPE
    gaps = KERNEL_GAP * np.column_stack([pairs.gaps - 2, pairs.is_head_first - 0.5])
    constant = np.full((len(pairs), 1), np.sqrt(KERNEL_BIAS))
    return np.hstack([(pairs.vectors - unlabelled.mean) @ unlabelled.whitening, types, gaps, constant])


def correction(rows: np.ndarray, offsets: np.ndarray, holds: np.ndarray, *, n_steps: int = 50) -> np.ndarray:
    """Weights that correct log odds `offsets` of judged pairs: logistic regression by Newton steps on the dual, [k]."""
    kernel, duals = rows @ rows.T, np.zeros(len(rows))

    def loss(duals: np.ndarray) -> float:
        shift = kernel @ duals
        logits = offsets + shift
        return float((np.logaddexp(0, logits) - holds * logits).sum() + JUDGED_L2 / 2 * duals @ shift)

    for _ in range(n_steps):
        shift = kernel @ duals
        chance = 1 / (1 + np.exp(-(offsets + shift)))
        curve = np.maximum(chance * (1 - chance), 1e-9)
        scaled = kernel * curve[:, None] + JUDGED_L2 * np.eye(len(rows))
        step = np.linalg.solve(scaled, curve * shift + holds - chance) - duals
        size, before = 1.0, loss(duals)
        while loss(duals + size * step) > before and size > 1e-4:
            size /= 2
        duals = duals + size * step
        if np.abs(size * step).max() < 1e-6:
            break
    return np.asarray(rows.T @ duals)


def judged_evidence(
    scores: Sequence[np.ndarray],
    own: np.ndarray,
    *,
    rows: Sequence[np.ndarray],
    judged_rows: np.ndarray,
    judged_scores: np.ndarray,
    holds: np.ndarray,
) -> list[np.ndarray]:
    """Correct evidence by judgements. `own` is the evidence on unlabelled text; taught examples have score NaN."""
    level = np.quantile(own, JUDGED_AT)
    offsets = np.where(np.isnan(judged_scores), 1.0, JUDGED_SLOPE * (judged_scores - level))
    weights = correction(judged_rows, offsets, holds)
    return [score + kernel @ weights / JUDGED_SLOPE - level for score, kernel in zip(scores, rows, strict=True)]
