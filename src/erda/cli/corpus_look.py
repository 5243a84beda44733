"""`erda corpus stats | show | search`: look at what a corpus holds and at what a query finds."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from erda.corpus.store import CorpusSentence
    from erda.types import Example

_COLOURS = {"head": "\033[1;34m", "tail": "\033[1;33m"}
_PLAIN = "\033[0m"


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `stats`, `show` and `search`."""
    stats = _add(
        commands,
        "stats",
        "Count rows, entity pairs, entities, repeated pairs, lengths, sources and what was left out.",
        "examples:\n  erda corpus stats corpora/mine\n",
    )
    stats.set_defaults(handler=show_stats)

    show = _add(
        commands,
        "show",
        "Show the sentences of an entity pair, head first; case and spacing of the names do not matter.",
        'examples:\n  erda corpus show corpora/mine "Kim Campbell" "Prime Minister of Canada"\n',
    )
    show.add_argument("head", metavar="HEAD", help="name (or title) of the head entity")
    show.add_argument("tail", metavar="TAIL", help="name (or title) of the tail entity")
    show.add_argument("--limit", metavar="N", type=int, default=50, help="sentences to show (default: 50)")
    show.set_defaults(handler=show_pair)

    search = _add(
        commands,
        "search",
        "Show sentences that hold every word of a text, those that hold it as it stands first.",
        'examples:\n  erda corpus search corpora/mine "was born in"\n',
    )
    search.add_argument("text", metavar="TEXT", help="words to look for; case does not matter")
    search.add_argument("--limit", metavar="N", type=int, default=20, help="sentences to show (default: 20)")
    search.set_defaults(handler=search_text)


def show_stats(options: argparse.Namespace) -> int:
    """Print the counts of a corpus."""
    from erda.corpus.store import CorpusStore

    stats = CorpusStore.open(options.directory).stats()
    share = stats.rows_of_repeated / stats.n_rows if stats.n_rows else 0.0
    lines = [
        ("rows", f"{stats.n_rows:,}"),
        ("sentences", f"{stats.n_sentences:,}"),
        ("entity pairs", f"{stats.n_pairs:,}"),
        ("repeated pairs", f"{stats.repeated_pairs:,} ({share:.1%} of the rows)"),
        ("entities", f"{stats.n_entities:,}"),
        ("documents", f"{stats.n_documents:,}"),
        (
            "tokens a sentence",
            f"mean {stats.length_mean:.1f}, median {stats.length_median:.0f}, "
            f"95 % up to {stats.length_p95:.0f}, longest {stats.length_max}",
        ),
        ("version", stats.digest[:12]),
        ("kept out", ", ".join(stats.excluded_from) or "nothing was excluded"),
    ]
    for name, value in lines:
        print(f"{name:<18} {value}")
    print("\nSources (rows before duplicates were dropped):")
    for name, n_rows in stats.sources:
        print(f"  {n_rows:>12,}  {name}")
    print("\nLeft out, by reason:")
    for reason, n in stats.dropped.items():
        print(f"  {n:>12,}  {reason}")
    if not stats.dropped:
        print("  nothing")
    return 0


def show_pair(options: argparse.Namespace) -> int:
    """Print the sentences of a pair."""
    from erda.corpus.store import CorpusStore
    from erda.text.keys import EntityPair

    store = CorpusStore.open(options.directory)
    pair = EntityPair(options.head, options.tail)
    n_found = len(store.find([pair])[0])
    print_sentences(store.sentences_of([pair], limit_per_pair=options.limit)[0])
    if not n_found:
        print(f"No sentence with head '{options.head}' and tail '{options.tail}'.")
        for role, name in (("head", options.head), ("tail", options.tail)):
            near = store.names_like(name)
            print(f"  {role}: " + (f"the corpus has {', '.join(near)}" if near else f"no entity like '{name}'"))
    elif n_found > options.limit:
        print(f"... {options.limit:,} of {n_found:,} sentences; show more with --limit.")
    return 0


def search_text(options: argparse.Namespace) -> int:
    """Print sentences that hold a text."""
    from erda.corpus.store import CorpusStore

    n_found, sentences = CorpusStore.open(options.directory).search(options.text, limit=options.limit)
    print_sentences(sentences)
    more = f"; the first {len(sentences):,} are shown" if n_found > len(sentences) else ""
    print(f"{n_found:,} rows hold '{options.text}'{more}.")
    return 0


def print_sentences(sentences: Iterable[CorpusSentence]) -> None:
    """Print sentences with their row, entities marked, and their source."""
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for sentence in sentences:
        source = f"  ({sentence.example.source})" if sentence.example.source else ""
        print(f"{sentence.row:>9}  {marked(sentence.example, colour=colour)}{source}")


def marked(example: Example, *, colour: bool) -> str:
    """A sentence with its entities in colour, or in brackets: [head: Oslo] lies in [tail: Norway]."""
    opening, closing = {}, set()
    for role, entity in (("head", example.head), ("tail", example.tail)):
        opening[entity.span.start] = _COLOURS[role] if colour else f"[{role}: "
        closing.add(entity.span.end - 1)
    end = _PLAIN if colour else "]"
    return " ".join(
        opening.get(at, "") + token + (end if at in closing else "") for at, token in enumerate(example.tokens)
    )


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, about: str, examples: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=about[0].lower() + about[1:].rstrip("."),
        description=about,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", metavar="DIR", type=Path, help="folder of a corpus")
    return parser
