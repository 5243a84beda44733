"""`erda corpus augment`: the extra examples that a file of few-shot examples would get."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from erda.cli.corpus_index import add_model_arguments

if TYPE_CHECKING:
    from erda.corpus.augment import Augmentation, AugmentSettings
    from erda.types import Example

EXAMPLES = """examples:
  erda corpus augment my-examples.jsonl --corpus corpora/wiki
  erda corpus augment my-examples.jsonl --corpus corpora/wiki --out extras.jsonl --neighbours 3 --agreement mean
  erda corpus augment my-examples.jsonl --corpus corpora/wiki --known test.jsonl
  erda corpus augment my-examples.jsonl --corpus corpora/wiki --exemplars older.jsonl --agreement mean \\
      --set n_neighbours=5 --set search_matched=true

The file written is in our own format, so that what you trust of it can be added to your examples.
"""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `augment` to the group `corpus`."""
    about = "Show and write the extra examples that a file of examples would get from a corpus."
    parser = commands.add_parser(
        "augment",
        help=about,
        description=about,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="labelled examples in any format of docs/data.md")
    parser.add_argument("--corpus", metavar="DIR", type=Path, required=True, help="a corpus with an index")
    parser.add_argument("--out", metavar="FILE", type=Path, help="where to write (default: FILE's name + .extra.jsonl)")
    parser.add_argument("--known", metavar="FILE", type=Path, action="append", default=[], help="never these sentences")
    parser.add_argument(
        "--exemplars",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="examples of other relations, for --agreement to look at; never these sentences either",
    )
    parser.add_argument("--format", metavar="NAME", help="format of FILE (default: what it looks like)")
    add_model_arguments(parser)
    add_augment_arguments(parser)
    parser.add_argument("--show", metavar="N", type=int, default=3, help="to print a relation (default: 3)")
    parser.set_defaults(handler=augment)


def add_augment_arguments(parser: argparse.ArgumentParser) -> None:
    """What may become an extra example; what is not given is the paper's."""
    add = parser.add_argument
    add("--threshold", dest="match_threshold", metavar="S", type=float, help="alpha of entity matches (default: 0.65)")
    add("--max-matches", metavar="N", type=int, help="matches an example (default: 16)")
    add("--neighbours", dest="n_neighbours", metavar="K", type=int, help="neighbours an example (default: 1)")
    add("--neighbour-threshold", metavar="S", type=float, help="least score (default: 0)")
    for flag, name, text in (
        ("--no-matching", "entity_matching", "without entity matching (the paper's w.o. EM)"),
        ("--no-search", "similarity_search", "without similarity search (the paper's w.o. SS)"),
    ):
        add(flag, dest=name, action="store_const", const=False, help=text)
    add(
        "--agreement",
        choices=("none", "mean", "nearest"),
        help="keep only what is nearer to its own relation than to any other of the file (default: none)",
    )
    add("--agreement-margin", metavar="M", type=float, help="by so much (default: 0)")
    parser.add_argument(
        "--set",
        dest="sets",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="any setting of augmentation by the name that `erda run` has for it; the flags above win",
    )


def augment_settings(args: argparse.Namespace) -> AugmentSettings:
    """The settings that were given, by `--set` or by a flag."""
    from erda.cli.settings import values_of
    from erda.corpus.augment import AugmentSettings
    from erda.fields import checked_settings, flat_kinds

    kinds = flat_kinds(AugmentSettings)
    given = values_of(args.sets, kinds, what="setting of the augmentation")
    flags = {name: getattr(args, name) for name in kinds if getattr(args, name, None) is not None}
    return checked_settings(AugmentSettings, {**given, **flags})


def augment(args: argparse.Namespace) -> int:
    """Find, write and print."""
    from erda.corpus.augment import open_augmenter, write_extras
    from erda.data.own import read_examples

    settings = augment_settings(args)
    examples = read_examples(args.file, args.format).examples
    known, exemplars = (
        [example for path in paths for example in read_examples(path).examples]
        for paths in (args.known, args.exemplars)
    )
    augmenter = open_augmenter(args.corpus, args.model, device=args.device)
    found = augmenter.find(examples, known=known, exemplars=exemplars, settings=settings)
    out = args.out or args.file.with_name(args.file.name.split(".")[0] + ".extra.jsonl")
    write_extras(found, out)
    print_augmentation(found, n_shown=args.show)
    print(f"\n{len(found.extras)} extra examples written to {out}")
    return 0


def print_augmentation(found: Augmentation, *, n_shown: int) -> None:
    """A few extra examples of each relation, and the counts."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 160
    by_relation: dict[str, list[str]] = {}
    for extra in sorted(found.extras, key=lambda extra: -extra.score):
        line = f"  {extra.score:5.2f} {extra.margin:+6.2f}  {extra.rule:12}  {marked(extra.example)}"
        by_relation.setdefault(str(extra.example.relation), []).append(line)
    for relation in sorted(by_relation):
        lines = by_relation[relation]
        print(f"{relation}: {len(lines)} extra")
        print("  score margin  rule          sentence")
        for line in lines[:n_shown]:
            print(line if len(line) <= width else line[: width - 1] + "…")
        if len(lines) > n_shown:
            print(f"  ... and {len(lines) - n_shown} more")
    counts = ", ".join(f"{n} by {rule}" for rule, n in found.counts.items())
    print(f"\n{found.n_examples} examples, {found.n_matched} with their entity pair in the corpus: {counts}")
    if found.dropped:
        print("turned down: " + "; ".join(f"{n} {reason}" for reason, n in found.dropped.items()))


def marked(example: Example) -> str:
    """A sentence with its entities in brackets: [head] and {tail}."""
    words = list(example.tokens)
    for (left, right), span in (("[]", example.head.span), ("{}", example.tail.span)):
        words[span.start] = left + words[span.start]
        words[span.end - 1] += right
    return " ".join(words)
