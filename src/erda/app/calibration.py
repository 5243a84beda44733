"""Convert scores to probabilities of each known relation and of "no relation", and these to answers (`Scored`).

`posterior` scores a sentence x by log p(x | relation c) - log p(x | a relation never seen), tempered. Before a sentence
is seen, known and unknown are equally likely, and so are the k known relations:

    p(c | x) = exp(s_c / T) / (sum over relations of exp(s / T) + k exp(none))

With few relations, or few examples of each, scores spread wider, so their log odds are divided by that width
(`Calibration.given`). The constants were chosen on validation data (docs/calibration.md). Users set nothing, and one
example of one relation is enough.

Where the encoder ships statistics of unlabelled pairs, `erda.methods.open_head` replaces this: see docs/open-text.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from erda.answers import Answer, Ranked
from erda.types import Example, Judged, ScoreKind, pair_key

MANY, SHOTS = 40, 5  # numbers of relations and of examples per relation that the constants below refer to
FEWER_RELATIONS = 0.94  # growth of the width when the number of relations is divided by e
FEWER_SHOTS = 0.35  # growth of the width per missing example
LEAST_KNOWN = 0.5  # if all known relations together are less likely, the answer is "no relation"


@dataclass(frozen=True, slots=True)
class Calibration:
    """Converts scores to probabilities. `none` is the log odds of "no relation" at scores of 0; -inf disables it."""

    temperature: float
    none: float = -math.inf
    width: float = 1.0  # spread of the scores, relative to many relations with enough examples

    def given(self, n_examples: Sequence[int]) -> Calibration:
        """Adapt to relations with these numbers of examples."""
        n_relations = max(len(n_examples), 1)
        shots = sum(min(n, SHOTS) for n in n_examples) / n_relations
        wider = FEWER_RELATIONS * math.log(MANY / min(n_relations, MANY)) + FEWER_SHOTS * (SHOTS - shots)
        return self if self.none == -math.inf else replace(self, width=1 + wider)

    def confidences(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities of the known relations, [n, n_relations]; 1 minus the row sum is that of "no relation"."""
        logits = np.asarray(scores, dtype=np.float64) / self.temperature
        highest = logits.max(axis=1, keepdims=True, initial=-np.inf)
        mean = highest + np.log(np.exp(logits - highest).mean(axis=1, keepdims=True))
        shares = np.exp((logits - highest) / self.width)
        with np.errstate(over="ignore"):
            known = 1 / (1 + np.exp(self.none - mean / self.width))
        return np.asarray(known * shares / shares.sum(axis=1, keepdims=True))


# By kind of score. Only log-likelihoods compare with an unseen relation, so only they can answer "no relation".
CALIBRATIONS: Mapping[ScoreKind, Calibration] = {
    "log-likelihood": Calibration(1.25, none=-3.4),
    "cosine": Calibration(0.1),
    "logit": Calibration(1.0),
    "negative distance": Calibration(1.0),
}

MARKED = 0.5  # default threshold of a pair that a person marked; that of a text is fitted (`openness.fitted_score`)


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Scores and confidences of questions for all relations: [n, n_relations] each.

    `least` is the default threshold of a confidence, or of each relation. Without it, all relations together must
    reach `LEAST_KNOWN`, and the first is the answer.
    """

    relations: Sequence[str]
    scores: np.ndarray  # of the method
    confidences: np.ndarray
    least: float | Sequence[float] | None
    confirmed: np.ndarray | bool = False  # by a person
    ruled_out: np.ndarray | bool = False

    def settled(self, questions: Sequence[Example], judged: Judged) -> Scored:
        """Replace the confidences of pairs that people have judged or taught.

        A pair that was taught has the relations it was taught with, of confidence 1, and no other. A relation that was
        rejected for a pair is never an answer about it.
        """
        confirmed, ruled_out = (np.zeros(self.confidences.shape, dtype=bool) for _ in range(2))
        columns = {name: column for column, name in enumerate(self.relations)}
        for row, example in enumerate(questions if judged else ()):
            for name, holds in judged.get(pair_key(example), {}).items():
                (confirmed if holds else ruled_out)[row, columns[name]] = True
        ruled_out = (ruled_out | confirmed.any(axis=1, keepdims=True)) & ~confirmed
        confidences = np.where(confirmed, 1.0, np.where(ruled_out, 0.0, self.confidences))
        return replace(self, confidences=confidences, confirmed=confirmed, ruled_out=ruled_out)

    @property
    def ranks(self) -> np.ndarray:
        """Columns by decreasing confidence, then by decreasing score: [n, n_relations]."""
        return np.lexsort((-self.scores, -self.confidences), axis=1)

    def holds(self, least: float | Sequence[float] | None = None) -> np.ndarray:
        """Whether each relation is an answer, [n, n_relations]; `least` replaces the default threshold."""
        least = self.least if least is None else least
        if least is not None:
            likely = self.confidences >= np.asarray(least)
        else:
            likely = self.confidences.sum(axis=1, keepdims=True) >= LEAST_KNOWN
            likely = likely & (np.arange(len(self.relations)) == self.ranks[:, :1])
        return np.asarray((likely | self.confirmed) & ~np.asarray(self.ruled_out))

    def answers(
        self,
        questions: Sequence[Example],
        *,
        top: int,
        min_confidence: float | None = None,
        exemplars: Mapping[str, Example] | None = None,
    ) -> list[Answer]:
        """An answer to each question, with the `top` likeliest relations; `min_confidence` replaces the threshold."""
        names, exemplars, answers = self.relations, exemplars or {}, list[Answer]()
        rows = zip(questions, self.ranks.tolist(), self.holds(min_confidence), strict=True)
        for row, (question, columns, holds) in enumerate(rows):
            held, likely = [i for i in columns if holds[i]], columns[: max(top, 1)]
            ranked = tuple(
                Ranked(names[i], float(self.confidences[row, i]), float(self.scores[row, i]), exemplars.get(names[i]))
                for i in (*likely, *(i for i in held if i not in likely))
            )
            relations = tuple(names[i] for i in held)
            answers.append(Answer(question, relations[0] if relations else None, ranked, relations=relations))
        return answers
