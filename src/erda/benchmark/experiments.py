"""Records -> experiments: which runs may share an output folder and a table.

The runs of an experiment share dataset, shots, task orders, encoder, evaluation data and stream settings (`shape_of`).
A line of an experiment is one method with one choice of settings and one corpus (`choice_of`) on one or more streams.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from erda.benchmark.measures import PROTOCOLS
from erda.benchmark.records import Record
from erda.benchmark.statistics import Summary, relation_interval
from erda.data.dataset import CATALOGUE
from erda.errors import SettingsError
from erda.files import user_path
from erda.settings.runs import Run, filled_settings

PERCENT = 100.0
SEEN = "relations seen in the encoder's training"  # in titles
FOUND = ("n_tasks", "seen")  # known after the run
SHARED = ("dataset", "shots", "order_family", "encoder", "evaluate_on")
ENCODERS = {
    "bilstm": "BiLSTM",
    "minilm": "MiniLM",
    "mpnet": "MPNet",
    "minilm_fp16": "MiniLM in half precision",
    "mpnet_fp16": "MPNet in half precision",
}


# -- shared settings ---------------------------------------------------------------------------------------------------


def shape_of(run: Run) -> dict[str, Any]:
    """Settings that the runs of one experiment share, by name; the device is not among them."""
    cut = {
        f"{kind}.{name}": value for kind in ("encoder", "stream") for name, value in run.settings.get(kind, {}).items()
    }
    found = {"n_tasks": run.n_tasks, "seen": bool(run.seen)} if isinstance(run, Record) else {}
    return {**{name: getattr(run, name) for name in SHARED}, **found, **cut}


def choice_of(run: Run) -> dict[str, Any]:
    """Further settings that the runs of one line share; settings newer than a record have their defaults."""
    own = {
        f"method.{name}": value for name, value in filled_settings(run.method, run.settings.get("method", {})).items()
    }
    return {"method": run.method, "corpus": Path(run.corpus).name or "none", **own}


def reject_mixing(directory: Path, *, then: Run, now: Run) -> None:
    """Reject a folder that holds a run of another experiment, or of the same method with other settings."""
    there, here = ({name: one for name, one in shape_of(run).items() if name not in FOUND} for run in (then, now))
    if then.method == now.method:
        there, here = {**there, **choice_of(then)}, {**here, **choice_of(now)}
        there["corpus"], here["corpus"] = _corpora(then, now)
    if names := sorted(name for name in {**there, **here} if there.get(name) != here.get(name)):
        unset = "not set"
        what = "\n".join(f"  {name}: {there.get(name, unset)} there, {here.get(name, unset)} now" for name in names)
        raise SettingsError(
            f"{directory} holds results with other settings:\n{what}\nChoose another --out, or delete that folder."
        )


def _corpora(then: Run, now: Run) -> tuple[str, str]:
    """Names of the corpora of two runs: digests if both are known, otherwise folder names."""
    from erda.corpus.corpus_store import MANIFEST, read_manifest

    names = choice_of(then)["corpus"], choice_of(now)["corpus"]
    before = str((then.notes.get("corpus") or {}).get("digest", "")) if isinstance(then, Record) else ""
    folder = user_path(now.corpus)
    if not before or not now.corpus or not (folder / MANIFEST).exists():
        return names
    today = read_manifest(folder).digest
    return (before, before) if before == today else (f"{names[0]} ({before[:12]})", f"{names[1]} ({today[:12]})")


# -- lines and experiments ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One method with one choice of settings; `label` is unique in its experiment."""

    label: str
    records: tuple[Record, ...]  # by seed

    @property
    def first(self) -> Record:
        """Record of the first seed; all records share their settings."""
        return self.records[0]

    @property
    def method(self) -> str:
        """Method of the records."""
        return self.first.method

    def summary(self, value: Callable[[Record], float | None], *, scale: float = 1.0) -> Summary | None:
        """Mean and deviation over the streams; None if a record lacks the value."""
        values = [value(record) for record in self.records]
        found = None if None in values else Summary.of([one for one in values if one is not None])
        return found and Summary(found.mean * scale, found.deviation and found.deviation * scale, found.n)

    def after(self, measure: str, protocol: str, k: int) -> Summary | None:
        """`accuracy`, `macro` or `chance` after task `k` in per cent (0 is the first task, -1 the last)."""
        return self.summary(lambda record: record.after(measure, protocol, k), scale=PERCENT)

    def accuracy(self, protocol: str, k: int) -> Summary | None:
        """Accuracy after task `k` in per cent."""
        return self.after("accuracy", protocol, k)

    def forgetting(self, protocol: str) -> Summary | None:
        """Forgetting in points."""
        return self.summary(lambda record: record.forgetting[protocol], scale=PERCENT)

    def relation_counts(self, protocol: str) -> dict[str, tuple[int, int]]:
        """Right predictions and test examples of each relation after the last task, over all streams; {} if unknown."""
        counts: dict[str, tuple[int, int]] = {}
        for record in self.records:
            if not (found := record.relation_right.get(protocol)):
                return {}
            for name, right in found.items():
                so_far = counts.get(name, (0, 0))
                counts[name] = (so_far[0] + right[-1], so_far[1] + record.relation_tests[name])
        return counts

    def relation_interval(self, protocol: str) -> tuple[float, float] | None:
        """95 % interval of the accuracy after the last task under resampling of relations, as fractions."""
        counts = self.relation_counts(protocol)
        return relation_interval(*zip(*counts.values(), strict=True)) if counts else None

    def newest(self, protocol: str) -> Summary | None:
        """Accuracy on the examples of the last task, after it is learned, in per cent."""
        return self.summary(lambda record: rows[-1][-1] if (rows := record.matrix[protocol]) else None, scale=PERCENT)


