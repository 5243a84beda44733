"""Backgrounds: cluster centres stored beside the weights that made them."""

from pathlib import Path

import numpy as np
import pytest

from erda.encoders.adapter import TrainedWeights
from erda.encoders.contract import BACKGROUND, BackgroundFile, UnlabelledFile, save_background
from erda.encoders.onnx_encoder import read_about
from erda.encoders.weights import PACKAGED, adapter_folder
from erda.errors import ModelError


def test_a_background_is_valid_only_for_its_own_weights(tmp_path: Path) -> None:
    centres = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float16)
    assert save_background(tmp_path, centres, "made") == tmp_path / BACKGROUND
    found = BackgroundFile(tmp_path, "made").read()
    assert found is not None
    np.testing.assert_array_equal(found, centres.astype(np.float32))
    assert BackgroundFile(tmp_path, "other").read() is None
    assert BackgroundFile(tmp_path / "nowhere", "made").read() is None


@pytest.mark.parametrize(
    "content", [b"", b"not an archive", {"centres": np.zeros(3)}, {"centres": np.full((2, 2), np.nan)}, {"other": 1}]
)
def test_a_damaged_file_raises_a_one_line_error(tmp_path: Path, content: object) -> None:
    path = tmp_path / BACKGROUND
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        assert isinstance(content, dict)
        np.savez(path, fingerprint=np.array("made"), **content)
    with pytest.raises(ModelError) as caught:
        BackgroundFile(tmp_path, "made").read()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "dim"), [("open", 768), ("open-mpnet", 1536)])
def test_shipped_weights_have_their_statistics(name: str, dim: int) -> None:
    folder = PACKAGED / "open" if name == "open" else adapter_folder("shipped", base="mpnet") / "open"
    made_by = read_about(folder) if name == "open" else TrainedWeights.load(folder, base="mpnet")
    centres = BackgroundFile(folder, made_by.fingerprint).read()
    assert centres is not None, "new weights: python tools/build_encoder.py"
    assert centres.shape == (600, dim)
    assert UnlabelledFile(folder, made_by.fingerprint).read() is not None
