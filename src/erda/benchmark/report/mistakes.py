"""The most frequent mistakes after the last task, from `predictions.npz`."""

from __future__ import annotations

from collections import Counter

import numpy as np

from erda.benchmark.experiments import PERCENT, Experiment, Line
from erda.benchmark.report.table_formats import Table
from erda.errors import RecordError

N_PAIRS = 10


def mistakes_table(line: Line, experiment: Experiment) -> Table | None:
    """Table of the pairs that a line confuses most often; None without a mistake."""
    mistakes: Counter[tuple[str, str]] = Counter()
    asked: Counter[str] = Counter()
    names: dict[str, str] = {}
    for one in line.found:
        try:
            found = one.predictions()
        except RecordError as fault:
            raise RecordError(f"No mistakes of '{line.label}': {fault}") from None
        relations, answered = np.array(found.relations), found.best[-1] >= 0
        gold, best = relations[found.gold[answered]].tolist(), relations[found.best[-1][answered]].tolist()
        asked.update(gold)
        mistakes.update(pair for pair in zip(gold, best, strict=True) if pair[0] != pair[1])
        names |= one.record.relation_names
    if not mistakes:
        return None
    worst = sorted(mistakes.items(), key=lambda pair: (-pair[1] / asked[pair[0][0]], pair[0]))[:N_PAIRS]
    return Table(
        name="mistakes",
        title=f"Most frequent mistakes of {line.label} after task {experiment.n_tasks}: {experiment.title}",
        columns=("relation", "taken for", "share (%)", "times", "questions"),
        rows=tuple(
            (names.get(gold, gold), names.get(best, best), f"{PERCENT * n / asked[gold]:.1f}", n, asked[gold])
            for (gold, best), n in worst
        ),
        notes=(f"By the best score among all relations, over {len(line.found)} streams together.",),
        text_columns=2,
    )
