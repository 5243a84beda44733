"""Both modes of the transformer: shapes, trained parameters, threads and settings."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import SENTENCES, TEXTS, build_model, encoder_of, sentence

from erda.encoders import build_encoder, check_device, tokens
from erda.encoders.frozen import FrozenCache
from erda.encoders.trainable import embed
from erda.encoders.weights import ModelFolder
from erda.errors import ModelError, SettingsError


@pytest.mark.parametrize("kind", ["bert", "mpnet", "electra"])
@pytest.mark.parametrize(
    ("mode", "projection", "dim"), [("paper", 0, 16), ("paper", 5, 5), ("markers", 0, 32), ("markers", 7, 7)]
)
def test_shapes(folders: dict[str, ModelFolder], kind: str, mode: str, projection: int, dim: int) -> None:
    encoder = encoder_of(folders[kind], mode=mode, projection=projection).eval()
    assert encoder.dim == dim
    assert encoder.encode(SENTENCES).shape == (len(SENTENCES), dim)
    assert encoder.encode_texts(TEXTS).shape == (3, dim)
    assert encoder.encode([]).shape == (0, dim)


@pytest.mark.parametrize("kind", ["bert", "mpnet", "electra"])
def test_markers_mode_concatenates_the_two_start_marks(folders: dict[str, ModelFolder], kind: str) -> None:
    encoder = encoder_of(folders[kind], mode="markers").eval()
    (pieces,) = encoder.tokenizer.encode(SENTENCES[2:3])  # the tail comes first
    with torch.no_grad():
        ids = torch.from_numpy(pieces.ids).long()[None]
        places = torch.tensor([pieces.places])
        expected = encoder.layers(ids, torch.tensor([len(pieces)]), places).flatten()
        assert torch.allclose(encoder.encode(SENTENCES[2:3])[0], expected, atol=1e-5)
        text = encoder.encode_texts(["capital of"])[0]
    assert torch.allclose(text[:16], text[16:], atol=1e-6)


def test_padding_does_not_change_vectors(folders: dict[str, ModelFolder]) -> None:
    for kind, folder in folders.items():
        for mode in ("paper", "markers"):
            encoder = encoder_of(folder, mode=mode).eval()
            with torch.no_grad():
                alone = torch.cat([encoder.encode([example]) for example in SENTENCES])
                assert torch.allclose(encoder.encode(SENTENCES), alone, atol=1e-5), (kind, mode)


# -- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bert", "mpnet", "electra"])
@pytest.mark.parametrize(
    ("mode", "n_trained"), [("paper", 1), ("paper", 2), ("markers", 1), ("markers", -1), ("markers", 3)]
)
def test_a_step_changes_only_trained_parameters(
    folders: dict[str, ModelFolder], kind: str, mode: str, n_trained: int
) -> None:
    encoder = encoder_of(folders[kind], mode=mode, trained_layers=n_trained)
    before = {name: weight.detach().clone() for name, weight in encoder.named_parameters()}
    optimizer = torch.optim.Adam(encoder.trained_parameters(), lr=0.1)
    encoder.encode(SENTENCES).pow(3).sum().backward()
    optimizer.step()
    changed = {name for name, weight in encoder.named_parameters() if not torch.equal(weight, before[name])}
    upper = ("linear.", *(f".layer.{i}." for i in range(3 - n_trained, 3)))
    expected = {name for name in before if n_trained == -1 or any(part in name for part in upper)}
    # a key bias shifts all scores of a query alike, so its gradient is rounding noise or zero
    assert all(name.endswith((".attention.self.key.bias", ".attention.attn.k.bias")) for name in expected - changed)
    assert changed <= expected
    assert set(encoder.trained_tensors()) == expected
    assert not any("pooler" in name for name in before)


def test_only_trained_layers_use_dropout(bert: ModelFolder) -> None:
    encoder = encoder_of(bert, mode="paper", dropout=0.5).train()
    modes = {name: module.training for name, module in encoder.named_modules() if isinstance(module, torch.nn.Dropout)}
    assert all(training == (".layer.2." in name) for name, training in modes.items())
    assert not torch.equal(encoder.encode(SENTENCES), encoder.encode(SENTENCES))
    encoder.eval()
    assert torch.equal(encoder.encode(SENTENCES), encoder.encode(SENTENCES))


def test_the_seed_determines_the_linear_layer_which_a_trained_state_replaces(bert: ModelFolder) -> None:
    before = torch.random.get_rng_state()
    one, same, other = (encoder_of(bert, mode="paper", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    first, again, another = (encoder.trained_tensors()["linear.weight"] for encoder in (one, same, other))
    assert torch.equal(first, again)
    assert not torch.equal(first, another)
    assert torch.allclose(first @ first.T, torch.eye(16), atol=1e-5), "a rotation"
    with torch.no_grad():
        for weight in one.trained_parameters():
            weight.add_(0.1)
    other.load_trained_state(one.trained_tensors())
    assert torch.equal(other.encode(SENTENCES), one.encode(SENTENCES))


# -- MiniLM and settings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "papers"}, "mode: Unknown word 'papers'. Did you mean 'paper'"),
        ({"precision": "fp16"}, "precision: Unknown word 'fp16'"),
        ({"dropout": 1.0}, "dropout: must be less than 1, got 1.0"),
        ({"projection": -1}, "projection: must be at least 0, got -1"),
        ({"projection": 10**9}, "projection: must be at most 16384, got 1000000000"),
        ({"trained_layers": 9}, "expected 0 to 3"),
        ({"max_pieces": 3}, "at least 8 word pieces"),
        ({"device": "gpu"}, "device: unknown device 'gpu'"),
    ],
)
def test_invalid_settings_are_rejected(bert: ModelFolder, settings: dict, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        build_encoder(str(bert.path), **settings)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_damaged_model_loads_or_raises_a_one_line_error(tmp_path: Path, name: str) -> None:
    path = build_model(tmp_path / "m", n_layers=1).path / name
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    head = min(len(whole), 3000)  # about the header of a safetensors file
    damaged = [whole[: int(rng.integers(len(whole)))] for _ in range(8)]
    for _ in range(30):
        content = bytearray(whole)
        content[int(rng.integers(head))] ^= 1 << int(rng.integers(8))
        damaged.append(bytes(content))
    damaged += [b"", b"{}", b"[]", b"null", b'{"a": ' * 100_000, b"\xff\xfe{}"]
    rejected = []
    for content in damaged:
        path.write_bytes(content)
        try:
            embed(build_encoder(str(path.parent), mode="markers"), SENTENCES)
        except ModelError as fault:
            rejected.append(str(fault))
    assert len(rejected) > 10
    assert all(len(text.splitlines()) == 1 for text in rejected)


def test_missing_gpus_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("the CPU needs no look at GPUs"))
    check_device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingsError, match="PyTorch finds no CUDA device for 'cuda'"):
        check_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name in ("cuda", "cuda:0", "cuda:1"):
        check_device(name)
    with pytest.raises(SettingsError, match="no 'cuda:2'; this machine has cuda:0 to cuda:1"):
        check_device("cuda:2")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("mode", ["paper", "markers"])
def test_a_gpu_agrees_with_the_cpu(mode: str) -> None:
    expected = embed(build_encoder("minilm", mode=mode), SENTENCES)
    for settings, tolerance in (({}, 1e-3), ({"precision": "bf16"}, 5e-2)):
        for cache in (None, FrozenCache()):
            encoder = build_encoder("minilm", device="cuda", mode=mode, cache=cache, **settings)
            assert torch.allclose(embed(encoder, SENTENCES).cpu(), expected, atol=tolerance)


# -- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_trained", [1, 0])
def test_threads_get_the_same_vectors(
    bert: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_trained: int
) -> None:
    monkeypatch.setattr(tokens, "KEPT_WORDS", 20)  # constant eviction
    monkeypatch.setattr(tokens, "KEPT_SENTENCES", 3)
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    texts = [" ".join("".join(rng.choice(letters, 3)) for _ in range(4 + n % 9)) for n in range(40)]
    examples = [sentence(text, (0, 1), (2, 3)) for text in texts]
    encoder = encoder_of(bert, mode="markers", trained_layers=n_trained, cache=FrozenCache(tmp_path, max_bytes=300_000))
    alone = encoder_of(bert, mode="markers", trained_layers=n_trained)
    expected = [embed(alone, [one]) for one in examples]

    def ask(seed: int) -> float:
        order = np.random.default_rng(seed).permutation(len(examples)).tolist()
        worst = 0.0
        for rows in (order[i : i + 5] for i in range(0, len(order), 5)):
            found = embed(encoder, [examples[row] for row in rows])
            worst = max(worst, float((found - torch.cat([expected[row] for row in rows])).abs().max()))
            encoder.tokenizer.encode_texts([texts[row] for row in rows])
        return worst

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(ask, range(8))) < 1e-4
    assert not encoder.training
