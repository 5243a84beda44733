"""`erda review`: judge pairs of entities of one's own text, one after another, or list likely examples."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from erda.cli.checking import Commands, add_command, positive
from erda.cli.printing import marked, print_line, print_note
from erda.cli.store_options import (
    add_columns,
    add_overwrite,
    add_store,
    chosen,
    command,
    input_file,
    keys,
    on_terminal,
    open_store,
    progress_bar,
)
from erda.errors import DataError, SettingsError

if TYPE_CHECKING:
    from erda.app.candidates import Candidate
    from erda.app.review import Review

KEYS = "y yes, n no, s skip, u undo, q quit, ? help"


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    review = add_command(commands, "review", run_review)
    review.add_argument("file", metavar="FILE", nargs="?", help="text file, .jsonl, .csv or .xlsx")
    review.add_argument("--relation", metavar="NAME", help="review this relation only (default: all)")
    review.add_argument("--no-pronouns", dest="pronouns", action="store_false", help="ignore pronouns (he, her, ...)")
    add_columns(review, "text=sentence")
    listing = "list sentences that are likely examples of --relation, most useful first, instead of asking"
    review.add_argument("--list", action="store_true", help=listing)
    source = review.add_mutually_exclusive_group()
    source.add_argument("--text", type=Path, metavar="FILE", help="list from your own text, as FILE")
    source.add_argument("--corpus", type=Path, metavar="DIR", help="list from a corpus with an index (erda corpus)")
    review.add_argument("--n", type=positive, metavar="N", help="sentences to list (default: 10)")
    out = "write the list as .jsonl or .csv; delete the wrong examples, then: erda teach --file OUT"
    review.add_argument("--out", type=Path, metavar="OUT", help=out)
    add_overwrite(review)
    add_store(review)


def run_review(options: argparse.Namespace) -> None:
    """List candidates, or show them until the person quits or none is left."""
    lists = [name for name in ("text", "corpus", "n", "out", "overwrite") if getattr(options, name)]
    if options.list:
        _list(options)
    elif lists:
        raise SettingsError(f"--{lists[0]}: only with --list.")
    elif options.file in (None, "-"):
        raise DataError("FILE: name a file; your answers are read from standard input.")
    elif sys.stdin is None:
        raise DataError("Standard input is closed; your answers are read from it.")
    else:
        _review(options)


def _review(options: argparse.Namespace) -> None:
    from erda.app.review import open_review
    from erda.app.texts import text_rows

    extractor = open_store(options)
    with input_file(options.file, plain=True) as path:
        rows = text_rows(path, options.columns)
    resume = shlex.join(["erda", *options.arguments])
    options.kept = f"All judgements are kept. To continue: {resume}"
    asked = chosen(options, "relation", "pronouns")
    with ExitStack() as stack:
        with progress_bar("embedding") as progress:
            review = stack.enter_context(open_review(extractor, rows, progress=progress, **asked))
        if review.hint:
            print_note(review.hint)
        with keys() as read:
            _loop(review, read, undo=command(options, "versions --undo"))
        _say_counts(review)
        if review.view.n_left:
            print_line(f"To continue: {resume}")


def _list(options: argparse.Namespace) -> None:
    """Print likely examples of a relation, and write them to a file of examples."""
    from erda.data.own_data import write_examples
    from erda.files import check_output
    from erda.text.marks import example_to_marks

    if options.relation is None or not (options.text or options.corpus) or options.file or options.columns:
        raise SettingsError("--list: give --relation NAME, and --text FILE or --corpus DIR; no FILE, no --columns.")
    if options.out:
        check_output(options.out, options.text, overwrite=options.overwrite)
    extractor = open_store(options)
    with progress_bar("embedding") as progress:
        asked = {"n": options.n or 10, "pronouns": options.pronouns, "progress": progress}
        found = extractor.suggest(options.relation, options.text or options.corpus, **asked)
    for one in found:
        print_line(f"{one.confidence:5.2f}  {example_to_marks(one.example)}")
    if not found:
        print_line(f"Nothing new is likely to be an example of '{options.relation}'; try other text.")
    if options.out:
        relation = extractor.version.known(options.relation).id
        examples = [replace(one.example, relation=relation) for one in found]
        write_examples(options.out, examples, overwrite=options.overwrite)
        teach = command(options, f"teach --file {shlex.quote(str(options.out))}")
        print_line()
        print_line(f"Delete the wrong examples from {options.out}, then: {teach}")


def _loop(review: Review, read: Callable[[], str], *, undo: str) -> None:
    relations = [one.name for one in review.version.relations]
    if review.view.current:
        print_line(f"{KEYS}, or the number of another relation that holds instead")
    _say_relations(relations)
    while (one := review.view.current) is not None:
        if relations != (relations := [own.name for own in review.version.relations]):  # another process can teach
            _say_relations(relations)
        _show(review, one)
        key = _command(read, len(relations))
        if key == "q":
            return
        if key in ("y", "n"):
            review.judge(holds=key == "y")
        elif key == "s":
            review.judge(holds=None)
        elif key == "u":
            if not review.undo():
                print_line(f"Nothing to undo in this session. To go back a version, quit, then: {undo}")
        elif key.isdecimal() and 0 < int(key) <= len(relations):
            review.judge(holds=True, relation=review.version.relations[int(key) - 1].id)
        else:
            print_line(f"{KEYS}, or a number" if key == "?" else f"'{key}' is not a command: {KEYS}, or a number")
            _say_relations(relations)
    if review.view.n_left:
        print_line(review.view.progress)
    print_line(review.view.reason)


def _say_relations(relations: list[str]) -> None:
    print_line("relations: " + ", ".join(f"{place} {name}" for place, name in enumerate(relations, 1)))


def _say_counts(review: Review) -> None:
    found = review.view
    for name in {**found.n_yes, **found.n_no}:
        print_line(f"{name}: {found.n_yes.get(name, 0)} right, {found.n_no.get(name, 0)} wrong")
    if review.view.unplaced:
        print_line(review.view.unplaced)


def _show(review: Review, one: Candidate) -> None:
    found, relations = review.view, {own.id: own.name for own in review.version.relations}
    name = relations.get(one.relation, one.relation)
    counts = f"judged {found.n_judged}, {found.n_left} left"
    if one.relation in found.n_yes or one.relation in found.n_no:
        counts += f"; {name}: {found.n_yes.get(one.relation, 0)} right, {found.n_no.get(one.relation, 0)} wrong"
    stands_for = "".join(
        f" ({entity.name} = {entity.resolved})" for entity in (one.example.head, one.example.tail) if entity.resolved
    )
    if found.n_judged and found.progress:
        print_line(found.progress)
    print_line()
    print_line(marked(one.example) + stands_for)
    head, tail = one.example.head.name, one.example.tail.name
    print_line(f"  {head} | {name} | {tail}?   {one.confidence:.2f}   ({counts})")


# -- keys --------------------------------------------------------------------------------------------------------------


def _command(read: Callable[[], str], n_relations: int) -> str:
    """Read a command; a number may have several digits if there are ten relations or more."""
    sys.stdout.flush()
    key = read().strip() or "?"
    while key.isdecimal() and 10 * int(key) <= n_relations and on_terminal():
        sys.stdout.write(f"{key} ")
        sys.stdout.flush()
        more = read().strip()
        if not more.isdecimal():
            break
        key += more
    return key.lower()
