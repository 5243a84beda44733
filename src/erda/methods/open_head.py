"""Log odds of each relation against everything that was never taught, for pairs of entities.

A small logistic model reads a few features of a pair and a relation (`FEATURES`). Its weights were fitted on relations
that the encoder was not trained on (`tools/fit_open_score.py`): `marked` for a pair that a person marked, where a known
relation holds in every second question, and `text` for all pairs of a text, where a relation is rare. Judgements add a
linear correction. `openness.py` fits the rest. This module is part of every export.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from erda.text.pronouns import is_pronoun
from erda.text.sentences import words_before
from erda.types import Example

# score: two-covariance score, 0 for unlabelled pairs and 1 for the taught examples. cosine: whitened vector with the
# mean of the examples, in deviations of unlabelled pairs. contrast: the same cosine, seen from near the mean of all
# taught relations. own, own contrast: leave-one-out cosine and contrast of the examples. rivals: mean of the best
# contrast of each taught example with another relation. few: times 1 / (1 + number of examples and patterns). near:
# logarithm of the distance between the entities. rare: log odds of entity types where below 0.
FEATURES = (
    *("score", "cosine", "contrast", "own", "own contrast", "rivals"),
    *("few score", "few own", "few own contrast", "constant", "near", "rare"),
)
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
    def of(cls, examples: Sequence[Example], vectors: np.ndarray, type_names: Sequence[str]) -> Pairs:
        """The pairs of examples with these vectors."""
        places = np.array([words_before(one) for one in examples], dtype=np.int64).reshape(-1, 2)
        return cls(vectors, type_numbers([(one.head.type, one.tail.type) for one in examples], type_names), places)

    @classmethod
    def joined(cls, parts: Sequence[Pairs]) -> Pairs:
        """All pairs of several groups."""
        return cls(*(np.concatenate([getattr(one, name) for one in parts]) for name in ("vectors", "types", "starts")))

    @property
    def gaps(self) -> np.ndarray:
        """Logarithm of the distance between the entities: [n]."""
        return np.log1p(np.abs(self.starts[:, 0] - self.starts[:, 1]))


@dataclass(frozen=True, slots=True, eq=False)
class OpenHead:
    """The fitted head of all relations, in the order of the method."""

    level: np.ndarray  # [2, n_relations], mean two-covariance score (of all relations) and cosine of unlabelled pairs
    spread: np.ndarray  # [2, n_relations], distance of the mean score of taught examples, and deviation of cosines
    centre: np.ndarray  # [dim], mean vector of unlabelled pairs
    whitening: np.ndarray  # [dim, dim], of vectors from the centre
    means: np.ndarray  # [dim, n_relations], mean of the examples and the name, whitened, of length 1
    shift: np.ndarray  # [dim], moves whitened vectors so that the mean of taught relations is near zero
    contrasts: np.ndarray  # [dim, n_relations], like `means`, after the shift, divided by the usual cosine
    own: np.ndarray  # [2, n_relations], mean cosine (in deviations) and contrast of each example with the others
    rivals: np.ndarray  # [n_relations], all equal: mean contrast of taught examples with the nearest other relation
    types: np.ndarray  # [2, 1 + n_types, n_relations], log odds of head and tail types; row 0 (unknown) is zero
    counts: np.ndarray  # [n_relations], examples and patterns of each relation
    weights: np.ndarray  # [2, dim, n_relations], corrections by judgements, of marked pairs and of text
    constant: np.ndarray  # [2, n_relations]
    marked: np.ndarray  # [1 + n_features], slope of the scores that relations share a probability by, then weights
    text: np.ndarray  # [1 + n_features], weight of the lead of the best pair with the same head, then weights
    type_names: tuple[str, ...]  # the last field: all others are arrays

    def features(self, scores: np.ndarray, pairs: Pairs) -> np.ndarray:
        """Features of pairs and relations from two-covariance scores: [n, n_relations, n_features]."""
        apart = (pairs.vectors - self.centre) @ self.whitening
        cosines, contrast = _unit(apart) @ self.means, _unit(apart + self.shift) @ self.contrasts
        score, cosine = (np.stack([scores, cosines]) - self.level[:, None]) / self.spread[:, None]
        rare = [np.minimum(self.types[side][pairs.types[:, side]], 0) for side in (0, 1)]
        few, near = 1 / (1 + self.counts), pairs.gaps[:, None]
        parts = (score, cosine, contrast, *self.own, self.rivals, few * score, *(few * self.own), 1.0, near, sum(rare))
        return np.stack([np.broadcast_to(part, score.shape) for part in parts], axis=-1)

    def log_odds(self, scores: np.ndarray, pairs: Pairs, *, in_text: bool) -> np.ndarray:
        """Log odds that a relation holds, [n, n_relations]; those of a text, before its pairs compete."""
        weights = (self.text if in_text else self.marked)[1:]
        shift = pairs.vectors @ self.weights[int(in_text)] + self.constant[int(in_text)]
        return np.asarray(self.features(scores, pairs) @ weights + shift)

    def confidences(
        self, scores: np.ndarray, vectors: np.ndarray, asked: Sequence[Example], sentences: Sequence[Hashable] | None
    ) -> np.ndarray:
        """Confidences of pairs that a person marked, or of all pairs of some `sentences`, which are keys.

        Pairs of a sentence with the same head compete; those with a pronoun change no answer about names.
        [n, n_relations]
        """
        pairs = Pairs.of(asked, vectors, self.type_names)
        if sentences is None:
            return self.marked_confidences(scores, pairs)
        heads = [(sentence, one.head.span) for sentence, one in zip(sentences, asked, strict=True)]
        numbers = {head: number for number, head in enumerate(dict.fromkeys(heads))}
        groups, log_odds = np.array([numbers[head] for head in heads]), self.log_odds(scores, pairs, in_text=True)
        named = np.array([not (is_pronoun(one.head.name) or is_pronoun(one.tail.name)) for one in asked])
        behind = leads(log_odds, groups)
        behind[named] = leads(log_odds[named], groups[named])
        return logistic(log_odds - self.text[0] * behind)

    def marked_confidences(self, scores: np.ndarray, pairs: Pairs) -> np.ndarray:
        """Confidences of pairs that a person marked: [n, n_relations].

        The relation with the best score decides how likely it is that a known relation holds; the relations share this
        probability.
        """
        if not len(scores):
            return np.zeros_like(scores, dtype=np.float64)
        rows, best = np.arange(len(scores)), scores.argmax(axis=1)
        known = logistic(self.log_odds(scores, pairs, in_text=False)[rows, best])
        shares = np.exp(self.marked[0] * (scores - scores[rows, best][:, None]))
        return np.asarray(known[:, None] * shares / shares.sum(axis=1, keepdims=True))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays in 32 bits, for a file; `from_arrays` restores the head."""
        own = {name: getattr(self, name) for name in self.__slots__[:-1]}
        named = {f"open_{name}": np.ascontiguousarray(array, dtype=np.float32) for name, array in own.items()}
        return {**named, "open_type_names": np.frombuffer("\n".join(self.type_names).encode(), dtype=np.uint8)}

    @staticmethod
    def is_in(arrays: Mapping[str, np.ndarray]) -> bool:
        """Whether a file holds the arrays of a head."""
        return "open_weights" in arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> OpenHead:
        """Restore a head from its `arrays`. Log odds are computed in 64 bits."""
        names = arrays["open_type_names"].tobytes().decode().split("\n")
        wide = {name: arrays[f"open_{name}"].astype(np.float64) for name in cls.__slots__[:-1]}
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


def leads(log_odds: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Lead of the best pair of each pair's group, relation by relation: [n, n_relations]; `groups` [n] are numbers."""
    best = np.full((int(groups.max(initial=0)) + 1, log_odds.shape[1]), -np.inf)
    np.maximum.at(best, groups, log_odds)
    return np.asarray(best[groups] - log_odds)


def _unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def logistic(log_odds: np.ndarray) -> np.ndarray:
    """Probabilities of log odds."""
    return np.asarray(1 / (1 + np.exp(-np.clip(log_odds, -50, 50))))
