"""Vectors of all rows of a corpus, in shards: kept as files, read by row number.

`DIR/vectors/<model>/` holds, for one similarity model, `vectors.json` (which model), `shard-<first row>.npy` (float16,
[n_rows, dim]) and `journal.jsonl`: a line for each shard that is whole. No shard spans two builds of the corpus, so
that what `erda corpus build --add` brings later leaves every finished shard as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from erda.corpus.manifest import StoredFile, Version, faults_of
from erda.errors import DataError
from erda.files import UNREADABLE, is_unfinished, journal_values, read_sealed, whole_file

FORMAT = 1
FOLDER = "vectors"
SHARD_ROWS = 16_384
ABOUT = "vectors.json"
JOURNAL = "journal.jsonl"
_OURS = re.compile(r"shard-\d{12}\.npy|(vectors|index|checked)\.json|journal\.jsonl|index\.faiss")


@dataclass(frozen=True, slots=True, order=True)
class ShardPlan:
    """Rows `start` to `stop` of the corpus version whose digest is `version`."""

    start: int
    stop: int
    version: str

    @property
    def name(self) -> str:
        """The shard's file."""
        return f"shard-{self.start:012d}.npy"


@dataclass(frozen=True, slots=True)
class Shard:
    """A finished shard: a line of the journal."""

    plan: ShardPlan
    file: StoredFile


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorsAbout:
    """`vectors.json`: which model the vectors of a folder come from."""

    fingerprint: str
    dim: int
    shard_rows: int
    format: int = FORMAT


def vectors_folder(corpus: Path, fingerprint: str) -> Path:
    """Where the vectors of one model lie in a corpus folder."""
    return corpus / FOLDER / fingerprint[:16]


def plan_shards(versions: Iterable[Version], shard_rows: int) -> list[ShardPlan]:
    """Shards of at most `shard_rows` rows over all versions of a corpus."""
    plans, start = [], 0
    for n_rows, digest in versions:
        plans += [ShardPlan(left, min(left + shard_rows, n_rows), digest) for left in range(start, n_rows, shard_rows)]
        start = n_rows
    return plans


def write_shard(folder: Path, plan: ShardPlan, vectors: np.ndarray) -> Shard:
    """Write the vectors of a shard."""
    path = folder / plan.name
    with whole_file(path) as temporary, temporary.open("wb") as file:
        np.save(file, vectors)
    return Shard(plan, StoredFile.of(folder, path))


def read_about(folder: Path) -> VectorsAbout:
    """What the vectors of a folder are."""
    about = read_sealed(folder / ABOUT, VectorsAbout, remedy="Run 'erda corpus index --rebuild'.")
    if about.format != FORMAT or about.dim < 1 or about.shard_rows < 1:
        raise DataError(f"{folder / ABOUT}: made by another version of erda; run 'erda corpus index --rebuild'.")
    return about


def read_journal(folder: Path) -> dict[ShardPlan, Shard]:
    """The shards that were finished; a line that was damaged or cut short by an interruption does not count."""
    shards = [
        shard for shard in journal_values(folder / JOURNAL, Shard) if shard and shard.file.path == shard.plan.name
    ]
    return {shard.plan: shard for shard in shards}


def clear_folder(folder: Path) -> None:
    """Remove the vectors and the index of a folder, and nothing else."""
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name) or is_unfinished(path.name):
            path.unlink()


class VectorShards:
    """Vectors by row number, from memory-mapped shards."""

    def __init__(self, folder: Path, dim: int, shards: Iterable[ShardPlan]) -> None:
        self.folder = folder
        self.dim = dim
        self.shards = sorted(shards)
        self._starts = [shard.start for shard in self.shards]
        self._mapped: dict[int, np.ndarray] = {}

    @classmethod
    def open(cls, folder: Path, *, beside: Sequence[StoredFile] = ()) -> VectorShards:
        """The finished shards of a folder, without gaps from row 0 on; they, and the files `beside`, are checked."""
        about, journal = read_about(folder), read_journal(folder)
        faults = faults_of(folder, [*beside, *(shard.file for shard in journal.values())])
        if faults:
            raise DataError("\n".join(f"{fault}." for fault in faults) + "\nRun 'erda corpus index' again to mend it.")
        found = cls(folder, about.dim, journal)
        row = 0
        for plan in found.shards:
            if plan.start != row or plan.stop <= row:
                raise DataError(f"{folder}: unfinished (no vectors of row {row:,}); run 'erda corpus index'.")
            row = plan.stop
        return found

    def __len__(self) -> int:
        return self.shards[-1].stop if self.shards else 0

    def __iter__(self) -> Iterator[tuple[int, np.ndarray]]:
        """First row and vectors [n, dim] (float32) of each shard."""
        for number, shard in enumerate(self.shards):
            yield shard.start, np.asarray(self._shard(number), np.float32)

    def vectors(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """The vectors of these rows, in the order given: [n_rows, dim] float32."""
        wanted = np.asarray(rows, np.int64)
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= len(self)):
            raise DataError(f"{self.folder}: row {int(wanted.max())} asked for; vectors are there of {len(self)} rows.")
        vectors = np.empty((len(wanted), self.dim), np.float32)
        numbers = np.searchsorted(self._starts, wanted, "right") - 1
        for number in np.unique(numbers):
            here = numbers == number
            vectors[here] = self._shard(int(number))[wanted[here] - self._starts[number]]
        return vectors

    def _shard(self, number: int) -> np.ndarray:
        if number not in self._mapped:
            plan = self.shards[number]
            path = self.folder / plan.name
            try:
                array = np.load(path, mmap_mode="r", allow_pickle=False)
            except UNREADABLE as error:
                raise DataError(f"{path}: cannot be read ({error}); run 'erda corpus index' again.") from None
            if (array.shape, array.dtype) != ((plan.stop - plan.start, self.dim), np.float16):
                raise DataError(f"{path}: of shape {array.shape}; it is damaged: run 'erda corpus index' again.")
            self._mapped[number] = array
        return self._mapped[number]
