"""Runs of the paper's tables with the user's changes, validated before the first run starts.

All invalid changes are reported in one `SettingsError`. Tables and rows whose data, weights or corpus are missing on
this machine are skipped and reported.
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
FIXED = ("methods", "encoder", "order_family", "shots")  # fixed by each table


@dataclass(frozen=True, slots=True)
class PaperPlan:
    """Runs of some tables without duplicates, and reasons for skipped tables and rows."""

    runs: tuple[PlannedRun, ...]
    embedded: tuple[PlannedRun, ...]  # runs whose vectors are saved for t-SNE
    left_out: tuple[str, ...]
    cache: CacheSettings


def plan_runs(tables: Iterable[PaperTable], *, out: Path, changes: Layer = NO_CHANGES, look: bool = True) -> PaperPlan:
    """Plan all runs of the tables, stream by stream, so that methods can be compared early.

    `look` checks that data and weights exist on this machine. Tables whose runs are all finished need neither.
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
            left_out.append(f"{table.name}: rows that need a corpus ({', '.join(without)}); give --corpus.")
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
    """Validated settings of one row. A user's change applies to the rows that have the setting."""
    own = given_values({"methods": row.method, "seeds": table.seeds or None, **table.settings, **row.settings})
    fits = {name: one for name, one in changes.items() if _fits(name, table, (row.method,))}
    if not row.corpus:
        fits.pop("corpus", None)
    return settings_from([*layers_of(table.preset), {**own, **fits}])


# -- the user's changes ------------------------------------------------------------------------------------------------


def check_changes(tables: Sequence[PaperTable], changes: Layer) -> None:
    """Reject changes that no table supports or that a table fixes; report all faults at once."""
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
        strange = {}  # report unknown settings once
    if faults:
        raise SettingsError(join_faults(list(dict.fromkeys(faults))))


def _why_refused(name: str, tables: Sequence[PaperTable], methods: Sequence[str]) -> str:
    """Reason to reject a setting: a table or row fixes it, or no row has it."""
    from erda.methods import METHODS

    owner = name.rpartition(".")[0]
    if name in FIXED:
        return "fixed by the tables; use `erda run` for other runs."
    if owner in METHODS and owner not in methods:
        return f"the tables have no row for {owner}, only for {', '.join(methods)}."
    own = [table.name for table in tables if any(one == name or one.endswith(f".{name}") for one in _own(table))]
    return f"fixed in {', '.join(own)}; choose other tables, or use `erda run`." if own else ""


def _own(table: PaperTable) -> set[str]:
    """Names of all settings of a table and its rows."""
    return {*table.settings, *(name for row in table.rows for name in row.settings)}


def _fits(name: str, table: PaperTable, methods: Iterable[str]) -> bool:
    """Whether the table's encoder or one of the methods has a setting."""
    from erda.encoders import encoder_settings
    from erda.methods import METHODS

    owner, _, setting = name.rpartition(".")
    if owner == "encoder":
        return setting in encoder_settings(table.encoder).model_fields
    if owner or setting in RUN_KINDS:
        return owner in ("", *methods)
    return any(setting in default_settings(METHODS[method]) for method in methods)


# -- data and weights of this machine ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Parts:
    """Checks that data and weights of runs exist, once each."""

    all_seeds: bool  # check the stream of every seed, because the user chose them
    known: dict[str, ErdaError | None] = field(default_factory=dict)

    def fault(self, runs: Sequence[Run]) -> ErdaError | None:
        """Fault that prevents runs of one table on this machine; None if there is none."""
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
    """Whether data or weights are missing, rather than a change being invalid."""
    names = [name for name in changes if name not in ("device", "corpus")]
    if isinstance(fault, DataError):
        return "dataset" not in names
    if isinstance(fault, ModelError):
        return not any(name.startswith("encoder.") for name in names)
    return not names
