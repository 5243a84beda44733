"""`erda judge | tune | declare`: say where relations hold, and how sure an answer must be."""

from __future__ import annotations

import argparse

from erda.cli.checking import Commands, add_command, named_path
from erda.cli.edit import KNOWN
from erda.cli.printing import print_line
from erda.cli.store import (
    add_columns,
    add_format,
    add_no_relation,
    add_store,
    open_store,
    progress_bar,
    say_what_is_known,
)
from erda.cli.teach import declarations
from erda.errors import SettingsError, counted

JUDGE = """\
With --yes, the sentence becomes an example of the relation; with --no, a counterexample. If you later judge it the
other way, it moves. Each judgement is a version: `erda undo` takes it back.

examples:
  erda judge "founded by" "[[Apple]] hired {{Tim Cook}} as its CEO." --no
  erda judge "founded by" "[[Intel]] goes back to {{Robert Noyce}}." --yes
"""
TUNE = """\
An answer must reach a confidence threshold. The thresholds are fitted on labelled rows: rows of relations, rows of
no_relation, and rows with "holds": false. There is one overall threshold, and one for each relation with at least 20
rows. Rows that were taught do not count. Precision and recall are cross-validated. Marked pairs tune `erda predict`; a
.jsonl file of texts with 'entities' and 'relations' tunes `erda extract` (docs/teaching.md). Later teaching keeps the
thresholds. `erda undo` or --clear drops them.

examples:
  erda tune labelled.jsonl --precision 0.9
  erda tune --clear
"""
DECLARE = """\
`erda extract` reports a pair of a symmetric relation, or of two inverse relations, once. If two inverse relations are
both likely from head to tail, only the more confident one is an answer. Declared types replace those learned from
examples. An empty name or list clears a declaration; `erda undo` takes the change back.

examples:
  erda declare "spouse" --symmetric
  erda declare "parent" --inverse "child" --head-types PERSON --tail-types PERSON
  erda declare "parent" --inverse ""
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

    about = "Fit confidence thresholds on labelled rows, so that a given share of the answers is right."
    tune = add_command(commands, "tune", about, TUNE, brief="fit thresholds for a precision")
    tune.add_argument("file", type=named_path, metavar="FILE", nargs="?", help="labelled rows, as for `erda evaluate`")
    tune.add_argument("--precision", type=float, default=0.9, metavar="P", help="share of right answers (default: 0.9)")
    add_format(tune)
    add_columns(tune)
    add_no_relation(tune)
    tune.add_argument("--clear", action="store_true", help="drop the thresholds")
    add_store(tune)
    tune.set_defaults(handler=run_tune)

    about = "Declare that a relation is symmetric, has an inverse, or has entities of some types."
    declare = add_command(commands, "declare", about, DECLARE, brief="declare symmetry, an inverse or types")
    declare.add_argument("relation", metavar="RELATION", help=KNOWN)
    is_symmetric = "the relation holds in both directions, or (--no-symmetric) does not"
    declare.add_argument("--symmetric", action=argparse.BooleanOptionalAction, default=..., help=is_symmetric)
    declare.add_argument("--inverse", metavar="RELATION", default=..., help="the relation in the other direction")
    for role in ("head", "tail"):
        types = f"types of the {role}, separated by commas, for example PERSON,ORG"
        declare.add_argument(f"--{role}-types", metavar="TYPES", type=_types, default=..., help=types)
    add_store(declare)
    declare.set_defaults(handler=run_declare)


def _types(text: str) -> list[str]:
    return [one.strip() for one in text.split(",")] if text.strip() else []


def run_judge(options: argparse.Namespace) -> None:
    """Keep a judgement."""
    print_line(str(open_store(options).judge(options.sentence, options.relation, holds=options.holds)))
    say_what_is_known(options)


def run_tune(options: argparse.Namespace) -> None:
    """Fit thresholds and print what to expect of them, or drop them."""
    from erda.app.answers import TunedRelation
    from erda.app.texts import is_annotated
    from erda.data.own_data import read_examples

    if options.clear == (options.file is not None):
        raise SettingsError("Give a FILE of labelled rows, or --clear.")
    extractor = open_store(options)
    if options.clear:
        extractor.clear_thresholds()
        say_what_is_known(options)
        return
    with progress_bar("answering") as progress:
        labelled = options.file
        if not is_annotated(labelled):
            labelled = read_examples(labelled, options.format, options.no_relation, columns=options.columns)
        found = extractor.tune(
            labelled, precision=options.precision, no_relation=options.no_relation, progress=progress
        )
    width = max(map(len, (*found.relations, "relation")))
    print_line(f"{'relation'.ljust(width)}  threshold  rows  precision  recall")
    overall = TunedRelation(found.threshold, False, found.expected)
    for name, one in [*found.relations.items(), ("all", overall)]:
        shares = [
            f"{100 * each:.1f}" if each is not None else "-" for each in (one.expected.precision, one.expected.recall)
        ]
        star = "" if one.is_own or name == "all" else "*"
        row = f"{one.threshold:9.3f}{star:1}  {one.expected.n:4d}  {shares[0]:>8}  {shares[1]:>6}"
        print_line(f"{name.ljust(width)}  {row}")
    if not all(one.is_own for one in found.relations.values()):
        print_line("* overall threshold: the relation has too few rows, or does not reach the precision on its own")
    print_line(f"Precision and recall in percent, cross-validated on {counted(found.n_rows, 'row')}.")
    if found.n_taught:
        print_line(f"{counted(found.n_taught, 'row')} left out (taught before).")
    if (found.expected.precision or 0) < found.precision:
        print_line(f"On new text, expect a precision below {100 * found.precision:g}; more labelled rows help.")
    print_line(f"The thresholds apply to erda {'extract' if found.in_text else 'predict'}.")
    say_what_is_known(options)


def run_declare(options: argparse.Namespace) -> None:
    """Declare properties of a relation, and print all that hold for it."""
    given = {name: getattr(options, name) for name in ("symmetric", "inverse", "head_types", "tail_types")}
    if all(one is ... for one in given.values()):
        raise SettingsError("Nothing to declare: give --symmetric, --inverse, --head-types or --tail-types.")
    extractor = open_store(options)
    extractor.declare(options.relation, **given)
    said = declarations(extractor.version.known(options.relation))
    print_line(f"{options.relation}: {'; '.join(said) or 'nothing is declared'}")
    say_what_is_known(options)
