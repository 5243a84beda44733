"""Centres of the vectors of any sentences, kept beside the weights that made them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import build_model

from erda.encoders.adapter import TrainedWeights, adapter_folder
from erda.encoders.background import FILE, centres_of, load_background, save_background
from erda.encoders.settings import EncoderSpec
from erda.encoders.weights import CopyOrigin
from erda.errors import ModelError
from erda.files import read_arrays, sealed, sha256_of, write_json


def spec(adapter: str, fingerprint: str = "made") -> EncoderSpec:
    return EncoderSpec("minilm", {"adapter": adapter}, fingerprint)


def test_what_is_saved_is_loaded_for_the_same_weights_only(tmp_path: Path) -> None:
    centres = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).half().float()
    assert save_background(tmp_path, centres, "made") == tmp_path / FILE
    found = load_background(spec(str(tmp_path)))
    assert found is not None
    torch.testing.assert_close(found, centres)
    assert load_background(spec(str(tmp_path), "other")) is None
    assert load_background(spec(str(tmp_path / "nowhere"))) is None
    assert load_background(spec("")) is None
    assert load_background(EncoderSpec("bilstm", {}, "made")) is None


@pytest.mark.parametrize(
    "content", [b"", b"not an archive", {"centres": np.zeros(3)}, {"centres": np.full((2, 2), np.nan)}, {"other": 1}]
)
def test_a_damaged_file_is_said_in_one_line(tmp_path: Path, content: object) -> None:
    path = tmp_path / FILE
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        assert isinstance(content, dict)
        np.savez(path, fingerprint=np.array("made"), **content)
    with pytest.raises(ModelError, match=r"background\.npz: .*erda corpus background") as caught:
        load_background(spec(str(tmp_path)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "dim"), [("minilm", 768), ("mpnet", 1536)])
def test_the_packaged_weights_come_with_theirs(name: str, dim: int) -> None:
    path = adapter_folder("shipped", base=name) / FILE
    found = read_arrays(path, error=ModelError)
    made_with = TrainedWeights.load("shipped", base=name).fingerprint
    assert str(found["fingerprint"]) == made_with, f"new weights: erda corpus background {name} wiki-small.jsonl.gz"
    assert found["centres"].shape == (600, dim)
    assert path.stat().st_size < 2_000_000


def test_a_copy_in_half_precision_has_that_of_its_original(tmp_path: Path) -> None:
    copy = build_model(tmp_path / "copy").path
    files = {path.name: sha256_of(path) for path in copy.iterdir()}
    write_json(copy / "origin.json", sealed(CopyOrigin("minilm", "original", files)))
    made_with = TrainedWeights.load("shipped").fingerprint
    assert load_background(EncoderSpec(str(copy), {"adapter": "shipped"}, made_with)) is not None


def test_centres_are_the_means_of_what_is_nearest_to_them() -> None:
    generator = torch.Generator().manual_seed(1)
    places = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    vectors = torch.cat([place + torch.randn(30, 2, generator=generator) for place in places])
    centres = centres_of(vectors, 3, seed=2)
    nearest = torch.cdist(vectors, centres).argmin(dim=1)
    for row, centre in enumerate(centres):
        torch.testing.assert_close(centre, vectors[nearest == row].mean(dim=0))
    assert len(centres_of(vectors[:2], 3)) == 2
