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
All examples and patterns of RELATION move to INTO, which keeps its description. `erda undo` takes the change back.

examples:
  erda merge "set up by" "founded by"
"""
DESCRIBE = """\
Each TEXT is a line. A line that marks both entities is a pattern, which counts as a sentence of the relation. An empty
TEXT removes the description. `erda undo` takes the change back.

examples:
  erda describe "founded by" "the person who started an organisation"
  erda describe "founded by" "the person who started it" "[[X]] was founded by {{Y}}." "{{Y}} set up [[X]]."
  erda describe "founded by" ""
"""


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    about = "Rename a relation of an extractor."
    rename = add_command(commands, "rename", about, RENAME, brief="rename a relation")
    rename.add_argument("relation", metavar="OLD", help=KNOWN)
    rename.add_argument("value", metavar="NEW", help="the new name")
    add_store(rename)
    rename.set_defaults(handler=run, doing="renaming")

    about = "Move all examples of one relation into another, and drop the first."
    merge = add_command(commands, "merge", about, MERGE, brief="merge one relation into another")
    merge.add_argument("relation", metavar="RELATION", help=f"{KNOWN}, which is dropped")
    merge.add_argument("value", metavar="INTO", help="the relation that takes over its examples")
    add_store(merge)
    merge.set_defaults(handler=run, doing="merging")

    about = "Replace or remove the description of a relation."
    describe = add_command(commands, "describe", about, DESCRIBE, brief="replace or remove a description")
    describe.add_argument("relation", metavar="RELATION", help=KNOWN)
    lines = "the meaning of the relation, patterns, or an empty text"
    describe.add_argument("value", metavar="TEXT", nargs="+", help=lines)
    add_store(describe)
    describe.set_defaults(handler=run, doing="describing")


def run(options: argparse.Namespace) -> None:
    """Rename a relation, merge it into another, or replace its description."""
    with progress_bar(options.doing) as progress:
        extractor = open_store(options)
        before = extractor.version.number
        change = getattr(extractor, options.command)
        value = options.value if isinstance(options.value, str) else "\n".join(options.value)
        change(options.relation, value, progress=progress)
    say_what_changed(options, before)
