"""Pairs of a batch, masking and cropping."""

import numpy as np
import pytest
from toy_pairs import batches_of, toy_rows, toy_sentences

from erda.encoders.packed import AS_IT_IS, MASKED, SOMETHING, WHOLE


def links(batch):
    n = (len(batch.shown.rows) - len(batch.anchor)) // 2
    return {tuple(sorted(pair)) for pair in batch.shown.rows[: 2 * n].reshape(2, n).T.tolist()}


def test_each_epoch_draws_its_pairs_anew(rows):
    batches = batches_of(rows, n_epochs=3)
    assert (batches.n_pairs, batches.n_batches, batches.n_steps) == (40, 5, 15)
    epochs = [set().union(*(links(batches[5 * epoch + i]) for i in range(5))) for epoch in range(3)]
    assert [len(one) for one in epochs] == [40] * 3
    assert len(epochs[0] | epochs[1] | epochs[2]) > 1.5 * 40
    for step in range(15):
        shown, n = batches[step].shown.rows, 8
        pair = rows.pair[shown]
        assert np.array_equal(pair[:n], pair[n : 2 * n])
        assert (pair[2 * n :] != pair[batches[step].anchor]).all()
    again = batches_of(rows, n_epochs=3)
    for step in (8, 1, 14, 0):
        for name in ("rows", "names", "around"):
            assert np.array_equal(getattr(again[step].shown, name), getattr(batches[step].shown, name))


def test_a_limit_bounds_an_epoch(rows):
    assert batches_of(rows, limit=17).n_pairs == 17
    assert batches_of(rows, limit=17).n_batches == 2
    assert batches_of(rows, limit=5).n_batches == 1


def test_names_are_masked_and_sentences_cropped_with_the_given_probability(folder, tmp_path):
    rows = toy_rows(folder, tmp_path / "rows.jsonl", toy_sentences(400))
    for share in (0.0, 0.7, 1.0):
        shown = batches_of(rows, blank_names=share, batch_size=400)[0].shown
        assert (shown.names == MASKED).mean() == pytest.approx(share, abs=0.04)
        assert (shown.around == WHOLE).all()
    shown = batches_of(rows, crop=0.4, blank_names=0.0, batch_size=400)[0].shown
    cropped = shown.around[:, 0] != WHOLE
    assert cropped.mean() == pytest.approx(0.4, abs=0.05)
    assert (shown.names[~cropped] == AS_IT_IS).all()
    assert (shown.names[cropped, 0] == shown.names[cropped, 1]).all()
    assert {*shown.names[cropped].ravel()} == {MASKED, SOMETHING}
    assert {*shown.around[cropped].ravel()} == {0, 1, 2, 3}


def test_only_the_papers_objective_has_hard_negatives(rows):
    assert not len(batches_of(rows, batch_size=40)[0].anchor)
    batch = batches_of(rows, batch_size=40, objective="paper")[0]
    assert batch.anchor.tolist() == list(range(40))
    assert (batch.pair[80:] != batch.pair[:40]).all()
