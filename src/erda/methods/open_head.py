"""Log odds of each relation against everything that was never taught, for pairs of entities in open text.

The head is linear in the two-covariance score, in its lead over the best rival (a general relation name), in the vector
of a pair, in the types of its entities, and quadratic in the distance between them. `openness.py` fits it. This module
needs only NumPy, and is part of every export.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from erda.methods.expected import Expected, Fitted

ARRAYS = ("likelihood", "lead", "weights", "constant", "types", "gap", "order", "counts", "against", "usual", "rivals")
NAME_COUNT = 3.0  # number of examples that the name of a rival counts for, as in `Posterior`
COUNT_WEIGHT, USUAL_COUNT = 0.65, 5  # of `relative_counts` in log odds; examples of a relation
FIRST_ENTITY = 0.4  # added to log odds where the head is the first entity of its sentence
COMPETITION = 0.5  # of the lead of the best pair of a sentence
OTHER_NAMES = {  # of types that taggers and datasets use
    "PER": "PERSON",
    "LOCATION": "LOC",
    "ORGANIZATION": "ORG",
    "ORGANISATION": "ORG",
    "NUM": "CARDINAL",
    "NUMBER": "CARDINAL",
}


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pairs of entities in sentences, as arrays."""

    vectors: np.ndarray  # [n, dim], of length 1
    types: np.ndarray  # [n, 2], numbers of the types of head and tail; 0 is unknown
    starts: np.ndarray  # [n, 2], first tokens of head and tail

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, rows: np.ndarray | slice) -> Pairs:
        return Pairs(self.vectors[rows], self.types[rows], self.starts[rows])

    @classmethod
    def joined(cls, parts: Sequence[Pairs]) -> Pairs:
        """All pairs of several groups."""
        return cls(*(np.concatenate([getattr(one, name) for one in parts]) for name in ("vectors", "types", "starts")))

    @property
    def gaps(self) -> np.ndarray:
        """Logarithm of the distance between the entities: [n]."""
        return np.log1p(np.abs(self.starts[:, 0] - self.starts[:, 1]))

    @property
    def is_head_first(self) -> np.ndarray:
        """Whether the head comes before the tail: [n]."""
        return self.starts[:, 0] < self.starts[:, 1]


