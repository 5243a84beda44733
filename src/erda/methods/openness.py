"""Fit the open-text head, which separates a relation from unlabelled pairs of entities (docs/open-text.md).

The evidence for a relation is the sum of
- its two-covariance score and two ridge heads (C + r v I)^-1 (m - g), with m the mean of its examples, g, C and v the
  mean, covariance and mean variance of unlabelled pairs; in units of the spread over a sample of them,
- how far its two-covariance score is above that of the best rival (`Unlabelled.rivals`: "hired", "died in", ...),
- log odds of the types of head and tail, of their distance and of their order.
The less the examples of a relation differ from unlabelled pairs, the more frequent it is assumed to be.
Counterexamples correct the sum by a logistic regression over vector, types, distance and order. Everything is a sum
over examples, so their order does not matter, and a forgotten relation leaves no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from erda.encoders.contract import Unlabelled, unit_rows
from erda.methods.expected import Fitted
from erda.methods.open_head import COUNT_WEIGHT, NAME_COUNT, OpenHead, Pairs, plain_type, relative_counts

RIDGES = (0.1, 10.0)  # of the mean variance
NAME_WEIGHT, PATTERN_WEIGHT = 1.0, 1 / 3  # number of examples that a name and a pattern count for in a ridge head
LIKELIHOOD_WEIGHT = 2.0  # of the two-covariance score, against 1 of each ridge head
RIVAL_WEIGHT, MOST_RIVAL = 0.14, 0.5  # of the lead over rivals, by the root of 1 + number of examples; at most
SAME_NAME = 0.8  # cosine from which a rival is the relation itself
TYPE_WEIGHT, TYPE_PRIOR = 0.4, 0.5
RARE_TYPE_WEIGHT = 0.6  # of log odds below 0, in addition: a type that no example has
BY_HAND = 20.0  # number of examples that types set by hand count for
GAP_WEIGHT, GAP_PRIOR = 0.4, 2.0
NEAR_WEIGHT = -0.75  # of the log distance, for every relation
N_SPREAD = 2_000  # pairs of the sample that scores are compared with
LEVEL = 0.9975  # share of unlabelled pairs whose evidence is below the level of a relation
# Without counterexamples, log odds are LINE[0] x evidence + LINE[1] + FREQUENCY x `distinctness` + COUNT_WEIGHT x
# `relative_counts`; the five numbers come from `python benchmarks/opentext.py choose`.
LINE, FREQUENCY = (0.51, -1.81), (-0.43, -0.21)
JUDGED_LINE, LINE_SPREAD = (0.65, -2.82), (0.2, 1.0)  # over evidence minus level, before they are seen
CORRECTION_SLOPE, CORRECTION_L2 = 2.0, 0.05
KERNEL_RIDGE, KERNEL_TYPE, KERNEL_GAP, KERNEL_BIAS, USUAL_GAP = 3.0, 0.25, 0.15, 0.3, 2.0
MOST_JUDGED = 1_000  # examples and counterexamples in a regression


@dataclass(frozen=True, slots=True, eq=False)
class TaughtPairs:
    """What is known of a relation. Types that were set by hand replace those of the examples."""

    examples: Pairs
    name: np.ndarray  # [dim], vector of name and patterns minus that of a usual name
    counterexamples: Pairs
    types_by_hand: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # of head and tail
    n_patterns: int = 0

    @property
    def name_weight(self) -> float:
        """Number of examples that name and patterns count for in a ridge head."""
        return NAME_WEIGHT + PATTERN_WEIGHT * self.n_patterns


def fit_open_head(
    taught: Sequence[TaughtPairs], model: Fitted, unlabelled: Unlabelled, *, unrelated: Pairs | None = None
) -> OpenHead:
    """Fit the head of all relations. In pairs `unrelated`, none of them holds."""
    sample = Pairs(unlabelled.vectors, unlabelled.types, unlabelled.starts)[:N_SPREAD]
    likelihoods, of_rivals = _sample_scores(model, unlabelled)
    head = _vector_part(taught, unlabelled, sample, likelihoods)
    rivals = of_rivals[:, _are_rivals(taught, unlabelled.rivals)].max(axis=1, initial=-np.inf)
    gap, order, constant = _place_part(taught, unlabelled)
    types = np.stack([_type_part(taught, unlabelled, side) for side in (0, 1)])
    head = replace(
        head,
        constant=head.constant + GAP_WEIGHT * constant,
        gap=GAP_WEIGHT * gap + np.array([[NEAR_WEIGHT], [0]]),
        order=GAP_WEIGHT * order,
        types=TYPE_WEIGHT * types + RARE_TYPE_WEIGHT * np.minimum(types, 0),
    )
    levels = np.quantile(head.log_odds(likelihoods, rivals, sample), LEVEL, axis=0)
    against = [Pairs.joined([one.counterexamples, *([unrelated] if unrelated else [])]) for one in taught]
    head = replace(head, against=np.array([len(pairs) for pairs in against], dtype=np.float64))
    counted = COUNT_WEIGHT * relative_counts(head.counts + [one.n_patterns for one in taught])
    shift = LINE[1] + distinctness(taught, unlabelled) @ FREQUENCY + counted
    slope = np.full(len(taught), LINE[0])
    kernel = _Kernel.of(unlabelled)
    for i in np.flatnonzero(head.against).tolist():
        pairs = Pairs.joined([taught[i].examples[:MOST_JUDGED], against[i][:MOST_JUDGED]])
        evidence = head.log_odds(*head.scores_and_rivals(model, pairs.vectors), pairs)[:, i]
        holds = np.arange(len(pairs)) < min(len(taught[i].examples), MOST_JUDGED)
        left_out = _correct(head, i, kernel, judged=_Judged(pairs, holds, evidence, levels[i]))
        slope[i], intercept = fitted_line(left_out - levels[i], holds.astype(float))
        shift[i] = intercept - slope[i] * levels[i]
    return OpenHead.from_arrays(_scaled(head, slope, shift).arrays())  # rounded as in a file


def distinctness(taught: Sequence[TaughtPairs], unlabelled: Unlabelled) -> np.ndarray:
    """How far the examples of each relation are from unlabelled pairs, by types and by vectors: [n_relations, 2].

    Types: expected log odds under the types of the relation. Vectors: mean over the examples of the first ridge head of
    the others, in deviations of unlabelled pairs; 0 without examples.
    """
    found = np.zeros((len(taught), 2))
    for side in (0, 1):
        odds = _type_part(taught, unlabelled, side)
        found[:, 0] += (_type_shares(unlabelled, side)[:, None] * np.exp(odds) * odds).sum(axis=0)
    variances = unlabelled.variances.astype(np.float64)
    for i, one in enumerate(taught):
        vectors = (one.examples.vectors[:MOST_JUDGED] - unlabelled.mean) @ unlabelled.axes
        others = vectors.sum(axis=0) + one.name_weight * one.name @ unlabelled.axes - vectors
        weights = others / (variances + RIDGES[0] * variances.mean())
        spread = np.sqrt((np.square(weights) * variances).sum(axis=1))
        found[i, 1] = ((vectors * weights).sum(axis=1) / np.maximum(spread, 1e-9)).sum() / max(len(vectors), 1)
    return found


def _type_shares(unlabelled: Unlabelled, side: int) -> np.ndarray:
    """Share of each known type among unlabelled heads (side 0) or tails (1): [1 + n_types]."""
    shares = np.bincount(unlabelled.types[:, side], minlength=1 + len(unlabelled.type_names)) + 1.0
    shares[0] = 0
    return np.asarray(shares / shares.sum())


@lru_cache(maxsize=1)  # by identity: judgements change counterexamples, not the model
def _sample_scores(model: Fitted, unlabelled: Unlabelled) -> tuple[np.ndarray, np.ndarray]:
    """Two-covariance scores of the sample for all relations and for all rivals: [n, n_relations], [n, n_rivals]."""
    named = model.named(_centred(unlabelled.rivals), NAME_COUNT)
    likelihoods, rivals = model.scores_of(unlabelled.vectors[:N_SPREAD], None, named)
    return likelihoods, rivals


def _scaled(head: OpenHead, slope: np.ndarray, shift: np.ndarray) -> OpenHead:
    """Turn evidence into log odds: slope x evidence + shift."""
    parts = {name: getattr(head, name) * slope for name in ("likelihood", "lead", "weights", "types", "gap", "order")}
    return replace(head, **parts, constant=head.constant * slope + shift)


def _vector_part(
    taught: Sequence[TaughtPairs], unlabelled: Unlabelled, sample: Pairs, likelihoods: np.ndarray
) -> OpenHead:
    """Two-covariance score and ridge heads, each in units of its spread over the sample, their sum in units of its."""
    counts = np.array([len(one.examples) for one in taught], dtype=np.float64)
    of_names = np.array([one.name_weight for one in taught])
    means = np.stack([(one.examples.vectors - unlabelled.mean).sum(axis=0) for one in taught])
    means = means + of_names[:, None] * np.stack([one.name for one in taught])
    means = (means / (counts + of_names)[:, None]) @ unlabelled.axes
    even = unlabelled.variances.mean()
    ridges = [unlabelled.axes @ (means / (unlabelled.variances + ridge * even)).T for ridge in RIDGES]
    parts = [likelihoods, *(sample.vectors @ weights for weights in ridges)]
    scale = [factor / part.std(axis=0) for factor, part in zip((LIKELIHOOD_WEIGHT, 1, 1), parts, strict=True)]
    total = np.sum([factor * part for factor, part in zip(scale, parts, strict=True)], axis=0)
    spread = total.std(axis=0)
    weights = np.sum([factor * part for factor, part in zip(scale[1:], ridges, strict=True)], axis=0) / spread
    nothing = np.zeros(len(taught))
    return OpenHead(
        scale[0] / spread,
        np.minimum(RIVAL_WEIGHT * np.sqrt(1 + counts), MOST_RIVAL),
        weights,
        -total.mean(axis=0) / spread,
        np.zeros((2, 1 + len(unlabelled.type_names), len(taught))),
        np.zeros((2, len(taught))),
        nothing,
        counts,
        nothing,
        np.array([likelihoods.mean(), likelihoods.std(axis=0).mean()]),
        _centred(unlabelled.rivals)[_are_rivals(taught, unlabelled.rivals)],
        unlabelled.type_names,
    )


def _centred(rivals: np.ndarray) -> np.ndarray:
    return np.asarray(rivals - rivals.mean(axis=0)) if len(rivals) else rivals


def _are_rivals(taught: Sequence[TaughtPairs], rivals: np.ndarray) -> np.ndarray:
    """Whether the name of each rival differs from those of all relations: [n_rivals]."""
    alike = unit_rows(_centred(rivals)) @ unit_rows(np.stack([one.name for one in taught])).T
    return np.asarray((alike < SAME_NAME).all(axis=1))


def _type_part(taught: Sequence[TaughtPairs], unlabelled: Unlabelled, side: int) -> np.ndarray:
    """Log odds of each type of the head (side 0) or tail (1): [1 + n_types, n_relations]. Unknown is no evidence."""
    n_types, shares = 1 + len(unlabelled.type_names), _type_shares(unlabelled, side)
    found = np.zeros((n_types, len(taught)))
    for i, one in enumerate(taught):
        if one.types_by_hand[side]:
            known = {plain_type(name) for name in one.types_by_hand[side]}
            counts = np.array([0.0, *(name in known for name in unlabelled.type_names)])
            counts *= BY_HAND / max(counts.sum(), 1)
        else:
            counts = np.bincount(one.examples.types[:, side], minlength=n_types).astype(float)
            counts[0] = 0
            counts = counts @ unlabelled.smoothing
        odds = (counts[1:] + TYPE_PRIOR * shares[1:]) / (counts.sum() + TYPE_PRIOR) / shares[1:]
        found[1:, i] = np.log(odds)
    return found


def _place_part(taught: Sequence[TaughtPairs], unlabelled: Unlabelled) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log odds of distance and order: weights of the log distance and its square, of the order, and a constant.

    Log distances are normal; the prior expects half a deviation less than between unlabelled entities.
    """
    usual = Pairs(unlabelled.vectors, unlabelled.types, unlabelled.starts).gaps
    mean, spread = float(usual.mean()), float(usual.std())
    n = np.array([len(one.examples) for one in taught])
    weight = n + GAP_PRIOR
    gaps = [one.examples.gaps for one in taught]
    own = (np.array([one.sum() for one in gaps]) + GAP_PRIOR * (mean - spread / 2)) / weight
    scatter = np.array([np.square(one - centre).sum() for one, centre in zip(gaps, own, strict=True)])
    variance = (scatter + GAP_PRIOR * spread**2) / weight
    first = (np.array([one.examples.is_head_first.sum() for one in taught]) + GAP_PRIOR / 2) / weight
    linear = own / variance - mean / spread**2
    square = (1 / spread**2 - 1 / variance) / 2
    constant = (mean**2 / spread**2 - own**2 / variance + np.log(spread**2 / variance)) / 2 + np.log(2 * (1 - first))
    return np.stack([linear, square]), np.log(first / (1 - first)), constant


