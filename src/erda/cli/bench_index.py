"""`erda bench index | embed | augment`: figures of the vector index, of embedding and of augmentation."""

from __future__ import annotations

import argparse
from pathlib import Path

from erda.cli.checking import below_one, refuse

INDEX_EXAMPLES = """examples:
  erda bench index
  erda bench index --rows 200000 --dim 768 --factory HNSW32
  erda bench index --corpus corpora/wiki
"""
EMBED_EXAMPLES = """examples:
  erda bench embed sentences.jsonl.gz
  erda bench embed sentences.jsonl.gz --sentences 2000 --batch-size 32
"""
AUGMENT_EXAMPLES = """examples:
  erda bench augment shots.jsonl --corpus corpora/wiki
"""


def register_bench(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `index`, `embed` and `augment` to the group `bench`."""
    index = _parser(
        subparsers, "index", "Recall, speed and memory of a vector index against exact search.", INDEX_EXAMPLES
    )
    index.add_argument("--rows", metavar="N", type=int, default=1_000_000, help="made-up vectors (default: 1,000,000)")
    index.add_argument("--dim", metavar="N", type=int, default=384, help="numbers a vector (default: 384)")
    index.add_argument("--factory", metavar="STRING", help="kind of FAISS index (default: chosen by size)")
    index.add_argument("--corpus", metavar="DIR", type=Path, help="real vectors: those of an indexed corpus")
    index.add_argument("--model", metavar="NAME", help="of these vectors (default: the model that ships)")
    index.add_argument("--seed", metavar="N", type=int, default=0, help="of the made-up vectors and the queries")
    index.set_defaults(handler=bench_index)

    embed = _parser(
        subparsers, "embed", "Sentences a second, beside sentence-transformers' own encode.", EMBED_EXAMPLES
    )
    embed.add_argument("file", metavar="FILE", type=Path, help="sentences with two entities, our own JSONL")
    embed.add_argument("--sentences", metavar="N", type=int, default=1024, help="how many (default: 1,024)")
    embed.add_argument("--batch-size", metavar="N", type=int, default=64, help="sentences a batch (default: 64)")
    embed.add_argument("--encoder", metavar="NAME", default="minilm", help="weights for both (default: minilm)")
    embed.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    embed.set_defaults(handler=bench_embed)

    augment = _parser(subparsers, "augment", "Seconds to augment a few-shot task.", AUGMENT_EXAMPLES)
    augment.add_argument("file", metavar="FILE", type=Path, help="labelled examples in any format of docs/data.md")
    augment.add_argument("--corpus", metavar="DIR", type=Path, required=True, help="a corpus with an index")
    augment.add_argument("--model", metavar="NAME", help="similarity model (default: the one that ships)")
    augment.add_argument("--examples", metavar="N", type=int, default=50, help="of the file's last (default: 50)")
    augment.set_defaults(handler=bench_augment)


def bench_index(args: argparse.Namespace) -> int:
    """Measure and print the figures of an index."""
    from erda.benchmark import index_bench

    vectors = None
    if args.corpus:
        from erda.corpus.shards import vectors_folder
        from erda.corpus.similarity import load_similarity

        vectors = vectors_folder(args.corpus, load_similarity(args.model).fingerprint)
    figures = index_bench.bench_index(
        n_rows=args.rows, dim=args.dim, factory=args.factory, seed=args.seed, vectors=vectors
    )
    print("\n".join(figures.lines()))
    return 0


def bench_embed(args: argparse.Namespace) -> int:
    """Measure and print the figures of embedding."""
    from itertools import chain

    from erda.benchmark import embed_bench
    from erda.corpus.similarity import SimilarityModel
    from erda.data.formats import read_jsonl
    from erda.encoders.devices import check_device
    from erda.encoders.weights import find_model

    refuse(below_one(args, "batch_size"))
    check_device(args.device)
    reading = read_jsonl(args.file)
    examples = list(chain(reading.examples, reading.unrelated))[: args.sentences]
    folder = find_model(args.encoder)
    model = SimilarityModel(folder, device=args.device)
    print("\n".join(embed_bench.bench_embed(examples, model, folder.path, batch_size=args.batch_size).lines()))
    return 0


def bench_augment(args: argparse.Namespace) -> int:
    """Measure and print the figures of augmentation."""
    from erda.benchmark import embed_bench
    from erda.corpus.augment import open_augmenter
    from erda.data.own import read_examples

    examples = read_examples(args.file).examples[-args.examples :]
    print("\n".join(embed_bench.bench_augment(open_augmenter(args.corpus, args.model), examples).lines()))
    return 0


def _parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], name: str, about: str, examples: str
) -> argparse.ArgumentParser:
    return subparsers.add_parser(
        name, help=about, description=about, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )
