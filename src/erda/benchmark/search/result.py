"""What a search leaves for people: a table, `best.toml`, and figures of its course and of what mattered."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erda import __version__
from erda.benchmark.experiments import PERCENT
from erda.benchmark.report.figures.figure import COLOURS, INK, Figure, Panel, as_text, save_figure, tidy
from erda.benchmark.report.table_formats import Table
from erda.benchmark.search.search import CUT, STATES, Search, SearchResult, Tried
from erda.benchmark.search.space import as_text as as_setting
from erda.benchmark.statistics import Summary
from erda.files import write_bytes
from erda.methods import METHODS
from erda.settings.runs import RunSettings, Setting, default_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BEST = "best.toml"
ALWAYS = ("dataset", "shots", "order_family", "methods", "encoder")  # settings that `best.toml` names in any case
OPTIONAL = ("device", "corpus", "cache_dir", "cache_gb")  # and those it names where they are not the built-in ones
N_SHOWN = 10


def best_table(asked: Search, found: SearchResult, *, n_shown: int = N_SHOWN) -> Table:
    """The best trials, the best first; a trial that was cut short by the pruner is only counted."""
    ranked = found.ranked()
    names = [choice.name for choice in asked.space]
    rows = [
        (str(one.number), _summary(one), *(as_setting(one.values[name]) for name in names)) for one in ranked[:n_shown]
    ]
    counts = Counter(one.state for one in found.tried)
    notes = [f"Trials: {', '.join(f'{counts[state]} {state}' for state in STATES.values() if counts[state])}."]
    if len(found.tried) == asked.n_grid:
        notes.append("Every choice of values was tried.")
    if found.importance:
        shares = ", ".join(f"{_short(name, asked)} {share:.0%}" for name, share in found.importance.items())
        notes.append(f"Share of the variance that each setting explains: {shares}.")
    seeds = ", ".join(map(str, asked.settings.seeds))
    return Table(
        name="best",
        title=f"Best settings of {asked.method}: {asked.protocol} accuracy (%) on validation data, seeds {seeds}",
        columns=("trial", "accuracy", *(_short(name, asked) for name in names)),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def write_search(asked: Search, found: SearchResult, *, out: Path, command: str) -> list[Path]:
    """Write `best.toml` and the figures into `out`; nothing where no trial was finished."""
    ranked = found.ranked()
    if not ranked:
        return []
    write_bytes(out / BEST, best_toml(asked, ranked[0], command=command).encode())
    paths = [out / BEST, *save_figure(history_figure(asked, found), out)]
    if found.importance:
        paths += save_figure(importance_figure(asked, found), out)
    return paths


def best_toml(asked: Search, best: Tried, *, command: str) -> str:
    """A settings file for `erda run --config`: what was searched in, with the values of the best trial.

    It names neither seeds nor the pool to evaluate on, so that it runs all orders on test data.
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
    return json.dumps(value, ensure_ascii=False)  # of text, numbers, truth values and lists TOML writes the same


def _summary(one: Tried) -> Summary | None:
    found = Summary.of(one.accuracies)
    return found.scaled(PERCENT) if found else None


def _short(name: str, asked: Search) -> str:
    return name.removeprefix(f"{asked.method}.")


# -- figures -----------------------------------------------------------------------------------------------------------


def history_figure(asked: Search, found: SearchResult) -> Figure:
    """Accuracy of every trial in the order in which they were begun, and the best so far."""
    best = found.ranked()[0]
    return Figure(
        name="history",
        title=f"Search for settings of {asked.method}",
        alt=f"{len(found.tried)} trials; the best, trial {best.number}, reached {PERCENT * best.accuracy:.1f} %.",
        caption="Mean over the streams, validation data. A trial that was cut short shows the streams it was run on.",
        panels=(Panel(partial(_draw_history, asked, found), width=6.0),),
    )


def _draw_history(asked: Search, found: SearchResult, axes: Axes) -> None:
    measured = [one for one in found.tried if one.accuracies]
    whole = [one for one in measured if one.is_whole]
    cut = [one for one in measured if not one.is_whole]
    for trials, label, colour in ((whole, "trial", COLOURS[0]), (cut, CUT, COLOURS[4])):
        if trials:
            reached = [PERCENT * one.accuracy for one in trials]
            axes.plot([one.number for one in trials], reached, "o", markersize=4, label=label, color=colour)
    best = [PERCENT * value for value in accumulate((one.accuracy for one in whole), max)]
    axes.step([one.number for one in whole], best, where="post", color=INK, linewidth=1.2, label="best so far")
    axes.set_xlabel("trial")
    axes.set_ylabel(f"{asked.protocol} accuracy (%)")
    axes.locator_params(axis="x", integer=True)
    tidy(axes)


def importance_figure(asked: Search, found: SearchResult) -> Figure:
    """How much of the variance between trials each setting explains."""
    shares = {_short(name, asked): PERCENT * share for name, share in found.importance.items()}
    return Figure(
        name="importance",
        title=f"What mattered to {asked.method}",
        alt="; ".join(f"{name}: {share:.0f} %" for name, share in shares.items()),
        caption="Share of the variance of accuracy between whole trials that each setting explains (fANOVA).",
        panels=(Panel(partial(_draw_importance, shares), width=6.0, height=1.2 + 0.3 * len(shares)),),
    )


def _draw_importance(shares: dict[str, float], axes: Axes) -> None:
    names = list(reversed(shares))
    axes.barh(range(len(names)), [shares[name] for name in names], color=COLOURS[0], height=0.6)
    axes.set_yticks(range(len(names)), [as_text(name) for name in names])
    axes.set_xlabel("share of the variance (%)")
    tidy(axes, grid="x")
