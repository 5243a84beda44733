"""A model taken apart computes what the whole model computes."""

import json
from pathlib import Path

import pytest
import torch
from tiny_models import SENTENCES, build_model

from erda.encoders.layers import ALL, LayeredModel, load_model
from erda.encoders.tokens import MarkedTokenizer, pad
from erda.errors import ModelError, SettingsError


@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "electra"])
def test_parts_agree_with_the_whole(tmp_path: Path, kind: str) -> None:
    folder = build_model(tmp_path, kind)
    tokenizer = MarkedTokenizer.load(folder, mode="paper")
    model = load_model(folder)
    layers = LayeredModel(model).eval()
    batch = tokenizer.encode(SENTENCES)
    ids, lengths = pad(batch, tokenizer.pad_id)
    places = torch.tensor([[item.head, item.tail, 0] for item in batch])
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=mask).last_hidden_state
        whole = layers.whole(ids, lengths)
        assert all(torch.allclose(whole[i, :n], expected[i, :n], atol=1e-5) for i, n in enumerate(lengths))
        assert layers.splits == (kind != "electra")
        if layers.splits:
            below = layers.run(layers.embed(ids), lengths, 0, 2)
            above = layers.run(below, lengths, 2, 3)
            at = layers.last_at(below, lengths, places)
            packed = torch.cat([layers.embed(ids[i : i + 1, :n])[0] for i, n in enumerate(lengths)])
            packed = layers.run_packed(packed, [(1, int(n)) for n in lengths], 0, 3)
            rows = torch.cat([expected[i, :n] for i, n in enumerate(lengths)])
            assert torch.allclose(packed, rows, atol=1e-5)
            for row, length in enumerate(lengths):
                assert torch.allclose(above[row, :length], expected[row, :length], atol=1e-5)
                assert torch.allclose(at[row], expected[row, places[row]], atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_packed_sentences_of_one_length_share_a_block(tmp_path: Path, kind: str) -> None:
    layers = LayeredModel(load_model(build_model(tmp_path, kind))).eval()
    states = torch.randn(5, 4, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        apart = layers.run_packed(states.flatten(0, 1), [(1, 4)] * 5, 0, 3)
        together = layers.run_packed(states.flatten(0, 1), [(2, 4), (3, 4)], 0, 3)
        padded = layers.run(states, torch.full((5,), 4), 0, 3).flatten(0, 1)
    assert torch.allclose(apart, together, atol=1e-5)
    assert torch.allclose(apart, padded, atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_the_last_layer_at_places_has_the_same_gradients(tmp_path: Path, kind: str) -> None:
    layers = LayeredModel(load_model(build_model(tmp_path, kind)), trained_layers=1).eval()
    states = torch.randn(4, 9, 16, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([9, 5, 7, 1])
    places = torch.tensor([[0, 3], [4, 0], [6, 2], [0, 0]])

    def gradients(out: torch.Tensor) -> dict[str, torch.Tensor]:
        layers.zero_grad()
        out.pow(2).sum().backward()
        return {name: weight.grad.clone() for name, weight in layers.named_parameters() if weight.grad is not None}

    whole = layers.run(states, lengths, 2, 3).gather(1, places[..., None].expand(-1, -1, 16))
    expected = gradients(whole)
    got = gradients(layers.last_at(states, lengths, places))
    (key_bias,) = expected.keys() - got.keys()  # it shifts all scores of a query alike, so it has no effect at all
    assert expected.pop(key_bias).abs().max() < 1e-5
    assert got.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.allclose(got[name], gradient, atol=2e-4), name


@pytest.mark.parametrize("kind", ["bert", "mpnet", "electra"])
def test_exactly_the_upper_layers_are_trained(tmp_path: Path, kind: str) -> None:
    folder = build_model(tmp_path, kind)
    for n_trained in (0, 1, 2, 3):
        layers = LayeredModel(load_model(folder), mark_origins=(5, 5, 6, 6), trained_layers=n_trained)
        trained = {name for name, weight in layers.named_parameters() if weight.requires_grad}
        expected = {
            name for name, _ in layers.named_parameters() if any(f"layer.{i}." in name for i in range(3 - n_trained, 3))
        }
        assert trained == expected
    everything = LayeredModel(load_model(folder), mark_origins=(5, 5, 6, 6), trained_layers=ALL)
    assert all(weight.requires_grad for weight in everything.parameters())
    assert not any("pooler" in name for name, _ in everything.named_parameters())


def test_marks_start_as_copies_and_stay_apart_from_words(tmp_path: Path) -> None:
    model = load_model(build_model(tmp_path))
    layers = LayeredModel(model, mark_origins=(5, 5, 6, 6)).eval()
    words = torch.tensor([[2, 5, 9, 5, 6, 3]])
    marked = torch.tensor([[2, layers.vocab_size, 9, layers.vocab_size + 1, layers.vocab_size + 2, 3]])
    assert torch.equal(layers.embed(words), layers.embed(marked))
    layers.embed(marked).pow(3).sum().backward()
    assert layers.marks is not None
    assert layers.marks.grad is not None
    assert (layers.marks.grad.abs().sum(1) > 0).tolist() == [True, True, True, False]
    touched = model.get_input_embeddings().weight.grad.abs().sum(1).nonzero().flatten().tolist()
    assert set(touched) <= {2, 3, 9}


@pytest.mark.parametrize("n_trained", [-2, 4])
def test_an_impossible_number_of_layers_is_refused(tmp_path: Path, n_trained: int) -> None:
    with pytest.raises(SettingsError, match="expected 0 to 3"):
        LayeredModel(load_model(build_model(tmp_path)), trained_layers=n_trained)


def test_weights_that_lack_a_layer_are_refused(tmp_path: Path) -> None:
    folder = build_model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["num_hidden_layers"] = 4
    (tmp_path / "config.json").write_text(json.dumps(config))
    before = torch.random.get_rng_state()
    with pytest.raises(ModelError, match=r"lack 16 tensors, the first is encoder\.layer\.3\."):
        load_model(folder)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_weights_that_are_no_weights_are_refused(tmp_path: Path) -> None:
    folder = build_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ModelError, match="Cannot load the model"):
        load_model(folder)
