"""From scores to probabilities: how likely each known relation is, and that none of them holds.

`posterior` scores a sentence x by log p(x | relation c) - log p(x | a relation never seen), tempered. Before a sentence
is seen, known and unknown are equally likely, and so are the k known relations:

    p(c | x) = exp(s_c / T) / (sum over relations of exp(s / T) + k exp(none))

With few relations, or few examples of each, all scores lie wider: their logarithms of odds are divided by that width
(`Calibration.given`). The constants were chosen on validation data (docs/calibration.md; `benchmarks/teaching.py
refusing`); nothing is asked of the user, and one example of one relation is enough. `measure` says how good such
probabilities are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from erda.types import Predictions, ScoreKind

MANY, SHOTS = 40, 5  # relations, and examples of each, that the constants below are meant for
FEWER_RELATIONS = 0.94  # by how much wider scores lie where there is an e-th of the relations
FEWER_SHOTS = 0.35  # and where there is an example less of each
LEAST_KNOWN = 0.5  # below it, the answer is that no known relation holds
N_BINS = 15  # of confidences, in the calibration error


@dataclass(frozen=True, slots=True)
class Calibration:
    """Turns scores into probabilities. `none` is the odds of "no relation" at scores of 0, -inf: never said."""

    temperature: float
    none: float = -math.inf
    width: float = 1.0  # how much wider scores lie than where there are many relations, with enough examples

    def given(self, n_relations: int, shots: float) -> Calibration:
        """That of so many relations with so many examples each."""
        wider = FEWER_RELATIONS * math.log(MANY / min(max(n_relations, 1), MANY))
        wider += FEWER_SHOTS * (SHOTS - min(shots, SHOTS))
        return self if self.none == -math.inf else replace(self, width=1 + wider)

    def confidences(self, scores: np.ndarray) -> np.ndarray:
        """The probability of each known relation, [n, n_relations]; what a row lacks of 1 is that of none of them."""
        logits = np.asarray(scores, dtype=np.float64) / self.temperature
        highest = logits.max(axis=1, keepdims=True, initial=-np.inf)
        mean = highest + np.log(np.exp(logits - highest).mean(axis=1, keepdims=True))
        shares = np.exp((logits - highest) / self.width)
        with np.errstate(over="ignore"):
            known = 1 / (1 + np.exp(self.none - mean / self.width))
        return np.asarray(known * shares / shares.sum(axis=1, keepdims=True))

    def known(self, scores: np.ndarray) -> np.ndarray:
        """The probability that any known relation holds, [n]; refuse where it is below `LEAST_KNOWN`."""
        return np.asarray(self.confidences(scores).sum(axis=1))


# What scores of a kind mean. Only log-likelihoods are measured against a relation never seen, so only these refuse.
CALIBRATIONS: Mapping[ScoreKind, Calibration] = {
    "log-likelihood": Calibration(1.25, none=-3.4),
    "cosine": Calibration(0.1),
    "logit": Calibration(1.0),
    "negative distance": Calibration(1.0),
}


def calibration_of(predictions: Predictions) -> Calibration:
    """The calibration of what a method predicted."""
    return CALIBRATIONS[predictions.kind or "logit"]


# -- how good they are -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quality:
    """How good confidences are. Each is None where there is nothing to measure it on.

    `auroc`: the chance that a question of a known relation looks more known than one of an unknown relation.
    `error`: by how much confidence and share of right answers differ, on questions of known relations.
    `open_error`: the same on all questions, where an answer to a question of an unknown relation is wrong.
    `risk`: the share of wrong answers among the tenth, two tenths, ... of all questions answered with most confidence.
    """

    auroc: float | None
    error: float | None
    open_error: float | None
    risk: tuple[float, ...]


def measure(confidences: np.ndarray, gold: np.ndarray) -> Quality:
    """The quality of confidences, [n, n_relations]; `gold` has the right column, or -1 for an unknown relation."""
    known, sure = gold >= 0, confidences.max(axis=1)
    right = confidences.argmax(axis=1) == gold
    total = confidences.sum(axis=1)
    return Quality(
        auroc(total[known], total[~known]),
        calibration_error(sure[known] / total[known].clip(1e-300), right[known]),
        calibration_error(sure, right),
        tuple(risk_at(sure, right, share / 10) for share in range(1, 11)) if len(gold) else (),
    )


def auroc(high: np.ndarray, low: np.ndarray) -> float | None:
    """The chance that a value of `high` is above one of `low`; equal ones count half. None where either is empty."""
    if not len(high) or not len(low):
        return None
    ordered = np.sort(low)
    below, upto = np.searchsorted(ordered, high), np.searchsorted(ordered, high, side="right")
    return float((below + upto).mean() / (2 * len(low)))


def calibration_error(confidences: np.ndarray, right: np.ndarray, *, n_bins: int = N_BINS) -> float | None:
    """Expected calibration error: |confidence - share of right answers|, the mean over bins of equal width."""
    if not len(right):
        return None
    bins = np.minimum((confidences * n_bins).astype(int), n_bins - 1)
    gap = np.bincount(bins, confidences, n_bins) - np.bincount(bins, right, n_bins)
    return float(np.abs(gap).sum() / len(right))


def risk_at(confidences: np.ndarray, right: np.ndarray, coverage: float) -> float:
    """The share of wrong answers where only the most confident `coverage` of all questions is answered."""
    answered = np.argsort(-confidences, kind="stable")[: max(round(coverage * len(right)), 1)]
    return float(1 - right[answered].mean())
