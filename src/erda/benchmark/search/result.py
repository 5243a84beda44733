"""Results of a search: a table and `best.toml`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from erda import __version__
from erda.benchmark.experiments import PERCENT
from erda.benchmark.report.table_formats import Table
from erda.benchmark.search.search import STATES, Search, SearchResult, Tried
from erda.benchmark.search.space import as_text as as_setting
from erda.benchmark.statistics import Summary
from erda.files import write_bytes
from erda.methods import METHODS
from erda.settings.runs import RunSettings, Setting, default_settings

BEST = "best.toml"
ALWAYS = ("dataset", "shots", "order_family", "methods", "encoder")  # settings always written to `best.toml`
OPTIONAL = ("device", "corpus", "cache_dir", "cache_gb")  # settings written if they are not the defaults
N_SHOWN = 10


def best_table(asked: Search, found: SearchResult, *, n_shown: int = N_SHOWN) -> Table:
    """Table of the best trials; pruned trials are only counted."""
    ranked = found.ranked()
    names = [choice.name for choice in asked.space]
    rows = [
        (str(one.number), _summary(one), *(as_setting(one.values[name]) for name in names)) for one in ranked[:n_shown]
    ]
    counts = Counter(one.state for one in found.trials)
    notes = [f"Trials: {', '.join(f'{counts[state]} {state}' for state in STATES.values() if counts[state])}."]
    if len(found.trials) == asked.n_grid:
        notes.append("Every choice of values was tried.")
    seeds = ", ".join(map(str, asked.settings.seeds))
    return Table(
        name="best",
        title=f"Best settings of {asked.method}: {asked.protocol} accuracy (%) on validation data, seeds {seeds}",
        columns=("trial", "accuracy", *(name.removeprefix(f"{asked.method}.") for name in names)),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def write_best(asked: Search, found: SearchResult, *, out: Path, command: str) -> bool:
    """Write `best.toml` to `out`; write nothing and return False if no trial is complete."""
    ranked = found.ranked()
    if ranked:
        write_bytes(out / BEST, best_toml(asked, ranked[0], command=command).encode())
    return bool(ranked)


def best_toml(asked: Search, best: Tried, *, command: str) -> str:
    """Settings file for `erda run --config`: the settings of the search with the values of the best trial.

    Seeds and evaluation data are not included, so that it runs all orders on test data.
    """
    settings = asked.with_values(best.values)
    seeds = ", ".join(map(str, settings.seeds))
    changed = [name for name in OPTIONAL if getattr(settings, name) != RunSettings.model_fields[name].default]
    top = {name: getattr(settings, name) for name in (*ALWAYS, *changed)} | settings.stream_settings
    defaults = default_settings(METHODS[asked.method])
    own: dict[str, Setting] = {
        f"{asked.method}.{name}": value
        for name, value in settings.method_settings[asked.method].items()
        if value != defaults[name] or f"{asked.method}.{name}" in best.values
    }
    own |= {f"encoder.{name}": value for name, value in settings.encoder_settings.items()}
    lines = [
        f"# Trial {best.number} of a search on validation data (erda {__version__}), chosen by:",
        *(f"#   {line}" for line in command.splitlines()),
        f"# {asked.protocol} accuracy after the last task, mean over seeds {seeds}: {PERCENT * best.accuracy:.2f} %",
        "",
        *(f"{name} = {_toml(value)}" for name, value in top.items()),
        "",
        "[settings]",
        *(f"{name} = {_toml(value)}" for name, value in own.items()),
    ]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)  # JSON and TOML agree on strings, numbers, booleans and lists


def _summary(one: Tried) -> Summary | None:
    found = Summary.of(one.accuracies)
    return found.scaled(PERCENT) if found else None
