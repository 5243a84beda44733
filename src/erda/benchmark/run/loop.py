"""The loop of the README plus a record: for each task of a stream `learn`, then `predict` the tests of all tasks seen.

A finished run is read, not repeated; one that was cut short goes on after its last learned task. A method draws its
random numbers task by task, so a resumed run leaves the same record as one in a single piece (but for the seconds).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from erda.benchmark.metrics import Marks, measure
from erda.benchmark.records import (
    PREDICTIONS,
    RECORD,
    Outcomes,
    Record,
    WriteError,
    half_precision,
    measured,
    read_record,
    write_json,
    write_outcomes,
    write_record,
    write_whole,
)
from erda.benchmark.run.engines import Outcome, run_here, run_in_processes
from erda.benchmark.run.machine import memory_faults_explained, peak_memory_mb, versions, wait_for_device
from erda.benchmark.run.progress import (
    Progress,
    check_same_experiment,
    discard_begun,
    locked,
    refuse_begun,
    refuse_mixing,
)
from erda.benchmark.run.questions import Questions
from erda.errors import ErdaError, SettingsError, unknown_name
from erda.methods.base import threads
from erda.settings.build import build_run_method, open_cache, open_run_stream, restore_run_method
from erda.settings.runs import Run, RunSettings
from erda.types import Predictions

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
        refuse_mixing(directory, then=asdict(record), now=asdict(asked))
        return record
    with locked(directory):
        stream = parts.stream()
        questions = Questions(stream, asked.evaluate_on)
        progress = Progress.open(directory, asked, stream.manifest.digest)
        method = parts.restore(progress.method_directory) if progress.n_done else parts.build()
        progress_bar = tqdm(
            desc=asked.title,
            total=len(stream),
            initial=progress.n_done,
            unit="task",
            position=bar,
            leave=not bar,
            disable=True if bar is None else None,  # None: tqdm hides the bar where there is no terminal
        )
        with progress_bar, memory_faults_explained(asked), threads(method.encoder.n_threads):
            for task in stream:
                if task.index < progress.n_done:
                    continue
                start = perf_counter()
                method.learn(task)
                wait_for_device(asked.device)
                learned = perf_counter()
                predictions = method.predict(questions.until(task.index))
                predicted = perf_counter()
                marks = questions.mark(predictions, task.index)
                progress.add(
                    method,
                    step=measure(marks),
                    arrays=_step_arrays(predictions, marks),
                    seconds=(learned - start, predicted - learned),
                    peak_memory_mb=peak_memory_mb(),
                )
                accuracy = progress.steps[-1].accuracy
                progress_bar.set_postfix({name: f"{100 * value:.1f}%" for name, value in accuracy.items()})
                progress_bar.update()
        return _finish(directory, stream, questions, progress, method, keep_method=keep_method)


def _step_arrays(predictions: Predictions, marks: list[Marks]) -> dict[str, np.ndarray]:
    """What is kept of one step for every question asked; `best` points into `relations`."""
    protocols = [name for name in marks[0].right if all(name in one.right for one in marks)]
    return {
        "relations": np.array(predictions.relations, dtype=np.str_),
        "best": predictions.scores.argmax(axis=1).astype(np.int32),
        "scores": half_precision(predictions.scores),
        **{f"right_{name}": np.concatenate([one.right[name] for one in marks]) for name in protocols},
    }


# -- the end of a run --------------------------------------------------------------------------------------------------


def _finish(
    directory: Path, stream: TaskStream, questions: Questions, progress: Progress, method: Method, *, keep_method: bool
) -> Record:
    """Write predictions, manifest and, last of all, the record; then the progress is not needed any more."""
    spec = method.encoder.spec
    asked = progress.asked
    record = Record(
        **{one.name: getattr(asked, one.name) for one in fields(Run)},
        order=[[relation.id for relation in task.relations] for task in stream],
        relation_names={relation.id: relation.name for relation in stream.relations},
        manifest=stream.manifest.summary(),
        encoder_spec={"name": spec.name, "settings": dict(spec.settings), "fingerprint": spec.fingerprint},
        **measured(progress.steps),
        seconds={"learn": progress.learn_seconds, "predict": progress.predict_seconds},
        peak_memory_mb=progress.peak_memory_mb,
        versions=versions(),
        notes=progress.notes,
    )
    write_outcomes(directory / PREDICTIONS, _outcomes(questions, progress))
    write_json(directory / MANIFEST, stream.manifest.to_json())
    if keep_method:
        method.save(directory / "method")
    write_record(directory, record)
    progress.discard()
    return record


def _outcomes(questions: Questions, progress: Progress) -> Outcomes:
    steps = [progress.arrays(k + 1) for k in range(progress.n_done)]
    last = steps[-1]
    relations: list[str] = last["relations"].tolist()
    column = {name: i for i, name in enumerate(relations)}
    n_examples = len(last["best"])
    best = np.full((len(steps), n_examples), -1, dtype=np.int32)
    right = {
        name.removeprefix("right_"): np.zeros(best.shape, dtype=bool) for name in last if name.startswith("right_")
    }
    for k, step in enumerate(steps):
        n_asked = len(step["best"])
        best[k, :n_asked] = np.array([column[name] for name in step["relations"].tolist()])[step["best"]]
        for protocol, rows in right.items():
            rows[k, :n_asked] = step[f"right_{protocol}"]
    return Outcomes(
        relations=tuple(relations),
        examples=tuple(example.id for test in questions.tests for example in test.examples),
        task=np.repeat(np.arange(len(questions.tests)), [len(test.examples) for test in questions.tests]),
        gold=np.array([column[name] for test in questions.tests for name in test.gold]),
        best=best,
        right=right,
        scores=last["scores"],
    )


# -- several methods, several streams ----------------------------------------------------------------------------------

RunAt = tuple[Run, Path]  # a run and the folder that its own folder METHOD/SEED goes into
ENGINES = ("local", "ray")
MOST_SENT = 512  # runs under way on a cluster; a process may have 1,024 open files where nobody raised that


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of all runs: their records in the order asked, how many were there already, what failed and why."""

    records: tuple[Record, ...]
    n_found: int
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Work:
    asked: Run
    out: Path
    keep_method: bool
    first_bar: int | None  # the line of the first bar; None shows none
    cache: tuple[str, float]  # folder ("": in memory) and size in gigabytes

    @property
    def directory(self) -> Path:
        return run_directory(self.out, self.asked)


