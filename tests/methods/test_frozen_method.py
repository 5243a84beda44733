"""Likelihoods by mean and covariance, against the formulas written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
import scipy.linalg
import torch

from erda.encoders.base import Encoder, EncoderSpec
from erda.errors import StreamError
from erda.methods.frozen import Frozen, grown_factor
from erda.types import Example, Task
from toy_world import toy_example, toy_relation

DIM = 6


class Cloud(Encoder):
    """Relation `i` is a cloud around a point of its own; an example's vector hangs on its id alone."""

    def __init__(self) -> None:
        super().__init__()
        self.place = torch.nn.Parameter(torch.zeros(()), requires_grad=False)
        self.spec, self.dim, self.learning_rate = EncoderSpec("cloud", {}, "cloud"), DIM, 1.0

    def encode(self, examples: Sequence[Example]) -> torch.Tensor:
        return torch.tensor(np.stack([self.vector(one.id) for one in examples]), dtype=torch.float32)

    def vector(self, name: str) -> np.ndarray:
        number, row = (int(part) for part in name.split("-"))
        centre = np.random.default_rng(number).normal(size=DIM)
        found = centre + np.random.default_rng([number, row, 1]).normal(size=DIM) * [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
        return np.asarray(found / np.linalg.norm(found))

    def encode_texts(self, texts: Sequence[str]) -> torch.Tensor:
        raise NotImplementedError


def task(sizes: dict[int, range]) -> Task:
    examples = tuple(toy_example(number, row) for number, rows in sizes.items() for row in rows)
    return Task(0, tuple(toy_relation(number) for number in sizes), examples)


SIZES = {0: range(20), 1: range(2), 2: range(5), 3: range(1), 4: range(5)}
QUESTIONS = [toy_example(number, row, labelled=False) for number in SIZES for row in range(100, 104)]


def taught(
    sizes: dict[int, range] = SIZES, score: Literal["two-covariance", "lda", "mean"] = "two-covariance"
) -> Frozen:
    method = Frozen(Cloud(), score=score)
    method.learn(task(sizes))
    return method


def scores(method: Frozen) -> np.ndarray:
    return method.predict(QUESTIONS).scores.astype(np.float64)


def written_out(score: str) -> np.ndarray:
    """The formulas, one question and one relation at a time."""
    cloud = Cloud()
    clouds = [np.stack([cloud.vector(f"{number}-{row}") for row in rows]) for number, rows in SIZES.items()]
    n, means = np.array([len(one) for one in clouds]), np.stack([one.mean(axis=0) for one in clouds])
    within = np.mean([np.cov(one.T) for one in clouds if len(one) > 1], axis=0)
    shrunk = 0.2 * within + 0.8 * np.trace(within) / DIM * np.eye(DIM)
    inverse = np.linalg.inv(shrunk)
    between = np.cov(means.T)
    t = np.trace(between) - np.trace(within) * np.mean(1 / n)
    assert t > 0.1 * np.trace(within), "the floor is not what is tested here"
    between = 0.5 * (0.4 * between * t / np.trace(between) + 0.6 * t / DIM * np.eye(DIM))
    e, basis = scipy.linalg.eigh(between, shrunk)  # basis.T @ shrunk @ basis = 1, basis.T @ between @ basis = diag(e)
    found = np.zeros((len(QUESTIONS), len(n)))
    for i, question in enumerate(QUESTIONS):
        x = cloud.vector(question.id)
        for c, mean in enumerate(means):
            if score == "mean":
                found[i, c] = -np.sum((x - mean) ** 2) / 2
            elif score == "lda":
                found[i, c] = -(x - mean) @ inverse @ (x - mean) / 2 + np.trace(inverse @ within) / n[c] / 2
            else:
                z, mu = basis.T @ (x - means.mean(axis=0)), basis.T @ (mean - means.mean(axis=0))
                k, v = n[c] * e / (n[c] * e + 1), 1 + e / (n[c] * e + 1)
                found[i, c] = -np.sum((z - k * mu) ** 2 / v) / 2
    return found


@pytest.mark.parametrize("score", ["two-covariance", "lda", "mean"])
def test_scores_are_the_formulas_of_the_docs(score: Literal["two-covariance", "lda", "mean"]) -> None:
    expected = written_out(score)
    found = scores(taught(score=score))
    np.testing.assert_allclose(found - found[:, :1], expected - expected[:, :1], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("score", ["two-covariance", "lda", "mean"])
def test_the_order_of_teaching_does_not_matter(score: Literal["two-covariance", "lda", "mean"]) -> None:
    whole = taught(score=score)
    pieces = Frozen(Cloud(), score=score)
    pieces.learn(task({4: range(3), 0: range(7, 20)}))
    pieces.learn(task({2: range(5), 3: range(1), 0: range(6)}))
    pieces.learn(task({1: range(2), 4: range(3, 5), 0: range(6, 7)}))
    columns = [pieces.index[relation.id] for relation in whole.relations]
    np.testing.assert_allclose(scores(pieces)[:, columns], scores(whole), rtol=1e-4, atol=1e-3)


def test_what_is_forgotten_was_never_taught() -> None:
    method = taught()
    method.forget("r0")
    rest = {number: rows for number, rows in SIZES.items() if number}
    np.testing.assert_array_equal(scores(method), scores(taught(rest)))


@pytest.mark.parametrize("n", [1, 2, DIM, DIM + 1, 40])
def test_the_factor_is_that_of_the_scatter_and_stays_small(n: int) -> None:
    vectors = torch.randn(n, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) + 3
    factor, mean = torch.zeros(0, DIM, dtype=torch.float64), torch.zeros(DIM, dtype=torch.float64)
    for start in range(0, n, 7):
        factor = grown_factor(factor, start, mean, vectors[start : start + 7])
        mean = vectors[: start + 7].mean(dim=0)
    centred = vectors - vectors.mean(dim=0)
    torch.testing.assert_close(factor.t() @ factor, centred.t() @ centred)
    assert len(factor) == min(n - 1, DIM)


@pytest.mark.parametrize("score", ["two-covariance", "lda", "mean"])
@pytest.mark.parametrize(
    "sizes", [{0: range(1)}, {0: range(9)}, {0: range(1), 1: range(1)}, {number: range(1) for number in range(6)}]
)
def test_one_relation_or_one_example_each_is_enough(
    sizes: dict[int, range], score: Literal["two-covariance", "lda", "mean"]
) -> None:
    method = taught(sizes, score)
    assert np.isfinite(scores(method)).all()
    own = [toy_example(number, 0, labelled=False) for number in sizes]
    assert method.predict(own).best == [f"r{number}" for number in sizes], "an example is nearest to itself"


def test_examples_that_are_all_the_same_are_enough() -> None:
    same = tuple(toy_example(number, 0) for number in (0, 1) for _ in range(3))
    method = Frozen(Cloud())
    method.learn(Task(0, (toy_relation(0), toy_relation(1)), same))
    assert np.isfinite(scores(method)).all()
    only = Frozen(Cloud())
    only.learn(Task(0, (toy_relation(0),), same[:3]))
    assert np.isfinite(scores(only)).all()


def test_vectors_that_are_no_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    method = taught()
    before = scores(method)
    with monkeypatch.context() as patch:
        patch.setattr(Cloud, "vector", lambda self, name: np.full(DIM, np.nan))
        with pytest.raises(StreamError, match="Encoder 'cloud' gave vectors that are no numbers"):
            method.learn(task({7: range(2)}))
    np.testing.assert_array_equal(scores(method), before)
