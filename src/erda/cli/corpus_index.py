"""`erda corpus index | augment | narrow`: index a corpus and find sentences near examples."""

from __future__ import annotations

import argparse
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from erda.cli.checking import Commands, add_command, below_one, refuse, without_effect
from erda.cli.printing import SHORT_BRACKETS, marked, print_line
from erda.cli.store_options import add_overwrite

if TYPE_CHECKING:
    from erda.corpus.augment import Augmentation, AugmentSettings
    from erda.corpus.vector_shards import Embedder

INDEX_EXAMPLES = """\
Run the same command again to resume after an interruption. After 'erda corpus build --add' only the new sentences are
embedded and added. docs/augmentation.md describes how the kind of index is chosen.

examples:
  erda corpus index corpora/wiki
  erda corpus index corpora/wiki --device cuda --dtype bfloat16 --batch-size 512 --jobs 4
  erda corpus index corpora/wiki --model models/my-similarity
  erda corpus index corpora/wiki --engine ray --address 10.0.0.1:6379
"""
AUGMENT_EXAMPLES = """\
The output is in erda's JSONL format: add the lines that you trust to your examples.

examples:
  erda corpus augment my-examples.jsonl --corpus corpora/wiki
  erda corpus augment my-examples.jsonl --corpus corpora/wiki --out extras.jsonl --neighbours 3 --agreement mean
  erda corpus augment my-examples.jsonl --corpus corpora/wiki --known test.jsonl
  erda corpus augment my-examples.jsonl --corpus corpora/wiki --exemplars older.jsonl --agreement mean \\
      --set n_neighbours=5 --set search_matched=true
"""
NARROW_EXAMPLES = """\
For these examples, the smaller corpus gives the results of the whole corpus as long as K + 24 is at most --top.

examples:
  erda corpus narrow corpora/wiki my-examples.jsonl --out near.jsonl.gz
  erda corpus narrow corpora/wiki fewrel/train_0.txt --top 40 --per-relation 400 --out near.jsonl.gz
  erda corpus build near.jsonl.gz --out corpora/near && erda corpus index corpora/near
"""


