"""`erda corpus build | stats | show | search`: build and inspect a corpus."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from erda.cli import corpus_index, corpus_train
from erda.cli.checking import Commands, add_command
from erda.cli.corpus_train import add_exclude_arguments
from erda.cli.printing import marked, print_line

if TYPE_CHECKING:
    from erda.corpus.corpus_build import BuildReport
    from erda.corpus.corpus_store import CorpusSentence

EXAMPLES = """\
`erda corpus COMMAND --help` describes a command; docs/corpus.md shows the whole workflow.

examples:
  erda corpus build tagged.jsonl.gz --out corpora/mine
  erda corpus stats corpora/mine
"""
BUILD_ABOUT = (
    "Build a corpus from tagged JSONL, a Wikipedia dump or plain text. "
    "Run the same command again to resume after an interruption, or to verify the files of a finished corpus."
)
BUILD_EXAMPLES = """examples:
  erda corpus build tagged.jsonl.gz --out corpora/mine
  erda corpus build enwiki-latest-pages-articles.xml.bz2 --out corpora/enwiki --workers 8 --exclude test.jsonl
  erda corpus build more.jsonl.gz --out corpora/mine --add
  erda corpus build notes.txt --names people-and-places.txt --out corpora/notes
"""


def add_parser(subparsers: Commands[argparse.ArgumentParser]) -> None:
    """Add the group `corpus` to the command line."""
    about = "Build and inspect a corpus of unlabelled text with tagged entities."
    group = add_command(subparsers, "corpus", about, EXAMPLES, brief="build and search a corpus of unlabelled text")
    commands = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_build(commands)
    _add_inspection(commands)
    corpus_train.add_commands(commands)
    corpus_index.add_commands(commands)


def _add_build(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = add_command(commands, "build", BUILD_ABOUT, BUILD_EXAMPLES)
    add = parser.add_argument
    count = partial(add, metavar="N", type=int)
    add("sources", metavar="SOURCE", type=Path, nargs="+", help="files to read; .gz and .bz2 too")
    add("--out", metavar="DIR", type=Path, required=True, help="folder of the corpus")
    add_exclude_arguments(parser)
    add("--add", action="store_true", help="add the sources to the existing corpus")
    about = "resume an unfinished build (default), or discard it and start over"
    add("--resume", action=argparse.BooleanOptionalAction, default=True, help=about)
    about = "maximum ordered entity pairs per sentence, closest first (default: 12); JSONL rows are single pairs"
    count("--max-pairs", default=12, help=about)
    count("--max-tokens", default=250, help="drop longer sentences (default: 250)")
    add("--format", metavar="NAME", help="jsonl, wikipedia or text (default: by file name)")
    add("--names", metavar="FILE", type=Path, help="plain text: entity names, one per line [tab id]")
    add(
        "--spacy", metavar="MODEL", help="plain text: spaCy pipeline; 'entities' means that of 'erda data get entities'"
    )
    count("--workers", default=1, help="processes that parse wikitext (default: 1)")
    add("--memory", metavar="SIZE", default="2GB", help="memory for sorting (default: 2GB)")
    parser.set_defaults(handler=build)


def _add_inspection(commands: Commands[argparse.ArgumentParser]) -> None:
    about = "Count rows, entity pairs, entities, repeated pairs, lengths, sources and dropped rows."
    stats = add_command(commands, "stats", about, "examples:\n  erda corpus stats corpora/mine\n")
    stats.set_defaults(handler=show_stats)

    about = "Show the sentences of an entity pair, head first; case and spacing of the names are ignored."
    examples = 'examples:\n  erda corpus show corpora/mine "Kim Campbell" "Prime Minister of Canada"\n'
    show = add_command(commands, "show", about, examples)
    show.set_defaults(handler=show_pair)

    about = "Show sentences that contain every word of a text; exact phrases come first."
    search = add_command(commands, "search", about, 'examples:\n  erda corpus search corpora/mine "was born in"\n')
    search.set_defaults(handler=search_text)

    for parser in (stats, show, search):
        parser.add_argument("directory", metavar="DIR", type=Path, help="folder of a corpus")
    show.add_argument("head", metavar="HEAD", help="name (or title) of the head entity")
    show.add_argument("tail", metavar="TAIL", help="name (or title) of the tail entity")
    show.add_argument("--limit", metavar="N", type=int, default=50, help="sentences to show (default: 50)")
    search.add_argument("text", metavar="TEXT", help="words to search for; case is ignored")
    search.add_argument("--limit", metavar="N", type=int, default=20, help="sentences to show (default: 20)")


def build(args: argparse.Namespace) -> None:
    """Build a corpus and print the numbers of added and dropped rows."""
    from erda.corpus.corpus_build import BuildSettings, build_corpus
    from erda.corpus.sources import Limits, SourceSettings

    report = build_corpus(
        args.sources,
        args.out,
        exclude=args.exclude,
        exclude_overlap=args.exclude_overlap,
        settings=BuildSettings(
            limits=Limits(max_pairs=args.max_pairs, max_tokens=args.max_tokens),
            reading=SourceSettings(format=args.format, names=args.names, spacy=args.spacy, n_workers=args.workers),
            memory=args.memory,
        ),
        add=args.add,
        resume=args.resume,
        show=lambda line: print_line(line, file=sys.stderr),
    )
    _print_report(report, args.out)


def _print_report(report: BuildReport, folder: Path) -> None:
    manifest = report.manifest
    if not report.n_added:
        print_line(f"{folder}: complete, nothing to do ({manifest.n_rows:,} rows, all files verified).")
        return
    print_line(f"{folder}: {manifest.n_rows:,} rows, {report.n_added:,} of them new, version {manifest.digest[:12]}.")
    latest = manifest.segments[-1]
    if latest.dropped:
        print_line("Dropped, by reason:")
    places: dict[str, str] = {}
    for source in latest.sources:
        for reason, shown in source.places.items():
            places.setdefault(reason, shown[0])
    for reason, n in sorted(latest.dropped.items(), key=lambda item: (-item[1], item[0])):
        print_line(f"  {n:>12,}  {reason}" + (f"  (first: {places[reason]})" if reason in places else ""))


def show_stats(args: argparse.Namespace) -> None:
    """Print the counts of a corpus."""
    from erda.corpus.corpus_store import CorpusStore

    stats = CorpusStore.open(args.directory).stats()
    share = stats.rows_of_repeated / stats.n_rows if stats.n_rows else 0.0
    lengths = f"mean {stats.length_mean:.1f}, median {stats.length_median:.0f}, 95 % up to {stats.length_p95:.0f}"
    for name, value in (
        ("rows", f"{stats.n_rows:,}"),
        ("sentences", f"{stats.n_sentences:,}"),
        ("entity pairs", f"{stats.n_pairs:,}"),
        ("repeated pairs", f"{stats.repeated_pairs:,} ({share:.1%} of the rows)"),
        ("entities", f"{stats.n_entities:,}"),
        ("documents", f"{stats.n_documents:,}"),
        ("tokens", f"{lengths}, longest {stats.length_max}"),
        ("version", stats.digest[:12]),
        ("excluded", ", ".join(stats.excluded_from) or "nothing"),
    ):
        print_line(f"{name:<18} {value}")
    for title, counts in (
        ("Sources (rows before removing duplicates):", stats.sources),
        ("Dropped, by reason:", tuple(stats.dropped.items())),
    ):
        print_line()
        print_line(f"{title}")
        for name, n in counts:
            print_line(f"  {n:>12,}  {name}")
    if not stats.dropped:
        print_line("  nothing")


def show_pair(args: argparse.Namespace) -> None:
    """Print the sentences of an entity pair."""
    from erda.corpus.corpus_store import CorpusStore
    from erda.text.keys import EntityPair

    store = CorpusStore.open(args.directory)
    pair = EntityPair(args.head, args.tail)
    n_found = len(store.find([pair])[0])
    print_sentences(store.sentences_of([pair], limit_per_pair=args.limit)[0])
    if not n_found:
        print_line(f"No sentence with head '{args.head}' and tail '{args.tail}'.")
        for role, name in (("head", args.head), ("tail", args.tail)):
            near = ", ".join(store.names_like(name))
            print_line(f"  {role}: " + (f"the corpus has {near}" if near else f"no entity like '{name}'"))
    elif n_found > args.limit:
        print_line(f"... {args.limit:,} of {n_found:,} sentences; show more with --limit.")


def search_text(args: argparse.Namespace) -> None:
    """Print sentences that contain every word of a text."""
    from erda.corpus.corpus_store import CorpusStore

    found = CorpusStore.open(args.directory).search(args.text, limit=args.limit)
    print_sentences(found.sentences)
    more = f"; the first {len(found.sentences):,} are shown" if found.n_rows > len(found.sentences) else ""
    print_line(f"{found.n_rows:,} rows contain '{args.text}'{more}.")


def print_sentences(sentences: Iterable[CorpusSentence]) -> None:
    """Print sentences with row number, entities in brackets, and source."""
    for sentence in sentences:
        source = f"  ({sentence.example.source})" if sentence.example.source else ""
        print_line(f"{sentence.row:>9}  {marked(sentence.example)}{source}")
