"""`erda corpus narrow`: the part of a corpus that some examples would find."""

from __future__ import annotations

import argparse
from pathlib import Path

from erda.cli.corpus_index import add_model_arguments

EXAMPLES = """examples:
  erda corpus narrow corpora/wiki my-examples.jsonl --out near.jsonl.gz
  erda corpus narrow corpora/wiki fewrel/train_0.txt --top 100 --out near.jsonl.gz
  erda corpus build near.jsonl.gz --out corpora/near && erda corpus index corpora/near

For these examples the narrowed corpus answers as the whole one, as long as K + 24 neighbours are no more than N.
"""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `narrow` to the group `corpus`."""
    about = "Write the sentences of a corpus that some examples would find: a small corpus to carry along."
    parser = commands.add_parser(
        "narrow",
        help=about,
        description=about,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("corpus", metavar="DIR", type=Path, help="a corpus with an index")
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+", help="examples in any format of docs/data.md")
    parser.add_argument("--out", metavar="FILE", type=Path, required=True, help="tagged JSONL; gzip where it ends so")
    parser.add_argument("--top", metavar="N", type=int, default=50, help="neighbours of an example (default: 50)")
    add_model_arguments(parser)
    parser.set_defaults(handler=narrow)


def narrow(args: argparse.Namespace) -> int:
    """Search and write."""
    from erda.corpus.augment import open_augmenter
    from erda.corpus.narrow import narrow_rows, write_rows
    from erda.data.own import read_examples

    examples = [example for path in args.files for example in read_examples(path).examples]
    found = open_augmenter(args.corpus, args.model, device=args.device)
    rows = narrow_rows(found.store, found.index, found.model, examples, top=args.top)
    write_rows(found.store, rows, args.out)
    print(f"{len(rows):,} of {len(found.store):,} rows are near {len(examples):,} examples: {args.out}")
    return 0
