"""`erda predict | extract | evaluate`: what an extractor answers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from erda.cli.checking import Commands, add_command, below_one, named_path, refuse
from erda.cli.printing import print_line
from erda.cli.store import (
    STANDARD_INPUT,
    add_columns,
    add_format,
    add_no_relation,
    add_overwrite,
    add_store,
    input_file,
    open_store,
    progress_bar,
)
from erda.errors import counted

if TYPE_CHECKING:
    from erda.app.answer_tables import PlainRow
    from erda.app.predicting import Answered, Asking

PREDICT = """\
A row that cannot be read has an 'error' in place of an answer; all of them are named at the end, with exit status 2.
With --out, the same command goes on where it was stopped.

examples:
  erda predict "[[SpaceX]] was set up in 2002 by {{Elon Musk}}."
  erda predict my-questions.jsonl --out answers.csv
"""
EXTRACT = """\
Every line is a text; lines of a .jsonl file are objects with 'text', perhaps 'id' and 'entities' (span in characters,
type). Entities are those of the row, or named with --entity or --names; else those that the tagger of
'erda data get entities' finds; else runs of capitalised words, and names that were taught. The last line says which
tagger ran. Both directions of a pair are asked about and the likelier is kept. Answers carry id, line, text and the
character offsets of both entities.
A line that cannot be read has an 'error'; with --out, the same command goes on where it was stopped.

examples:
  erda extract news.txt --entity SpaceX --entity "Elon Musk"
  erda extract news.txt --names my-names.txt --out found.csv
"""
EVALUATE = """examples:
  erda evaluate my-tests.jsonl
  erda evaluate my-tests.jsonl --against 1
