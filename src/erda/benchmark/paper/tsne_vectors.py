"""Vectors of test examples before and after a task, for the t-SNE figure: `embeddings.npz` beside a record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from erda.benchmark.report.figures.tsne import EMBEDDINGS
from erda.benchmark.run.planned_runs import PlannedRun
from erda.data.streams import TaskStream
from erda.errors import StreamError
from erda.files import write_arrays
from erda.methods.base import Method
from erda.settings.build import build_run_method, open_run_stream

N_BASE, N_NEW = 4, 2  # relations of the first task and of the second, as in the paper


def keep_vectors(planned: PlannedRun) -> Path:
    """Repeat two tasks and write vectors of test examples of relations drawn by the seed, unless they exist."""
    path, run = planned.folder / EMBEDDINGS, planned.asked
    if path.exists():
        return path
    stream = open_run_stream(run)
    tasks = [task for task in stream if task.index < 2]
    if len(tasks) < 2:
        raise StreamError("t-SNE before and after a task needs a stream of two tasks or more.")
    rng = np.random.default_rng(run.seed)
    drawn = [
        sorted(rng.choice([relation.id for relation in task.relations], min(n, len(task.relations)), replace=False))
        for task, n in zip(tasks, (N_BASE, N_NEW), strict=True)
    ]
    arrays = {name: np.array(own, dtype=np.str_) for name, own in zip(("base", "new"), drawn, strict=True)}
    method = build_run_method(run)
    for task, time in zip(tasks, ("before", "after"), strict=True):
        method.learn(task)
        arrays |= _vectors(method, stream, drawn[: task.index + 1], time)
    write_arrays(path, arrays)
    return path


def _vectors(method: Method, stream: TaskStream, drawn: Sequence[Sequence[str]], time: str) -> dict[str, np.ndarray]:
    """Vectors [n, dim] and relations [n] of the test examples of the sampled relations."""
    examples, relations = [], []
    for task, names in enumerate(drawn):
        test = stream.test(task)
        for example, gold in zip(test.examples, test.gold, strict=True):
            if gold in names:
                examples.append(example)
                relations.append(gold)
    vectors = method.encoder.embed(examples)
    return {f"vectors_{time}": vectors, f"relations_{time}": np.array(relations, dtype=np.str_)}
