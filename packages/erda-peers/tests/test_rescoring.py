"""`NAME-rescored`: Posterior's score over the vectors of any trained method."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from without_learning import drift, instead_of_learning

from erda.methods import METHODS
from erda.methods.base import Method
from erda.methods.posterior import Posterior
from erda_peers.rescoring import RescoredCpl
from toy_world import toy_encoder, toy_questions, toy_task

QUESTIONS = toy_questions(6)[0]
RESCORED = [name for name in sorted(METHODS) if name.endswith("-rescored")]


def learn(method: Method, n_tasks: int = 3) -> Method:
    for index in range(n_tasks):
        method.learn(toy_task(index))
    return method


def test_every_method_that_trains_has_a_rescored_one() -> None:
    assert len(RESCORED) == 10
    for name in RESCORED:
        settings = METHODS[name](toy_encoder()).settings()
        own = METHODS[name.removesuffix("-rescored")](toy_encoder()).settings()
        assert settings == {**own, "names": True, "whiten": True}


@pytest.mark.parametrize(("names", "whiten"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("name", RESCORED)
def test_over_a_frozen_encoder_the_scores_are_those_of_posterior(
    name: str, names: bool, whiten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead_of_learning(monkeypatch)
    found = learn(METHODS[name](toy_encoder(), names=names, whiten=whiten)).predict(QUESTIONS)
    posterior = Posterior(
        toy_encoder(), score="two-covariance" if whiten else "mean", name_weight=3.0 if names else 0.0
    )
    np.testing.assert_allclose(found.scores, learn(posterior).predict(QUESTIONS).scores, rtol=1e-4, atol=1e-4)
    assert found.kind == "log-likelihood"


def test_old_means_move_with_their_exemplars(monkeypatch: pytest.MonkeyPatch) -> None:
    method = RescoredCpl(toy_encoder(), names=False)

    instead_of_learning(monkeypatch)
    method.learn(toy_task(0))
    rows = {name: dict(each) for name, each in method.rows.items()}
    instead_of_learning(monkeypatch, partial(drift, method.encoder))
    method.learn(toy_task(1))
    for relation in ("r0", "r1"):
        mean, exemplar = (
            method.rows[f"posterior {name}"][relation] - rows[f"posterior {name}"][relation]
            for name in ("mean", "exemplars")
        )
        assert exemplar.abs().max() > 1e-4
        torch.testing.assert_close(mean, exemplar, rtol=1e-3, atol=1e-6)


def test_saving_forgetting_and_restoring_keep_the_scores(tmp_path: Path) -> None:
    method = learn(RescoredCpl(toy_encoder()))
    before = method.predict(QUESTIONS).scores
    method.save(tmp_path / "saved")
    loaded = Method.load(tmp_path / "saved", encoder=toy_encoder())
    np.testing.assert_array_equal(loaded.predict(QUESTIONS).scores, before)
    checkpoint = method.checkpoint()
    method.forget("r2")
    assert method.predict(QUESTIONS).scores.shape[1] == before.shape[1] - 1
    method.restore(checkpoint)
    np.testing.assert_array_equal(method.predict(QUESTIONS).scores, before)