@dataclass(frozen=True, slots=True, eq=False)
class _Kernel:
    """What a counterexample generalises over: whitened vector, types, distance, order, a constant."""

    mean: np.ndarray
    whitening: np.ndarray  # [dim, dim]
    n_types: int

    @classmethod
    def of(cls, unlabelled: Unlabelled) -> _Kernel:
        """Whiten by the covariance of unlabelled pairs plus a ridge, to a mean length of 1."""
        deviations = np.sqrt(unlabelled.variances + KERNEL_RIDGE * unlabelled.variances.mean())
        length = float(np.sqrt((unlabelled.variances / deviations**2).sum()))
        return cls(unlabelled.mean, unlabelled.axes / (deviations * length), 1 + len(unlabelled.type_names))

    def rows(self, pairs: Pairs) -> np.ndarray:
        """Rows [n, k] whose products are the kernel."""
        types = np.zeros((len(pairs), 2 * self.n_types))
        types[np.arange(len(pairs)), pairs.types[:, 0]] = KERNEL_TYPE
        types[np.arange(len(pairs)), self.n_types + pairs.types[:, 1]] = KERNEL_TYPE
        places = KERNEL_GAP * np.column_stack([pairs.gaps - USUAL_GAP, pairs.is_head_first - 0.5])
        constant = np.full((len(pairs), 1), np.sqrt(KERNEL_BIAS))
        return np.hstack([(pairs.vectors - self.mean) @ self.whitening, types, places, constant])

    def add(self, head: OpenHead, relation: int, row: np.ndarray) -> None:
        """Add a weight row [k] to the head of a relation, in place."""
        dim, n = len(self.mean), self.n_types
        vector = self.whitening @ row[:dim]
        head.weights[:, relation] += vector
        head.types[0, :, relation] += KERNEL_TYPE * row[dim : dim + n]
        head.types[1, :, relation] += KERNEL_TYPE * row[dim + n : dim + 2 * n]
        gap, order, constant = row[-3] * KERNEL_GAP, row[-2] * KERNEL_GAP, row[-1] * np.sqrt(KERNEL_BIAS)
        head.gap[0, relation] += gap
        head.order[relation] += order
        head.constant[relation] += constant - vector @ self.mean - gap * USUAL_GAP - order / 2


