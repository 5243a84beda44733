"""Vectors of test examples before and after a task, for the paper's t-SNE figure: `embeddings.npz` beside a record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from erda.benchmark.records import write_arrays
from erda.benchmark.report.figures.tsne import EMBEDDINGS
from erda.benchmark.run.loop import run_directory
from erda.data.streams import TaskStream
from erda.errors import StreamError
from erda.methods.base import Method
from erda.settings.build import build_run_method, open_run_stream
from erda.settings.runs import Run

N_BASE, N_NEW = 4, 2  # relations of the first task and of the second, as in the paper


def keep_embeddings(run: Run, folder: Path) -> Path:
    """Learn the first two tasks of a run again and write the vectors of some relations' test examples.

    The relations are drawn by the run's seed. What is there already is kept.
    """
    path = run_directory(folder, run) / EMBEDDINGS
    if path.exists():
        return path
    stream = open_run_stream(run)
    tasks = [task for task in stream if task.index < 2]
    if len(tasks) < 2:
        raise StreamError("t-SNE before and after a task needs a stream of two tasks or more.")
    rng = np.random.default_rng(run.seed)
    base, new = (
        sorted(rng.choice([relation.id for relation in task.relations], min(n, len(task.relations)), replace=False))
        for task, n in zip(tasks, (N_BASE, N_NEW), strict=True)
    )
    method = build_run_method(run)
    method.learn(tasks[0])
    before = _vectors(method, stream, [(0, base)])
    method.learn(tasks[1])
    after = _vectors(method, stream, [(0, base), (1, new)])
    arrays = {
        "vectors_before": before[0],
        "relations_before": before[1],
        "vectors_after": after[0],
        "relations_after": after[1],
        "base": np.array(base, dtype=np.str_),
        "new": np.array(new, dtype=np.str_),
    }
    write_arrays(path, arrays)
    return path


def _vectors(
    method: Method, stream: TaskStream, wanted: Sequence[tuple[int, Sequence[str]]]
) -> tuple[np.ndarray, np.ndarray]:
    """Vectors [n, dim] and relations [n] of the test examples of some relations of some tasks."""
    from erda.encoders.base import embed

    examples, relations = [], []
    for task, names in wanted:
        test = stream.test(task)
        for example, gold in zip(test.examples, test.gold, strict=True):
            if gold in names:
                examples.append(example)
                relations.append(gold)
    vectors = embed(method.encoder, examples).float().cpu().numpy()
    return vectors, np.array(relations, dtype=np.str_)
