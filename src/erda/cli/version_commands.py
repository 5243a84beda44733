"""`erda versions | export`: go back to earlier versions of an extractor, remove them, and export the current one."""

from __future__ import annotations

import argparse
from pathlib import Path

from erda.cli.checking import Commands, add_command, positive
from erda.cli.printing import print_line
from erda.cli.store_options import add_store, command, open_store, say_what_is_known, stored
from erda.errors import ModelError, counted


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    versions = add_command(commands, "versions", run_versions)
    act = versions.add_mutually_exclusive_group()
    act.add_argument("--undo", action="store_true", help="return to the version before the current one")
    act.add_argument("--to", type=int, metavar="N", help="return to version N, an earlier or a later one")
    act.add_argument("--keep", type=positive, metavar="N", help="remove all versions but the newest N and the current")
    purge = "keep only the current version, without its history; forgotten data cannot be restored"
    act.add_argument("--purge", action="store_true", help=purge)
    add_store(versions)

    export = add_command(commands, "export", run_export)
    export.add_argument("out", type=Path, metavar="OUT", help="a new folder")
    engine = "onnx (float32) or onnx-int8, made from the weights (extra train); default: the encoder's own file"
    export.add_argument("--engine", metavar="NAME", help=engine)
    add_store(export)


def run_versions(options: argparse.Namespace) -> None:
    """List the versions, return to one of them, or remove some."""
    if options.undo:
        print_line(_undo(options))
    elif options.to is not None:
        open_store(options, create=True, version=options.to)  # also repairs a damaged store
    elif options.purge or options.keep is not None:
        n_removed = open_store(options).prune(keep=options.keep or 0, purge=options.purge)
        print_line(f"{counted(n_removed, 'version')} removed.")
    else:
        _list_versions(options)
        return
    say_what_is_known(options)


def _undo(options: argparse.Namespace) -> str:
    """Return to the previous version, chosen under the lock; the current version can be damaged."""
    store = stored(options)
    with store.writing():
        current, before = store.head().current, store.before()
        store.read(before, mend=True)  # a damaged version is rejected
        store.point(before)
    try:
        undone = store.version_file(current).stamp.what
    except ModelError:
        return f"Version {current} is damaged and no longer current."
    return f"Undone: {undone}. To bring it back: {command(options, f'versions --to {current}')}"


def _list_versions(options: argparse.Namespace) -> None:
    """Print a line for each version in local time; a star marks the current version."""
    from datetime import datetime

    for one in stored(options).history():
        star = "*" if one.is_current else " "
        counts = f"relations: {one.n_relations:<4d}  examples: {one.n_examples:<5d}"
        try:
            when = f"{datetime.fromisoformat(one.time).astimezone():%Y-%m-%d %H:%M}"
        except (ValueError, OverflowError):
            when = f"{one.time[:16]:16}"
        print_line(f"{star}{one.number:4d}  {when}  {counts}  {one.what}")


def run_export(options: argparse.Namespace) -> None:
    """Write the folder."""
    folder = open_store(options).export(options.out, engine=options.engine)
    example = '"[[SpaceX]] was set up by {{Elon Musk}}."'
    print_line(f"{folder} is written. Try it: python {folder / 'predict.py'} {example}")