def run_all(
    settings: RunSettings,
    *,
    out: Path,
    n_processes: int | None = None,
    engine: str = "local",
    address: str | None = None,
    keep_methods: bool = False,
    show_bars: bool = True,
) -> Finished:
    """Run every method on every stream; what is finished is read, what fails is reported and the rest goes on."""
    asked = settings.runs()
    for one in {run.method: run for run in asked}.values():
        check_same_experiment(out, one)
    return run_many(
        [(one, out) for one in asked],
        cache=(settings.cache_dir, settings.cache_gb),
        n_processes=n_processes,
        engine=engine,
        address=address,
        keep_methods=keep_methods,
        show_bars=show_bars,
    )


def run_many(
    runs: Sequence[RunAt],
    *,
    cache: tuple[str, float],
    n_processes: int | None = None,
    engine: str = "local",
    address: str | None = None,
    keep_methods: bool = False,
    show_bars: bool = True,
    on_outcome: Callable[[Outcome[RunAt, Record]], None] | None = None,
) -> Finished:
    """Runs, each into a folder of its own choice; `on_outcome` is told of each as it ends.

    `cache` is the folder ("": in memory) and the size in gigabytes of what frozen layers compute. `n_processes` are at
    work at once (None: one here, as many as there is room for on Ray). `address` is that of a Ray cluster.
    """
    if engine not in ENGINES:
        raise SettingsError(unknown_name("engine", engine, ENGINES))
    there = {run_directory(out, one) for one, out in runs if (run_directory(out, one) / RECORD).exists()}
    n_here = n_processes or 1
    several = engine == "local" and n_here > 1
    shared = _common_folder(out for _, out in runs) / ".frozen" if several and runs and not cache[0] else None
    if shared:
        cache = (str(shared), cache[1])  # processes meet in a folder
    first_bar = None if not show_bars or engine == "ray" else int(several)
    works = [_Work(one, out, keep_methods, first_bar, cache) for one, out in runs]
    outcomes: Iterable[Outcome[_Work, Record]]
    if engine == "ray":
        outcomes = _run_far(works, address=address, n_at_once=n_processes)
    elif several:
        prepare = partial(prepare_process, n_here, get_context("spawn").RLock())
        outcomes = run_in_processes(_run_one, works, n_processes=n_here, prepare=prepare)
    else:
        outcomes = run_here(_run_one, works)
    if several or engine == "ray":
        outcomes = tqdm(outcomes, total=len(works), unit="run", position=0, disable=None if show_bars else True)
    records: dict[Path, Record] = {}
    faults = []
    try:
        for outcome in outcomes:
            if outcome.result is not None:
                records[outcome.work.directory] = outcome.result
            else:
                faults.append(f"{outcome.work.asked.title}: {outcome.fault}")
            if on_outcome is not None:
                on_outcome(Outcome((outcome.work.asked, outcome.work.out), outcome.result, outcome.fault))
    finally:
        if shared:
            shutil.rmtree(shared, ignore_errors=True)
    order = [work.directory for work in works]
    found = tuple(records[one] for one in order if one in records)
    return Finished(found, len(there & records.keys()), tuple(faults))


