"""`erda list WHAT` and `erda data get NAME | convert FILE`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from erda.cli.checking import Commands, add_command, named_path
from erda.cli.printing import print_columns, print_line, print_note
from erda.cli.store_options import add_overwrite, add_rows, chosen
from erda.errors import DataError, ErdaError, counted, not_installed, one_line, unknown_name


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    listing = add_command(commands, "list", run_list)
    listing.add_argument("what", choices=sorted({"datasets", *LISTS}), help="what to list")

    group = add_command(commands, "data")
    own = group.add_subparsers(title="commands", metavar="COMMAND", required=True)

    get = add_command(own, "data get", get_files)
    get.add_argument("name", metavar="NAME", help="a name of `erda list datasets`")
    mirror = "fetch from here instead of raw.githubusercontent.com; for entities, a package index or a folder"
    get.add_argument("--mirror", metavar="URL", help=mirror)

    convert = add_command(own, "data convert", convert_file)
    convert.add_argument("file", metavar="FILE", type=named_path, help="examples in any of the formats of docs/data.md")
    add_rows(convert)
    out = "output file: .jsonl, .csv, .json (Label Studio) or prodigy.jsonl, also with .gz (default: only check)"
    convert.add_argument("--out", metavar="OUT", type=Path, help=out)
    add_overwrite(convert)


# -- lists -------------------------------------------------------------------------------------------------------------

Entry = tuple[str, str, list[str]]  # name, a sentence, settings


def run_list(options: argparse.Namespace) -> None:
    """Print one list."""
    if options.what == "datasets":
        list_datasets()
        return
    entries = list(LISTS[options.what]())
    width = max(len(name) for name, *_ in entries) + 2
    for name, about, settings in entries:
        print_line(f"{name:<{width}}{about}")
        for setting in settings:
            print_line(f"    {setting}")


def _methods() -> Iterator[Entry]:
    from erda.methods import METHODS, find_method
    from erda.settings.runs import default_settings

    for name in METHODS:
        try:
            method = find_method(name)
        except ErdaError as fault:  # a broken plug-in package
            yield name, f"({fault})", []
        except ModuleNotFoundError as fault:
            yield name, f"({not_installed([fault.name or ''])})", []
        else:
            settings = [f"{setting} = {_toml(value)}" for setting, value in default_settings(method).items()]
            yield name, next(iter((method.__doc__ or "").strip().splitlines()), ""), settings


def _encoders() -> Iterator[Entry]:
    from erda.encoders import ENCODERS
    from erda.fields import flat_values

    for name, entry in ENCODERS.items():
        settings = flat_values(entry.settings())
        yield name, entry.about, [f"encoder.{setting} = {_toml(value)}" for setting, value in settings.items()]


def _presets() -> Iterator[Entry]:
    from erda.settings.load import preset_names, read_preset

    for name in preset_names():
        yield name, str(read_preset(name)["description"]), []


def _toml(value: bool | int | float | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def list_datasets() -> None:
    """Print the datasets and the models of `erda data get`, and which of them are on disk."""
    from erda.data import entity_model
    from erda.data.catalogue import DATASETS, missing_files
    from erda.encoders.onnx_encoder import ABOUT, BUILT, packaged_folder
    from erda.files import data_folder

    folder = data_folder()
    rows = []
    for name, entry in DATASETS.items():
        here = "embedded" if not entry.needs else "here"
        if missing_files(entry, folder):
            here = "to fetch" if entry.remote else "to obtain"
        rows.append((name, here, entry.licence, entry.about))
    here = "here" if entity_model.model_folder() else "to fetch"
    rows.append((entity_model.NAME, here, "MIT", entity_model.ABOUT))
    here = "here" if (packaged_folder(BUILT) / ABOUT).is_file() else "to build"
    rows.append((BUILT, here, "Apache-2.0", f"the larger encoder for --encoder {BUILT} (needs the extra train, once)"))
    print_columns("<<<<", rows)
    print_line()
    print_line(f"Data folder: {folder}" + ("" if folder.is_dir() else " (does not exist yet)"))


LISTS: dict[str, Callable[[], Iterator[Entry]]] = {"methods": _methods, "encoders": _encoders, "presets": _presets}


# -- files -------------------------------------------------------------------------------------------------------------


def get_files(options: argparse.Namespace) -> None:
    """Fetch a dataset or the entity tagger, or build the larger encoder."""
    from erda.data import entity_model
    from erda.data.catalogue import DATASETS, GITHUB
    from erda.data.fetch import get_dataset
    from erda.encoders.onnx_encoder import BUILT

    names = (*DATASETS, entity_model.NAME, BUILT)
    if options.name not in names:
        raise DataError(unknown_name("name", options.name, names))
    if options.name == BUILT:
        from erda.encoders.weights import graph_builder

        graph_builder().get_packaged(options.name, say=print_note)
    elif options.name != entity_model.NAME:
        get_dataset(options.name, mirror=options.mirror or GITHUB, say=print_note)
    else:
        entity_model.get_entity_model(mirror=options.mirror, say=print_note)
        if find_spec("spacy") is None:
            print_note(not_installed(["spacy"]))


def convert_file(options: argparse.Namespace) -> None:
    """Convert a file, or only read it; print its counts. Faults exit with status 2."""
    from tqdm import tqdm

    from erda.data.own_data import convert, describe, read_examples, set_apart

    asked = chosen(options, "format", "no_relation", "columns")
    if options.out is None:
        reading = read_examples(options.file, **asked)
        for line in describe(reading).split("\n"):
            print_line(line)
        return
    with tqdm(desc=one_line(options.file.name), unit=" rows", disable=None) as bar:
        reading = convert(options.file, options.out, **asked, overwrite=options.overwrite, tick=bar.update)
    held = f"{counted(len(reading.examples), 'example')} of {counted(len(reading.counts), 'relation')}"
    print_line(f"{options.out}: {held}, from {options.file} ({reading.format})")
    for line in set_apart(reading):
        print_line(line)
