"""Changes of a store without its method: forgetting and going back give the versions that the method would give."""

from pathlib import Path

import numpy as np
import pytest
from toy_extractor import FOUNDED, open_toy, scores, taught

from erda.app.store import Store, forget, undo
from erda.errors import DataError, ModelError


@pytest.mark.parametrize("method", ["posterior", "seqrun"])
def test_forgetting_leaves_what_the_method_would_leave(tmp_path: Path, method: str) -> None:
    extractor = taught(tmp_path, method=method)
    expected = extractor.version.method
    expected.forget("born in")
    assert forget(Store(tmp_path), "born_in") == 3
    found = open_toy(tmp_path, method=method)
    assert [one.id for one in found.relations] == ["founded by", "capital of"] == [*expected.index]
    assert found.version.method.kept == expected.kept
    for name, rows in expected.checkpoint().rows.items():
        for relation, row in rows.items():
            np.testing.assert_array_equal(found.version.method.checkpoint().rows[name][relation], row)


def test_forgetting_shares_the_objects_of_the_other_relations(tmp_path: Path) -> None:
    taught(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "objects").iterdir()}
    forget(Store(tmp_path), "founded by")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "objects").iterdir()} == before


def test_the_last_relation_can_be_forgotten_and_brought_back(tmp_path: Path) -> None:
    extractor = open_toy(tmp_path)
    extractor.teach("founded by", FOUNDED)
    before = scores(extractor)
    assert forget(Store(tmp_path), "founded by") == 2
    assert open_toy(tmp_path).relations == ()
    assert undo(Store(tmp_path)).what == "forgot founded by"
    np.testing.assert_array_equal(scores(open_toy(tmp_path)), before)
    with pytest.raises(DataError):
        forget(Store(tmp_path), "unknown")


def test_a_damaged_version_does_not_become_current(tmp_path: Path) -> None:
    extractor = open_toy(tmp_path)
    extractor.teach("founded by", FOUNDED)
    (files,) = Store(tmp_path).version_file(1).relations
    extractor.forget("founded by")
    (tmp_path / "objects" / f"{files.rows}.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelError):
        undo(Store(tmp_path))
    assert Store(tmp_path).head().current == 2
