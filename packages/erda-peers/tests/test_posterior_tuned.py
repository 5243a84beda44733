"""Posterior over an encoder that is trained on the first task."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from erda_peers.posterior_tuned import PosteriorTuned
from toy_world import toy_encoder, toy_task


def test_the_first_task_interpolates_the_weights_and_later_tasks_keep_them() -> None:
    start = toy_encoder(3)
    ends = []
    for part in (0.0, 0.5, 1.0):
        method = PosteriorTuned(toy_encoder(3), part=part, epochs=1, learning_rate=0.01)
        method.learn(toy_task(0, shots=20))
        ends.append(method.encoder.trained_state())
        method.learn(toy_task(1))
        assert all(np.array_equal(weights, ends[-1][name]) for name, weights in method.encoder.trained_state().items())
    for name, weights in start.trained_state().items():
        np.testing.assert_array_equal(ends[0][name], weights)
        np.testing.assert_allclose(ends[1][name], (weights + ends[2][name]) / 2, rtol=1e-5, atol=1e-6)
    assert any(not np.array_equal(ends[2][name], weights) for name, weights in start.trained_state().items())


def test_tuning_reads_the_last_layer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, read = toy_encoder(3), []

    @contextmanager
    def last_layer() -> Iterator[None]:
        read.append("last")
        yield
        read.append("all")

    monkeypatch.setattr(encoder, "last_layer", last_layer)
    method = PosteriorTuned(encoder, epochs=1, batch_size=30)
    method.learn(toy_task(0, shots=20))
    n_batches = len(read) // 2
    assert n_batches > 0
    assert read == ["last", "all"] * n_batches
    method.predict(toy_task(0).examples)
    assert len(read) == 2 * n_batches
