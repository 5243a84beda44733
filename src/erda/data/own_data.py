"""A user's own data: a file in any supported format, or a folder with `train`, `validation` and `test` files.

`convert` writes our own formats: JSONL, which keeps every field, or CSV with inline marks, which people can edit; and
files that Label Studio and Prodigy import.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from erda.data.dataset import Dataset, data_checksum, relations_by_pair
from erda.data.formats import annotation_tools, csv_examples
from erda.data.formats.annotation_tools import brat_files
from erda.data.formats.csv_examples import READ, is_excel, table_rows
from erda.data.formats.jsonl_examples import JSONL, example_to_json, marked_rows, read_relation_list
from erda.data.formats.published_formats import CFRL, fewrel_rows, tacred_rows
from erda.data.formats.row_collector import Format, Reading, collect_rows
from erda.errors import SHOWN_FAULTS, DataError, SettingsError, counted, one_line, unknown_name
from erda.files import check_output, refuse_existing, write_lines
from erda.text.descriptions import readable_name
from erda.text.reading import read_start
from erda.types import Example, Relation

TABLE = "a header with 'text' and a row for each example"
TASKS = "an array of tasks with 'data' and 'annotations' (export format JSON)"
_ALL = (
    Format("brat", annotation_tools.brat_rows, "brat annotations, one per line"),
    CFRL,
    Format("csv", partial(table_rows, csv_examples.csv_table), TABLE),
    Format("fewrel", fewrel_rows, "an object that maps relation ids to arrays of examples", published=True),
    JSONL,
    Format("labelstudio", annotation_tools.labelstudio_rows, TASKS),
    Format("marked", marked_rows, "one sentence per line, with its entities in [[ ]] and {{ }}"),
    Format("prodigy", annotation_tools.prodigy_rows, "one JSON object per line, as written by 'prodigy db-out'"),
    Format("tacred", tacred_rows, "an array of objects with 'token', 'subj_start' and so on", published=True),
    Format("xlsx", partial(table_rows, csv_examples.excel_table), TABLE),
)
FORMATS = {one.name: one for one in _ALL}
TABLES = ("csv", "xlsx")  # formats with columns
ENDINGS = tuple(f"{kind}{packed}" for kind in (".jsonl", ".json", ".csv") for packed in ("", ".gz", ".bz2"))
SPREADSHEETS = (".xls", ".ods", ".numbers")  # not read; .xlsx is
POOLS = ("train", "validation", "test")
_ROW_KEYS = re.compile(r'\{\s*"(?:tokens|text|head|tail|relation|id|source)"')
_FEWREL = re.compile(r'\{\s*"[^"]*"\s*:\s*\[')
_TACRED = re.compile(r'(?<!\\)"(?:token|subj_start)"\s*:')
_PRODIGY = re.compile(r'(?<!\\)"(?:_input_hash|_task_hash|spans|relations)"\s*:|"tokens"\s*:\s*\[\s*\{')
_OUR_ENTITY = re.compile(r'(?<!\\)"(?:head|tail)"\s*:\s*\{')
_JSON = re.compile(r'\{\s*"|\[\s*\{')
_MARKED = re.compile(r".*(?:\[\[|\{\{)")
_START = 1 << 16


def read_examples(
    path: Path,
    format: str | None = None,
    no_relation: Collection[str] = (),
    *,
    columns: Mapping[str, str] | None = None,
    tick: Callable[[], object] = lambda: None,
) -> Reading:
    """Read a file in a named format, or detect its format. Check relations against a list beside the file.

    Rows whose relation is null, `no_relation` or one of the names in `no_relation` go to `Reading.unrelated`.
    `columns` maps the columns that erda reads to those of a table: `{"text": "sentence"}`. `tick` is called once for
    each row.
    """
    path = Path(path)
    known = format_of(path, format, columns)
    listed = set() if known.published else {relation.id for relation in relations_beside(path)}
    none = () if known is CFRL else no_relation  # CFRL numbers its relations; no number means none
    return collect_rows(path, known, relations=listed or None, no_relation=none, tick=tick)


def refuse_spreadsheet(path: Path) -> None:
    """Reject old Excel files and the like by their names."""
    if path.suffix.lower() in SPREADSHEETS:
        raise DataError(f"{path}: {path.suffix} is not read; save it as .xlsx or CSV (UTF-8) and name that file.")


def format_of(path: Path, name: str | None = None, columns: Mapping[str, str] | None = None) -> Format:
    """Return the named format, or detect the format of a file. Only a table has `columns`."""
    if name is not None and name not in FORMATS:
        raise SettingsError(unknown_name("format", name, FORMATS))
    refuse_spreadsheet(path)
    if is_excel(path) and name is None:
        name = "xlsx"
    if not columns:
        return FORMATS[name or detect_format(path)]
    if name not in (None, *TABLES):
        raise SettingsError(f"--columns: only tables ({', '.join(TABLES)}) have columns, not '{name}'.")
    for column in columns:
        if column not in READ:
            raise SettingsError(f"--columns: {unknown_name('column', column, READ)}")
    table = FORMATS[name or "csv"]
    return replace(table, rows=partial(table.rows, renamed=columns))


def own_format(path: Path, name: str | None, columns: Mapping[str, str] | None = None) -> Format:
    """Return the format of a file that can be read row by row."""
    found = format_of(path, name, columns)
    if found.published:
        raise SettingsError(
            f"{path}: is '{found.name}', which is not read row by row; "
            f"run first: erda data convert {path} --out OUT.jsonl"
        )
    return found


def detect_format(path: Path) -> str:
    """Detect a format: brat by its `.ann` files, CSV by its suffix, the others by the beginning of the file."""
    if any(file.is_file() for file in brat_files(path)):
        return "brat"
    start = read_start(path, _START)
    first = start.partition("\n")[0]
    if path.name.lower().removesuffix(".gz").removesuffix(".bz2").endswith(".csv"):
        return "csv"
    if _MARKED.match(first) and not _JSON.match(start):
        return "marked"
    if start[0] in "[{":
        return _json_format(start, first)
    if "text" in map(str.lower, csv_examples.header_names(first)):
        return "csv"
    if "\t" in first:
        return "cfrl"
    raise DataError(
        f"{path}: unrecognised format; name it with --format ({', '.join(FORMATS)}). "
        "In plain sentences, mark the entities: [[Tesla]] was founded by {{Martin Eberhard}}."
    )


def _json_format(start: str, first: str) -> str:
    if start[0] == "[":
        return "tacred" if _TACRED.search(start) else "labelstudio"
    if _PRODIGY.search(first) and not _OUR_ENTITY.search(first):
        return "prodigy"
    return "fewrel" if _FEWREL.match(start) and not _ROW_KEYS.match(start) else "jsonl"


def relation_files(path: Path) -> tuple[Path, ...]:
    """Return the paths where a relation list may lie, for `mine.jsonl` in this order:

    `mine.relations.json`, `mine.jsonl.relations.json`, `relations.json`.
    """
    names = (f"{path.name.split('.')[0]}.relations.json", f"{path.name}.relations.json", "relations.json")
    return tuple(path.parent / name for name in names)


def relations_beside(path: Path) -> list[Relation]:
    """Read the relation list beside a file of examples; empty if there is none."""
    return next((read_relation_list(file) for file in relation_files(path) if file.is_file()), [])


def read_own(path: Path, *, no_relation: Collection[str] = ()) -> Dataset:
    """Load a dataset from one file, or from a folder with `train.jsonl` and optional `validation` and `test` files.

    Files end in `.jsonl`, `.json` or `.csv`, optionally followed by `.gz` or `.bz2`. The dataset has only the relations
    that occur in its examples.
    """
    path = Path(path)
    files = {"train": path} if path.is_file() else _folder_files(path)
    readings = {pool: read_examples(file, no_relation=no_relation) for pool, file in files.items()}
    pools = {pool: readings[pool].examples if pool in readings else () for pool in POOLS}
    relations = name_relations(
        (example for pool in POOLS for example in pools[pool]), relations_beside(next(iter(files.values())))
    )
    if not relations:
        raise DataError(f"{path}: no example has a relation.")
    return Dataset(
        path.name.split(".")[0] if path.is_file() else path.name,
        relations,
        **pools,
        checksum=data_checksum(files.values(), relations=relations),
        unrelated=tuple(example for reading in readings.values() for example in reading.unrelated),
    )


def name_relations(examples: Iterable[Example], listed: Collection[Relation] = ()) -> tuple[Relation, ...]:
    """Return the occurring relations: listed ones in their order, then the others by id, named after their id."""
    occurring = {str(example.relation) for example in examples}
    known = {relation.id: relation for relation in listed}
    ids = [*(i for i in known if i in occurring), *sorted(i for i in occurring if i not in known)]
    return tuple(known.get(i) or Relation(i, readable_name(i)) for i in ids)


def describe(reading: Reading, *, top: int = 20) -> str:
    """Summarise a file for people: counts, the most frequent relations, duplicates, the longest sentence."""
    counts, n_examples = reading.counts, len(reading.examples)
    lines = [
        f"{reading.path}: {counted(n_examples, 'example')} of {counted(len(counts), 'relation')} ({reading.format})"
    ]
    lines += [f"  {count:7d}  {relation}" for relation, count in list(counts.items())[:top]]
    if len(counts) > top:
        lines.append(f"           ... and {len(counts) - top} more relations, the rarest with {min(counts.values())}")
    lines += set_apart(reading)
    n_conflicts = sum(len(found) for found in relations_by_pair(reading.examples).values() if len(found) > 1)
    if n_conflicts:
        lines.append(f"{n_conflicts} examples repeat the sentence and entities of another with a different relation")
    longest = max(
        (len(example.tokens) for example in (*reading.examples, *reading.unrelated, *reading.counterexamples)),
        default=0,
    )
    lines.append(f"longest sentence: {counted(longest, 'token')}")
    return "\n".join(map(one_line, lines))


def set_apart(reading: Reading) -> list[str]:
    """Describe the rows of a file that are not examples of a relation; no row is skipped silently."""
    n, n_against = len(reading.unrelated), len(reading.counterexamples)
    lines = [f"{counted(n, 'row')} without a relation"] if n else []
    lines += [f"{counted(n_against, 'counterexample')}, whose relation does not hold"] if n_against else []
    lines += [f"{counted(count, 'row')} left out: {reason}" for reason, count in reading.left_out.items()]
    if reading.duplicates:
        kept = "kept as published" if FORMATS[reading.format].published else "kept once"
        lines.append(f"{counted(len(reading.duplicates), 'duplicate')}, {kept}:")
        lines += [f"  {line} repeats {first}" for line, first in reading.duplicates[:SHOWN_FAULTS]]
        if len(reading.duplicates) > SHOWN_FAULTS:
            lines.append(f"  ... and {len(reading.duplicates) - SHOWN_FAULTS} more")
    return lines


def _folder_files(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise DataError(f"{folder}: no such file or folder.")
    paths = ((pool, folder / f"{pool}{ending}") for pool in POOLS for ending in reversed(ENDINGS))  # the last one wins
    found = {pool: path for pool, path in paths if path.is_file()}
    if "train" not in found:
        raise DataError(f"{folder}: contains no train.jsonl (or .json or .csv, optionally with .gz or .bz2).")
    return found


def jsonl_lines(examples: Iterable[Example], counterexamples: Iterable[Example] = ()) -> Iterator[str]:
    """Write examples as lines of JSONL."""
    for pool, holds in ((examples, True), (counterexamples, False)):
        yield from (json.dumps(example_to_json(example, holds=holds), ensure_ascii=False) for example in pool)


WRITERS = {  # ending of a name, the first that fits -> lines of the format, and their ending
    "prodigy.jsonl": (annotation_tools.prodigy_lines, "\n"),
    ".jsonl": (jsonl_lines, "\n"),
    ".json": (annotation_tools.labelstudio_lines, "\n"),
    ".csv": (csv_examples.csv_lines, csv_examples.CSV_END),
}


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

    The ending of `out` selects the format (`WRITERS`); `.gz` may follow it. `tick` is called once for each row.
    """
    is_labelstudio = _ending(out) == ".json"
    check_output(out, path, *brat_files(path), *relation_files(path), overwrite=overwrite)
    reading = read_examples(path, format, no_relation, columns=columns, tick=tick)
    examples, against = (*reading.examples, *reading.unrelated), reading.counterexamples
    write_examples(out, examples, against, overwrite=overwrite)
    if not (is_labelstudio and against):
        return reading
    left_out = reading.left_out | {"Label Studio has no counterexamples": len(against)}
    return replace(reading, counterexamples=(), left_out=left_out)


def write_examples(
    out: Path, examples: Iterable[Example], counterexamples: Sequence[Example] = (), *, overwrite: bool = False
) -> None:
    """Write examples in the format that the ending of the name selects."""
    lines, end = WRITERS[_ending(out)]
    refuse_existing(out, overwrite=overwrite)
    write_lines(out, lines(examples, counterexamples), end=end)


def _ending(out: Path) -> str:
    name = out.name.lower().removesuffix(".gz")
    if found := next((ending for ending in WRITERS if name.endswith(ending)), None):
        return found
    raise SettingsError(
        f"--out {out}: expected a name that ends in .jsonl, .csv, .json (Label Studio) or prodigy.jsonl, optionally "
        "followed by .gz."
    )