def add_commands(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add `index`, `augment` and `narrow` to the group `corpus`."""
    about = "Embed all sentences of a corpus and build a nearest-neighbour index."
    parser = add_command(commands, "index", about, INDEX_EXAMPLES)
    parser.add_argument("corpus", metavar="DIR", type=Path, help="corpus of 'erda corpus build'")
    add_model_arguments(parser)
    add = parser.add_argument
    add("--batch-size", metavar="N", type=int, default=64, help="sentences per batch (default: 64)")
    add("--dtype", default="float32", help="float32, bfloat16 on a GPU, int8 on a CPU (default: float32)")
    add("--jobs", metavar="N", type=int, help="local embedding processes (default: 1)")
    add("--rebuild", action="store_true", help="delete existing vectors and index first")
    add("--engine", choices=("local", "ray"), default="local", help="where to embed (default: local)")
    add("--address", metavar="ADDR", help="Ray cluster: auto, local or HOST:PORT (default: auto)")
    add("--workers", metavar="N", type=int, help="Ray workers (default: one per GPU, or per CPU)")
    parser.set_defaults(handler=make_index)

    about = "Find extra examples for a file of examples in a corpus; show and write them."
    parser = add_command(commands, "augment", about, AUGMENT_EXAMPLES)
    add = parser.add_argument
    add("file", metavar="FILE", type=Path, help="labelled examples in any format of docs/data.md")
    add("--corpus", metavar="DIR", type=Path, required=True, help="corpus with an index")
    add("--out", metavar="FILE", type=Path, help="output file (default: FILE's name + .extra.jsonl)")
    add_overwrite(parser)
    add("--known", metavar="FILE", type=Path, action="append", default=[], help="sentences to skip")
    about = "examples of other relations, for --agreement; their sentences are skipped too"
    add("--exemplars", metavar="FILE", type=Path, action="append", default=[], help=about)
    add("--format", metavar="NAME", help="format of FILE (default: detected)")
    add_model_arguments(parser)
    add_augment_arguments(parser)
    add("--show", metavar="N", type=int, default=3, help="extra examples to print per relation (default: 3)")
    parser.set_defaults(handler=augment)

    about = "Write the sentences of a corpus that are near some examples, for a smaller corpus."
    parser = add_command(commands, "narrow", about, NARROW_EXAMPLES)
    add = parser.add_argument
    add("corpus", metavar="DIR", type=Path, help="corpus with an index")
    add("files", metavar="FILE", type=Path, nargs="+", help="examples in any format of docs/data.md")
    add("--out", metavar="FILE", type=Path, required=True, help="tagged JSONL; .gz compresses")
    add_overwrite(parser)
    add("--top", metavar="N", type=int, default=50, help="neighbours per example (default: 50)")
    about = "neighbours shared by the examples of a relation, at least one each (default: no limit)"
    add("--per-relation", metavar="N", type=int, help=about)
    add_model_arguments(parser)
    parser.set_defaults(handler=narrow)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add options for the similarity model and its device."""
    about = "folder of 'erda corpus train', or an encoder (default: the packaged model)"
    parser.add_argument("--model", metavar="NAME", help=about)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (default: cpu)")


def add_augment_arguments(parser: argparse.ArgumentParser) -> None:
    """Add options for `AugmentSettings`."""
    add = parser.add_argument
    off = partial(add, action="store_const", const=False)
    about = "alpha: matches must exceed this similarity (default: 0.65)"
    add("--threshold", dest="match_threshold", metavar="S", type=float, help=about)
    add("--max-matches", metavar="N", type=int, help="matches per example (default: 16)")
    add("--neighbours", dest="n_neighbours", metavar="K", type=int, help="neighbours per example (default: 1)")
    add("--neighbour-threshold", metavar="S", type=float, help="minimum similarity of neighbours (default: 0)")
    off("--no-matching", dest="entity_matching", help="no entity matching (the paper's w.o. EM)")
    off("--no-search", dest="similarity_search", help="no similarity search (the paper's w.o. SS)")
    about = "keep only sentences nearer to their own relation than to any other of the file (default: none)"
    add("--agreement", choices=("none", "mean", "nearest"), help=about)
    add("--agreement-margin", metavar="M", type=float, help="minimum difference for --agreement (default: 0)")
    about = "any augmentation setting by its name in `erda run`; the flags above win"
    add("--set", dest="sets", metavar="NAME=VALUE", action="append", default=[], help=about)


def augment_settings(args: argparse.Namespace) -> AugmentSettings:
    """The settings given by `--set` or by a flag; the others keep the paper's values."""
    from erda.cli.settings_options import settings_of
    from erda.corpus.augment import AugmentSettings

    names = [name for name in AugmentSettings.model_fields if getattr(args, name, None) is not None]
    flags = {name: getattr(args, name) for name in names}
    return settings_of(AugmentSettings, args.sets, flags, what="setting of the augmentation")


def make_index(args: argparse.Namespace) -> None:
    """Embed new rows, and make the index or add to it."""
    from erda.corpus.corpus_store import CorpusStore
    from erda.corpus.similarity import load_similarity
    from erda.corpus.vector_index import build_index
    from erda.corpus.vector_shards import ShardWorker, process_embedder

    refuse(
        [
            *below_one(args, "jobs", "batch_size", "workers"),
            *without_effect(args, local=("jobs",), ray=("address", "workers")),
        ]
    )
    store = CorpusStore.open(args.corpus)
    here = {"device": args.device, "dtype": args.dtype}
    model = load_similarity(args.model, **({} if args.engine == "ray" else here))  # Ray: only for its fingerprint
    worker = ShardWorker(
        corpus=store.folder,
        digest=store.digest,
        model=args.model,
        fingerprint=model.fingerprint,
        batch_size=args.batch_size,
        **here,
    )
    embedder: Embedder | None = None
    if args.engine == "ray":
        from erda.corpus.ray_jobs import RayJobs

        embedder = RayJobs(address=args.address or "auto", n_workers=args.workers).embedder(worker)
    elif args.jobs and args.jobs > 1:
        embedder = process_embedder(worker, args.jobs)
    index = build_index(
        store,
        model,
        rebuild=args.rebuild,
        embedder=embedder,
        batch_size=args.batch_size,
        show=lambda line: print_line(line, file=sys.stderr),
    )
    about = index.about
    print_line(f"{about.n_rows:,} rows, {about.dim} dimensions, {about.factory}: {about.file.size / 1e6:,.1f} MB")
    print_line(
        "exact search" if about.factory == "Flat" else f"recall@1 {about.search.recall:.3f} against exact search"
    )
    print_line(f"in {index.shards.folder}")


def augment(args: argparse.Namespace) -> None:
    """Find extra examples, write them, and print some."""
    from erda.corpus.augment import open_augmenter, write_extras
    from erda.data.own_data import read_examples
    from erda.outputs import check_output

    settings = augment_settings(args)
    out = args.out or args.file.with_name(args.file.name.split(".")[0] + ".extra.jsonl")
    check_output(out, args.file, *args.known, *args.exemplars, overwrite=args.overwrite)
    examples = read_examples(args.file, args.format).examples
    known, exemplars = (
        [example for path in paths for example in read_examples(path).examples]
        for paths in (args.known, args.exemplars)
    )
    augmenter = open_augmenter(args.corpus, args.model, device=args.device)
    found = augmenter.find(examples, known=known, exemplars=exemplars, settings=settings)
    write_extras(found, out)
    print_augmentation(found, n_shown=args.show)
    print_line()
    print_line(f"{len(found.extras)} extra examples written to {out}")


def print_augmentation(found: Augmentation, *, n_shown: int) -> None:
    """Print a few extra examples of each relation, and the counts."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 160
    by_relation: dict[str, list[str]] = {}
    for extra in sorted(found.extras, key=lambda extra: -extra.score):
        line = f"  {extra.score:5.2f} {extra.margin:+6.2f}  {extra.rule:12}  {marked(extra.example, SHORT_BRACKETS)}"
        by_relation.setdefault(str(extra.example.relation), []).append(line)
    for relation in sorted(by_relation):
        lines = by_relation[relation]
        print_line(f"{relation}: {len(lines)} extra")
        print_line("  score margin  rule          sentence")
        for line in lines[:n_shown]:
            print_line(line if len(line) <= width else line[: width - 1] + "…")
        if len(lines) > n_shown:
            print_line(f"  ... and {len(lines) - n_shown} more")
    counts = ", ".join(f"{n} by {rule}" for rule, n in found.counts.items())
    print_line()
    print_line(f"{found.n_examples} examples, {found.n_matched} with their entity pair in the corpus: {counts}")
    if found.dropped:
        print_line("rejected: " + "; ".join(f"{n} {reason}" for reason, n in found.dropped.items()))


def narrow(args: argparse.Namespace) -> None:
    """Select the rows near some examples and write them."""
    from erda.corpus.augment import open_augmenter
    from erda.corpus.narrow import near_rows, write_rows
    from erda.data.own_data import read_examples
    from erda.outputs import check_output

    check_output(args.out, *args.files, overwrite=args.overwrite)
    examples = [example for path in args.files for example in read_examples(path).examples]
    augmenter = open_augmenter(args.corpus, args.model, device=args.device)
    rows = near_rows(augmenter, examples, top=args.top, per_relation=args.per_relation)
    write_rows(augmenter.store, rows, args.out)
    print_line(f"{len(rows):,} of {len(augmenter.store):,} rows are near {len(examples):,} examples: {args.out}")
