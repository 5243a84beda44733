"""`erda teach | relations | forget | undo | history | prune | suggest`: teach and correct an extractor."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erda.cli.checking import Commands, add_command
from erda.cli.printing import print_line
from erda.cli.remote import open_client
from erda.cli.store import (
    add_columns,
    add_format,
    add_no_relation,
    add_overwrite,
    add_store,
    command,
    input_file,
    open_store,
    progress_bar,
    say_what_changed,
    say_what_is_known,
    stored,
)
from erda.errors import DataError, SettingsError, counted
from erda.types import NO_RELATION, Example, Relation

if TYPE_CHECKING:
    from erda.app.answers import Taught
    from erda.app.extractor import Extractor
    from erda.app.lessons import Known
    from erda.data.formats import Reading
    from erda.serve.client import Client

TEACH = """\
Mark the first entity of the relation with [[ ]] and the second with {{ }}. To teach more of a known relation, use its
name. If you teach an example again as another relation, it moves there. Rows with "holds": false are counterexamples;
in rows of the relation no_relation, no known relation holds. Both are kept, and `erda forget` takes them back. Each
teaching is a version: `erda history` lists versions, `erda undo` goes back. A description that marks both entities is a
pattern, which counts as a sentence of the relation; patterns help most where examples are few.

examples:
  erda teach "founded by" "[[Tesla]] was started by {{Martin Eberhard}}." "{{Jobs}} founded [[Apple]] in a garage."
  erda teach --file my-examples.csv
  erda teach "founded by" --description "the person who started it" --description "[[X]] was founded by {{Y}}."
  erda teach "founded by" --counterexamples "[[Apple]] hired {{Tim Cook}} as its CEO."
"""
RELATIONS = """\
The description of a relation stands before its examples; a minus sign marks a counterexample. `erda relations
no_relation` lists the sentences in which no relation holds.

examples:
  erda relations
  erda relations "founded by"
"""
FORGET = """examples:
  erda forget "founded by" --example 1
  erda forget "founded by"
"""
UNDO = """examples:
  erda undo
  erda undo --to 1
"""
HISTORY = """examples:
  erda history
  erda history --store my-extractor
"""
PRUNE = """\
Old versions make undo possible, and they still contain forgotten relations and examples. Files that erda did not write
stay.

examples:
  erda prune
  erda prune --keep 3
  erda prune --purge
"""
SUGGEST = """\
`erda review FILE` shows suggestions one by one and keeps your judgements.

examples:
  erda suggest "founded by" --text my-text.txt
  erda suggest "founded by" --corpus my-corpus
  erda suggest "founded by" --corpus my-corpus --n 5 --out suggested.csv
