"""The benchmark loop: for each task call `learn`, then `predict` the tests of all tasks so far; write a record.

A finished run is not repeated: its record is read. An interrupted run resumes after its last learned task. A method
seeds its random numbers per task, so a resumed run and an uninterrupted one write the same record except for times.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from tqdm import tqdm

from erda.benchmark.experiments import reject_mixing
from erda.benchmark.metrics import measure
from erda.benchmark.records import (
    PREDICTIONS,
    RECORD,
    Record,
    measured,
    pack_predictions,
    read_record,
    relation_counts,
    write_predictions,
    write_record,
)
from erda.benchmark.run.machine import peak_memory_mb, versions, wait_for_device
from erda.benchmark.run.progress import Progress, discard_leftovers, run_lock
from erda.benchmark.run.stream_tests import StreamTests, task_arrays
from erda.errors import memory_faults_explained, one_line
from erda.files import sha256_of, write_json
from erda.settings.runs import Run

if TYPE_CHECKING:
    from erda.data.streams import TaskStream
    from erda.methods.base import Method

MANIFEST = "manifest.json"
OUT_OF_MEMORY = (
    "{title}: out of memory on {device}. Earlier tasks are saved; repeat the command with more memory or fewer --jobs, "
    "or use a smaller encoder and another --out."
)


@dataclass(frozen=True, slots=True)
class Parts:
    """Factories of the parts of a run; each is called only when needed."""

    stream: Callable[[], TaskStream]
    build: Callable[[], Method]
    restore: Callable[[Path], Method]  # from the folder written by `method.save`


def run_directory(out: Path, asked: Run) -> Path:
    """Folder of a run: `OUT/METHOD/SEED`."""
    return out / asked.method / str(asked.seed)


def run(asked: Run, parts: Parts, *, out: Path, keep_method: bool = False, bar: int | None = 0) -> Record:
    """Run one method on one stream: start, resume an interrupted run, or read the record of a finished run.

    `keep_method` saves the learned method in `OUT/METHOD/SEED/method`. `bar` is the terminal line of the progress bar:
    the bar on line 0 stays when full, bars on other lines disappear, None shows no bar.
    """
    directory = run_directory(out, asked)
    if (directory / RECORD).exists():
        record = read_record(directory)
        reject_mixing(directory, then=record, now=asked)
        discard_leftovers(directory)
        return record
    with run_lock(directory):
        stream = parts.stream()
        evaluation = StreamTests(stream, asked.evaluate_on)
        progress = Progress.open(directory, asked, stream.manifest.digest)
        method = parts.restore(progress.method_folder) if progress.n_done else parts.build()
        with (
            TaskBar(asked.title, len(stream), progress.n_done, line=bar) as shown,
            memory_faults_explained(OUT_OF_MEMORY.format(title=asked.title, device=asked.device)),
            _threads(method.encoder.n_threads),
        ):
            for task in stream:
                if task.index < progress.n_done:
                    continue
                start = perf_counter()
                method.learn(task)
                wait_for_device(asked.device)
                learned = perf_counter()
                predictions = method.predict(evaluation.examples(task.index))
                predicted = perf_counter()
                marks = evaluation.mark(predictions, task.index)
                measures = measure(marks)
                progress.add(
                    method,
                    measures=measures,
                    arrays=task_arrays(predictions, marks),
                    learn_seconds=learned - start,
                    predict_seconds=predicted - learned,
                    peak_memory_mb=peak_memory_mb(),
                )
                shown.add(measures.accuracy, seconds=predicted - start)
        return _finish(directory, stream, evaluation, progress, method, keep_method=keep_method)


def _threads(n: int | None) -> AbstractContextManager[None]:
    """Set the number of PyTorch threads if the encoder requests one; other encoders need no PyTorch."""
    if n is None:
        return nullcontext()
    from erda.learning.gradient_loop import threads

    return threads(n)


def _finish(
    directory: Path,
    stream: TaskStream,
    evaluation: StreamTests,
    progress: Progress,
    method: Method,
    *,
    keep_method: bool,
) -> Record:
    """Write predictions, manifest and, last, the record; then discard the progress."""
    spec, learned = method.encoder.spec, progress.learned
    order = [[relation.id for relation in task.relations] for task in stream]
    predictions = evaluation.test_predictions(progress.arrays())
    write_predictions(directory, predictions)
    record = Record(
        **{field.name: getattr(learned.asked, field.name) for field in fields(Run)},
        order=order,
        relation_names={relation.id: relation.name for relation in stream.relations},
        manifest=stream.manifest.summary(),
        encoder_spec={"name": spec.name, "settings": dict(spec.settings), "fingerprint": spec.fingerprint},
        **measured(learned.measures),
        seconds={"learn": list(learned.learn_seconds), "predict": list(learned.predict_seconds)},
        peak_memory_mb=learned.peak_memory_mb,
        versions=versions(),
        **relation_counts(predictions),
        notes=learned.notes,
        predictions_sha256=sha256_of(directory / PREDICTIONS),
        packed=pack_predictions(predictions, order),
    )
    write_json(directory / MANIFEST, stream.manifest.to_json())
    if keep_method:
        method.save(directory / "method")
    write_record(directory, record)
    progress.discard()
    return record


class TaskBar:
    """Progress of a run on stderr: a bar on a terminal, otherwise (nohup, CI) one line per learned task."""

    def __init__(self, title: str, n_tasks: int, n_done: int, *, line: int | None) -> None:
        self.title, self.n_tasks, self.n_done = title, n_tasks, n_done
        self.bar = tqdm(
            desc=one_line(title),
            total=n_tasks,
            initial=n_done,
            unit="task",
            position=line,
            leave=not line,
            disable=True if line is None else None,  # None: tqdm hides the bar without a terminal
        )
        self.prints = line is not None and self.bar.disable

    def __enter__(self) -> TaskBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def add(self, accuracy: dict[str, float], *, seconds: float) -> None:
        """Count one more learned and measured task."""
        self.n_done += 1
        shown = {name: f"{100 * value:.1f}%" for name, value in accuracy.items()}
        self.bar.set_postfix(shown)
        self.bar.update()
        if self.prints:
            accuracies = ", ".join(f"{name} {value}" for name, value in shown.items())
            line = f"{self.title}: task {self.n_done} of {self.n_tasks} in {seconds:.1f} s, {accuracies}"
            print(one_line(line), file=sys.stderr, flush=True)
