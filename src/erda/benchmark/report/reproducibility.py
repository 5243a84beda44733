"""REPRODUCIBILITY.md from records: the paper's number, ours, how sure it is, and the command that makes it again."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from erda.benchmark.experiments import Line, slug_of
from erda.benchmark.records import RECORD, Records, read_records
from erda.benchmark.report.comparison import Family, compare_all, p_value
from erda.benchmark.report.layout import Layout, Section, experiment_sections
from erda.benchmark.report.published import PAPER, published_of
from erda.benchmark.report.results import DEVIATION_NOTE, interval
from erda.benchmark.report.tables import Cell, Cells, Table, escape_markdown, one_line, to_markdown
from erda.benchmark.run.progress import FILE, FOLDER
from erda.benchmark.statistics import mean_interval
from erda.files import write_bytes

AGAIN = "runs/again"  # where the commands put what they make
INTRODUCTION = f"""\
# Reproducibility

Written by `erda report {{place}} --reproducibility FILE` from {{n_records}} records; no number here is typed by hand.
For each method: accuracy after the last task (per cent, mean ± standard deviation over n streams), the 95 % interval of
its mean by the t distribution, the paper's number where it has one, p of the paired tests against the reference method
(two-sided, Holm's correction over the table), forgetting in points, accuracy on the questions of the newest task
alone, and the seconds of one stream, learning and predicting together. Protocols and tests
are explained in docs/benchmark.md.

{DEVIATION_NOTE} The paper is Qin and Joty (2022), which measured by
the protocol candidates. A command writes its records under `{AGAIN}`; `erda report` shows them. A corpus is named by
its folder; docs/corpus.md says how one is made.
"""


# -- commands ----------------------------------------------------------------------------------------------------------


def rerun_command(line: Line, *, out: str | Path = AGAIN) -> str:
    """The command that makes the records of a line again: every setting that is not a built-in default is named."""
    first = line.first
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


def write_reproducibility(
    directory: Path, out: Path, *, layout: Layout = experiment_sections, expected: Mapping[str, str] | None = None
) -> Path:
    """Write what the records under `directory` say to `out`; `layout` says which sections there are.

    `expected` maps the names of sections that should be there to their titles; those without records are named.
    """
    found = read_records(directory)
    sections = layout(found)
    place = directory.name if directory.is_absolute() else directory.as_posix()
    parts = [INTRODUCTION.format(place=place, n_records=len(found.found))]
    missing = _missing(found, sections, expected or {})
    if missing:
        parts.append("Not everything is there: see [what is missing](#what-is-missing).\n")
    parts += [_section(section) for section in sections]
    if missing:
        parts.append("\n".join(["## What is missing", "", *(f"- {one_line(one)}" for one in missing), ""]))
    parts.append(_origin(found))
    write_bytes(out, "\n".join(parts).encode())
    return out


def _section(section: Section) -> str:
    tables = [to_markdown(_table(section, protocol)) for protocol in section.experiment.protocols]
    commands = []
    for line in section.experiment.lines:
        out = f"{AGAIN}/{section.name}/{slug_of(line.label)}"
        commands += [f"# {one_line(line.label)}", rerun_command(line, out=out)]
    text = [section.text, ""] if section.text else []
    title = f"## {escape_markdown(section.title)}"
    return "\n".join([title, "", *text, *tables, "```sh", *commands, "```", ""])


def _table(section: Section, protocol: str) -> Table:
    experiment = section.experiment
    family = compare_all(experiment, section.reference, protocol) if section.reference else None
    published = {line.label: published_of(line, protocol) for line in experiment.lines}
    has_paper = any(published.values())

    def cells(line: Line) -> Cells:
        row = published[line.label]
        values = [value for one in line.records if (value := one.after("accuracy", protocol, -1)) is not None]
        seconds = line.summary(lambda record: record.total_seconds)
        return (
            line.label,
            *([row.row if row else None] if has_paper else []),
            len(line.records),
            line.accuracy(protocol, -1),
            interval(mean_interval(values)),
            *([row.last if row else None] if has_paper else []),
            *(_tests(family, line.label) if family else []),
            line.forgetting(protocol),
            line.newest(protocol),
            seconds and f"{seconds.mean:.1f}",
        )

    notes = [f"{label}: {row.remark}." for label, row in published.items() if row and row.remark]
    if family:
        notes += [*family.notes(), *family.refused]
        notes += [f"{one.second}: {one.note}" for one in family.comparisons if one.note]
    name, paper = (["the paper's name"], ["paper"]) if has_paper else ([], [])
    tests = ["p (t)", "p (sign-flip)"] if family else []
    return Table(
        name=f"reproducibility-{protocol}",
        title=f"Protocol {protocol}, after task {experiment.n_tasks}",
        columns=("method", *name, "n", "ours", "95 % interval", *paper, *tests, "forgetting", "newest task", "seconds"),
        rows=tuple(map(cells, experiment.lines)),
        notes=(*notes, *experiment.notes),
        text_columns=1 + has_paper,
    )


def _tests(family: Family, label: str) -> tuple[Cell, Cell]:
    """Both corrected p of a line against the reference."""
    if label == family.reference.label:
        return "reference", "reference"
    found = family.against(label)
    return (p_value(found.p_t_corrected), p_value(found.p_sign_corrected)) if found else (None, None)


# -- what is not there -------------------------------------------------------------------------------------------------


def _missing(found: Records, sections: Sequence[Section], expected: Mapping[str, str]) -> list[str]:
    there = {section.name for section in sections}
    said = [f"{title} (`{name}`): no records." for name, title in expected.items() if name not in there]
    both = [(section, line) for section in sections for line in section.experiment.lines]
    said += dict.fromkeys(one for section, line in both if (one := _missing_seeds(line, section.seeds)))
    said += _missing_rows(line for _, line in both)
    begun = (path.parents[1] for path in sorted(found.directory.rglob(f"{FOLDER}/{FILE}")))
    said += [f"Unfinished: {one.relative_to(found.directory)}" for one in begun if not (one / RECORD).exists()]
    prefix = f"{found.directory}/"
    return [*said, *(f"Not read: {fault.replace(prefix, '')}" for fault in found.faults)]


def _missing_seeds(line: Line, planned: tuple[int, ...]) -> str:
    """Seeds that a line was not run on: of those that its section should have, else of its order family."""
    from erda.data.catalogue import default_seeds
    from erda.errors import StreamError

    first = line.first
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
    there = [(row.method, row.encoder, row.components) for line in lines if (row := published_of(line))]
    absent: dict[str, list[str]] = {}
    for row in PAPER if there else ():
        if (row.method, row.encoder, row.components) not in there:
            table = f"the paper's {row.source} ({row.dataset} {row.shots}-shot, {row.encoder})"
            absent.setdefault(table, []).append(row.row)
    return [f"No records for {table}: {'; '.join(rows)}." for table, rows in absent.items()]


def _origin(found: Records) -> str:
    """Machines and versions that the records name."""
    counts: Counter[str] = Counter()
    for record in found.records:
        versions = ", ".join(f"{name} {version}" for name, version in sorted(record.versions.items()))
        counts[one_line(f"device {record.device}, {versions}")] += 1
    return "\n".join(
        ["## Where the records come from", "", *(f"- {n} records: {said}" for said, n in counts.items()), ""]
    )
