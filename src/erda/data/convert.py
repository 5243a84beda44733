"""Conversion to our own formats: JSONL, which keeps every field, or CSV with inline marks, which people can edit."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from erda.data.formats import Reading, example_to_json
from erda.data.formats.brat import brat_files
from erda.data.formats.csv_examples import CSV_END, csv_lines
from erda.data.own_data import read_examples, relation_files
from erda.errors import SettingsError
from erda.files import write_lines
from erda.outputs import check_output, refuse_existing
from erda.types import Example


def jsonl_lines(examples: Iterable[Example], counterexamples: Iterable[Example] = ()) -> Iterator[str]:
    """Write examples as lines of JSONL."""
    for pool, holds in ((examples, True), (counterexamples, False)):
        yield from (json.dumps(example_to_json(example, holds=holds), ensure_ascii=False) for example in pool)


@dataclass(frozen=True, slots=True)
class ExampleWriter:
    """How a format writes lines, and its line ending."""

    lines: Callable[[Iterable[Example], Sequence[Example]], Iterator[str]]
    end: str


WRITERS = {".jsonl": ExampleWriter(jsonl_lines, "\n"), ".csv": ExampleWriter(csv_lines, CSV_END)}


def convert(
    path: Path,
    out: Path,
    *,
    format: str | None = None,
    no_relation: Collection[str] = (),
    columns: Mapping[str, str] | None = None,
    overwrite: bool = False,
    tick: Callable[[], object] = lambda: None,
) -> Reading:
    """Write the examples of a file to `out`, then those without a relation, then counterexamples; return the reading.

    The ending of `out` selects the format: `.jsonl` or `.csv`, or either with `.gz` after it. `tick` is called once for
    each row.
    """
    _writer(out)
    check_output(out, path, *brat_files(path), *relation_files(path), overwrite=overwrite)
    reading = read_examples(path, format, no_relation, columns=columns, tick=tick)
    examples = (*reading.examples, *reading.unrelated)
    write_examples(out, examples, reading.counterexamples, overwrite=overwrite)
    return reading


def write_examples(
    out: Path, examples: Iterable[Example], counterexamples: Sequence[Example] = (), *, overwrite: bool = False
) -> None:
    """Write examples as JSONL or CSV, depending on the ending of the name."""
    writer = _writer(out)
    refuse_existing(out, overwrite=overwrite)
    write_lines(out, writer.lines(examples, counterexamples), end=writer.end)


def _writer(out: Path) -> ExampleWriter:
    ending = out.with_suffix("").suffix if out.suffix == ".gz" else out.suffix
    if ending not in WRITERS:
        raise SettingsError(
            f"--out {out}: expected a name that ends in {' or '.join(WRITERS)}, optionally followed by .gz."
        )
    return WRITERS[ending]