@dataclass(frozen=True, slots=True, eq=False)
class _Judged:
    """Examples and counterexamples of a relation, their evidence, and the level that few unlabelled pairs reach."""

    pairs: Pairs
    holds: np.ndarray  # [n], whether the relation holds
    evidence: np.ndarray  # [n]
    level: float


def _correct(head: OpenHead, relation: int, kernel: _Kernel, *, judged: _Judged) -> np.ndarray:
    """Correct the evidence of a relation, in place, by its examples and counterexamples.

    Return the evidence that each of them would have if the others alone corrected it: [n].
    """
    offsets = CORRECTION_SLOPE * (judged.evidence - judged.level)
    offsets = np.where(judged.holds, np.minimum(offsets, 1.0), offsets)
    rows, holds = kernel.rows(judged.pairs), judged.holds.astype(float)
    row = correction(rows, offsets, holds)
    kernel.add(head, relation, row / CORRECTION_SLOPE)
    return np.asarray(judged.evidence + (left_out_logits(rows, row, offsets, holds) - offsets) / CORRECTION_SLOPE)


def correction(rows: np.ndarray, offsets: np.ndarray, holds: np.ndarray, *, n_steps: int = 50) -> np.ndarray:
    """Weights that correct the log odds `offsets` of pairs: logistic regression by Newton steps on the dual, [k]."""
    kernel, duals = rows @ rows.T, np.zeros(len(rows))

    def loss(duals: np.ndarray) -> float:
        shift = kernel @ duals
        logits = offsets + shift
        return float((np.logaddexp(0, logits) - holds * logits).sum() + CORRECTION_L2 / 2 * duals @ shift)

    for _ in range(n_steps):
        shift = kernel @ duals
        chance = 1 / (1 + np.exp(-(offsets + shift)))
        curve = np.maximum(chance * (1 - chance), 1e-9)
        scaled = kernel * curve[:, None] + CORRECTION_L2 * np.eye(len(rows))
        step = np.linalg.solve(scaled, curve * shift + holds - chance) - duals
        size, before = 1.0, loss(duals)
        while loss(duals + size * step) > before and size > 1e-4:
            size /= 2
        duals = duals + size * step
        if np.abs(size * step).max() < 1e-6:
            break
    return np.asarray(rows.T @ duals)


