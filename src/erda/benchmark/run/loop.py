"""The benchmark loop: for each task call `learn`, then `predict` the tests of all tasks so far; write a record.

A finished run is not repeated: its record is read. An interrupted run starts again; the record is written last.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import fields
from functools import cache
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from erda import __version__
from erda.benchmark.experiments import reject_mixing
from erda.benchmark.measures import Marks, TestAnswers, mark
from erda.benchmark.records import (
    MANIFEST,
    RECORD,
    Record,
    measured,
    pack_predictions,
    read_record,
    relation_counts,
    write_record,
)
from erda.errors import RecordError, StreamError, memory_faults_explained, one_line
from erda.files import locked, remove_left_lock, remove_unfinished, write_json
from erda.settings.runs import Run
from erda.types import TestSet

if TYPE_CHECKING:
    from erda.data.streams import TaskStream
    from erda.encoders.contract import Encoder
    from erda.methods.base import Method

PACKAGES = ("torch", "transformers", "numpy")  # versions in a record
OUT_OF_MEMORY = (
    "{title}: out of memory on {device}. Repeat the command with more memory or fewer --jobs, or use a smaller encoder "
    "and another --out."
)


def run_directory(out: Path, asked: Run) -> Path:
    """Folder of a run: `OUT/METHOD/SEED`."""
    return out / asked.method / str(asked.seed)


def run(
    asked: Run,
    *,
    open_stream: Callable[[], TaskStream],
    build: Callable[[], Method],
    out: Path,
    keep_method: bool = False,
    bar: bool = True,
) -> Record:
    """Run one method on one stream, or read the record of a finished run, which calls neither factory.

    `keep_method` saves the learned method in `OUT/METHOD/SEED/method`; `bar` shows progress on a terminal.
    """
    directory = run_directory(out, asked)
    if (directory / RECORD).exists():
        record = read_record(directory)
        reject_mixing(directory, then=record, now=asked)
        remove_left_lock(directory)
        return record
    with run_lock(directory):
        remove_unfinished(directory)
        stream = open_stream()
        tests = tests_of(stream, asked.evaluate_on)
        answers, gold = TestAnswers.of(*tests), [name for test in tests for name in test.gold]
        method = build()
        seen = seen_relations(stream, method.encoder, allowed=asked.allow_seen)
        marks: list[Marks] = []
        seconds: dict[str, list[float]] = {"learn": [], "predict": []}
        notes: dict[str, Any] = {}
        how: dict[str, Any] = {"unit": "task", "position": 1, "leave": False, "disable": None if bar else True}
        with (
            tqdm(desc=one_line(asked.title), total=len(stream), **how) as shown,
            memory_faults_explained(OUT_OF_MEMORY.format(title=asked.title, device=asked.device)),
            _threads(method.encoder.n_threads),
        ):
            for task in stream:
                questions = [example for test in tests[: task.index + 1] for example in test.examples]
                start = perf_counter()
                method.learn(task)
                wait_for_device(asked.device)
                learned = perf_counter()
                predictions = method.predict(questions)
                predicted = perf_counter()
                marks.append(mark(predictions, answers.first(len(questions))))
                notes = joined_notes(notes, method.notes())
                seconds["learn"].append(learned - start)
                seconds["predict"].append(predicted - learned)
                shown.set_postfix({name: f"{100 * right.mean():.1f}%" for name, right in marks[-1].right.items()})
                shown.update()
        encoder = method.encoder
        order = [[relation.id for relation in task.relations] for task in stream]
        record = Record(
            **{field.name: getattr(asked, field.name) for field in fields(Run)},
            order=order,
            relation_names={relation.id: relation.name for relation in stream.relations},
            manifest=stream.manifest.summary(),
            encoder_spec={
                "name": encoder.spec.name,
                "settings": dict(encoder.spec.settings),
                "fingerprint": encoder.spec.fingerprint,
                "pooled_layers": encoder.pooled_layers,
            },
            **measured(marks, [len(test.examples) for test in tests]),
            seconds=seconds,
            peak_memory_mb=peak_memory_mb(),
            versions=versions(),
            **relation_counts(gold, marks, order),
            notes=notes,
            seen=seen,
            uses_names=getattr(method, "uses_names", None),
            packed=pack_predictions(gold, marks[-1], predictions.relations, order),
        )
        write_json(directory / MANIFEST, stream.manifest.to_json())
        if keep_method:
            method.save(directory / "method")
        write_record(directory, record)
        return record


def seen_relations(stream: TaskStream, encoder: Encoder, *, allowed: bool) -> list[str]:
    """Relations of the stream whose labels the encoder's training read, by Wikidata id; raise unless `allowed`."""
    seen = [relation for relation in stream.relations if relation.id in encoder.trained_on]
    if seen and not allowed:
        named = ", ".join(f"{one.id} ({one.name})" for one in seen[:5])
        named += f" and {len(seen) - 5} more" if len(seen) > 5 else ""
        adapter = encoder.spec.settings.get("adapter")
        raise StreamError(
            f"Encoder '{encoder.spec.name}'{f' ({adapter})' if adapter else ''} was trained with labels of {len(seen)} "
            f"of the {len(stream.relations)} relations of this stream: {named}. Use an encoder that never saw them, "
            "such as minilm with its shipped adapter; or add --allow-seen, which marks the record."
        )
    return [relation.id for relation in seen]


