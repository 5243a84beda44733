"""Records of finished runs, `OUT/METHOD/SEED/record.json`: their fields and their files.

A record is sealed with a digest of its content and holds its predictions after the last task, packed. A truncated or
changed record, or one of another version, raises a `RecordError` that names its place.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from erda.benchmark.measures import ALL_SEEN, CANDIDATES, PROTOCOLS, Marks, forgetting
from erda.errors import RecordError
from erda.fields import Fraction, Similarity, Weight
from erda.files import decode_sealed, read_bytes, sealed, write_json
from erda.settings.runs import Run

MOST = 10**12  # examples of a test set
Number = Annotated[int, Field(ge=0, le=MOST)]
Count = Annotated[int, Field(ge=1, le=MOST)]
RECORD, MANIFEST = "record.json", "manifest.json"
RULES = {
    ALL_SEEN: "The gold relation must score strictly higher than every other relation learned so far.",
    CANDIDATES: "The gold relation must score strictly higher than those of the example's listed relations that are "
    "already learned; where none is, the example is marked by all-seen and counted in n_fallback.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Run):
    """One method on one stream: the requested `Run` and its results.

    All measures are fractions. `accuracy`, `macro` and `chance` hold one value per task; `matrix[k][j]` is the accuracy
    on task j after task k (j <= k). A protocol that the dataset does not support is None.
    """

    order: list[list[str]]  # relation ids, task by task
    relation_names: dict[str, str]
    manifest: dict[str, Any]
    encoder_spec: dict[str, Any]  # name, all settings, fingerprint of the initial weights
    accuracy: dict[str, list[Fraction] | None]
    macro: dict[str, list[Fraction] | None]
    chance: dict[str, list[Fraction] | None]
    matrix: dict[str, list[list[Fraction]] | None]
    forgetting: dict[str, Similarity | None]
    n_test: list[Count]  # number of test examples of each task
    n_fallback: list[Number]  # after each task: examples without a learned listed relation
    seconds: dict[str, list[Weight]]  # "learn" and "predict", per task
    peak_memory_mb: Weight  # of the process, until the end of this run
    versions: dict[str, str]
    # protocol -> relation -> right predictions for its test examples, after its own task and each later one
    relation_right: dict[str, dict[str, list[Number]]] = field(default_factory=dict)
    relation_tests: dict[str, Count] = field(default_factory=dict)  # number of test examples of each relation
    notes: dict[str, Any] = field(default_factory=dict)  # of the method, for example on augmentation
    packed: dict[str, str] = field(default_factory=dict)  # `pack_predictions`; {} in older records
    seen: list[str] = field(default_factory=list)  # relations that the encoder's training read labels of
    uses_names: bool | None = None  # whether the method reads relation names; None in older records
    protocols: dict[str, str] = field(default_factory=lambda: dict(RULES))
    schema: Literal[1] = 1

    @property
    def n_tasks(self) -> int:
        """Number of tasks of the stream."""
        return len(self.order)

    @property
    def digest(self) -> str:
        """Fingerprint of the stream; only runs with the same one may be paired."""
        return str(self.manifest.get("digest", ""))

    def after(self, measure: str, protocol: str, k: int) -> float | None:
        """`accuracy`, `macro` or `chance` after task `k` (-1: the last); None if the protocol was not measured."""
        values = getattr(self, measure)[protocol]
        return None if values is None else values[k]


def measured(marks: Sequence[Marks], n_test: Sequence[int]) -> dict[str, Any]:
    """Measured fields of a record. `marks[k]` marks the tests of tasks 0..k, `n_test[j]` of them of task j.

    `accuracy` counts right predictions over all examples, `macro` is the mean of the accuracies on each task, `chance`
    the expected accuracy of guessing among gold and rivals.
    """
    by_protocol = ("accuracy", "macro", "chance", "matrix", "forgetting")
    ends = np.cumsum(n_test)
    found: dict[str, Any] = {name: dict.fromkeys(PROTOCOLS) for name in by_protocol}
    for protocol in marks[-1].right:
        right = [one.right[protocol] for one in marks]
        matrix = [[float(part.mean()) for part in np.split(one, ends[:k])] for k, one in enumerate(right)]
        found["accuracy"][protocol] = [float(one.mean()) for one in right]
        found["macro"][protocol] = [float(np.mean(row)) for row in matrix]
        found["chance"][protocol] = [float(one.guess[protocol].mean()) for one in marks]
        found["matrix"][protocol] = matrix
        found["forgetting"][protocol] = forgetting(matrix)
    n_fallback = [int(one.fallback.sum()) for one in marks]
    return {**found, "n_test": list(n_test), "n_fallback": n_fallback}


def relation_counts(gold: Sequence[str], marks: Sequence[Marks], order: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Fields of a record that count right predictions per relation: `relation_right` and `relation_tests`.

    `gold` holds the gold relations of all test examples, task by task; `marks[k]` marks those of tasks 0..k.
    """
    names = np.array(gold)
    right: dict[str, dict[str, list[int]]] = {protocol: {} for protocol in marks[-1].right}
    tests: dict[str, int] = {}
    for j, relations in enumerate(order):
        for relation in relations:
            rows = np.flatnonzero(names == relation)
            if len(rows):
                tests[relation] = len(rows)
                for protocol, counts in right.items():
                    counts[relation] = [int(after.right[protocol][rows].sum()) for after in marks[j:]]
    return {"relation_right": right, "relation_tests": tests}