"""
MOST_CONFUSIONS = 10


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    about = "Say which relation holds between the two marked entities of each sentence, or that none does."
    predict = add_command(commands, "predict", about, PREDICT, brief="ask an extractor about sentences")
    _add_input(predict, "sentences in any format of docs/data.md, or one with marks (default: -, standard input)")
    add_format(predict)
    add_columns(predict)
    predict.add_argument("--top", type=int, default=5, metavar="N", help="relations to rank in JSONL (default: 5)")
    add_store(predict)
    predict.set_defaults(handler=run_predict)

    about = "Find the relations between the entities of raw text, of every pair that shares a sentence."
    extract = add_command(commands, "extract", about, EXTRACT, brief="find relations in raw text")
    _add_input(extract, "text, a line at a time, or a sentence (default: -, standard input)")
    extract.add_argument("--entity", action="append", metavar="NAME", help="an entity of the text (may be repeated)")
    names = "entities, one a line; an id may follow after a tab"
    extract.add_argument("--names", type=Path, metavar="FILE", help=names)
    both = "both directions of a pair where either is likely enough, not the likelier alone"
    extract.add_argument("--both", dest="pairs", action="store_const", const="both", default="likelier", help=both)
    every = "every pair in both directions, also where no relation holds"
    extract.add_argument("--all", dest="pairs", action="store_const", const="all", help=every)
    add_store(extract)
    extract.set_defaults(handler=run_extract)

    about = "Compare what an extractor answers with the truth: accuracy, each relation, what is mistaken for what."
    evaluate = add_command(commands, "evaluate", about, EVALUATE, brief="how well an extractor answers a file")
    evaluate.add_argument("file", type=named_path, metavar="FILE", help="examples with their relations, in any format")
    add_format(evaluate)
    add_columns(evaluate)
    add_no_relation(evaluate)
    against = "list the questions that this version answers differently"
    evaluate.add_argument("--against", type=int, metavar="VERSION", help=against)
    add_store(evaluate)
    evaluate.set_defaults(handler=run_evaluate)


def _add_input(parser: argparse.ArgumentParser, about: str) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", default=STANDARD_INPUT, help=about)
    out = ".jsonl, .csv or .parquet (default: print JSONL; on a terminal, a line to read)"
    parser.add_argument("--out", type=Path, metavar="OUT", help=out)
    add_overwrite(parser)


def run_predict(options: argparse.Namespace) -> int:
    """Answer a file into another, or row by row."""
    from erda.app.predicting import ask_rows

    refuse(below_one(options, "top"))
    version = open_store(options).version
    with input_file(options.file) as path:
        asking = ask_rows(version, path, format=options.format, columns=options.columns, top=options.top)
        _answer(asking, options)
    return 0


def run_extract(options: argparse.Namespace) -> int:
    """Extract from a text into a file, or line by line."""
    from erda.app.entities import find_tagger
    from erda.app.predicting import ask_text
    from erda.errors import SettingsError
    from erda.text.names import read_names

    if options.names and options.entity:
        raise SettingsError("Give --entity or --names, not both.")
    names = read_names(options.names) if options.names else dict.fromkeys(options.entity or ())
    version = open_store(options).version
    with input_file(options.file, plain=True) as path:
        answered = _answer(ask_text(version, path, names, pairs=options.pairs), options)
    if not answered.n_rows:
        nothing = "No relation was found; --all shows the pairs."
        if options.pairs == "all" or not answered.n_entities:
            nothing = "No line has two entities." if answered.n_entities else "No entity was found in the text."
        remedy = "" if names else " Entities can be named: --entity NAME, or --names FILE."
        print(nothing + remedy, file=sys.stderr)
    if not names:
        finder = find_tagger()
        print(finder.hint or f"Entities were found by {finder.name}.", file=sys.stderr)
    return 0


def _answer(asking: Asking, options: argparse.Namespace) -> Answered:
    """Show the answers or write them into a file."""
    from erda.app.predicting import count_lines, show_answers, write_answers

    names = getattr(options, "names", None)
    inputs = [*([names] if names else []), *([0] if options.file == STANDARD_INPUT else [])]  # 0: standard input

    if options.out is None:
        answered = show_answers(asking, _show)
    else:
        if asking.path == Path(options.file):  # what came in is not there another time
            options.kept = f"The answers so far are in {options.out}.partial; the same command goes on from there."
        total = count_lines(asking.path)
        with progress_bar("answering") as progress:
            answered = write_answers(
                asking,
                options.out,
                inputs=inputs,
                overwrite=options.overwrite,
                tick=lambda line: progress(line, max(line, total)),
            )
        earlier = f" ({answered.n_found:,} of them by an earlier run)" if answered.n_found else ""
        print(f"{options.out}: {counted(answered.n_rows, 'row')}{earlier}")
    answered.faults.raise_if_any()
    return answered


def _show(row: PlainRow) -> None:
    """Print a row as JSON; on a terminal, what people read of it."""
    from erda.app.answer_tables import json_line

    if not sys.stdout.isatty():
        print(json_line(row))
    elif "error" not in row:  # those are said at the end
        answer = row["relation"] or f"none (nearest: {row['ranked'][0]['relation']})"
        print_line(f"{row['confidence']:5.2f}  {answer}  {row.get('sentence', row['text'])}")


def run_evaluate(options: argparse.Namespace) -> int:
    """Print how well a file was answered."""
    from erda.app.evaluation import read_labelled
    from erda.text.marks import example_to_marks

    extractor = open_store(options)
    examples = read_labelled(
        options.file, format=options.format, no_relation=options.no_relation, columns=options.columns
    )
    if options.against is not None:
        changes = extractor.compare(options.against, extractor.version.number, examples)
        for one in changes:
            truth = f" (truth: {one.truth})" if one.truth else ""
            print_line(f"{one.before or '-'} -> {one.after or '-'}{truth}: {example_to_marks(one.example)}")
        versions = f"versions {options.against} and {extractor.version.number}"
        print(f"{counted(len(changes), 'answer')} of {versions} differ.")
        return 0
    with progress_bar("answering") as progress:
        found = extractor.evaluate(examples, progress=progress)
    print(f"{100 * found.accuracy:.1f} % of {counted(found.n, 'question')} answered rightly; 'none' is an answer too.")
    if found.accuracy_of_known is None and not found.untaught:
        print("No row names a relation, so that 'none' is right everywhere.")
    if found.accuracy_of_known is not None:
        print(f"{100 * found.accuracy_of_known:.1f} % where the relation was taught and 'none' may not be said.")
    width = max(map(len, (*found.relations, "relation")))
    print(f"\n{'relation'.ljust(width)}  questions  recall  precision")
    for name, score in found.relations.items():
        shares = [f"{100 * one:.1f}" if one is not None else "-" for one in (score.recall, score.precision)]
        print_line(f"{name.ljust(width)}  {score.n:9d}  {shares[0]:>6}  {shares[1]:>9}")
    wrong = sorted((-n, str(a or "none"), str(b or "none")) for (a, b), n in found.confusion.items() if a != b)
    if wrong:
        print("\nmistaken most often:")
    for n, truth, answer in wrong[:MOST_CONFUSIONS]:
        print_line(f"{-n:5d}  {truth} answered as {answer}")
    if found.untaught:
        print()
        print_line(f"Never taught, so 'none' is right: {', '.join(found.untaught)}")
    return 0
