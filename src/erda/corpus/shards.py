"""Vectors of all rows of a corpus, in shards: computed piece by piece, kept as files, read by row number.

`DIR/vectors/<model>/` holds, for one similarity model, `vectors.json` (which model), `shard-<first row>.npy` (float16,
[n_rows, dim]) and `journal.jsonl`: a line for each shard that is whole. A run that was stopped goes on after the last
line; a shard that is missing or damaged is computed again. No shard spans two builds of the corpus, so that what
`erda corpus build --add` brings later leaves every finished shard as it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from erda.corpus.engine import disk_faults, locked
from erda.corpus.manifest import StoredFile, fault_of, settle, sha256_of, write_json
from erda.encoders.devices import is_out_of_memory
from erda.errors import DataError, ErdaError, ModelError

if TYPE_CHECKING:
    from erda.corpus.similarity import SimilarityModel
    from erda.corpus.store import CorpusStore

FORMAT = 1
FOLDER = "vectors"
SHARD_ROWS = 16_384
BATCH_SIZE = 64
BUSY = "another 'erda corpus index' is at work here; wait for it"
_ABOUT = "vectors.json"
_JOURNAL = "journal.jsonl"
_STEP = 1024  # rows between two steps of a progress bar


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


def vectors_folder(corpus: Path, fingerprint: str) -> Path:
    """Where the vectors of one model lie in a corpus folder."""
    return corpus / FOLDER / fingerprint[:16]


def plan_shards(versions: Iterable[tuple[int, str]], shard_rows: int) -> list[ShardPlan]:
    """Shards of at most `shard_rows` rows over all versions of a corpus: (rows, digest) after each build."""
    plans, start = [], 0
    for n_rows, digest in versions:
        plans += [ShardPlan(left, min(left + shard_rows, n_rows), digest) for left in range(start, n_rows, shard_rows)]
        start = n_rows
    return plans


def embed_corpus(
    store: CorpusStore,
    model: SimilarityModel,
    *,
    rebuild: bool = False,
    shard_rows: int = SHARD_ROWS,
    batch_size: int = BATCH_SIZE,
    engine: Callable[[Path, Sequence[ShardPlan]], Iterator[tuple[ShardPlan, StoredFile]]] | None = None,
) -> VectorShards:
    """Compute the vectors of every row that has none yet.

    `engine` computes shards elsewhere and gives each as soon as its file is whole; without it, it happens here.
    `rebuild` throws away what was computed of another version of the corpus.
    """
    from tqdm import tqdm

    if not len(store):
        raise DataError(f"{store.folder}: the corpus has no rows; there is nothing to embed.")
    folder = vectors_folder(store.folder, model.fingerprint)
    with locked(folder, busy=BUSY), disk_faults(folder):
        if rebuild:
            _clear(folder)
        about = _open_about(folder, model, shard_rows)
        plans = plan_shards(store.versions, about["shard_rows"])
        finished = _verified(folder, _foreign_refused(folder, read_journal(folder), plans))
        missing = [plan for plan in plans if plan not in finished]
        n_missing = sum(plan.stop - plan.start for plan in missing)
        with tqdm(total=len(store), initial=len(store) - n_missing, desc="embedding", unit="row", disable=None) as bar:
            for plan in missing if engine is None else ():
                finished[plan] = embed_shard(store, model, plan, folder, batch_size=batch_size, tick=bar.update)
                _note(folder, plan, finished[plan])
            for plan, file in engine(folder, missing) if engine is not None and missing else ():
                finished[plan] = file
                _note(folder, plan, file)
                bar.update(plan.stop - plan.start)
    return VectorShards(folder, about["dim"], finished)


def embed_shard(
    store: CorpusStore,
    model: SimilarityModel,
    plan: ShardPlan,
    folder: Path,
    *,
    batch_size: int = BATCH_SIZE,
    tick: Callable[[int], object] = lambda n: None,
) -> StoredFile:
    """Compute one shard, sentences of like length together, and write it whole."""
    rows = [sentence.example for batch in store.batches(start=plan.start, stop=plan.stop) for sentence in batch]
    order = sorted(range(len(rows)), key=lambda i: len(rows[i].tokens))
    vectors = np.empty((len(rows), model.dim), np.float16)
    with memory_faults_explained():
        for left in range(0, len(order), _STEP):
            some = order[left : left + _STEP]
            vectors[some] = model.encode([rows[i] for i in some], batch_size=batch_size)
            tick(len(some))
    if not np.isfinite(vectors).all():
        raise ModelError(
            f"model {model.fingerprint[:16]} gives vectors that are no numbers for rows {plan.start} to "
            f"{plan.stop - 1}; its weights are damaged or its training diverged."
        )
    return write_shard(folder, plan, vectors)


@contextmanager
def memory_faults_explained() -> Iterator[None]:
    """Turn 'out of memory' of the machine or of a GPU into a message that says what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ErdaError(
            f"out of memory while sentences were embedded ({reason}). What is finished is kept: give the same command "
            "again with a smaller --batch-size, or fewer --jobs."
        ) from error