def _common_folder(folders: Iterable[Path]) -> Path:
    return Path(os.path.commonpath([folder.absolute() for folder in folders]))


def _run_one(work: _Work, slot: int) -> Record:
    asked = work.asked
    parts = Parts(
        stream=lambda: open_run_stream(asked),
        build=lambda: build_run_method(asked, cache=open_cache(*work.cache)),
        restore=lambda directory: restore_run_method(asked, directory, cache=open_cache(*work.cache)),
    )
    bar = None if work.first_bar is None else work.first_bar + slot
    return run(asked, parts, out=work.out, keep_method=work.keep_method, bar=bar)


def prepare_process(n_processes: int, lock: Any) -> None:
    """Give a process its share of the cores, and let bars be drawn one at a time."""
    import torch

    tqdm.set_lock(lock)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // n_processes))


# -- runs on other machines --------------------------------------------------------------------------------------------


def _run_far(works: Sequence[_Work], *, address: str | None, n_at_once: int | None) -> Iterator[Outcome[_Work, Record]]:
    """Runs on a Ray cluster, whose nodes do not see OUT: their files come home, and are written here.

    Finished runs are read here and not sent. A run that is sent begins at its first task. It is locked from then until
    its files are home, which takes an open file; so no more than `MOST_SENT` are under way at once.
    """
    from erda.benchmark.run.ray_engine import run_on_ray

    finished = {work.directory for work in works if (work.directory / RECORD).exists()}
    yield from run_here(_run_one, [work for work in works if work.directory in finished])
    waiting = [work for work in works if work.directory not in finished]
    n_gpus = int(any(work.asked.device.startswith("cuda") for work in waiting))
    n_at_once = min(n_at_once or MOST_SENT, MOST_SENT)
    kept_here: deque[Outcome[_Work, Record]] = deque()
    locks: dict[Path, ExitStack] = {}
    try:
        sent = _locked_works(waiting, locks, kept_here)
        for outcome in run_on_ray(_run_away, sent, address=address, n_gpus_each=n_gpus, n_at_once=n_at_once):
            with locks.pop(outcome.work.directory):
                files = outcome.result
                record = None if files is None else _bring_home(outcome.work.directory, files)
            yield Outcome(outcome.work, record, outcome.fault)
            while kept_here:
                yield kept_here.popleft()
    finally:
        for lock in locks.values():
            lock.close()
    yield from kept_here


def _locked_works(
    works: Iterable[_Work], locks: dict[Path, ExitStack], kept_here: deque[Outcome[_Work, Record]]
) -> Iterator[_Work]:
    """Runs to send, each locked just before it is handed out; the lock goes to `locks`, by the folder of the run.

    What cannot be sent, and what another process has finished meanwhile, goes to `kept_here`.
    """
    for work in works:
        with ExitStack() as lock:
            try:
                lock.enter_context(locked(work.directory))
                refuse_begun(work.directory, work.asked)
            except WriteError:
                raise
            except ErdaError as fault:
                kept_here.append(Outcome(work, None, fault))
                continue
            if (work.directory / RECORD).exists():
                kept_here.extend(run_here(_run_one, [work]))
                continue
            locks[work.directory] = lock.pop_all()
        yield work


def _run_away(work: _Work, slot: int) -> dict[str, bytes]:
    """Run into a folder that nobody else sees; what `run` leaves there, by relative path."""
    with tempfile.TemporaryDirectory(prefix="erda-") as folder:
        moved = replace(work, out=Path(folder))
        _run_one(moved, slot)
        files = [path for path in moved.directory.rglob("*") if path.is_file()]
        return {path.relative_to(moved.directory).as_posix(): path.read_bytes() for path in files}


def _bring_home(directory: Path, files: Mapping[str, bytes]) -> Record:
    """Write the files of a finished run, its record last of all: what is cut short counts as not finished."""
    for name in sorted(files, key=lambda name: name == RECORD):
        write_whole(directory / name, files[name])
    discard_begun(directory)
    return read_record(directory)
