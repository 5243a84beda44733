"""`erda teach | relations | forget | edit`: teach and correct an extractor."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erda.cli.checking import Commands, add_command
from erda.cli.printing import print_columns, print_line, print_note
from erda.cli.store_options import (
    add_rows,
    add_store,
    chosen,
    command,
    input_file,
    keys,
    on_terminal,
    open_store,
    progress_bar,
    say_what_changed,
    say_what_is_known,
    stored,
)
from erda.errors import DataError, SettingsError, counted
from erda.types import NO_RELATION, Example, Relation, pair_in_sentence

if TYPE_CHECKING:
    from erda.answers import Taught
    from erda.app.extractor import Extractor
    from erda.app.state import TaughtRelation
    from erda.data.formats.row_collector import Reading

KNOWN = "a relation of `erda relations`"


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    teach = add_command(commands, "teach", run_teach)
    teach.add_argument("relation", metavar="RELATION", nargs="?", help="name of the relation, for example 'founded by'")
    teach.add_argument("sentences", metavar="SENTENCE", nargs="*", help="a sentence with its two entities marked")
    teach.add_argument("--not", dest="holds", action="store_false", help="the relation does not hold in the sentences")
    teach.add_argument("--file", metavar="FILE", help="examples in any format of docs/data.md; -: read stdin")
    add_rows(teach)
    meaning = "meaning of the relation, or a pattern such as '[[X]] was founded by {{Y}}.' (may be repeated)"
    teach.add_argument("--description", metavar="TEXT", action="append", default=[], help=meaning)
    teach.add_argument("--method", metavar="NAME", help="learning method (default: the store's, else posterior)")
    teach.add_argument("--encoder", metavar="NAME", help="text encoder (default: the store's, else open)")
    teach.add_argument("--relearn", action="store_true", help="first teach all known examples to --method or --encoder")
    add_store(teach)

    relations = add_command(commands, "relations", run_relations)
    relations.add_argument("relation", metavar="RELATION", nargs="?", help="list the examples of this relation")
    add_store(relations)

    forget = add_command(commands, "forget", run_forget)
    forget.add_argument("relation", metavar="RELATION", help=KNOWN)
    forget.add_argument("--example", type=int, metavar="N", help="forget only example N of `erda relations RELATION`")
    add_store(forget)

    edit = add_command(commands, "edit", run_edit)
    edit.add_argument("relation", metavar="RELATION", help=KNOWN)
    change = edit.add_mutually_exclusive_group(required=True)
    change.add_argument("--name", metavar="NEW", help="the new name; the examples and the description stay")
    change.add_argument("--into", metavar="OTHER", help="the relation that takes over the examples")
    change.add_argument("--description", metavar="TEXT", action="append", help="a new description (may be repeated)")
    change.add_argument("--types", metavar=("HEAD", "TAIL"), nargs=2, help="entity types, for example ORG PERSON")
    add_store(edit)


def run_teach(options: argparse.Namespace) -> None:
    """Teach, and print the result."""
    nothing_new = options.relation is None and options.file is None
    if nothing_new and not options.relearn:
        raise SettingsError("Nothing to teach: give a RELATION with sentences, or --file FILE.")
    if options.file is not None and options.sentences:
        raise SettingsError("Give sentences or --file, not both.")
    if options.description and (options.relation is None or not options.holds):
        raise SettingsError("--description: describes one relation; name it, and leave --not out.")
    options.kept = f"{options.store} is unchanged; run the same command again."
    reading = None if options.file is None else _read(options)
    asked = chosen(options, "method", "encoder", "relearn")
    with progress_bar("teaching") as progress:
        extractor = open_store(options, create=options.holds and not nothing_new, progress=progress, **asked)
        if options.holds and not nothing_new:
            if reading is None:
                options.sentences = _confirmed(extractor, options)
            taught = _teach(extractor, options, reading, progress)
            for warning in taught.warnings if reading or not on_terminal() else ():
                print_note(warning)
            print_line(str(taught))
        elif not nothing_new:
            print_line(str(_teach_not(extractor, options, reading)))
    say_what_is_known(options)


def _confirmed(extractor: Extractor, options: argparse.Namespace) -> list[Example]:
    """Show each sentence as a statement. On a terminal, ask about those that look reversed."""
    from erda.app.inputs import example_of, read_each
    from erda.app.teach import exchanged, statement

    examples = read_each(options.sentences, example_of)
    found = extractor.reversed_examples(options.relation, examples) if examples and on_terminal() else []
    doubted = set(map(pair_in_sentence, found))
    kept = list[Example]()
    with keys() as read:
        for one in examples:
            said = statement(one, options.relation)
            if pair_in_sentence(one) not in doubted:
                print_note(said)
                kept.append(one)
                continue
            print_note(f"{said}: looks like the reverse of the other examples. y teach it, s swap, n leave it out?")
            while (key := read().lower()) not in ("y", "s", "n", "q"):
                pass
            kept += {"y": [one], "s": [exchanged(one)]}.get(key, [])
    if examples and not kept:
        raise DataError("No sentence is left; nothing was taught.")
    return kept


def _teach(
    extractor: Extractor, options: argparse.Namespace, reading: Reading | None, progress: Callable[[int, int], None]
) -> Taught:
    """Teach sentences or the rows of a file. If the command names a relation, rows without a relation belong to it."""
    if reading is None:
        description = "\n".join(options.description)
        return extractor.teach(options.relation, options.sentences, description=description, progress=progress)
    unnamed = [one for one in reading.unrelated if one.relation is None]
    unrelated = [one for one in reading.unrelated if one.relation is not None]
    more: dict[str, Any] = {"counterexamples": reading.counterexamples, "unrelated": unrelated, "progress": progress}
    listed = _relations_beside(options.file)
    if options.relation is not None:
        own = listed.get(options.relation)
        description = "\n".join(options.description) or (own.description if own else "")
        return extractor.teach(options.relation, [*reading.examples, *unnamed], description=description, **more)
    if unnamed:
        print_line(f"{counted(len(unnamed), 'row')} without a relation, not taught; write no_relation if none holds")
    if not listed:
        return extractor.teach_many(reading.examples, **more)
    by_relation: dict[str | Relation, list[Example]] = {}
    for example in reading.examples:
        name = str(example.relation)
        by_relation.setdefault(listed.get(name, name), []).append(example)
    return extractor.teach_many(by_relation, **more)


def _teach_not(extractor: Extractor, options: argparse.Namespace, reading: Reading | None) -> Taught:
    """Teach sentences or all rows of a file as counterexamples."""
    from erda.app.inputs import example_of, read_each, refuse_sentence
    from erda.app.state import Judgement

    refuse_sentence(options.relation)
    if reading is None:
        examples = read_each(options.sentences, example_of)
    else:
        examples = [*reading.examples, *reading.unrelated, *reading.counterexamples]
    if not examples:
        raise SettingsError("Nothing to teach: --not needs sentences, or --file FILE.")
    named = (replace(one, relation=options.relation or one.relation or NO_RELATION) for one in examples)
    return extractor.judge_many(Judgement(one, str(one.relation), holds=False) for one in named)


def _relations_beside(file: str) -> dict[str, Relation]:
    """The relation list beside a file, by id."""
    from erda.data.own_data import relations_beside
    from erda.text.descriptions import readable_name

    listed = [] if file == "-" else relations_beside(Path(file))
    return {one.id: replace(one, name=readable_name(one.id)) if one.name == one.id else one for one in listed}


def _read(options: argparse.Namespace) -> Reading:
    """Read the file; say which of its rows are left out."""
    from erda.data.own_data import read_examples, set_apart

    with input_file(options.file) as path:
        reading = read_examples(path, **chosen(options, "format", "no_relation", "columns"))
    named = {str(one.relation) for one in (*reading.examples, *reading.counterexamples) if one.relation is not None}
    if options.relation is None and not named and not any(one.relation is not None for one in reading.unrelated):
        sign = "" if options.holds else "--not "
        teach = command(options, f"teach RELATION {sign}--file {shlex.quote(options.file)}")
        raise DataError(f"{options.file}: no row names a relation; name one: {teach}")
    others = sorted(named - {options.relation}) if options.relation is not None else []
    if others:
        raise DataError(f"{options.file}: has rows of other relations ({', '.join(others[:5])}); leave RELATION out.")
    for line in set_apart(replace(reading, unrelated=(), counterexamples=())):
        print_line(line)
    return reading


def run_relations(options: argparse.Namespace) -> None:
    """Print relations, or the examples of one relation."""
    from erda.app.inputs import known_relation
    from erda.text.descriptions import meaning_of, patterns_of
    from erda.text.marks import example_to_marks

    content = stored(options).content()
    known = {one.relation: one for one in content.known}
    if options.relation == NO_RELATION:
        for lesson in content.unrelated:
            print_line(f"{lesson.number:5d}  {example_to_marks(lesson.example)}")
        return
    if options.relation is not None:
        one = known[known_relation(options.relation, known)]
        for line in one.relation.description.splitlines():
            print_line(f"       {line}")
        for sign, lessons in ((" ", one.lessons), ("-", one.counterexamples)):
            for lesson in lessons:
                print_line(f"{lesson.number:5d}{sign} {example_to_marks(lesson.example)}")
        for line in declarations(one):
            print_line(line)
        return
    rows: list[tuple[object, ...]] = [("examples", "counterexamples", "relation", "")] if known else []
    for relation, one in known.items():
        n_patterns = len(patterns_of(relation.description))
        said = "; ".join([*([counted(n_patterns, "pattern")] if n_patterns else []), *declarations(one)])
        about = " ".join(filter(None, (meaning_of(relation.description), said and f"({said})")))
        rows.append((len(one.lessons), len(one.counterexamples), relation.name, about))
    if any(one.counterexamples for one in known.values()):
        print_columns(">><<", rows)
    else:
        print_columns("><<", [(first, *others) for first, _, *others in rows])
    if content.unrelated:
        listing = command(options, f"relations {NO_RELATION}")
        print_line(f"{counted(len(content.unrelated), 'sentence')} without a relation: {listing}")
    if tuned := content.thresholds:
        print_line(f"Thresholds for a precision of {tuned.precision:g} were tuned on version {tuned.version}.")
    say_what_is_known(options)


def declarations(known: TaughtRelation) -> list[str]:
    """The declared entity types of a relation."""
    roles = {"head": known.head_types, "tail": known.tail_types}
    return [f"{role} types: {', '.join(types)}" for role, types in roles.items() if types]


def run_forget(options: argparse.Namespace) -> None:
    """Forget a relation or an example."""
    store = stored(options)
    before = store.head().current
    if options.example is None:
        with store.writing():
            store.forget(options.relation)
    else:
        extractor = open_store(options)
        if options.relation == NO_RELATION:
            lessons = extractor.unrelated
        else:
            lessons = extractor.examples(options.relation) + extractor.counterexamples(options.relation)
        if options.example not in [lesson.number for lesson in lessons]:
            listing = command(options, f"relations {shlex.quote(options.relation)}")
            raise DataError(f"'{options.relation}' has no example {options.example}; list them: {listing}")
        extractor.take_back(options.example)
    say_what_changed(options, before)


def run_edit(options: argparse.Namespace) -> None:
    """Make one change to a relation."""
    with progress_bar("editing") as progress:
        extractor = open_store(options)
        before = extractor.version.number
        if options.name is not None:
            extractor.rename(options.relation, options.name, progress=progress)
        elif options.into is not None:
            extractor.merge(options.relation, options.into, progress=progress)
        elif options.description is not None:
            extractor.describe(options.relation, "\n".join(options.description), progress=progress)
        else:
            head, tail = ([one.strip() for one in text.split(",")] if text.strip() else [] for text in options.types)
            extractor.declare(options.relation, head_types=head, tail_types=tail)
    say_what_changed(options, before)
