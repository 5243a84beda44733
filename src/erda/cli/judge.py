"""`erda judge`: say whether a relation holds in a sentence."""

from __future__ import annotations

import argparse

from erda.cli.checking import Commands, add_command
from erda.cli.edit import KNOWN
from erda.cli.printing import print_line
from erda.cli.store import add_store, open_store
from erda.cli.teach import say_what_is_known

JUDGE = """\
With --yes, the sentence becomes an example of the relation; with --no, a counterexample. The same sentence judged the
other way moves. Each judgement is a version: `erda undo` takes it back.

examples:
  erda judge "founded by" "[[Apple]] hired {{Tim Cook}} as its CEO." --no
  erda judge "founded by" "[[Intel]] goes back to {{Robert Noyce}}." --yes
"""


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    about = "Say whether a known relation holds between the two marked entities of a sentence."
    judge = add_command(commands, "judge", about, JUDGE, brief="say whether a relation holds in a sentence")
    judge.add_argument("relation", metavar="RELATION", help=KNOWN)
    judge.add_argument("sentence", metavar="SENTENCE", help="a sentence with its two entities marked")
    verdict = judge.add_mutually_exclusive_group(required=True)
    verdict.add_argument("--yes", dest="holds", action="store_true", help="the relation holds")
    verdict.add_argument("--no", dest="holds", action="store_false", help="the relation does not hold")
    add_store(judge)
    judge.set_defaults(handler=run_judge)


def run_judge(options: argparse.Namespace) -> int:
    """Keep a judgement."""
    print_line(str(open_store(options).judge(options.sentence, options.relation, holds=options.holds)))
    say_what_is_known(options)
    return 0
