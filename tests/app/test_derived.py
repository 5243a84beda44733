"""The derived file of a store: used when it belongs to the version, ignored when it is missing, damaged or stale."""

from pathlib import Path

import numpy as np
import pytest
from toy_extractor import open_toy, scores, some_relation, taught

from erda.app import store
from erda.methods.posterior import Posterior


@pytest.fixture(autouse=True)
def _small_arrays_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LEAST_BYTES", 0)


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each fit."""
    made, fit = list[str](), Posterior._fit
    monkeypatch.setattr(Posterior, "_fit", lambda self: (made.append(self.name), fit(self))[1])
    return made


def test_a_second_process_answers_the_same_without_fitting(tmp_path: Path, fits: list[str]) -> None:
    first = scores(taught(tmp_path))
    assert fits == ["posterior"]
    np.testing.assert_array_equal(scores(open_toy(tmp_path)), first)
    assert fits == ["posterior"]


@pytest.mark.parametrize("change", ["flipped", "truncated", "empty", "of another erda"])
def test_a_file_that_cannot_be_trusted_is_replaced(
    tmp_path: Path, fits: list[str], change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, place = scores(taught(tmp_path)), tmp_path / "derived.bin"
    good = place.read_bytes()
    middle = len(good) // 2
    changed = {"flipped": good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :], "truncated": good[:-9]}
    place.write_bytes(changed.get(change, b"" if change == "empty" else good))
    if change == "of another erda":
        monkeypatch.setattr(store, "__version__", "9.9")
    np.testing.assert_array_equal(scores(open_toy(tmp_path)), first)
    assert len(fits) == 2
    assert (place.read_bytes() == good) == (change != "of another erda")


def test_a_file_of_another_version_is_not_used(tmp_path: Path, fits: list[str]) -> None:
    extractor = taught(tmp_path)
    before = scores(extractor)
    extractor.teach_many(some_relation(1))
    assert scores(open_toy(tmp_path)).shape[1] == 4
    extractor.undo()
    np.testing.assert_array_equal(scores(open_toy(tmp_path)), before)
    assert len(fits) == 3