@dataclass(frozen=True, slots=True)
class Experiment:
    """Records that may share a table."""

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
        """Protocols that the dataset supports."""
        return tuple(name for name in PROTOCOLS if all(record.accuracy[name] for record in self.records))


def group_records(records: Iterable[Record]) -> tuple[Experiment, ...]:
    """Group records into experiments, in order of first appearance."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(_key(shape_of(record)), []).append(record)
    return tuple(_experiment(group) for group in groups.values())


def _experiment(group: Sequence[Record]) -> Experiment:
    """Make one line per choice of settings; its label names the settings that differ from the method's other lines."""
    variants: dict[str, list[Record]] = {}
    for record in group:
        variants.setdefault(_key(choice_of(record)), []).append(record)
    choices = [choice_of(own[0]) for own in variants.values()]
    lines, notes = [], []
    for choice, own in zip(choices, variants.values(), strict=True):
        others = [other for other in choices if other["method"] == choice["method"] and other != choice]
        names = [name for name in choice if any(other.get(name) != choice[name] for other in others)]
        names.sort(key=lambda name: name == "corpus")  # last of all
        parts = [f"{name.removeprefix('method.')}={choice[name]}" for name in names]
        line, said = make_line(f"{choice['method']} ({', '.join(parts)})" if parts else choice["method"], own)
        lines.append(line)
        notes += said
    return make_experiment(lines, notes=notes)


def make_experiment(lines: Sequence[Line], *, notes: Iterable[str] = ()) -> Experiment:
    """Make an experiment of lines with the same dataset, encoder and number of tasks."""
    first = lines[0].first
    shape = shape_of(first)
    cut = [f"{name} {value}" for name, value in shape.items() if "." in name]
    names = [Path(name).name for name in (first.dataset, first.encoder)]  # last part of a path
    ends = ["seen"] * bool(first.seen) + ([] if first.evaluate_on == "test" else [first.evaluate_on])
    slug = slug_of(" ".join([names[0], f"{first.shots}-shot", names[1], *cut, *ends, first.order_family]))
    title = title_of(first)
    return Experiment(title, slug, first.n_tasks, tuple(lines), (*notes, *_stream_notes(lines)))


