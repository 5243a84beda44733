import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import build_model
from toy_pairs import toy_rows, toy_sentences

from erda.corpus.similarity_run import auc, measure_similarity, neighbour_agreement
from erda.corpus.training_pairs import mine_pairs

SCORES = st.lists(st.integers(-4, 4), min_size=1, max_size=20)


@given(SCORES, SCORES)
def test_auc_equals_a_loop(positive, negative):
    slow = np.mean([(p > n) + 0.5 * (p == n) for p in positive for n in negative])
    assert auc(np.array(positive), np.array(negative)) == pytest.approx(slow)


@pytest.mark.parametrize("block_size", [1, 7, 1000])
def test_agreement_is_leave_one_out(block_size):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 4)).astype(np.float32)
    relations = [f"r{i}" for i in rng.integers(0, 3, size=30)]
    right = 0
    for i in range(30):
        others = [j for j in range(30) if j != i]
        right += relations[max(others, key=lambda j: float(vectors[i] @ vectors[j]))] == relations[i]
    assert neighbour_agreement(vectors, relations, block_size=block_size) == pytest.approx(right / 30)


class MaskedOnly:
    """A model that knows the relation only if names are masked."""

    def __init__(self, examples):
        self.examples = examples

    def encode(self, examples, *, blank_names=False):
        ways = sorted({one.relation for one in examples})
        rng = np.random.default_rng(len(examples))
        exact = np.eye(len(ways), dtype=np.float32)[[ways.index(one.relation) for one in examples]]
        return exact if blank_names else rng.normal(size=exact.shape).astype(np.float32)

    def encode_packed(self, sentences, rows, **how):
        return torch.from_numpy(self.encode([self.examples[row] for row in rows], **how))


def test_auc_and_agreement_of_a_model(tmp_path):
    examples = toy_sentences(80)
    rows = toy_rows(build_model(tmp_path, n_layers=1), tmp_path / "rows.jsonl", examples)
    pairs = mine_pairs(rows, np.arange(len(rows)), seed=0)
    found = measure_similarity(MaskedOnly(examples), rows, pairs, validation=examples)
    assert found.auc == pytest.approx(0.5, abs=0.2)
    assert found.auc_blanked > 0.6
    assert found.n_pairs == 80
    assert found.n_validation == 240
    assert 0 < found.agreement < 0.6
    none = pairs.take(slice(0))
    nothing = measure_similarity(MaskedOnly([]), rows, none)
    assert (nothing.auc, nothing.agreement, nothing.n_pairs) == (None, None, 0)