@dataclass(frozen=True, slots=True, eq=False)
class OpenHead:
    """The fitted head of all relations, in the order of the method."""

    likelihood: np.ndarray  # [n_relations], weight of the two-covariance score
    lead: np.ndarray  # [n_relations], weight of how far it is above that of the best rival
    weights: np.ndarray  # [dim, n_relations]
    constant: np.ndarray  # [n_relations]
    types: np.ndarray  # [2, 1 + n_types, n_relations], of head and tail; row 0 (unknown) is zero
    gap: np.ndarray  # [2, n_relations], weights of the log distance and of its square
    order: np.ndarray  # [n_relations], added where the head comes first
    counts: np.ndarray  # [n_relations], taught examples of each relation
    against: np.ndarray  # [n_relations], sentences that count against each relation
    usual: np.ndarray  # [2], mean and deviation of two-covariance scores of unlabelled pairs
    rivals: np.ndarray  # [n_rivals, dim], centred vectors of general relation names
    type_names: tuple[str, ...]

    def best_rivals(self, model: Fitted, vectors: np.ndarray) -> np.ndarray:
        """Two-covariance scores of the best rival, each taken as a relation that was taught by its name: [n]."""
        if not len(self.rivals):
            return np.full(len(vectors), -np.inf)
        return np.asarray(model.scores(vectors, _named_rivals(self, model)).max(axis=1))

    def scores_and_rivals(self, model: Fitted, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Two-covariance scores of the relations, [n, n_relations], and `best_rivals`, in one pass."""
        if not len(self.rivals):
            return model.scores(vectors), self.best_rivals(model, vectors)
        scores, rivals = model.scores_of(vectors, None, _named_rivals(self, model))
        return scores, np.asarray(rivals.max(axis=1))

    def log_odds(self, likelihoods: np.ndarray, rivals: np.ndarray, pairs: Pairs) -> np.ndarray:
        """Log odds that a relation holds, [n, n_relations], from two-covariance scores of relations and best rivals."""
        gaps = pairs.gaps[:, None]
        return np.asarray(
            self.likelihood * likelihoods
            + self.lead * leads(likelihoods, rivals)
            + pairs.vectors @ self.weights
            + self.constant
            + self.types[0][pairs.types[:, 0]]
            + self.types[1][pairs.types[:, 1]]
            + self.gap[0] * gaps
            + self.gap[1] * gaps**2
            + self.order * pairs.is_head_first[:, None]
        )

    def type_numbers(self, names: Sequence[tuple[str | None, str | None]]) -> np.ndarray:
        """Numbers of the types of heads and tails, [n, 2]; 0 if a type is unknown."""
        return type_numbers(names, self.type_names)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays in 32 bits, for a file; `from_arrays` restores the head."""
        named = {f"open_{name}": np.ascontiguousarray(getattr(self, name), dtype=np.float32) for name in ARRAYS}
        return {**named, "open_type_names": np.frombuffer("\n".join(self.type_names).encode(), dtype=np.uint8)}

    @staticmethod
    def is_in(arrays: Mapping[str, np.ndarray]) -> bool:
        """Whether a file holds the arrays of a head."""
        return "open_weights" in arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> OpenHead:
        """Restore a head from its `arrays`. Log odds are computed in 64 bits."""
        names = arrays["open_type_names"].tobytes().decode().split("\n")
        wide = {name: arrays[f"open_{name}"].astype(np.float64) for name in ARRAYS}
        return cls(**wide, type_names=tuple(names))


def type_numbers(names: Sequence[tuple[str | None, str | None]], known: Sequence[str]) -> np.ndarray:
    """Numbers of named types of heads and tails, [n, 2], counted from 1; 0 where a type is unknown or not given."""
    number = {name: 1 + i for i, name in enumerate(known)}
    rows = [[number.get(plain_type(one), 0) for one in pair] for pair in names]
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def plain_type(name: str | None) -> str:
    """Return a type in the spelling of the tagger."""
    upper = (name or "").upper()
    return OTHER_NAMES.get(upper, upper)


def relative_counts(counts: np.ndarray) -> np.ndarray:
    """Logarithms of numbers of examples, in relation to the usual number."""
    return np.asarray(np.log((1 + counts) / (1 + USUAL_COUNT)))


@lru_cache(maxsize=2)  # by identity: questions of one version share it
def _named_rivals(head: OpenHead, model: Fitted) -> Expected:
    """The rivals as relations that were taught by their names."""
    return model.named(head.rivals, NAME_COUNT)


def leads(likelihoods: np.ndarray, rivals: np.ndarray) -> np.ndarray:
    """How far relations are above the best rival, [n, n_relations]; 0 where there is none (-inf)."""
    return np.asarray(np.where(np.isfinite(rivals), likelihoods.T - rivals, 0.0).T)


def compete(log_odds: np.ndarray, starts: np.ndarray, sentences: np.ndarray) -> np.ndarray:
    """Log odds among the pairs of a sentence: [n, n_relations].

    The first entity of a sentence is its head more often. Half of the lead of the best pair of a sentence counts
    against the others, relation by relation. `starts` [n, 2] are `Pairs.starts`, `sentences` [n] numbers of sentences.
    """
    if not len(log_odds):
        return log_odds
    order = np.argsort(sentences, kind="stable")
    places = np.flatnonzero(np.r_[True, np.diff(sentences[order]) != 0])
    sizes = np.diff(np.r_[places, len(log_odds)])
    first, best = np.empty(len(log_odds), dtype=starts.dtype), np.empty_like(log_odds)
    first[order] = np.repeat(np.minimum.reduceat(starts[order].min(axis=1), places), sizes)
    found = log_odds + FIRST_ENTITY * (starts[:, 0] == first)[:, None]
    best[order] = np.repeat(np.maximum.reduceat(found[order], places), sizes, axis=0)
    return np.asarray(found - COMPETITION * (best - found))
