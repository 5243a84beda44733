"""Backgrounds: cluster centres stored beside the weights that made them."""

from pathlib import Path

import numpy as np
import pytest

from erda.encoders.adapter import TrainedWeights
from erda.encoders.contract import BACKGROUND, BackgroundFile, save_background
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


@pytest.mark.parametrize(("name", "dim"), [("mpnet", 1536), ("open", 768)])
def test_shipped_weights_have_a_background(name: str, dim: int) -> None:
    if name == "open":
        folder, fingerprint = PACKAGED / "open", read_about(PACKAGED / "open").fingerprint
    else:
        folder, fingerprint = (
            adapter_folder("shipped", base=name),
            TrainedWeights.load("shipped", base=name).fingerprint,
        )
    centres = BackgroundFile(folder, fingerprint).read()
    assert centres is not None, "new weights: python tools/build_encoder.py"
    assert centres.shape == (600, dim)
