"""The runs of the paper's tables with what the user changes, checked before the first of them begins.

What the user got wrong is one `SettingsError`. What this machine lacks (licensed data, weights, a corpus for the rows
that learn with one) is left out and said; the rest can be run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from erda.benchmark.paper.paper_tables import PaperRow, PaperTable
from erda.benchmark.run.planned_runs import CacheSettings, PlannedRun
from erda.errors import DataError, ErdaError, ModelError, SettingsError, join_faults, merge_faults
from erda.settings.build import build_run_encoder, open_run_stream
from erda.settings.load import Layer, given_values, layers_of, settings_from
from erda.settings.runs import RUN_KINDS, Run, RunSettings, default_settings

NO_CHANGES: Layer = {}
FIXED = ("methods", "encoder", "order_family", "shots")  # what a table is


@dataclass(frozen=True, slots=True)
class PaperPlan:
    """The runs of some tables, each once, and what was left out and why."""

    runs: tuple[PlannedRun, ...]
    embedded: tuple[PlannedRun, ...]  # those whose vectors are kept as well
    left_out: tuple[str, ...]
    cache: CacheSettings


def plan_runs(tables: Iterable[PaperTable], *, out: Path, changes: Layer = NO_CHANGES, look: bool = True) -> PaperPlan:
    """All runs of the tables, stream by stream, so that methods can be compared early.

    `look` for data and weights here, unless the runs happen elsewhere. Tables whose runs are all finished need neither.
    """
    tables = tuple(tables)
    check_changes(tables, changes)
    runs: dict[Path, PlannedRun] = {}
    embedded: list[PlannedRun] = []
    left_out: list[str] = []
    wrong: list[str] = []
    cache = CacheSettings()
    given = {name: one.value for name, one in changes.items()}
    parts = _Parts(all_seeds="seeds" in given)
    for table in tables:
        own: list[PlannedRun] = []
        for row in table.rows:
            if not row.corpus or given.get("corpus"):
                settings = row_settings(table, row, changes)
                cache = max(cache, CacheSettings.of(settings), key=lambda one: one.gigabytes)
                folder = out / table.folder_on(given.get("dataset")) / row.variant
                own += [PlannedRun(run, folder) for run in settings.runs()]
        without = [row.label for row in table.rows if row.corpus and not given.get("corpus")]
        if without:
            left_out.append(f"{table.name}: rows that learn with a corpus ({', '.join(without)}); give --corpus.")
        fault = parts.fault([one.asked for one in own if not one.is_finished]) if look else None
        if fault is not None:
            (left_out if _is_lacking(fault, changes) else wrong).append(f"{table.name}: {fault}")
            continue
        own.sort(key=lambda one: one.asked.seed)
        for one in own:
            runs.setdefault(one.folder, one)
        embedded += own if table.embeds else []
    if wrong:
        raise SettingsError(join_faults(merge_faults(wrong)))
    return PaperPlan(tuple(runs.values()), tuple(embedded), tuple(merge_faults(left_out)), cache)


def row_settings(table: PaperTable, row: PaperRow, changes: Layer = NO_CHANGES) -> RunSettings:
    """The settings of one row, checked. A setting that the user gives goes to the rows that have it."""
    own = given_values({"methods": row.method, "seeds": table.seeds or None, **table.settings, **row.settings})
    fits = {name: one for name, one in changes.items() if _fits(name, table, (row.method,))}
    if not row.corpus:
        fits.pop("corpus", None)
    return settings_from([*layers_of(table.preset), {**own, **fits}])


# -- what the user gave ------------------------------------------------------------------------------------------------


def check_changes(tables: Sequence[PaperTable], changes: Layer) -> None:
    """Refuse what cannot work in any of the tables or what they say themselves; all faults at once, each once."""
    methods = tuple(dict.fromkeys(row.method for table in tables for row in table.rows))
    refused = {
        name: f"{one.origin}: {fault}"
        for name, one in changes.items()
        if (fault := _why_refused(name, tables, methods))
    }
    faults = list(refused.values())
    rest = {name: one for name, one in changes.items() if name not in refused}
    by_encoder = {table.encoder: table for table in reversed(tables)}
    strange = {
        name: one for name, one in rest.items() if not any(_fits(name, table, methods) for table in by_encoder.values())
    }
    for table in by_encoder.values():
        fits = {name: one for name, one in rest.items() if _fits(name, table, methods)}
        try:
            settings_from([*layers_of(table.preset), {**strange, **fits, **given_values({"methods": methods})}])
        except SettingsError as fault:
            faults += str(fault).splitlines()
        strange = {}  # what no table has is said once
    if faults:
        raise SettingsError(join_faults(list(dict.fromkeys(faults))))


def _why_refused(name: str, tables: Sequence[PaperTable], methods: Sequence[str]) -> str:
    """Why a setting is refused: it makes a table or a row what it is, or is of no row."""
    from erda.methods import METHODS

    owner = name.rpartition(".")[0]
    if name in FIXED:
        return "the tables say that themselves; make other runs with `erda run`."
    if owner in METHODS and owner not in methods:
        return f"the tables have no row of {owner}, only of {', '.join(methods)}."
    own = [table.name for table in tables if any(one == name or one.endswith(f".{name}") for one in _own(table))]
    where = f"the plan sets it itself in {', '.join(own)}"
    return f"{where}; choose other tables, or make other runs with `erda run`." if own else ""


def _own(table: PaperTable) -> set[str]:
    """The names of all settings that a table or its rows give."""
    return {*table.settings, *(name for row in table.rows for name in row.settings)}


def _fits(name: str, table: PaperTable, methods: Iterable[str]) -> bool:
    """Whether a setting is something that the table's encoder or one of the methods has."""
    from erda.encoders import encoder_settings
    from erda.methods import METHODS

    owner, _, setting = name.rpartition(".")
    if owner == "encoder":
        return setting in encoder_settings(table.encoder).model_fields
    if owner or setting in RUN_KINDS:
        return owner in ("", *methods)
    return any(setting in default_settings(METHODS[method]) for method in methods)


# -- what this machine has ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Parts:
    """Looks for data and weights of runs, once each."""

    all_seeds: bool  # open the stream of every seed: they are the user's own
    known: dict[str, ErdaError | None] = field(default_factory=dict)

    def fault(self, runs: Sequence[Run]) -> ErdaError | None:
        """Why some runs, all of one table, cannot be had here; None where they can."""
        first = {run.seed: run for run in reversed(runs)}
        for run in sorted(first.values(), key=lambda one: one.seed)[: None if self.all_seeds else 1]:
            stream = [run.dataset, run.shots, run.order_family, run.seed, run.settings["stream"]]
            encoder = [run.encoder, run.settings["encoder"]]
            fault = self._try(stream, run, open_run_stream) or self._try(encoder, run, _build_encoder)
            if fault is not None:
                return fault
        return None

    def _try(self, what: Sequence[object], run: Run, make: Callable[[Run], object]) -> ErdaError | None:
        key = json.dumps(what, sort_keys=True)
        if key not in self.known:
            try:
                make(run)
                self.known[key] = None
            except ErdaError as fault:
                self.known[key] = fault
        return self.known[key]


def _build_encoder(run: Run) -> object:
    return build_run_encoder(replace(run, device="cpu"))


def _is_lacking(fault: ErdaError, changes: Layer) -> bool:
    """Whether something is not here, rather than the user's choice being wrong."""
    names = [name for name in changes if name not in ("device", "corpus")]
    if isinstance(fault, DataError):
        return "dataset" not in names
    if isinstance(fault, ModelError):
        return not any(name.startswith("encoder.") for name in names)
    return not names
