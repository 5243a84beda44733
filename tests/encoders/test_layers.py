"""A split model computes the same states as the whole model."""

import json
from pathlib import Path

import pytest
import torch
from tiny_models import SENTENCES, build_model
from torch.nn.utils.rnn import pad_sequence

from erda.encoders.layers import LayeredModel, load_model, load_tokenizer, states_at
from erda.errors import ModelError


@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "electra"])
def test_a_split_model_agrees_with_transformers(tmp_path: Path, kind: str) -> None:
    folder = build_model(tmp_path, kind)
    tokenizer = load_tokenizer(folder, mode="paper")
    model = load_model(folder)
    layers = LayeredModel(model).eval()
    batch = [torch.from_numpy(pieces.ids).long() for pieces in tokenizer.encode(SENTENCES)]
    ids, lengths = pad_sequence(batch, True, tokenizer.pad_id), torch.tensor(list(map(len, batch)))
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    places = torch.stack([torch.zeros_like(lengths), lengths - 1], dim=1)
    assert layers.splits == (kind != "electra")
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=mask).last_hidden_state
        at = states_at(expected, places)
        assert torch.allclose(layers(ids, lengths, places), at, atol=1e-5)
        if not layers.splits:
            return
        below = layers.run(layers.embed(ids), lengths, 0, 2)
        above = layers.run(below, lengths, 2, 3)
        assert torch.allclose(layers.run(below, lengths, 2, 3, places), at, atol=1e-5)
    for row, length in enumerate(lengths):
        assert torch.allclose(above[row, :length], expected[row, :length], atol=1e-5)


def test_marks_are_copies_with_gradients_of_their_own(tmp_path: Path) -> None:
    model = load_model(build_model(tmp_path))
    layers = LayeredModel(model, mark_origins=(5, 5, 6, 6)).eval()
    words = torch.tensor([[2, 5, 9, 5, 6, 3]])
    marked = torch.tensor([[2, layers.vocab_size, 9, layers.vocab_size + 1, layers.vocab_size + 2, 3]])
    assert torch.equal(layers.embed(words), layers.embed(marked))
    layers.embed(marked).pow(3).sum().backward()
    assert (layers.marks.grad.abs().sum(1) > 0).tolist() == [True, True, True, False]
    touched = model.get_input_embeddings().weight.grad.abs().sum(1).nonzero().flatten().tolist()
    assert set(touched) <= {2, 3, 9}


def test_missing_weights_are_rejected(tmp_path: Path) -> None:
    folder = build_model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["num_hidden_layers"] = 4
    (tmp_path / "config.json").write_text(json.dumps(config))
    before = torch.random.get_rng_state()
    with pytest.raises(ModelError, match=r"lack 16 tensors, first encoder\.layer\.3\."):
        load_model(folder)
    assert torch.equal(torch.random.get_rng_state(), before)