@contextmanager
def run_lock(run_directory: Path) -> Iterator[None]:
    """Lock the folder of a run against other processes; remove the folder if it stays empty."""
    try:
        with locked(run_directory, busy="another process is running it; wait until it ends", error=RecordError):
            yield
    finally:
        with suppress(OSError):
            run_directory.rmdir()
            run_directory.parent.rmdir()


def _threads(n: int | None) -> AbstractContextManager[None]:
    """Set the number of PyTorch threads if the encoder requests one; other encoders need no PyTorch."""
    if n is None:
        return nullcontext()
    from erda.learning.gradient_loop import threads

    return threads(n)


def joined_notes(notes: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Join the notes of all tasks: concatenate lists, keep the latest of all other values."""
    lists = {name: [*notes.get(name, []), *value] for name, value in more.items() if isinstance(value, list)}
    return {**notes, **more, **lists}


def tests_of(stream: TaskStream, evaluate_on: str) -> list[TestSet]:
    """The test or validation examples of each task; a task without any raises."""
    tests_of_task = stream.validation if evaluate_on == "validation" else stream.test
    tests = [tests_of_task(k) for k in range(len(stream))]
    if empty := [str(k + 1) for k, test in enumerate(tests) if not test.examples]:
        raise StreamError(f"Stream '{stream.name}' has no {evaluate_on} examples for task {', '.join(empty)}.")
    return tests


# -- the machine -------------------------------------------------------------------------------------------------------


def peak_memory_mb() -> float:
    """Peak memory of this process in MB, without GPU memory."""
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)


def versions() -> dict[str, str]:
    """Versions of Python, erda, its commit and the packages that affect results."""
    machine = f"{platform.system()} {platform.machine()}"
    found = {"python": platform.python_version(), "machine": machine, "erda": __version__, "commit": commit()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


@cache
def commit() -> str:
    """Commit of the checkout that erda runs from, with "+" if files differ from it; "" outside a checkout.

    `ERDA_COMMIT` names it where the checkout has no history, for example in a container.
    """
    if "ERDA_COMMIT" in os.environ:
        return os.environ["ERDA_COMMIT"]
    folder = Path(__file__).resolve().parent
    if not (folder.parents[3] / ".git").exists():
        return ""
    git = ["git", "-C", str(folder), "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(git, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def wait_for_device(device: str) -> None:
    """Synchronize a GPU, so that its time is charged to the right step."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize(device)