# -- packed predictions ------------------------------------------------------------------------------------------------


def pack_predictions(
    gold: Sequence[str], marks: Marks, relations: Sequence[str], order: Sequence[Sequence[str]]
) -> dict[str, str]:
    """Pack gold relations ("gold") and winners after the last task (by protocol), one number per test example.

    A number indexes the relations of `order`, task by task; the largest one is a tie with the gold relation, a miss.
    It takes a byte, or two in streams of more than 255 relations.
    """
    index = {name: i for i, name in enumerate(name for task in order for name in task)}
    kind, tie = _packed_type(len(index))
    number_of = np.array([*(index[name] for name in relations), tie], dtype=kind)  # [-1] is a tie
    rows = {"gold": np.array([index[name] for name in gold], dtype=kind)}
    rows |= {protocol: number_of[winner] for protocol, winner in marks.winner.items()}
    return {name: b64encode(zlib.compress(row.tobytes(), 9)).decode() for name, row in rows.items()}


def unpack_predictions(record: Record) -> dict[str, np.ndarray]:
    """Unpack `record.packed`: "gold" and each protocol -> [n_examples]; {} if the record has none."""
    n_relations = sum(map(len, record.order))
    kind, tie = _packed_type(n_relations)
    size = sum(record.n_test) * np.dtype(kind).itemsize
    found: dict[str, np.ndarray] = {}
    for name, text in record.packed.items():
        try:
            content = zlib.decompressobj().decompress(b64decode(text, validate=True), size + 1)
        except (ValueError, zlib.error):
            raise RecordError(f"{record.title}: its packed predictions ({name}) are damaged.") from None
        if len(content) == size:
            found[name] = np.frombuffer(content, dtype=kind)
        if name not in found or not ((found[name] < n_relations) | ((found[name] == tie) & (name != "gold"))).all():
            raise RecordError(f"{record.title}: its packed predictions ({name}) do not fit its test examples.")
    if found and "gold" not in found:
        raise RecordError(f"{record.title}: its packed predictions lack the gold relations.")
    return found


def _packed_type(n_relations: int) -> tuple[str, int]:
    """Type of packed numbers, little-endian, and the number of a tie."""
    return ("<u1", 255) if n_relations <= 255 else ("<u2", 65_535)


# -- files -------------------------------------------------------------------------------------------------------------


def write_record(folder: Path, record: Record) -> None:
    """Write `record.json`, sealed, so that a bit flip on disk cannot change a table."""
    write_json(folder / RECORD, sealed(record))


def read_record(path: Path) -> Record:
    """Read a record from its file or from the folder of its run, and check its seal."""
    path = path / RECORD if path.is_dir() else path
    return _decode_record(read_bytes(path, error=RecordError), str(path))


def _decode_record(content: bytes, source: str) -> Record:
    return decode_sealed(content, Record, place=source, error=RecordError, remedy="Delete it and run again.")


@dataclass(frozen=True, slots=True)
class Records:
    """All records under a folder, the folder that each was read from, and faults of unreadable ones."""

    directory: Path
    records: tuple[Record, ...]
    folders: tuple[Path, ...]
    faults: tuple[str, ...]


def read_records(path: Path) -> Records:
    """Read every `record.json` under a folder, or the lines of a file of records; report unreadable ones as faults.

    A file `NAME.jsonl` stands for the folder `NAME` that its records come from.
    """
    if not path.exists():
        raise RecordError(f"{path}: there is no such folder. Give the --out folder of `erda run`.")
    directory = path if path.is_dir() else path.with_suffix("")
    records, folders, faults = [], [], []
    for source, read, folder in _sources(path):
        try:
            content = read()
            records.append(_decode_record(content, source))
            folders.append(folder / json.loads(content).get("place", ""))
        except RecordError as error:
            faults.append(str(error))
    lone = [one.parent for one in sorted(path.rglob(MANIFEST)) if not (one.parent / RECORD).is_file()]
    faults += [f"{folder}: has no {RECORD}; repeat the `erda run` that wrote it." for folder in lone]
    if not records:
        hint = "\n" + "\n".join(faults) if faults else " An unfinished run has none; repeat its command."
        raise RecordError(f"{path}: contains no readable {RECORD}.{hint}")
    return Records(directory, tuple(records), tuple(folders), tuple(faults))


def _sources(path: Path) -> Iterator[tuple[str, Callable[[], bytes], Path]]:
    """Yield for each record its name in messages, a function that reads it, and the folder that `place` is below."""
    if path.is_dir():
        for file in sorted(path.rglob(RECORD)):
            yield str(file), partial(read_bytes, file, error=RecordError), file.parent
        return
    for number, line in enumerate(read_bytes(path, error=RecordError).splitlines(), start=1):
        yield f"{path}:{number}", partial(bytes, line), path.with_suffix("")
