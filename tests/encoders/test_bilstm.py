"""The compiled LSTM against PyTorch's, forward and backward, and the encoder around it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from erda.encoders import bilstm, build_encoder
from erda.encoders.bilstm import BiLstmEncoder
from erda.encoders.lstm import last_states
from erda.encoders.settings import BiLstmSettings
from erda.encoders.trainable import embed
from erda.errors import ModelError, SettingsError
from erda.types import Entity, Example, Span
from toy_world import DIM, toy_example, word_vectors, write_vectors


def random_lstm(size: int, width: int, *, scale: float) -> nn.LSTM:
    lstm, generator = nn.LSTM(width, size, bidirectional=True), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.normal_(std=scale, generator=generator)
    return lstm


def by_torch(lstm: nn.LSTM, vectors: Tensor, rows: list[Tensor]) -> Tensor:
    _, (last, _) = lstm(pack_sequence([vectors[row] for row in rows], enforce_sorted=False))
    return torch.cat([last[0], last[1]], dim=1)


def assert_same(lengths: list[int], *, size: int, width: int, n_words: int = 9, scale: float = 0.5) -> None:
    generator = torch.Generator().manual_seed(1)
    lstm, vectors = random_lstm(size, width, scale=scale), torch.randn(n_words, width, generator=generator)
    rows = [torch.randint(n_words, (length,), generator=generator) for length in lengths]
    pull = torch.randn(len(lengths), 2 * size, generator=generator)
    weights = list(lstm.parameters())

    expected, found = by_torch(lstm, vectors, rows), last_states(lstm, vectors, rows)
    slow, fast = (torch.autograd.grad((states * pull).sum(), weights) for states in (expected, found))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for one, two in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4 * max(1.0, two.abs().max().item()))


@pytest.mark.parametrize("lengths", [[1], [1, 1, 1, 1], [3, 7, 1, 5, 2], [40, 3]])
@pytest.mark.parametrize(("size", "width"), [(5, 3), (1, 1), (100, 50)])
def test_states_and_gradients_equal_those_of_torch(lengths: list[int], size: int, width: int) -> None:
    assert_same(lengths, size=size, width=width)


@settings(deadline=None, max_examples=40)
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=9), size=st.integers(1, 9), width=st.integers(1, 9))
def test_any_lengths_and_sizes(lengths: list[int], size: int, width: int) -> None:
    assert_same(lengths, size=size, width=width)


def test_saturated_gates() -> None:
    assert_same([5, 9, 2], size=6, width=4, scale=6.0)


def encoder(*, hidden_size: int = 8, dropout: float = 0.0, seed: int = 0) -> BiLstmEncoder:
    return BiLstmEncoder(word_vectors(), BiLstmSettings(hidden_size=hidden_size, dropout=dropout), seed=seed)


EXAMPLES = [toy_example(number, row) for number in range(3) for row in range(4)]


def test_vectors_are_those_of_torchs_lstm() -> None:
    built = encoder()
    words = word_vectors()
    rows = [torch.tensor(words.ids(example.tokens)) for example in EXAMPLES]
    expected = by_torch(built.lstm, words.vectors, rows)
    for found in (built.encode(EXAMPLES), embed(built, EXAMPLES)):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    unknown = built.encode_texts(["", "nothing known here"])
    expected = by_torch(built.lstm, words.vectors, [torch.tensor([0]), torch.tensor([0, 0, 0])])
    torch.testing.assert_close(unknown, expected, rtol=1e-4, atol=1e-5)
    assert built.dim == 16


def test_case_does_not_matter_and_unknown_words_are_zeros() -> None:
    built = encoder()
    assert word_vectors().ids(["Ada", "ADA", "ada", "xyzzy"]) == [1, 1, 1, 0]
    torch.testing.assert_close(built.encode_texts(["The Of"]), built.encode_texts(["the of"]))
    torch.testing.assert_close(built.encode_texts(["xyzzy"]), built.encode_texts(["plugh"]))


def test_a_sentence_of_ten_thousand_words() -> None:
    tokens = ("ada", *["the"] * 9_998, "bob")
    example = Example(tokens, Entity("ada", Span(0, 1)), Entity("bob", Span(9_999, 10_000)))
    vectors = embed(encoder(), [example, EXAMPLES[0]])
    assert torch.isfinite(vectors).all()
    torch.testing.assert_close(vectors[1:], encoder().encode(EXAMPLES[:1]))


def test_embed_gives_rows_in_the_order_asked_whatever_the_batches() -> None:
    built = encoder()
    whole = embed(built, EXAMPLES)
    torch.testing.assert_close(embed(built, EXAMPLES, batch_size=5), whole)
    torch.testing.assert_close(embed(built, EXAMPLES[::-1]).flip(0), whole)
    assert embed(built, []).shape == (0, 16)
    assert not whole.requires_grad


def test_a_long_embedding_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    built, seen = encoder(), []
    for waits in (0.0, 60.0):
        monkeypatch.setattr("erda.encoders.trainable.BAR_AFTER", waits)
        monkeypatch.setattr("sys.stderr", terminal := Terminal())
        embed(built, EXAMPLES, batch_size=1)
        seen.append("sentences" in terminal.getvalue())
    assert seen == [True, False]


def test_it_can_read_from_the_first_entity_to_the_end_of_the_second() -> None:
    built = BiLstmEncoder(word_vectors(), BiLstmSettings(hidden_size=8, reads="span"))
    tokens = ("the", "bob", "of", "sign1", "ada", "the")
    bob, ada = Entity("bob", Span(1, 2)), Entity("ada", Span(4, 5))
    for head, tail in ((bob, ada), (ada, bob)):
        found = built.encode([Example(tokens, head, tail)])
        torch.testing.assert_close(found, built.encode_texts(["bob of sign1 ada"]))
    far = Example(("ada", *["the"] * 600, "bob"), Entity("ada", Span(0, 1)), Entity("bob", Span(601, 602)))
    assert torch.isfinite(built.encode([far])).all()


def test_dropout_acts_in_training_only() -> None:
    built = encoder(dropout=0.5)
    built.train()
    torch.manual_seed(0)
    assert (built.encode(EXAMPLES) == 0).any()
    torch.testing.assert_close(embed(built, EXAMPLES), embed(encoder(), EXAMPLES))
    assert built.training, "embed puts the encoder back as it was"


def test_the_seed_alone_decides_the_weights() -> None:
    torch.manual_seed(1)
    one = encoder(seed=5)
    torch.manual_seed(2)
    two = encoder(seed=5)
    for mine, other in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(mine, other)
    assert not torch.equal(encoder(seed=6).lstm.weight_ih_l0, one.lstm.weight_ih_l0)


def test_trained_weights_travel_and_word_vectors_stay() -> None:
    one, two = encoder(seed=1), encoder(seed=2)
    state = one.trained_state()
    assert set(state) == {f"lstm.{name}" for name, _ in one.lstm.named_parameters()}
    two.load_trained_state(state)
    torch.testing.assert_close(two.encode(EXAMPLES), one.encode(EXAMPLES))
    with pytest.raises(ModelError, match=r"do not fit encoder 'bilstm': lstm\.weight_hh_l0"):
        encoder(hidden_size=4).load_trained_state(state | {"lstm.weight_ih_l0": torch.zeros(16, DIM)})


def test_built_by_name_with_settings(tmp_path) -> None:
    path = write_vectors(tmp_path / "vectors.txt")
    built = build_encoder("bilstm", hidden_size=12, vectors=str(path))
    assert (built.dim, built.spec.name) == (24, "bilstm")
    assert built.spec.settings == {"hidden_size": 12, "dropout": 0.0, "vectors": str(path), "reads": "sentence"}
    assert not built.training


def test_every_fault_in_settings_is_said_at_once() -> None:
    with pytest.raises(SettingsError) as fault:
        build_encoder("bilstm", hiden_size=3, hidden_size=300_000, dropout=1.0, vectors=3)
    assert str(fault.value).splitlines() == [
        "hidden_size: must be at most 4096, got 300000.",
        "dropout: must be less than 1, got 1.0.",
        "vectors: expected text, got 3.",
        "Unknown setting 'hiden_size'. Did you mean 'hidden_size'? Known: dropout, hidden_size, reads, vectors.",
    ]


def test_threads_get_the_same_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bilstm, "KEPT_SENTENCES", 3)  # so that sentences are dropped all the time
    built = encoder()
    expected = embed(built, EXAMPLES)

    def ask(seed: int) -> bool:
        rows = np.random.default_rng(seed).permutation(len(EXAMPLES)).tolist()
        return torch.allclose(embed(built, [EXAMPLES[row] for row in rows], batch_size=5), expected[rows], atol=1e-6)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(60)))
    assert not built.training


FORKED = """\
import os, torch
from erda.encoders.trainable import embed
from toy_world import toy_encoder, toy_example

encoder = toy_encoder()
encoder.encode([toy_example(0, 0)])
expected = embed(encoder, [toy_example(0, 0)])
if child := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os._exit(not torch.allclose(encoder.encode([toy_example(0, 0)]), expected, atol=1e-5))
"""


def test_a_forked_process_can_use_an_encoder_that_was_used_before() -> None:
    """In a process of its own: threads that other tests have left behind are not the encoder's."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent), "OMP_NUM_THREADS": "1"}
    assert subprocess.run([sys.executable, "-c", FORKED], env=environment, timeout=60, check=False).returncode == 0
