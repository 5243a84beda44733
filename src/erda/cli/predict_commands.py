"""`erda predict | extract | evaluate | tune`: ask an extractor, measure its answers and fit their thresholds."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from erda.cli.checking import Commands, add_command, named_path, positive
from erda.cli.printing import print_columns, print_line, print_note
from erda.cli.store_options import (
    STANDARD_INPUT,
    add_columns,
    add_overwrite,
    add_rows,
    add_store,
    chosen,
    input_file,
    open_store,
    progress_bar,
    say_what_is_known,
)
from erda.errors import DataError, SettingsError, counted

if TYPE_CHECKING:
    from erda.app.answer_files import AnswerCounts, FileQuestions
    from erda.app.extractor import Extractor
    from erda.app.questions import PlainRow

MOST_CONFUSIONS = 10


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    predict = add_command(commands, "predict", run_predict)
    _add_input(predict, "file in any format of docs/data.md, or a sentence with marks (default: -, standard input)")
    add_rows(predict, labelled=False)
    predict.add_argument("--top", type=positive, default=5, metavar="N", help="relations to rank in JSONL (default: 5)")
    _add_min_confidence(predict)
    add_store(predict)

    extract = add_command(commands, "extract", run_extract)
    _add_input(extract, "text file, read line by line, or a sentence (default: -, standard input)")
    extract.add_argument("--entity", action="append", metavar="NAME", help="an entity of the text (may be repeated)")
    extract.add_argument("--names", type=Path, metavar="FILE", help="entity names, one per line, or NAME, a tab and ID")
    aliases = "names of the nodes of a graph: a SPELLING, a tab and its NAME or id on each line"
    extract.add_argument("--aliases", type=Path, metavar="FILE", help=aliases)
    pairs = "likelier: the more confident direction; both: both if likely enough; all: pairs without a relation too"
    kinds = ("likelier", "both", "all")
    extract.add_argument("--pairs", choices=kinds, default="likelier", help=f"{pairs} (default: likelier)")
    extract.add_argument("--no-pronouns", dest="pronouns", action="store_false", help="ignore pronouns (he, her, ...)")
    add_columns(extract, "text=sentence,id=number")
    _add_min_confidence(extract)
    add_store(extract)

    evaluate = add_command(commands, "evaluate", run_evaluate)
    evaluate.add_argument("file", type=named_path, metavar="FILE", help="labelled rows in any format of docs/data.md")
    add_rows(evaluate)
    evaluate.add_argument("--find-entities", action="store_true", help="in annotated texts, ignore the given entities")
    _add_min_confidence(evaluate)
    add_store(evaluate)

    tune = add_command(commands, "tune", run_tune)
    tune.add_argument("file", type=named_path, metavar="FILE", nargs="?", help="labelled rows, as for `erda evaluate`")
    tune.add_argument("--precision", type=float, default=0.9, metavar="P", help="share of right answers (default: 0.9)")
    add_rows(tune)
    tune.add_argument("--clear", action="store_true", help="drop the thresholds")
    add_store(tune)


def _add_input(parser: argparse.ArgumentParser, about: str) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", default=STANDARD_INPUT, help=about)
    out = "file: .jsonl, .csv, .xlsx, .parquet, .graphml, .ttl, .cypher (default: print JSONL, or lines on a terminal)"
    parser.add_argument("--out", type=Path, metavar="OUT", help=out)
    add_overwrite(parser)


def _add_min_confidence(parser: argparse.ArgumentParser) -> None:
    about = "minimum confidence of an answer, 0 to 1 (default: that of erda tune, else of docs/open-text.md)"
    parser.add_argument("--min-confidence", type=float, metavar="X", help=about)


def run_predict(options: argparse.Namespace) -> None:
    """Answer a file; print or write the answers."""
    from erda.app.answer_files import ask_rows

    version = open_store(options).version
    with input_file(options.file) as path:
        asked = chosen(options, "format", "columns", "top", "min_confidence")
        _answer(ask_rows(version, path, **asked), options)


def run_extract(options: argparse.Namespace) -> None:
    """Extract from a text; print or write the answers."""
    from threadpoolctl import threadpool_limits

    from erda.app.answer_files import ask_text
    from erda.app.entities import find_tagger
    from erda.app.questions import GIVEN, NAMES
    from erda.text.reading import read_names

    if options.names and options.entity:
        raise SettingsError("Give --entity or --names, not both.")
    names = read_names(options.names) if options.names else dict.fromkeys(options.entity or ())
    if options.aliases and options.out is None:
        raise SettingsError("--aliases: only a graph has them; add --out FILE.graphml.")
    version = open_store(options).version
    threadpool_limits(1, "blas")  # a core for each batch
    with input_file(options.file, plain=True) as path:
        asked = chosen(options, "pairs", "pronouns", "min_confidence", "columns")
        answered = _answer(ask_text(version, path, names, **asked), options)
    if not answered.n_rows:
        nothing = "No relation was found; --pairs all shows the pairs."
        if options.pairs == "all" or not answered.n_entities:
            nothing = "No line has two entities." if answered.n_entities else "No entity was found in the text."
        remedy = "" if answered.taggers <= {NAMES, GIVEN} else " Entities can be named: --entity NAME, or --names FILE."
        print_note(nothing + remedy)
    finder = find_tagger()
    if finder.name in answered.taggers:
        print_note(finder.hint or f"Entities were found by {finder.name}.")


def _answer(asking: FileQuestions, options: argparse.Namespace) -> AnswerCounts:
    """Show the answers or write them into a file."""
    from erda.app.answer_files import count_lines, show_answers, write_answers
    from erda.text.reading import read_names

    names, aliases = (getattr(options, name, None) for name in ("names", "aliases"))
    inputs = [*filter(None, (names, aliases)), *([0] if options.file == STANDARD_INPUT else [])]  # 0: standard input

    if options.out is None:
        answered = show_answers(asking, _show)
    else:
        total = count_lines(asking.path)
        with progress_bar("answering", unit="lines") as progress:
            more = {"overwrite": options.overwrite, "tick": lambda line: progress(line, max(line, total))}
            more["aliases"] = read_names(aliases) if aliases else None
            answered = write_answers(asking, options.out, inputs=inputs, **more)
        if answered.partial:
            rows = f"{answered.partial} holds the first {counted(answered.n_rows, 'row')}."
            again = f"To start again: {shlex.join(['erda', *options.arguments])}"
            options.kept = f"{rows if answered.n_rows else 'No row was answered.'} {again}"
            raise KeyboardInterrupt
        print_line(f"{options.out}: {counted(answered.n_rows, 'row')}")
    answered.faults.raise_if_any()
    return answered


def _show(row: PlainRow) -> None:
    """Print a row as JSON, or as a readable line on a terminal."""
    from erda.answers import by_relation

    if not sys.stdout.isatty():
        print_line(json.dumps(row))
    elif "error" not in row:  # errors are listed at the end
        for one in by_relation(row):
            answer = one["relation"] or f"none (nearest: {one['ranked'][0]['relation']})"
            stands_for = "".join(
                f" ({one[role]} = {name})" for role in ("head", "tail") if (name := one.get(f"{role}_resolved"))
            )
            print_line(f"{one['confidence']:5.2f}  {answer}  {one.get('sentence', one['text'])}{stands_for}")


def run_evaluate(options: argparse.Namespace) -> None:
    """Print the evaluation of a file."""
    from erda.app.texts import is_annotated
    from erda.data.own_data import read_examples

    extractor = open_store(options)
    if is_annotated(options.file):
        _evaluate_texts(extractor, options)
        return
    if options.find_entities:
        raise SettingsError("--find-entities: only annotated texts have entities to find (docs/teaching.md).")
    examples = read_examples(options.file, options.format, options.no_relation, columns=options.columns)
    if all(one.relation is None for one in (*examples.examples, *examples.counterexamples, *examples.unrelated)):
        raise DataError(
            f"{options.file}: no row names a relation; add a column 'relation' (no_relation where none holds), or name "
            "yours: --columns relation=NAME."
        )
    with progress_bar("answering") as progress:
        found = extractor.evaluate(examples, min_confidence=options.min_confidence, progress=progress)
    asked = counted(found.n, "question")
    print_line(f"{100 * found.accuracy:.1f} % of {asked} answered correctly, counting 'none' as an answer.")
    if found.accuracy_of_known is None and not found.untaught:
        print_line("No row names a relation, so 'none' is always correct.")
    if found.accuracy_of_known is not None:
        print_line(f"{100 * found.accuracy_of_known:.1f} % on questions about taught relations, with 'none' excluded.")
    if found.n_taught:
        print_line(f"{found.n_taught} of the questions were taught, so these figures are too high for new sentences.")
    rows: list[tuple[object, ...]] = [("relation", "questions", "recall", "precision")]
    for name, score in found.relations.items():
        rows.append((name, score.n, _percent(score.recall), _percent(score.precision)))
    print_line()
    print_columns("<>>>", rows)
    wrong = sorted((-n, str(a or "none"), str(b or "none")) for (a, b), n in found.confusion.items() if a != b)
    if wrong:
        print_line()
        print_line("most frequent confusions:")
    for n, truth, answer in wrong[:MOST_CONFUSIONS]:
        print_line(f"{-n:5d}  {truth} answered as {answer}")
    if found.untaught:
        print_line()
        print_line(f"Never taught, so 'none' is correct: {', '.join(found.untaught)}")


def _evaluate_texts(extractor: Extractor, options: argparse.Namespace) -> None:
    """Print precision, recall and F1 of the triples of annotated texts."""
    with progress_bar("extracting") as progress:
        asked = chosen(options, "find_entities", "min_confidence")
        found = extractor.evaluate_extraction(options.file, progress=progress, **asked)
    rows: list[tuple[object, ...]] = [("relation", "triples", "precision", "recall", "F1")]
    for name, score in [*found.relations.items(), ("all", found.overall)]:
        rows.append((name, score.n, *map(_percent, (score.precision, score.recall, score.f1))))
    print_columns("<>>>>", rows)
    print_line(f"In percent, over {counted(found.n_texts, 'text')}.")
    if found.untaught:
        print_line(f"Never taught, not counted: {', '.join(found.untaught)}")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def run_tune(options: argparse.Namespace) -> None:
    """Fit thresholds and print what to expect of them, or drop them."""
    from erda.answers import TunedRelation
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
        asked = chosen(options, "precision", "no_relation")
        found = extractor.tune(labelled, progress=progress, **asked)
    overall = TunedRelation(found.threshold, False, found.expected)
    rows: list[tuple[object, ...]] = [("relation", "threshold", "rows", "precision", "recall")]
    for name, one in [*found.relations.items(), ("all", overall)]:
        star = " " if one.is_own or name == "all" else "*"
        shares = _percent(one.expected.precision), _percent(one.expected.recall)
        rows.append((name, f"{one.threshold:.3f}{star}", one.expected.n, *shares))
    print_columns("<>>>>", rows)
    if not all(one.is_own for one in found.relations.values()):
        print_line("* overall threshold: the relation has too few rows, or does not reach the precision on its own")
    print_line(f"Precision and recall in percent, cross-validated on {counted(found.n_rows, 'row')}.")
    if found.n_taught:
        print_line(f"{counted(found.n_taught, 'row')} left out (taught before).")
    if (found.expected.precision or 0) < found.precision:
        print_line(f"On new text, expect a precision below {100 * found.precision:g}; more labelled rows help.")
    print_line(f"The thresholds apply to erda {'extract' if found.in_text else 'predict'}.")
    say_what_is_known(options)
