"""The loop of docs/architecture.md plus a record: for each task `learn`, then `predict` the tests of all tasks seen.

A finished run is read, not repeated; one that was cut short goes on after its last learned task. A method draws its
random numbers task by task, so a resumed run leaves the same record as one in a single piece (but for the seconds).
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

from erda.benchmark.experiments import refuse_mixing
from erda.benchmark.metrics import measure
from erda.benchmark.records import RECORD, Record, measured, read_record, write_predictions, write_record
from erda.benchmark.run.machine import memory_faults_explained, peak_memory_mb, versions, wait_for_device
from erda.benchmark.run.progress import Progress, run_lock
from erda.benchmark.run.stream_tests import StreamTests, task_arrays
from erda.files import write_json
from erda.settings.runs import Run

if TYPE_CHECKING:
    from erda.data.streams import TaskStream
    from erda.methods.base import Method

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Parts:
    """How the parts of a run come to be; each is called only when it is needed."""

    stream: Callable[[], TaskStream]
    build: Callable[[], Method]
    restore: Callable[[Path], Method]  # from the folder that `method.save` wrote


def run_directory(out: Path, asked: Run) -> Path:
    """`OUT/METHOD/SEED`."""
    return out / asked.method / str(asked.seed)


def run(asked: Run, parts: Parts, *, out: Path, keep_method: bool = False, bar: int | None = 0) -> Record:
    """Run one method on one stream: begin, go on where it was cut short, or read the record where it is finished.

    `keep_method` leaves the learned method in `OUT/METHOD/SEED/method`. `bar` is the line of the progress bar on the
    terminal: 0 stays when it is full, others make room for the next, None shows nothing.
    """
    directory = run_directory(out, asked)
    if (directory / RECORD).exists():
        record = read_record(directory)
        refuse_mixing(directory, then=record, now=asked)
        return record
    with run_lock(directory):
        stream = parts.stream()
        evaluation = StreamTests(stream, asked.evaluate_on)
        progress = Progress.open(directory, asked, stream.manifest.digest)
        method = parts.restore(progress.method_folder) if progress.n_done else parts.build()
        with (
            TaskBar(asked.title, len(stream), progress.n_done, line=bar) as shown,
            memory_faults_explained(asked),
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
    """Set the number of PyTorch threads for an encoder that asks for one; other encoders need no PyTorch."""
    if n is None:
        return nullcontext()
    from erda.learning.loop import threads

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
    """Write predictions, manifest and, last of all, the record; then the progress is not needed any more."""
    spec, learned = method.encoder.spec, progress.learned
    record = Record(
        **{one.name: getattr(learned.asked, one.name) for one in fields(Run)},
        order=[[relation.id for relation in task.relations] for task in stream],
        relation_names={relation.id: relation.name for relation in stream.relations},
        manifest=stream.manifest.summary(),
        encoder_spec={"name": spec.name, "settings": dict(spec.settings), "fingerprint": spec.fingerprint},
        **measured(learned.measures),
        seconds={"learn": list(learned.learn_seconds), "predict": list(learned.predict_seconds)},
        peak_memory_mb=learned.peak_memory_mb,
        versions=versions(),
        notes=learned.notes,
    )
    write_predictions(directory, evaluation.test_predictions(progress.arrays()))
    write_json(directory / MANIFEST, stream.manifest.to_json())
    if keep_method:
        method.save(directory / "method")
    write_record(directory, record)
    progress.discard()
    return record


class TaskBar:
    """How far a run is, on stderr: a bar on a terminal, elsewhere (nohup, CI) a line for each task that is learned."""

    def __init__(self, title: str, n_tasks: int, n_done: int, *, line: int | None) -> None:
        self.title, self.n_tasks, self.n_done = title, n_tasks, n_done
        self.bar = tqdm(
            desc=title,
            total=n_tasks,
            initial=n_done,
            unit="task",
            position=line,
            leave=not line,
            disable=True if line is None else None,  # None: tqdm hides the bar where there is no terminal
        )
        self.prints = line is not None and self.bar.disable

    def __enter__(self) -> TaskBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def add(self, accuracy: dict[str, float], *, seconds: float) -> None:
        """One more task is learned and measured."""
        self.n_done += 1
        reached = {name: f"{100 * value:.1f}%" for name, value in accuracy.items()}
        self.bar.set_postfix(reached)
        self.bar.update()
        if self.prints:
            said = ", ".join(f"{name} {value}" for name, value in reached.items())
            line = f"{self.title}: task {self.n_done} of {self.n_tasks} in {seconds:.1f} s, {said}"
            print(line, file=sys.stderr, flush=True)
