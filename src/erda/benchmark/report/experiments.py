"""Records -> experiments: what may stand in one table.

An experiment is a set of records of the same dataset, shots, orders, encoder and pool. A line of it is one method with
one choice of settings, on one stream or more.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

from erda.benchmark.metrics import PROTOCOLS
from erda.benchmark.records import Record
from erda.benchmark.report.tables import Summary
from erda.settings.runs import Setting, filled_settings

PERCENT = 100.0


@dataclass(frozen=True, slots=True)
class Line:
    """One method with one choice of settings; `label` tells it from the others of its experiment."""

    label: str
    method: str
    records: tuple[Record, ...]  # by seed
    places: tuple[Path | None, ...] = ()  # the folder of each record, where it was read from a disk

    def summary(self, value: Callable[[Record], float | None], *, scale: float = 1.0) -> Summary | None:
        """Mean and deviation over the streams; None where a record does not have the value."""
        values = [value(record) for record in self.records]
        found = Summary.of([one for one in values if one is not None])
        return found.scaled(scale) if found and None not in values else None

    def accuracy(self, protocol: str, k: int) -> Summary | None:
        """Accuracy after task `k` in per cent (0 is the first task, -1 the last)."""
        return self.summary(lambda record: at_task(record.accuracy[protocol], k), scale=PERCENT)


@dataclass(frozen=True, slots=True)
class Experiment:
    """Records that may stand in one table."""

    title: str
    slug: str  # for names of files
    n_tasks: int
    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    @property
    def records(self) -> tuple[Record, ...]:
        """All records, line by line."""
        return tuple(record for line in self.lines for record in line.records)

    @property
    def protocols(self) -> tuple[str, ...]:
        """The protocols that the dataset allows."""
        return tuple(name for name in PROTOCOLS if all(record.accuracy[name] for record in self.records))


# -- from records to experiments ---------------------------------------------------------------------------------------


Found = tuple[Record, Path | None]  # a record and the folder it was read from


def group_records(records: Iterable[Record], places: Iterable[Path] | None = None) -> tuple[Experiment, ...]:
    """Put records into experiments, in the order in which they come; `places` are the folders they were read from."""
    records = list(records)
    folders: list[Path | None] = [*places] if places is not None else [None] * len(records)
    groups: dict[str, list[Found]] = {}
    for record, place in zip(records, folders, strict=True):
        groups.setdefault(_key(_shape(record)), []).append((record, place))
    return tuple(_experiment(group) for group in groups.values())


def _experiment(found: Sequence[Found]) -> Experiment:
    lines, notes = _lines(found)
    return make_experiment(lines, notes=notes)


def make_experiment(lines: Sequence[Line], *, notes: Iterable[str] = ()) -> Experiment:
    """An experiment of these lines, which must be of one dataset, encoder and number of tasks."""
    first = lines[0].records[0]
    extra = [
        f"{kind} {name}={value}"
        for kind in ("encoder", "stream")
        for name, value in first.settings.get(kind, {}).items()
    ]
    names = [Path(name).name for name in (first.dataset, first.encoder)]  # of a path only its end
    title = ", ".join([f"{names[0]} {first.shots}-shot", f"encoder {names[1]}", *extra])
    if first.evaluate_on != "test":
        title += f", measured on {first.evaluate_on} data"
    slug = re.sub(r"[^a-z0-9]+", "-", f"{title} {first.order_family}".lower()).strip("-")
    return Experiment(title, slug, first.n_tasks, tuple(lines), (*notes, *_stream_notes(lines)))


def make_line(label: str, found: Iterable[Found]) -> tuple[Line, list[str]]:
    """One line of these records, by seed; a seed found twice counts once and is noted."""
    notes = []
    by_seed: dict[int, Found] = {}
    for record, place in found:
        if record.seed in by_seed:
            notes.append(f"{record.title} was found twice with the same settings; the first one counts.")
        by_seed.setdefault(record.seed, (record, place))
    ordered = [by_seed[seed] for seed in sorted(by_seed)]
    method = ordered[0][0].method
    return Line(label, method, tuple(one for one, _ in ordered), tuple(place for _, place in ordered)), notes


def make_lines(rows: Mapping[str, Sequence[Found]]) -> tuple[list[Line], list[str]]:
    """A line for each label, of those of its records that may stand in one table; what differs from most is noted.

    All lines share dataset, shots, orders, encoder, pool, number of tasks and the cut of the stream; the records of one
    line also the settings of the method and the corpus.
    """
    shape = _commonest(_shape(record) for found in rows.values() for record, _ in found)
    lines, notes = [], []
    for label, found in rows.items():
        choice = _commonest(_choice(record) for record, _ in found if _shape(record) == shape)
        fits = [_shape(record) == shape and _choice(record) == choice for record, _ in found]
        if any(fits):
            line, said = make_line(label, compress(found, fits))
            lines.append(line)
            notes += said
        others = [record for (record, _), fit in zip(found, fits, strict=True) if not fit]
        if others:
            notes.append(_other_settings(label, others, shape=shape, choice=choice))
    return lines, notes


def _shape(record: Record) -> dict[str, Any]:
    """What the records of one table share, by name."""
    names = ("dataset", "shots", "order_family", "encoder", "evaluate_on", "n_tasks")
    cut = {
        f"{kind}.{name}": value
        for kind in ("encoder", "stream")
        for name, value in record.settings.get(kind, {}).items()
    }
    return {**{name: getattr(record, name) for name in names}, **cut}


def _choice(record: Record) -> dict[str, Any]:
    """What the records of one line share beyond that; settings that did not exist then have their built-in values."""
    settings = filled_settings(record.method, record.settings.get("method", {}))
    return {"method": record.method, "corpus": Path(record.corpus).name, **settings}


def _commonest(values: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The value that comes most often; of two, that of the longer stream, then the first. Nothing of nothing."""
    found = list(values)
    counts = Counter(map(_key, found))
    return max(found, key=lambda one: (counts[_key(one)], one.get("n_tasks", 0)), default={})


