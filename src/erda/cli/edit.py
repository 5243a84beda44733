"""`erda rename | merge | describe`: change relations that an extractor knows."""

from __future__ import annotations

import argparse

from erda.cli.checking import Commands, add_command
from erda.cli.store import add_store, open_store, progress_bar, say_what_changed

KNOWN = "a relation of `erda relations`"
RENAME = """\
The examples and the description stay. `erda undo` takes the change back.

examples:
  erda rename "founded by" "established by"
"""
MERGE = """\
All examples of RELATION become examples of INTO. `erda undo` takes the change back.

examples:
  erda merge "set up by" "founded by"
"""
DESCRIBE = """\
An empty TEXT removes the description. `erda undo` takes the change back.

examples:
  erda describe "founded by" "the person who started an organisation"
  erda describe "founded by" ""
"""


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    about = "Rename a relation of an extractor."
    rename = add_command(commands, "rename", about, RENAME, brief="rename a relation")
    rename.add_argument("relation", metavar="OLD", help=KNOWN)
    rename.add_argument("new", metavar="NEW", help="the new name")
    add_store(rename)
    rename.set_defaults(handler=run_rename)

    about = "Move all examples of one relation into another, and drop the first."
    merge = add_command(commands, "merge", about, MERGE, brief="merge one relation into another")
    merge.add_argument("relation", metavar="RELATION", help=f"{KNOWN}, which is dropped")
    merge.add_argument("into", metavar="INTO", help="the relation that takes over its examples")
    add_store(merge)
    merge.set_defaults(handler=run_merge)

    about = "Replace or remove the description of a relation."
    describe = add_command(commands, "describe", about, DESCRIBE, brief="replace or remove a description")
    describe.add_argument("relation", metavar="RELATION", help=KNOWN)
    describe.add_argument("text", metavar="TEXT", help="the meaning of the relation, or an empty text")
    add_store(describe)
    describe.set_defaults(handler=run_describe)


def run_rename(options: argparse.Namespace) -> int:
    """Rename a relation."""
    with progress_bar("renaming") as progress:
        extractor = open_store(options)
        before = extractor.version.number
        extractor.rename(options.relation, options.new, progress=progress)
    say_what_changed(options, before)
    return 0


def run_merge(options: argparse.Namespace) -> int:
    """Merge one relation into another."""
    with progress_bar("merging") as progress:
        extractor = open_store(options)
        before = extractor.version.number
        extractor.merge(options.relation, options.into, progress=progress)
    say_what_changed(options, before)
    return 0


def run_describe(options: argparse.Namespace) -> int:
    """Replace or remove a description."""
    with progress_bar("describing") as progress:
        extractor = open_store(options)
        before = extractor.version.number
        extractor.describe(options.relation, options.text, progress=progress)
    say_what_changed(options, before)
    return 0