def slug_of(text: str) -> str:
    """Text as a name for files and folders."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def make_line(label: str, records: Iterable[Record]) -> tuple[Line, list[str]]:
    """Make a line of records, sorted by seed; count a repeated seed once and add a note."""
    notes = []
    by_seed: dict[int, Record] = {}
    for record in records:
        if record.seed in by_seed:
            notes.append(f"{record.title} was found twice with the same settings; the first one counts.")
        by_seed.setdefault(record.seed, record)
    return Line(label, tuple(by_seed[seed] for seed in sorted(by_seed))), notes


def make_lines(rows: Mapping[str, Sequence[Record]]) -> tuple[list[Line], list[str]]:
    """Make a line per label from the records with the most common settings; a note counts the others."""
    shape = _most_common(shape_of(record) for found in rows.values() for record in found)
    lines, notes = [], []
    for label, found in rows.items():
        fits = [record for record in found if shape_of(record) == shape]
        choice = _most_common(map(choice_of, fits))
        fits = [record for record in fits if choice_of(record) == choice]
        if fits:
            line, said = make_line(label, fits)
            lines.append(line)
            notes += said
        if len(fits) < len(found):
            notes.append(f"{label}: records with other settings, not counted here: {len(found) - len(fits)}.")
    return lines, notes


def _most_common(values: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Most common value; ties go to the longest stream. {} if `values` is empty."""
    found = list(values)
    counts = Counter(map(_key, found))
    return max(found, key=lambda one: (counts[_key(one)], one.get("n_tasks", 0)), default={})


def _key(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)


def _stream_notes(lines: Sequence[Line]) -> list[str]:
    """A note on lines of a table with other seeds than the others."""
    seeds = {line.label: [record.seed for record in line.records] for line in lines}
    if len({tuple(one) for one in seeds.values()}) < 2:
        return []
    listed = "; ".join(f"{label}: {', '.join(map(str, one))}" for label, one in seeds.items())
    return [f"Not the same seeds in every line, so means are not paired ({listed})."]


# -- titles ------------------------------------------------------------------------------------------------------------


def dataset_in_words(name: str) -> str:
    """Name of a dataset as papers write it; the last part of a path."""
    return str(CATALOGUE["datasets"].get(name, {}).get("title", Path(name).name))


def encoder_in_words(name: str, settings: dict[str, Any]) -> str:
    """Encoder and the settings that change its results."""
    words = ENCODERS.get(name, Path(name).name)
    given = dict(settings)
    if (adapter := given.pop("adapter", None)) is not None:
        words += {"": " without an adapter", "shipped": " with its adapter"}.get(
            str(adapter), f" with the adapter {Path(str(adapter)).name}"
        )
    layers = given.pop("trained_layers", None)
    parts = [words]
    if layers is not None:
        named = {0: "frozen", 1: "last layer trained", -1: "all layers trained"}
        parts.append(named.get(int(layers), f"last {layers} layers trained"))
    if given.pop("mode", None) == "paper":
        parts.append("used as the paper uses BERT")
    parts += [f"{name.replace('_', ' ')} {value}" for name, value in given.items()]
    return ", ".join(parts)


def title_of(run: Run) -> str:
    """Setting of a run in words: dataset, shots, encoder, stream."""
    parts = [
        dataset_in_words(run.dataset),
        "1 shot" if run.shots == 1 else f"{run.shots} shots",
        encoder_in_words(run.encoder, run.settings.get("encoder", {})),
    ]
    parts += [f"{name.replace('_', ' ')} {value}" for name, value in run.settings.get("stream", {}).items()]
    parts += [SEEN] if isinstance(run, Record) and run.seen else []
    if run.evaluate_on != "test":
        parts.append(f"measured on {run.evaluate_on} data")
    if run.order_family == "sckd":
        parts.append("task orders of SCKD")
    return ", ".join(parts)