def write_shard(folder: Path, plan: ShardPlan, vectors: np.ndarray) -> StoredFile:
    """Write a shard under a temporary name, then give it its own."""
    temporary = folder / f"{plan.name}.{os.getpid()}.tmp"
    try:
        with temporary.open("wb") as file:
            np.save(file, vectors)
        found = StoredFile(plan.name, temporary.stat().st_size, sha256_of(temporary))
        settle(temporary, folder / plan.name)
    finally:
        temporary.unlink(missing_ok=True)
    return found


class VectorShards:
    """Vectors by row number, from memory-mapped shards."""

    def __init__(self, folder: Path, dim: int, shards: Iterable[ShardPlan]) -> None:
        self.folder = folder
        self.dim = dim
        self.shards = sorted(shards)
        self._starts = [shard.start for shard in self.shards]
        self._mapped: dict[int, np.ndarray] = {}

    @classmethod
    def open(cls, folder: Path) -> VectorShards:
        """The finished shards of a folder, without gaps from row 0 on; their sizes are checked, not their bytes."""
        about = read_about(folder)
        journal = read_journal(folder)
        for plan, file in journal.items():
            path = folder / file.path
            if not path.is_file() or path.stat().st_size != file.size:
                raise DataError(f"{path}: missing or cut short; run 'erda corpus index' again to mend it.")
            if plan.start and not any(other.stop == plan.start for other in journal):
                raise DataError(f"{folder}: unfinished (no vectors before row {plan.start}); run 'erda corpus index'.")
        return cls(folder, about["dim"], journal)

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
            path = self.folder / self.shards[number].name
            try:
                array = np.load(path, mmap_mode="r")
            except (OSError, ValueError) as error:
                raise DataError(f"{path}: cannot be read ({error}); run 'erda corpus index' again.") from None
            self._mapped[number] = array
        return self._mapped[number]


def read_about(folder: Path) -> dict[str, Any]:
    """Which model the vectors of a folder come from: `fingerprint`, `dim`, `shard_rows`."""
    path = folder / _ABOUT
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); run 'erda corpus index --rebuild'.") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise DataError(f"{path}: made by another version of erda; run 'erda corpus index --rebuild'.")
    return about


def read_journal(folder: Path) -> dict[ShardPlan, StoredFile]:
    """The shards that were finished; a last line that was cut short by an interruption does not count."""
    finished: dict[ShardPlan, StoredFile] = {}
    path = folder / _JOURNAL
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
            finished[ShardPlan(**entry["plan"])] = StoredFile(**entry["file"])
        except (ValueError, TypeError, KeyError):
            continue
    return finished


def _open_about(folder: Path, model: SimilarityModel, shard_rows: int) -> dict[str, Any]:
    if not (folder / _ABOUT).exists():
        about = {"format": FORMAT, "fingerprint": model.fingerprint, "dim": model.dim, "shard_rows": shard_rows}
        write_json(folder / _ABOUT, about)
    about = read_about(folder)
    if (about["fingerprint"], about["dim"]) != (model.fingerprint, model.dim):
        raise ModelError(f"{folder}: holds vectors of another model; run 'erda corpus index --rebuild'.")
    return about


def _foreign_refused(
    folder: Path, journal: dict[ShardPlan, StoredFile], plans: Sequence[ShardPlan]
) -> dict[ShardPlan, StoredFile]:
    foreign = sorted(set(journal) - set(plans))
    if foreign:
        raise DataError(
            f"{folder}: {len(foreign)} shards were made of another version of this corpus (digest "
            f"{foreign[0].version[:12]}; now {plans[-1].version[:12]}). The corpus was built anew: 'erda corpus index "
            "--rebuild' throws them away and embeds it again."
        )
    return journal


def _verified(folder: Path, journal: dict[ShardPlan, StoredFile]) -> dict[ShardPlan, StoredFile]:
    """The shards whose bytes are still what was written."""
    return {plan: file for plan, file in journal.items() if fault_of(folder, file) is None}


def _note(folder: Path, plan: ShardPlan, file: StoredFile) -> None:
    with (folder / _JOURNAL).open("a+b") as journal:
        if journal.tell() and not _ends_a_line(journal):
            journal.write(b"\n")  # what an interruption left of a line stays by itself
        journal.write(json.dumps({"plan": asdict(plan), "file": asdict(file)}).encode() + b"\n")
        journal.flush()
        os.fsync(journal.fileno())


def _ends_a_line(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != ".lock":
            path.unlink()
