"""`erda predict | extract | evaluate`: what an extractor answers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from erda.cli.checking import Commands, add_command, below_one, named_path, refuse
from erda.cli.store import STANDARD_INPUT, add_format, add_store, input_file, open_store, progress_bar
from erda.errors import counted

if TYPE_CHECKING:
    from erda.app.predicting import ExtractedRows
    from erda.app.tables import PlainRow

PREDICT = """\
A row that cannot be read has an 'error' in place of an answer; all of them are named at the end, with exit status 2.
With --out, the same command goes on where it was stopped.

examples:
  erda predict "[[SpaceX]] was set up in 2002 by {{Elon Musk}}."
  erda predict my-questions.jsonl --out answers.csv
"""
EXTRACT = """\
Every line is a text. Its entities are those named with --entity or --names; else those that a spaCy pipeline finds,
where one is installed; else those that were taught.

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
    predict.add_argument("--top", type=int, default=5, metavar="N", help="relations to rank in JSONL (default: 5)")
    add_store(predict)
    predict.set_defaults(handler=run_predict)

    about = "Find the relations between all entities of raw text, every ordered pair that shares a sentence."
    extract = add_command(commands, "extract", about, EXTRACT, brief="find relations in raw text")
    _add_input(extract, "text, a line at a time, or a sentence (default: -, standard input)")
    extract.add_argument("--entity", action="append", metavar="NAME", help="an entity of the text (may be repeated)")
    names = "entities, one a line; an id may follow after a tab"
    extract.add_argument("--names", type=Path, metavar="FILE", help=names)
    extract.add_argument("--all", action="store_true", help="also the pairs between which none holds")
    add_store(extract)
    extract.set_defaults(handler=run_extract)

    about = "Compare what an extractor answers with the truth: accuracy, each relation, what is mistaken for what."
    evaluate = add_command(commands, "evaluate", about, EVALUATE, brief="how well an extractor answers a file")
    evaluate.add_argument("file", type=named_path, metavar="FILE", help="examples with their relations, in any format")
    against = "list the questions that this version answers differently"
    evaluate.add_argument("--against", type=int, metavar="VERSION", help=against)
    add_store(evaluate)
    evaluate.set_defaults(handler=run_evaluate)


def _add_input(parser: argparse.ArgumentParser, about: str) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", default=STANDARD_INPUT, help=about)
    out = ".jsonl, .csv or .parquet (default: print JSONL; on a terminal, a line to read)"
    parser.add_argument("--out", type=Path, metavar="OUT", help=out)


def run_predict(options: argparse.Namespace) -> int:
    """Answer a file into another, or line by line."""
    from erda.app.predicting import count_lines, predict_file, print_answers

    refuse(below_one(options, "top"))
    version = open_store(options).version
    with input_file(options.file) as path:
        if options.out is None:
            print_answers(version, path, format=options.format, top=options.top, show=_show)
            return 0
        if path == Path(options.file):  # what came in is not there another time
            options.kept = f"The answers so far are in {options.out}.partial; the same command goes on from there."
        total = count_lines(path)
        with progress_bar("answering") as progress:
            predicted = predict_file(
                version,
                path,
                options.out,
                format=options.format,
                top=options.top,
                tick=lambda line: progress(line, max(line, total)),
            )
        earlier = f" ({predicted.n_found:,} of them by an earlier run)" if predicted.n_found else ""
        print(f"{options.out}: {counted(predicted.n_rows, 'row')}{earlier}")
        predicted.faults.raise_if_any()
    return 0


def _show(row: PlainRow) -> None:
    """Print a row as JSON; on a terminal, what people read of it."""
    from erda.app.tables import json_line

    if not sys.stdout.isatty():
        print(json_line(row))
    elif "error" not in row:  # those are said at the end
        answer = row["relation"] or f"none (nearest: {row['ranked'][0]['relation']})"
        print(f"{row['confidence']:5.2f}  {answer}  {row['text']}")


def run_extract(options: argparse.Namespace) -> int:
    """Extract from a text, line by line."""
    from erda.app.predicting import ExtractedRows, count_lines
    from erda.app.tables import writer_for
    from erda.data.convert import refuse_input
    from erda.errors import SettingsError
    from erda.text.names import NameTagger, read_names

    if options.names and options.entity:
        raise SettingsError("Give --entity or --names, not both.")
    names = read_names(options.names) if options.names else dict.fromkeys(options.entity or ())
    entities = NameTagger(names) if names else None
    version = open_store(options).version
    with input_file(options.file, plain=True) as path:
        rows = ExtractedRows(version, path, entities, everything=options.all)
        if options.out is None:
            for row in rows:
                _show(row)
        else:
            refuse_input(path, options.out)
            total = count_lines(path)
            with progress_bar("reading") as progress:
                rows.tick = lambda line: progress(line, total)
                writer_for(options.out)(options.out, rows)
            print(f"{options.out}: {counted(rows.n_rows, 'row')}")
        _say_what_is_missing(rows, is_named=entities is not None)
        rows.faults.raise_if_any()
    return 0


def _say_what_is_missing(rows: ExtractedRows, *, is_named: bool) -> None:
    """Why nothing or not everything came out, on stderr."""
    from erda.app.version import MOST_PAIRS

    if rows.n_left_out:
        n_pairs = counted(rows.n_left_out, "pair")
        print(f"{n_pairs} of entities left out: a line is asked about {MOST_PAIRS:,}; cut long lines.", file=sys.stderr)
    if not rows.n_rows:
        remedy = "" if is_named else " Entities can be named: --entity NAME, or --names FILE."
        print(f"No relation was found; entities met: {rows.n_entities:,}.{remedy}", file=sys.stderr)


def run_evaluate(options: argparse.Namespace) -> int:
    """Print how well a file was answered."""
    from erda.text.marks import example_to_marks

    extractor = open_store(options)
    if options.against is not None:
        changes = extractor.compare(options.against, extractor.version.number, options.file)
        for one in changes:
            truth = f" (truth: {one.truth})" if one.truth else ""
            print(f"{one.before or '-'} -> {one.after or '-'}{truth}: {example_to_marks(one.example)}")
        versions = f"versions {options.against} and {extractor.version.number}"
        print(f"{counted(len(changes), 'answer')} of {versions} differ.")
        return 0
    with progress_bar("answering") as progress:
        found = extractor.evaluate(options.file, progress=progress)
    print(f"{100 * found.accuracy:.1f} % of {counted(found.n, 'question')} answered rightly; 'none' is an answer too.")
    if found.accuracy_of_known is None and not found.untaught:
        print("No row names a relation, so that 'none' is right everywhere.")
    if found.accuracy_of_known is not None:
        print(f"{100 * found.accuracy_of_known:.1f} % where the relation was taught and 'none' may not be said.")
    width = max(map(len, (*found.relations, "relation")))
    print(f"\n{'relation'.ljust(width)}  questions  recall  precision")
    for name, score in found.relations.items():
        shares = [f"{100 * one:.1f}" if one is not None else "-" for one in (score.recall, score.precision)]
        print(f"{name.ljust(width)}  {score.n:9d}  {shares[0]:>6}  {shares[1]:>9}")
    wrong = sorted((-n, str(a or "none"), str(b or "none")) for (a, b), n in found.confusion.items() if a != b)
    if wrong:
        print("\nmistaken most often:")
    for n, truth, answer in wrong[:MOST_CONFUSIONS]:
        print(f"{-n:5d}  {truth} answered as {answer}")
    if found.untaught:
        print(f"\nNever taught, so 'none' is right: {', '.join(found.untaught)}")
    return 0
