"""From any format to one of ours: JSONL, which keeps everything, or CSV with inline marks, which people can edit."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from erda.data.formats import Reading, example_to_json
from erda.data.formats.table import csv_lines
from erda.data.own import read_examples
from erda.errors import SettingsError
from erda.files import write_lines
from erda.types import Example


def jsonl_lines(examples: Iterable[Example]) -> Iterator[str]:
    """Examples as lines of our own format."""
    return (json.dumps(example_to_json(example), ensure_ascii=False) for example in examples)


WRITERS: dict[str, Callable[[Iterable[Example]], Iterator[str]]] = {".jsonl": jsonl_lines, ".csv": csv_lines}


def convert(
    path: Path,
    out: Path,
    *,
    format: str | None = None,
    no_relation: Collection[str] = (),
    tick: Callable[[], object] = lambda: None,
) -> Reading:
    """Write the examples of a file, those without a relation last, and give what the file held.

    The ending of `out` says how: `.jsonl` or `.csv`, packed with `.gz` after it. `tick` hears of each row that is read.
    """
    _writer(out)
    refuse_input(path, out)
    reading = read_examples(path, format, no_relation, tick=tick)
    write_examples(out, (*reading.examples, *reading.unrelated))
    return reading


def refuse_input(path: Path, out: Path) -> None:
    """Refuse to write over the file that is read."""
    if out.exists() and path.exists() and out.samefile(path):
        raise SettingsError(f"--out {out}: is the file that is read; name another.")


def write_examples(out: Path, examples: Iterable[Example]) -> None:
    """Write examples as JSONL or CSV, by the ending of the name."""
    write_lines(out, _writer(out)(examples))


def _writer(out: Path) -> Callable[[Iterable[Example]], Iterator[str]]:
    ending = out.with_suffix("").suffix if out.suffix == ".gz" else out.suffix
    if ending not in WRITERS:
        raise SettingsError(
            f"--out {out}: expected a name that ends in {' or '.join(WRITERS)}, perhaps with .gz after it."
        )
    return WRITERS[ending]