"""


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    about = "Teach an extractor one relation with a few sentences, or many relations with a file."
    teach = add_command(commands, "teach", about, TEACH, brief="teach relations with a few sentences")
    teach.add_argument("relation", metavar="RELATION", nargs="?", help="name of the relation, for example 'founded by'")
    teach.add_argument("sentences", metavar="SENTENCE", nargs="*", help="a sentence with its two entities marked")
    teach.add_argument("--file", metavar="FILE", help="examples in any format of docs/data.md; -: read stdin")
    add_format(teach)
    add_columns(teach)
    add_no_relation(teach, "so does no_relation")
    against = "sentences in which the relation does not hold: a file or a marked sentence (may be repeated)"
    teach.add_argument("--counterexamples", metavar="FILE", action="append", default=[], help=against)
    meaning = "meaning of the relation, or a pattern such as '[[X]] was founded by {{Y}}.' (may be repeated)"
    teach.add_argument("--description", metavar="TEXT", action="append", default=[], help=meaning)
    teach.add_argument("--method", metavar="NAME", help="learning method (default: the store's, else posterior)")
    teach.add_argument("--encoder", metavar="NAME", help="text encoder (default: the store's, else minilm)")
    again = "first teach all known examples again, with another --method or --encoder, or with a new background"
    teach.add_argument("--relearn", action="store_true", help=again)
    add_store(teach, server=True)
    teach.set_defaults(handler=run_teach)

    about = "List the relations of an extractor, or the examples of one relation with their numbers."
    relations = add_command(commands, "relations", about, RELATIONS, brief="list relations and examples")
    relations.add_argument("relation", metavar="RELATION", nargs="?", help="list the examples of this relation")
    add_store(relations)
    relations.set_defaults(handler=run_relations)

    about = "Forget a relation or one of its examples, as if it had never been taught."
    forget = add_command(commands, "forget", about, FORGET, brief="forget a relation or an example")
    forget.add_argument("relation", metavar="RELATION", help="a relation of `erda relations`")
    number = "forget only this example, by its number in `erda relations RELATION`"
    forget.add_argument("--example", type=int, metavar="N", help=number)
    add_store(forget)
    forget.set_defaults(handler=run_forget)

    about = "Return to the version before the current one, or to any version."
    undo = add_command(commands, "undo", about, UNDO, brief="go back to an earlier version")
    undo.add_argument("--to", type=int, metavar="VERSION", help="number of any version in `erda history`")
    add_store(undo)
    undo.set_defaults(handler=run_undo)

    about = "List every version of an extractor."
    history = add_command(commands, "history", about, HISTORY, brief="list the versions of an extractor")
    add_store(history)
    history.set_defaults(handler=run_history)

    _add_prune(commands)
    _add_suggest(commands)


def _add_prune(commands: Commands[argparse.ArgumentParser]) -> None:
    about = "Remove old versions, or with --purge every trace of forgotten relations and examples."
    prune = add_command(commands, "prune", about, PRUNE, brief="remove old versions of an extractor")
    which = prune.add_mutually_exclusive_group()
    which.add_argument("--keep", type=int, default=10, metavar="N", help="newest versions to keep (default: 10)")
    purge = "keep only the current version, without its history; forgotten data cannot be restored"
    which.add_argument("--purge", action="store_true", help=purge)
    add_store(prune)
    prune.set_defaults(handler=run_prune)


def _add_suggest(commands: Commands[argparse.ArgumentParser]) -> None:
    about = "Suggest sentences of a text or of a corpus as examples of a relation, most useful first."
    suggest = add_command(commands, "suggest", about, SUGGEST, brief="suggest examples from unlabelled text")
    suggest.add_argument("relation", metavar="RELATION", help="a relation of `erda relations`")
    source = suggest.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", type=Path, metavar="FILE", help="your own text: a text file, .jsonl, .csv or .xlsx")
    source.add_argument("--corpus", type=Path, metavar="DIR", help="a corpus with an index (erda corpus)")
    suggest.add_argument("--n", type=int, default=10, metavar="N", help="number of suggestions (default: 10)")
    out = "write the suggestions as .jsonl or .csv; delete the wrong examples, then: erda teach --file OUT"
    suggest.add_argument("--out", type=Path, metavar="OUT", help=out)
    add_overwrite(suggest)
    add_store(suggest)
    suggest.set_defaults(handler=run_suggest)


def run_teach(options: argparse.Namespace) -> None:
    """Teach, and print the result."""
    nothing_new = options.relation is None and options.file is None and not options.counterexamples
    if nothing_new and not options.relearn:
        raise SettingsError("Nothing to teach: give a RELATION with sentences, or --file FILE.")
    if options.file is not None and options.sentences:
        raise SettingsError("Give sentences or --file, not both.")
    if options.description and options.relation is None:
        raise SettingsError("--description: describes one relation; name it.")
    options.kept = f"{options.store} is unchanged; run the same command again."
    found = _read(options)
    if options.server:
        client = open_client(options, "method", "encoder", "relearn")
        print_line(str(_taught(client, options, found)))
        return
    asked = {"method": options.method, "encoder": options.encoder, "relearn": options.relearn}
    with progress_bar("teaching") as progress:
        extractor = open_store(options, create=not nothing_new, progress=progress, **asked)
        taught = None if nothing_new else _taught(extractor, options, found, progress=progress)
    if taught:
        print_line(str(taught))
    say_what_is_known(options)


@dataclass(frozen=True, slots=True)
class _Found:
    """The sentences of a command and of its files."""

    examples: list[Example | str]
    counterexamples: list[Example]
    unrelated: list[Example]
    listed: dict[str, Relation]  # the relation list beside the file, by id


def _taught(to: Extractor | Client, options: argparse.Namespace, found: _Found, **more: Any) -> Taught:
    more |= {"counterexamples": found.counterexamples, "unrelated": found.unrelated}
    if options.relation is not None:
        listed = found.listed.get(options.relation)
        description = "\n".join(options.description) or (listed.description if listed else "")
        return to.teach(options.relation, found.examples, description=description, **more)
    if options.server and found.listed:
        print_line("names and descriptions of the relation list are not sent to a server; describe relations there")
    if options.server or not found.listed:
        return to.teach_many(found.examples, **more)
    by_relation: dict[Any, list[Example]] = {}  # relations, or names of unlisted ones
    for example in found.examples:
        if isinstance(example, Example):
            name = str(example.relation)
            by_relation.setdefault(found.listed.get(name, name), []).append(example)
    return to.teach_many(by_relation, **more)


def _read(options: argparse.Namespace) -> _Found:
    """Read the sentences of the command; if it names a relation, rows without a relation belong to it."""
    from erda.data.own_data import relations_beside
    from erda.text.descriptions import readable_name

    found = _Found(list(options.sentences), [], [], {})
    if options.file is not None:
        reading = _reading(options, options.file)
        unnamed = [one for one in reading.unrelated if one.relation is None]
        found.examples.extend([*reading.examples, *(unnamed if options.relation is not None else ())])
        found.counterexamples.extend(reading.counterexamples)
        found.unrelated.extend(one for one in reading.unrelated if one.relation is not None)
        if options.file != "-":
            listed = relations_beside(Path(options.file))
            names = {one.id: readable_name(one.id) if one.name == one.id else one.name for one in listed}
            found.listed.update({one.id: replace(one, name=names[one.id]) for one in listed})
        if unnamed and options.relation is None:
            print_line(
                f"{counted(len(unnamed), 'row')} without a relation, not taught; write no_relation if none holds"
            )
    for given in options.counterexamples:
        reading = _reading(options, given)
        found.counterexamples.extend([*reading.examples, *reading.unrelated, *reading.counterexamples])
    return found


def _reading(options: argparse.Namespace, given: str) -> Reading:
    """Read a file, or a sentence; say which of its rows are left out."""
    from erda.data.own_data import read_examples, set_apart

    is_plain = given != options.file or options.columns is None
    with input_file(given) as path:
        reading = read_examples(
            path,
            options.format if given == options.file else None,
            options.no_relation,
            columns=None if is_plain else options.columns,
        )
    named = {str(one.relation) for one in (*reading.examples, *reading.counterexamples) if one.relation is not None}
    if options.relation is None and not named and not any(one.relation is not None for one in reading.unrelated):
        flag = "--file" if given == options.file else "--counterexamples"
        teach = command(options, f"teach RELATION {flag} {shlex.quote(given)}")
        raise DataError(f"{given}: no row names a relation; name one: {teach}")
    others = sorted(named - {options.relation}) if options.relation is not None else []
    if others:
        raise DataError(f"{given}: has rows of other relations ({', '.join(others[:5])}); leave RELATION out.")
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
    width = max((len(one.name) for one in known), default=0)
    has_against = any(one.counterexamples for one in known.values())
    if known:
        print_line("examples  " + ("counterexamples  " if has_against else "") + "relation")
    for relation, one in known.items():
        against = f"{len(one.counterexamples):17d}" if has_against else ""
        n_patterns = len(patterns_of(relation.description))
        said = "; ".join([*([counted(n_patterns, "pattern")] if n_patterns else []), *declarations(one)])
        about = " ".join(filter(None, (meaning_of(relation.description), said and f"({said})")))
        print_line(f"{len(one.lessons):8d}{against}  {relation.name.ljust(width)}  {about}".rstrip())
    if content.unrelated:
        listing = command(options, f"relations {NO_RELATION}")
        print_line(f"{counted(len(content.unrelated), 'sentence')} without a relation: {listing}")
    if content.thresholds:
        print_line(
            f"Thresholds for a precision of {content.thresholds.precision:g} were tuned on version "
            f"{content.thresholds.version}."
        )
    say_what_is_known(options)


def declarations(known: Known) -> list[str]:
    """What was declared about a relation."""
    said = ["symmetric"] if known.symmetric else []
    said += [f"inverse of {known.inverse}"] if known.inverse else []
    for role, types in (("head", known.head_types), ("tail", known.tail_types)):
        said += [f"{role} types: {', '.join(types)}"] if types else []
    return said


def run_forget(options: argparse.Namespace) -> None:
    """Forget a relation or an example."""
    from erda.app.store_edits import forget

    before = stored(options).current().number
    if options.example is None:
        forget(stored(options), options.relation)
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


def run_undo(options: argparse.Namespace) -> None:
    """Return to an earlier version."""
    from erda.app.store_edits import undo

    if options.to is not None:
        open_store(options, create=True, version=options.to)  # also repairs a damaged store
    else:
        undone = undo(stored(options))
        redo = command(options, f"undo --to {undone.number}")
        print_line(f"Undone: {undone.what}. To bring it back: {redo}")
    say_what_is_known(options)


def run_history(options: argparse.Namespace) -> None:
    """Print a line for each version in local time; a star marks the current version."""
    from datetime import datetime

    for one in stored(options).history():
        star = "*" if one.is_current else " "
        counts = f"relations: {one.n_relations:<4d}  examples: {one.n_examples:<5d}"
        when = datetime.fromisoformat(one.time).astimezone()
        print_line(f"{star}{one.number:4d}  {when:%Y-%m-%d %H:%M}  {counts}  {one.what}")


def run_prune(options: argparse.Namespace) -> None:
    """Remove versions, and print their number."""
    n_removed = open_store(options).prune(keep=options.keep, purge=options.purge)
    print_line(f"{counted(n_removed, 'version')} removed.")
    say_what_is_known(options)


def run_suggest(options: argparse.Namespace) -> None:
    """Print suggestions, and write them to a file of examples."""
    from erda.data.own_data import write_examples
    from erda.outputs import check_output
    from erda.text.marks import example_to_marks

    if options.out:
        check_output(options.out, options.text, overwrite=options.overwrite)
    extractor = open_store(options)
    if options.text and not options.text.is_file():
        is_pipe = "is a pipe; save its content to a file first" if options.text.is_fifo() else "no such file"
        raise DataError(f"{options.text}: {is_pipe}.")
    with progress_bar("embedding") as progress:
        found = extractor.suggest(options.relation, options.text or options.corpus, n=options.n, progress=progress)
    for one in found:
        print_line(f"{one.confidence:5.2f}  {example_to_marks(one.example)}")
    if not found:
        print_line(
            f"Nothing new is likely to be an example of '{options.relation}'. Teach more examples, or try other text."
        )
    if options.out:
        relation = extractor.version.known(options.relation).id
        examples = [replace(one.example, relation=relation) for one in found]
        write_examples(options.out, examples, overwrite=options.overwrite)
        teach = command(options, f"teach --file {shlex.quote(str(options.out))}")
        print_line()
        print_line(f"Delete the wrong examples from {options.out}, then: {teach}")
