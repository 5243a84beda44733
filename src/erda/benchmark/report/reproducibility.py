"""REPRODUCIBILITY.md from records: the paper's number, ours, how sure it is, and the command that makes it again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from erda.benchmark.paper.sections import planned_seeds
from erda.benchmark.records import Records, read_records, write_whole
from erda.benchmark.report.comparison import (
    DEVIATION_NOTE,
    Family,
    compare_all,
    family_notes,
    interval,
    p_value,
    published_of,
)
from erda.benchmark.report.contents import sections_of
from erda.benchmark.report.experiments import PERCENT, Line, at_task
from erda.benchmark.report.published import COMPONENTS, PAPER, Published
from erda.benchmark.report.sections import Section
from erda.benchmark.report.tables import Cell, Table, to_markdown
from erda.benchmark.statistics import mean_interval

AGAIN = "runs/again"  # where the commands put what they make
INTRODUCTION = f"""\
# Reproducibility

Written by `erda report {{place}} --reproducibility FILE` from {{n_records}} records; no number here is typed by hand.
For each method: accuracy after the last task (per cent, mean ± standard deviation over n streams), the 95 % interval of
its mean by the t distribution, the paper's number where it has one, p of the paired tests against the reference method
(two-sided, Holm's correction over the table), forgetting in points, and the seconds of one stream, learning and
predicting together. Protocols and tests are explained in docs/benchmark.md.

{DEVIATION_NOTE} The paper is Qin and Joty (2022), which measured by
the protocol candidates. A command writes its records under `{AGAIN}`; `erda report` shows them. A corpus is named by
its folder; docs/corpus.md says how one is made.
"""


# -- commands ----------------------------------------------------------------------------------------------------------


def rerun_command(line: Line, *, out: str | Path = AGAIN) -> str:
    """The command that makes the records of a line again: every setting that is not a built-in default is named."""
    first = line.records[0]
    flags = {
        "--dataset": first.dataset,
        "--shots": str(first.shots),
        "--method": first.method,
        "--encoder": first.encoder,
        "--order-family": first.order_family,
        "--seeds": ",".join(str(record.seed) for record in line.records),
    }
    if first.corpus:
        flags["--corpus"] = Path(first.corpus).name if Path(first.corpus).is_absolute() else first.corpus
    if first.evaluate_on != "test":
        flags["--evaluate-on"] = first.evaluate_on
    if first.device != "cpu":
        flags["--device"] = first.device
    words = ["erda", "run", *(word for pair in flags.items() for word in pair)]
    for setting in _settings(first.method, first.settings):
        words += ["--set", setting]
    return shlex.join([*words, "--out", str(out)])


def _settings(method: str, settings: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """What `--set` takes: settings of the method that differ from today's defaults, all others that were given."""
    from erda.methods import METHODS
    from erda.settings.runs import default_settings

    defaults = default_settings(METHODS[method]) if method in METHODS else {}
    for prefix, kind in ((f"{method}.", "method"), ("encoder.", "encoder"), ("", "stream")):
        for name, value in settings.get(kind, {}).items():
            if kind != "method" or name not in defaults or defaults[name] != value:
                yield f"{prefix}{name}={str(value).lower() if isinstance(value, bool) else value}"


# -- the page ----------------------------------------------------------------------------------------------------------


def write_reproducibility(directory: Path, out: Path, *, expected: Mapping[str, str] | None = None) -> Path:
    """Write what the records under `directory` say to `out`.

    `expected` maps the names of sections that should be there to their titles; those without records are named.
    """
    found = read_records(directory)
    sections = sections_of(found)
    place = directory.name if directory.is_absolute() else directory.as_posix()
    parts = [INTRODUCTION.format(place=place, n_records=len(found.records))]
    missing = _missing(found, sections, expected or {})
    if missing:
        parts.append("Not everything is there: see [what is missing](#what-is-missing).\n")
    parts += [_section(section) for section in sections]
    if missing:
        parts.append("\n".join(["## What is missing", "", *(f"- {one}" for one in missing), ""]))
    parts.append(_origin(found))
    write_whole(out, "\n".join(parts).encode())
    return out


def _section(section: Section) -> str:
    experiment = section.experiment
    tables = [to_markdown(_table(section, protocol)) for protocol in experiment.protocols]
    commands = []
    for line in experiment.lines:
        slug = re.sub(r"[^a-z0-9]+", "-", line.label.lower()).strip("-")
        commands += [f"# {line.label}", rerun_command(line, out=f"{AGAIN}/{section.name}/{slug}")]
    text = [section.text, ""] if section.text else []
    return "\n".join([f"## {section.title}", "", *text, *tables, "```sh", *commands, "```", ""])


def _table(section: Section, protocol: str) -> Table:
    experiment = section.experiment
    family = compare_all(experiment, section.reference, protocol) if section.reference else None
    published = [published_of(line, protocol) for line in experiment.lines]
    rows: list[tuple[Cell, ...]] = []
    for line, row in zip(experiment.lines, published, strict=True):
        values = [value for record in line.records if (value := at_task(record.accuracy[protocol], -1)) is not None]
        name: list[Cell] = [row.row if row else None] if any(published) else []
        theirs: list[Cell] = [row.last if row else None] if any(published) else []
        forgotten = line.summary(lambda record: record.forgetting[protocol], scale=PERCENT)
        seconds = line.summary(lambda record: sum(record.seconds["learn"]) + sum(record.seconds["predict"]))
        rows.append(
            (
                line.label,
                *name,
                len(line.records),
                line.accuracy(protocol, -1),
                interval(mean_interval(values)),
                *theirs,
                *(_tests(family, line.label) if family else ()),
                forgotten,
                seconds and f"{seconds.mean:.1f}",
            )
        )
    name_column, paper_column = (["the paper's name"], ["paper"]) if any(published) else ([], [])
    tests = ["p (t)", "p (sign-flip)"] if family else []
    both = zip(experiment.lines, published, strict=True)
    notes = [f"{line.label}: {row.remark}." for line, row in both if row and row.remark]
    if family:
        notes += [*family_notes(family), *family.refused]
        notes += [f"{one.second}: {one.note}" for one in family.comparisons if one.note]
    return Table(
        name=f"reproducibility-{protocol}",
        title=f"Protocol {protocol}, after task {experiment.n_tasks}",
        columns=("method", *name_column, "n", "ours", "95 % interval", *paper_column, *tests, "forgetting", "seconds"),
        rows=tuple(rows),
        notes=(*notes, *experiment.notes),
        text_columns=1 + len(name_column),
    )


def _tests(family: Family, label: str) -> tuple[Cell, Cell]:
    """Both corrected p of a line against the reference."""
    if label == family.reference.label:
        return "reference", "reference"
    found = family.against(label)
    return (p_value(found.p_t_corrected), p_value(found.p_sign_corrected)) if found else (None, None)


# -- what is not there -------------------------------------------------------------------------------------------------


def _missing(found: Records, sections: Iterable[Section], expected: Mapping[str, str]) -> list[str]:
    sections = list(sections)
    there = {section.name for section in sections}
    said = [f"{title} (`{name}`): no records." for name, title in expected.items() if name not in there]
    lines = [line for section in sections for line in section.experiment.lines]
    absent = [
        _missing_seeds(line, planned_seeds(section.name)) for section in sections for line in section.experiment.lines
    ]
    said += list(dict.fromkeys(one for one in absent if one))
    said += _missing_rows(lines)
    said += [f"Unfinished: {path}" for path in _unfinished(found.directory)]
    prefix = f"{found.directory}/"
    return [*said, *(f"Not read: {fault.replace(prefix, '')}" for fault in found.faults)]


def _missing_seeds(line: Line, planned: tuple[int, ...] | None) -> str:
    """Seeds that a line was not run on: of those that the plan names for its table, else of its order family."""
    from erda.data.catalogue import default_seeds
    from erda.errors import StreamError

    first = line.records[0]
    try:
        wanted = planned or default_seeds(first.dataset, first.order_family)
    except StreamError:  # an order family of another version
        return ""
    own = {record.seed for record in line.records}
    absent = [str(seed) for seed in wanted if seed not in own]
    where = f"{Path(first.dataset).name} {first.shots}-shot, {Path(first.encoder).name}"
    return f"{line.label} ({where}): seeds {', '.join(absent)} of {first.order_family}." if absent else ""


def _missing_rows(lines: Iterable[Line]) -> list[str]:
    """Rows of the paper without a line, table by table, where any has one; a variant in two tables counts once."""

    def variant(row: Published) -> tuple[object, ...]:
        return (row.method, row.encoder, *sorted({**COMPONENTS.get(row.method, {}), **row.settings}.items()))

    there = {variant(row) for line in lines if (row := published_of(line))}
    absent: dict[str, list[str]] = {}
    for row in PAPER if there else ():
        if variant(row) not in there:
            table = f"the paper's {row.source} ({row.dataset} {row.shots}-shot, {row.encoder})"
            absent.setdefault(table, []).append(row.row)
    return [f"No records for {table}: {'; '.join(rows)}." for table, rows in absent.items()]


def _unfinished(directory: Path) -> list[str]:
    """Folders of runs that were begun and have no record yet."""
    from erda.benchmark.records import RECORD
    from erda.benchmark.run.progress import FILE, FOLDER

    begun = (path.parents[1] for path in sorted(directory.rglob(f"{FOLDER}/{FILE}")))
    return [str(path.relative_to(directory)) for path in begun if not (path / RECORD).exists()]


def _origin(found: Records) -> str:
    """Machines and versions that the records name."""
    counts: dict[str, int] = {}
    for record in found.records:
        versions = ", ".join(f"{name} {version}" for name, version in sorted(record.versions.items()))
        said = f"device {record.device}, {versions}"
        counts[said] = counts.get(said, 0) + 1
    return "\n".join(
        ["## Where the records come from", "", *(f"- {n} records: {said}" for said, n in counts.items()), ""]
    )
