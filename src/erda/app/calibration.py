"""From scores to probabilities: how likely each known relation is, and that none of them holds.

`posterior` scores a sentence x by log p(x | relation c) - log p(x | a relation never seen), tempered. Before a sentence
is seen, known and unknown are equally likely, and so are the k known relations:

    p(c | x) = exp(s_c / T) / (sum over relations of exp(s / T) + k exp(none))

With few relations, or few examples of each, all scores lie wider: their logarithms of odds are divided by that width
(`Calibration.given`). The constants were chosen on validation data (docs/calibration.md; `benchmarks/teaching.py
refusing`); nothing is asked of the user, and one example of one relation is enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from erda.types import ScoreKind

MANY, SHOTS = 40, 5  # relations, and examples of each, that the constants below are meant for
FEWER_RELATIONS = 0.94  # by how much wider scores lie where there is an e-th of the relations
FEWER_SHOTS = 0.35  # and where there is an example less of each
LEAST_KNOWN = 0.5  # where all known relations together are less likely, the answer is that none of them holds


@dataclass(frozen=True, slots=True)
class Calibration:
    """Turns scores into probabilities. `none` is the odds of "no relation" at scores of 0, -inf: never said."""

    temperature: float
    none: float = -math.inf
    width: float = 1.0  # how much wider scores lie than where there are many relations, with enough examples

    def given(self, n_examples: Sequence[int]) -> Calibration:
        """That of relations that were taught by so many examples each."""
        n_relations = max(len(n_examples), 1)
        shots = sum(min(n, SHOTS) for n in n_examples) / n_relations
        wider = FEWER_RELATIONS * math.log(MANY / min(n_relations, MANY)) + FEWER_SHOTS * (SHOTS - shots)
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


# What scores of a kind mean. Only log-likelihoods are measured against a relation never seen, so only these refuse.
CALIBRATIONS: Mapping[ScoreKind, Calibration] = {
    "log-likelihood": Calibration(1.25, none=-3.4),
    "cosine": Calibration(0.1),
    "logit": Calibration(1.0),
    "negative distance": Calibration(1.0),
}