def _key(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)


def _other_settings(
    label: str, others: Sequence[Record], *, shape: Mapping[str, Any], choice: Mapping[str, Any]
) -> str:
    """Say how many records of a row are not counted, and in what they differ from those that are."""
    differing: dict[str, None] = {}
    for record in others:
        pairs = [(_shape(record), shape), *([(_choice(record), choice)] if choice else [])]
        for there, here in pairs:
            names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
            differing |= {f"{name} {_said(there, name)}, here {_said(here, name)}": None for name in names}
    n = "1 record" if len(others) == 1 else f"{len(others)} records"
    return f"{label}: {n} of other settings not counted here ({'; '.join(differing)})."


def _said(values: Mapping[str, Any], name: str) -> str:
    return str(values.get(name, "not set")) or "none"


def _lines(found: Sequence[Found]) -> tuple[list[Line], list[str]]:
    """One line for each method and choice of settings; the label says what tells it from the method's other lines."""
    variants: dict[tuple[str, str], list[Found]] = {}
    for record, place in found:
        corpus = Path(record.corpus).name or "none"  # where augmentation drew from
        own = {**_settings_of(record, found), "corpus": corpus}
        settings = json.dumps(own, sort_keys=True)
        variants.setdefault((record.method, settings), []).append((record, place))
    lines, notes = [], []
    for (method, settings), own_records in variants.items():
        others = [json.loads(other) for name, other in variants if name == method and other != settings]
        own = json.loads(settings)
        differing = [f"{name}={own[name]}" for name in own if any(other.get(name) != own[name] for other in others)]
        line, said = make_line(f"{method} ({', '.join(differing)})" if differing else method, own_records)
        lines.append(line)
        notes += said
    return lines, notes


def _settings_of(record: Record, found: Sequence[Found]) -> dict[str, Setting]:
    """The settings of a record's method; where others of the method have more of them, with the built-in values."""
    own = record.settings.get("method", {})
    same = (other.settings.get("method", {}) for other, _ in found if other.method == record.method)
    return own if all(other.keys() == own.keys() for other in same) else filled_settings(record.method, own)


def _stream_notes(lines: Sequence[Line]) -> list[str]:
    """Warn where the lines of a table were not run on the same streams."""
    notes = []
    seeds = {line.label: [record.seed for record in line.records] for line in lines}
    if len({tuple(one) for one in seeds.values()}) > 1:
        listed = "; ".join(f"{label}: {', '.join(map(str, one))}" for label, one in seeds.items())
        notes.append(f"Not the same seeds in every line, so means are not paired ({listed}).")
    digests: dict[int, set[str]] = {}
    for line in lines:
        for record in line.records:
            digests.setdefault(record.seed, set()).add(record.digest)
    differing = [str(seed) for seed, found in digests.items() if len(found) > 1]
    if differing:
        notes.append(f"Seed {', '.join(differing)}: the lines were run on different streams (manifests differ).")
    return notes


def at_task(values: Sequence[float] | None, k: int) -> float | None:
    """The value after task `k`; None where the protocol was not measured."""
    return None if values is None else values[k]
