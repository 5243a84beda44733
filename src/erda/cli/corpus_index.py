"""`erda corpus index`: vectors of all sentences of a corpus, and an index to search them by."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from erda.cli.checking import below_one, refuse, without_effect

if TYPE_CHECKING:
    from erda.corpus.embedding import Embedder

EXAMPLES = """examples:
  erda corpus index corpora/wiki
  erda corpus index corpora/wiki --device cuda --dtype bfloat16 --batch-size 512 --jobs 4
  erda corpus index corpora/wiki --model models/my-similarity --factory HNSW32
  erda corpus index corpora/wiki --engine ray --address 10.0.0.1:6379

A run that was stopped goes on where it stopped. After 'erda corpus build --add' only the new sentences are embedded
and added. docs/augmentation.md says which kind of index is chosen when.
"""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `index` to the group `corpus`."""
    about = "Embed all sentences of a corpus and make the index that finds the nearest ones."
    parser = commands.add_parser(
        "index",
        help=about,
        description=about,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("corpus", metavar="DIR", type=Path, help="a corpus made by 'erda corpus build'")
    add_model_arguments(parser)
    parser.add_argument("--factory", metavar="STRING", help="kind of FAISS index, e.g. Flat (default: chosen by size)")
    parser.add_argument("--batch-size", metavar="N", type=int, default=64, help="sentences a batch (default: 64)")
    parser.add_argument("--dtype", default="float32", help="float32, or bfloat16 on a GPU (default: float32)")
    parser.add_argument("--jobs", metavar="N", type=int, help="processes of this machine that embed (default: 1)")
    parser.add_argument("--rebuild", action="store_true", help="throw away the vectors and the index of before")
    add_engine_arguments(parser, "embed")
    parser.add_argument("--workers", metavar="N", type=int, help="Ray workers (default: one a GPU, or a CPU)")
    parser.set_defaults(handler=make_index)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """The similarity model and where it runs."""
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="a folder of 'erda corpus train', or an encoder (default: the one that ships)",
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (default: cpu)")


def add_engine_arguments(parser: argparse.ArgumentParser, what: str) -> None:
    """This machine or a Ray cluster."""
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help=f"where to {what} (default: local)")
    parser.add_argument("--address", metavar="ADDR", help="Ray cluster: auto, local or HOST:PORT (default: auto)")


def make_index(args: argparse.Namespace) -> int:
    """Embed what is new and make the index or add to it."""
    from erda.corpus.index import build_index
    from erda.corpus.similarity import load_similarity
    from erda.corpus.store import CorpusStore

    refuse(
        [
            *below_one(args, "jobs", "batch_size", "workers"),
            *without_effect(args, local=("jobs",), ray=("address", "workers")),
        ]
    )
    store = CorpusStore.open(args.corpus)
    embedder: Embedder | None = None
    if args.engine == "local":
        model = load_similarity(args.model, device=args.device, dtype=args.dtype)
        if args.jobs and args.jobs > 1:
            from erda.corpus.embedding import ProcessEmbedder

            embedder = ProcessEmbedder(
                corpus=store.folder,
                model=args.model,
                n_processes=args.jobs,
                device=args.device,
                dtype=args.dtype,
                batch_size=args.batch_size,
            )
    else:
        from erda.corpus.ray_jobs import RayJobs

        model = load_similarity(args.model)  # here only to know which one it is
        where = RayJobs(
            address=args.address or "auto",
            n_workers=args.workers,
            device=args.device,
            dtype=args.dtype,
            batch_size=args.batch_size,
        )
        embedder = where.embedder(store, args.model, model.fingerprint)
    index = build_index(
        store,
        model,
        factory=args.factory,
        rebuild=args.rebuild,
        embedder=embedder,
        batch_size=args.batch_size,
        show=lambda line: print(line, file=sys.stderr),
    )
    about = index.about
    print(f"{about.n_rows:,} rows, {about.dim} numbers each, {about.factory}: {about.file.size / 1e6:,.1f} MB")
    print("exact search" if about.factory == "Flat" else f"recall@1 {about.search.recall:.3f} against exact search")
    print(f"in {index.shards.folder}")
    return 0
