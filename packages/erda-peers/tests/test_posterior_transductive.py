"""Posterior with unlabelled questions, compared with the model written out."""

from collections.abc import Sequence

import numpy as np
import pytest
from test_posterior import Cloud, task

from erda.types import Example
from erda_peers.posterior_transductive import PosteriorTransductive, grown_rows, shares_of
from toy_world import toy_example

N_RELATIONS, DIM = 8, 40


class NoisyCloud(Cloud):
    """Clouds that overlap: two examples say little about the centre of a relation."""

    dim = DIM

    def embed(self, examples: Sequence[Example], *, blanked: bool = False, batch_size: int | None = None) -> np.ndarray:
        return np.array([self.vector(one.id) for one in examples], dtype=np.float32).reshape(-1, DIM)

    def vector(self, name: str) -> np.ndarray:
        number, row = (int(part) for part in name.split("-"))
        found = np.random.default_rng(number).normal(size=DIM) + 1.6 * np.random.default_rng([number, row]).normal(
            size=DIM
        )
        return np.asarray(found / np.linalg.norm(found))


def taught(n_shots: int = 2, **settings: float) -> PosteriorTransductive:
    method = PosteriorTransductive(NoisyCloud(), name_weight=0.0, **settings)
    method.learn(task({number: range(n_shots) for number in range(N_RELATIONS)}))
    return method


def accuracy(method: PosteriorTransductive) -> float:
    questions = [toy_example(number, row, labelled=False) for number in range(N_RELATIONS) for row in range(50, 90)]
    gold = np.repeat(np.arange(N_RELATIONS), 40)
    return float((method.predict(questions).scores.argmax(axis=1) == gold).mean())


@pytest.mark.parametrize("balanced", [False, True])
def test_questions_help_where_examples_are_few(balanced: bool) -> None:
    alone = accuracy(taught(question_weight=0.0))
    assert accuracy(taught(balanced=balanced)) > alone + 0.02


def test_without_weight_questions_change_nothing() -> None:
    method, questions = taught(question_weight=0.0), [toy_example(1, row, labelled=False) for row in range(50, 60)]
    vectors = method.vectors(questions)
    assert np.allclose(method.predict(questions).scores, method.fitted.scores(vectors), atol=1e-4)


def test_grown_rows_equal_weighted_statistics() -> None:
    method, rng = taught(4), np.random.default_rng(0)
    relation = next(iter(method.index))
    vectors, weights = rng.normal(size=(7, DIM)), rng.random((7, 1))
    own = method.taught_vectors(relation)
    rows = {name: {relation: method.rows[name][relation]} for name in ("count", "mean", "factor")}
    grown = grown_rows(rows, [relation], vectors, weights)
    everything, weight = np.concatenate([own, vectors]), np.concatenate([np.ones(len(own)), weights[:, 0]])
    mean = weight @ everything / weight.sum()
    scatter = (everything - mean).T @ np.diag(weight) @ (everything - mean)
    factor = grown["factor"][relation]
    assert np.isclose(grown["count"][relation], weight.sum())
    assert np.allclose(grown["mean"][relation], mean, atol=1e-5)
    assert np.allclose(factor.T @ factor, scatter, atol=1e-4)


def test_balanced_shares_have_equal_sums() -> None:
    logits = np.random.default_rng(1).normal(size=(40, 5)) * 3 + [0, 0, 0, 0, 4]
    shares = shares_of(logits, balanced=True)
    assert np.allclose(shares.sum(axis=1), 1)
    assert np.allclose(shares.sum(axis=0), 8, atol=0.05)
    assert shares_of(logits)[:, 4].sum() > 20