def left_out_logits(rows: np.ndarray, weights: np.ndarray, offsets: np.ndarray, holds: np.ndarray) -> np.ndarray:
    """Logits of each pair after a correction by all other pairs, by one Newton step from the correction by all: [n]."""
    kernel, logits = rows @ rows.T, offsets + rows @ weights
    chance = 1 / (1 + np.exp(-logits))
    curve = chance * (1 - chance)
    leverage = np.diag(kernel @ np.linalg.inv(kernel * curve[:, None] + CORRECTION_L2 * np.eye(len(rows))))
    return np.asarray(logits - leverage * (holds - chance) / np.maximum(1 - curve * leverage, 1e-2))


def fitted_line(evidence: np.ndarray, holds: np.ndarray, *, n_steps: int = 50) -> np.ndarray:
    """Slope and intercept of log odds over evidence: logistic regression with a normal prior around `JUDGED_LINE`."""
    inputs, prior = np.column_stack([evidence, np.ones(len(evidence))]), 1 / np.square(LINE_SPREAD)
    line = np.array(JUDGED_LINE)

    def loss(line: np.ndarray) -> float:
        logits = inputs @ line
        fit = (np.logaddexp(0, logits) - holds * logits).sum()
        return float(fit + prior @ np.square(line - JUDGED_LINE) / 2)

    for _ in range(n_steps):
        chance = 1 / (1 + np.exp(-np.clip(inputs @ line, -50, 50)))
        curve = inputs.T @ (inputs * (chance * (1 - chance))[:, None]) + np.diag(prior)
        step = np.linalg.solve(curve, inputs.T @ (chance - holds) + prior * (line - JUDGED_LINE))
        before = loss(line)
        while loss(line - step) > before and np.abs(step).max() > 1e-9:  # a full step can overshoot
            step = step / 2
        line = line - step
        if np.abs(step).max() < 1e-6:
            break
    return line
