"""Posterior: score relations by their posterior predictive likelihood, over a frozen pretrained encoder.

The two-covariance model draws relations around a centre g with covariance B, and the sentences of a relation around it
with covariance W. Given n sentences with mean m, the posterior of a relation is normal, and the score of a new sentence
is its likelihood under it. So relations with few and with many examples share one scale. Name and description, written
as sentences with two blanks, count as `name_weight` further sentences, and every pattern of the description as one: a
relation can be taught by name before its first example, and examples soon outweigh the name.

Scores are tempered log-likelihood ratios against an unseen relation (docs/calibration.md). With fewer than six
relations, the background of the encoder replaces the missing ones (`expected.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from erda.encoders.contract import unit_rows
from erda.errors import StreamError
from erda.fields import Fraction, Positive, Weight
from erda.methods.base import Method
from erda.methods.expected import Background, Expected, Fitted, NeverSeen
from erda.text.descriptions import BLANK, meaning_of, patterns_of, read_pattern
from erda.text.sentences import tokens_of
from erda.types import Entity, Example, Relation, ScoreKind, Span, Task

LEAST_SPREAD = 0.1  # floor of the variance of relations, relative to that of their sentences
EVEN_SENTENCES = 850  # weight of an even variance against W_0, in sentences
HEAD, TAIL, NAME = "HEAD", "TAIL", "NAME"
TEMPLATES = (  # the first four end with the description, if there is one, in brackets
    "HEAD has NAME TAIL .",
    "HEAD 's NAME is TAIL .",
    "the NAME of HEAD is TAIL .",
    "HEAD NAME TAIL",
    "HEAD NAME TAIL .",
    "HEAD 's NAME is TAIL .",
)
N_DESCRIBED = 4
# Common relation names. Their mean vector estimates what all names have in common.
COMMON_NAMES = ("part of", "member of", "place", "time", "author", "owner", "kind", "cause", "user", "relative")


@dataclass(eq=False)
class Posterior(Method):
    """Likelihoods from name, mean and covariance over a frozen encoder, without training.

    Scores are log-likelihood ratios against an unseen relation, divided by sqrt(dim / 3).
    """

    _: KW_ONLY
    score: Literal["two-covariance", "lda", "mean"] = "two-covariance"
    name_weight: Weight = 3.0  # number of examples that a relation's name and description count for
    shrinkage: Annotated[float, Field(ge=0.01, le=1)] = 0.7  # of W toward an even variance, at most
    between_shrinkage: Fraction = 0.6  # of B
    between_weight: Positive = 0.5  # of B, against its estimate

    name: ClassVar[str] = "posterior"
    score_kind: ClassVar[ScoreKind] = "log-likelihood"
    trains: ClassVar[bool] = False
    reads_names: ClassVar[bool] = True
    uses_names: ClassVar[bool] = True

    def _learn(self, task: Task, generator: Any) -> None:
        if not self.name_weight:
            task.check_examples()
        vectors, targets = self.vectors(task.examples), self._target_rows(task.examples)
        counts, means, factors = (dict(self.rows.get(name, {})) for name in ("count", "mean", "factor"))
        for relation in task.relations:
            own = vectors[targets == self.index[relation.id]].astype(np.float64)
            n, dim = int(counts.get(relation.id, 0)), own.shape[1]
            mean = means.get(relation.id, np.zeros(dim)).astype(np.float64)
            factor = factors.get(relation.id, np.zeros((0, dim))).astype(np.float64)
            factors[relation.id] = grown_factor(factor, n, mean, own).astype(np.float32)
            means[relation.id] = ((n * mean + own.sum(axis=0)) / max(n + len(own), 1)).astype(np.float32)
            counts[relation.id] = np.array(n + len(own))
        self.rows |= {"count": counts, "mean": means, "factor": factors}
        self._read_names(task.relations)
        self._remember(task.examples, 1, vectors, centres=means)

    def vectors(self, examples: Sequence[Example]) -> np.ndarray:
        """Vectors of length 1: [n_examples, dim]."""
        vectors = unit_rows(self.encoder.embed(examples))
        if not np.isfinite(vectors).all():
            raise StreamError(f"Encoder '{self.encoder.spec.name}' returned vectors with NaN or infinity.")
        return vectors

    def _read_names(self, relations: Sequence[Relation]) -> None:
        """Store the vector of each relation's name and patterns and, once, the vectors of common names."""
        names = self.rows["name"] = dict(self.rows.get("name", {}))
        if not self.name_weight:
            names |= {relation.id: np.zeros(0, dtype=np.float32) for relation in relations}
            return
        common = [Relation(name, name) for name in COMMON_NAMES if "common" not in self.shared]
        sentences = [sentences_of(relation) for relation in (*relations, *common)]
        vectors = unit_rows(self.encoder.embed([one for own in sentences for one in own], blanked=True))
        each = np.split(vectors, np.cumsum([len(own) for own in sentences])[:-1])
        found = [self._name_vector(own[: len(TEMPLATES)], own[len(TEMPLATES) :]) for own in each]
        names |= {relation.id: row for relation, row in zip(relations, found, strict=False)}
        if common:
            self.shared["common"] = np.stack(found[len(relations) :])

    def _name_vector(self, templates: np.ndarray, patterns: np.ndarray) -> np.ndarray:
        """Mean vector of a name, which counts as `name_weight` sentences, and of its patterns: [dim]."""
        total = self.name_weight * templates.mean(axis=0) + patterns.sum(axis=0)
        return np.asarray(total / (self.name_weight + len(patterns)), dtype=np.float32)

    def name_weights(self) -> np.ndarray:
        """Number of sentences that each relation's name and patterns count for: [n_relations]."""
        if not self.name_weight:
            return np.zeros(len(self.relations))
        return np.array([self.name_weight + len(patterns_of(one.description)) for one in self.relations])

    def _prepare(self) -> None:
        self._fitted: Fitted | None = None  # fitted lazily, at the first prediction

    @property
    def fitted(self) -> Fitted:
        """The fitted model of everything learned so far. Two threads that fit at once get equal models."""
        if self._fitted is None:
            from threadpoolctl import threadpool_limits

            with threadpool_limits(1, "blas"):  # the matrices are small: threads cost more than they save
                self._fitted = Fitted.from_arrays(self._fit().arrays())  # rounded as in a file
        return self._fitted

    def derived(self) -> dict[str, np.ndarray]:
        """Return the arrays of the fitted model."""
        return self.fitted.arrays()

    def use_derived(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Use a fitted model."""
        self._fitted = Fitted.from_arrays(arrays)

    def _fit(self) -> Fitted:
        counts, means = self._stacked("count"), self._stacked("mean")
        dim, seen = means.shape[1], counts > 0
        background = Background(np.asarray(self.shared.get("background", np.zeros((0, dim))), dtype=np.float64))
        n_missing = background.n_missing(int(seen.sum()))
        n_known = max(int(seen.sum()) + n_missing, 1)
        centre, basis = (means[seen].sum(axis=0) + n_missing * background.centre) / n_known, np.eye(dim)
        names = self.centred_names()
        means = np.where(seen[:, None], means - centre, 0.0)
        apart = means[seen] if seen.any() else names
        between = apart.T @ apart  # B_0
        if n_missing:
            between = between + n_missing * background.between
        between = between / max(len(apart) + n_missing - 1, 1)
        within = self._within(counts, between, background)  # W_0
        if self.score != "mean":
            share = self._even_share(counts)
            shrunk = (1 - share) * within + share * np.trace(within) / dim * np.eye(dim)  # W
            basis = np.linalg.inv(np.linalg.cholesky(shrunk)).T  # in this basis, W is the identity
        of_names = self.name_weights()
        weights = counts + of_names
        means = (counts[:, None] * means + of_names[:, None] * names) / np.maximum(weights, 1e-9)[:, None]
        if self.score != "two-covariance":
            own = float(np.trace(basis.T @ within @ basis))
            never_seen = NeverSeen(Expected.around(means[:1]), 0.0, -own / 2)
            return Fitted(centre, basis, self._expect_means(counts, weights, means @ basis, own), never_seen)
        trace = np.trace(between) - np.trace(within) * (1 / counts[seen]).sum() / n_known
        basis, spread = self._diagonalised(basis, between, max(trace, LEAST_SPREAD * np.trace(within)))
        never_seen = NeverSeen.of(background, centre, basis, spread)
        expected = Expected.given(weights, means @ basis, spread)
        return Fitted(centre, basis, expected, never_seen)

    def _diagonalised(self, basis: np.ndarray, between: np.ndarray, trace: float) -> tuple[np.ndarray, np.ndarray]:
        """Rotate the basis so that B, shaped like B_0 and with this trace, is diag(e): return the basis and e [dim]."""
        unit = np.eye(len(between))
        shape = between / np.trace(between) if between.any() else unit / len(unit)
        shape = (1 - self.between_shrinkage) * shape + self.between_shrinkage / len(unit) * unit
        values, vectors = np.linalg.eigh(basis.T @ shape @ basis)
        return basis @ vectors, self.between_weight * trace * np.maximum(values, 0)

    def _expect_means(self, counts: np.ndarray, weights: np.ndarray, means: np.ndarray, own: float) -> Expected:
        """Centre each relation at its mean: `lda` in a basis where W is the identity, `mean` in the encoder's basis."""
        expected = Expected.around(means)
        if self.score == "mean":
            return expected
        # the squared length of a mean of n sentences is too large by tr(W^-1 W_0) / n
        return replace(expected, rest=expected.rest - own * counts / np.square(np.maximum(weights, 1e-9)))

    def _even_share(self, counts: np.ndarray) -> float:
        """Return the shrinkage of W toward an even variance: less when many sentences determine W_0."""
        several = counts[counts > 1]
        if not len(several):
            return self.shrinkage
        n = len(several) ** 2 / float((1 / (several - 1)).sum())  # effective number of sentences behind W_0
        return min(self.shrinkage, EVEN_SENTENCES / (EVEN_SENTENCES + n))

    def taken_over(self) -> dict[str, np.ndarray]:
        """Return the background of a frozen encoder (an empty array if it has none)."""
        if self.score != "two-covariance":
            return {}
        found = self.encoder.unlabelled()
        centres = np.zeros((0, self.encoder.dim)) if found is None else found.centres
        return {"background": centres.astype(np.float16)}

    def centred_names(self) -> np.ndarray:
        """Return name vectors minus the mean of all known and common names: [n_relations, dim]; zeros without names."""
        if not self.name_weight:
            return np.zeros_like(self._stacked("mean"))
        names = self._stacked("name")
        return np.asarray(names - np.concatenate([names, self.shared["common"]]).mean(axis=0))

    def taught_vectors(self, relation_id: str) -> np.ndarray:
        """Recover the vectors of a relation's examples, in the order of learning: [n, dim].

        After more than dim examples, the factor no longer holds them, and their mean replaces each.
        """
        n, factor = int(self.rows["count"][relation_id]), self.rows["factor"][relation_id].astype(np.float64)
        last = self.rows["mean"][relation_id].astype(np.float64)
        if len(factor) != n - 1:
            return np.tile(last, (n, 1))
        before = np.arange(1, n, dtype=np.float64)[:, None]
        steps = factor / np.sqrt(before * (before + 1))  # of the mean, with each example after the first
        means = last - np.concatenate([steps[::-1].cumsum(axis=0)[::-1], np.zeros_like(last)[None]])
        return np.concatenate([means[:1], means[:-1] + factor / np.sqrt(before / (before + 1))])

    def _within(self, counts: np.ndarray, between: np.ndarray, background: Background) -> np.ndarray:
        """Return W_0: the mean over relations of the unbiased covariance of their sentences, [dim, dim].

        If no relation has two different sentences, half of the variance between relations replaces it.
        """
        factors = [self.rows["factor"][relation] for relation in self.index]
        several = [(factor, float(n)) for factor, n in zip(factors, counts, strict=True) if n > 1]
        n_missing = background.n_missing(len(several))
        rows = np.concatenate([between[:0], *(factor / (n - 1) ** 0.5 for factor, n in several)])
        if rows.any() or n_missing:
            total = rows.T @ rows + (n_missing * background.within if n_missing else 0.0)
            return np.asarray(total / (len(several) + n_missing))
        trace = np.trace(between) / 2 if between.any() else 1.0
        return np.eye(len(between)) * trace / len(between)

    def _scores(self, examples: Sequence[Example]) -> np.ndarray:
        return self.fitted.scores(self.vectors(examples))


def sentences_of(relation: Relation) -> list[Example]:
    """Write a relation's name and description as sentences between two placeholder entities: templates, then patterns.

    Templates hold the name, and most of them the description. Patterns are lines of the description.
    """
    name, meaning = _words(relation.name), _words(meaning_of(relation.description))
    described = ["(", *meaning, ")"] if meaning else []
    templates = [_sentence(text, name, described if i < N_DESCRIBED else []) for i, text in enumerate(TEMPLATES)]
    return templates + [read_pattern(line) for line in patterns_of(relation.description)]


def _sentence(template: str, name: list[str], described: list[str]) -> Example:
    tokens: list[str] = []
    places = {}
    for word in template.split():
        if word in (HEAD, TAIL):
            places[word] = Entity(BLANK, Span(len(tokens), len(tokens) + 1))
        tokens += name if word == NAME else [BLANK if word in places else word]
    return Example((*tokens, *described), places[HEAD], places[TAIL])


def _words(text: str) -> list[str]:
    return [text[start:end] for start, end in tokens_of(text)]


def grown_factor(factor: np.ndarray, n: int, mean: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Update F, where F^T F is the scatter of n vectors with `mean`, by k new vectors.

    Each vector but the first adds a row sqrt(m / (m + 1)) (x - mean of the m before it). At most [dim, dim].
    """
    seen = n + np.arange(len(vectors), dtype=np.float64)[:, None]
    before = (n * mean + vectors.cumsum(axis=0) - vectors) / np.maximum(seen, 1)
    rows = np.sqrt(seen / (seen + 1)) * (vectors - before)
    factor = np.concatenate([factor, rows if n else rows[1:]])
    return np.asarray(np.linalg.qr(factor, mode="r")) if len(factor) > factor.shape[1] else factor
