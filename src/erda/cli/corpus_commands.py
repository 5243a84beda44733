"""`erda corpus build | index | augment | train | pairs`."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from erda.cli.checking import Commands, add_command, positive
from erda.cli.printing import marked, print_columns, print_line
from erda.cli.settings_options import add_sets, settings_of
from erda.cli.store_options import add_overwrite, chosen
from erda.errors import SettingsError

if TYPE_CHECKING:
    from erda.corpus.augment import Augmentation
    from erda.corpus.corpus_store import Manifest

SHOWN_EXTRAS = 20
BUILD_SETS = (
    "format (jsonl, wikipedia or text; default: by file name), max_pairs (12) per sentence, max_tokens (250), "
    "exclude_overlap (0.5; 0 keeps near-duplicates), memory (2GB) for sorting"
)
INDEX_SETS = "dtype (float32; bfloat16 on a GPU, int8 on a CPU), batch_size (64)"
AUGMENT_SETS = "a setting of docs/augmentation.md, such as match_threshold, n_neighbours or agreement"
TRAIN_SETS = "a setting of docs/similarity.md, such as device, limit, n_epochs, batch_size, rank or objective"


def add_parser(subparsers: Commands[argparse.ArgumentParser]) -> None:
    """Add the group `corpus` to the command line."""
    group = add_command(subparsers, "corpus")
    commands = group.add_subparsers(title="commands", metavar="COMMAND", required=True)

    parser = add_command(commands, "corpus build", build)
    parser.add_argument("sources", metavar="SOURCE", type=Path, nargs="*", help="files to read; .gz and .bz2 too")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder of the corpus")
    _add_exclude(parser)
    parser.add_argument("--names", metavar="FILE", help="plain text: entity names, one per line [tab id]")
    about = "plain text: spaCy pipeline; 'entities' means that of 'erda data get entities'"
    parser.add_argument("--spacy", metavar="MODEL", help=about)
    parser.add_argument("--workers", metavar="N", type=positive, help="processes that parse wikitext (default: 1)")
    add_sets(parser, BUILD_SETS)

    parser = add_command(commands, "corpus index", index_corpus)
    parser.add_argument("corpus", metavar="DIR", type=Path, help="corpus of 'erda corpus build'")
    _add_model(parser, "the packaged model")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (default: cpu)")
    about = "embed on a Ray cluster: auto, HOST:PORT, or local for several processes on this machine"
    parser.add_argument("--address", metavar="ADDR", help=about)
    parser.add_argument("--workers", metavar="N", type=positive, help="Ray workers (default: one per GPU, or per CPU)")
    add_sets(parser, INDEX_SETS)

    parser = add_command(commands, "corpus augment", augment)
    parser.add_argument("file", metavar="FILE", type=Path, help="labelled examples in any format of docs/data.md")
    parser.add_argument("--corpus", metavar="DIR", type=Path, required=True, help="corpus with an index")
    about = "output file (default: FILE's name up to its first dot + .extra.jsonl)"
    parser.add_argument("--out", metavar="FILE", type=Path, help=about)
    add_overwrite(parser)
    parser.add_argument("--known", metavar="FILE", type=Path, nargs="+", default=[], help="sentences to skip")
    _add_model(parser, "that of the corpus's only index")
    add_sets(parser, AUGMENT_SETS)
    _add_training(commands)


def _add_training(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = add_command(commands, "corpus train", train_model)
    about = "a packed file of 'erda corpus pairs', or corpus folders and tagged JSONL files"
    parser.add_argument("sources", metavar="SOURCE", type=Path, nargs="+", help=about)
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder of the model")
    about = "pretrained model to start from (default: minilm)"
    parser.add_argument("--encoder", metavar="NAME", default="minilm", help=about)
    about = "labelled sentences to measure on (default: FewRel's validation data, if in the data folder)"
    parser.add_argument("--validation", metavar="FILE", type=Path, help=about)
    add_sets(parser, TRAIN_SETS)

    parser = add_command(commands, "corpus pairs", write_pairs)
    parser.add_argument("sources", metavar="SOURCE", type=Path, nargs="+", help="corpus folders or tagged JSONL files")
    parser.add_argument("--out", metavar="FILE", type=Path, required=True, help="new file, .npz")
    _add_exclude(parser)
    about = "pretrained model with the word pieces; minilm and mpnet share theirs (default: minilm)"
    parser.add_argument("--encoder", metavar="NAME", default="minilm", help=about)


def _add_exclude(parser: argparse.ArgumentParser) -> None:
    about = "files of test and validation data; their sentences and near-duplicates are dropped"
    parser.add_argument("--exclude", metavar="FILE", type=Path, nargs="+", action="extend", default=[], help=about)


def _add_model(parser: argparse.ArgumentParser, default: str) -> None:
    about = f"folder of 'erda corpus train', or an encoder (default: {default})"
    parser.add_argument("--model", metavar="NAME", help=about)


def build(args: argparse.Namespace) -> None:
    """Build a corpus and print the numbers of rows and of dropped rows; without sources, print its counts."""
    from erda.corpus.corpus_build import build_corpus
    from erda.corpus.sources import BuildSettings

    if not args.sources:
        _show_counts(args.out)
        return
    flags = {name: value for name in ("names", "spacy", "workers") if (value := getattr(args, name)) is not None}
    settings = settings_of(BuildSettings, args.sets, flags, what="setting of a build")
    manifest = build_corpus(args.sources, args.out, exclude=args.exclude, settings=settings)
    print_line(f"{args.out}: {manifest.n_rows:,} rows, version {manifest.digest[:12]}")
    _print_dropped(manifest)


def _print_dropped(manifest: Manifest) -> None:
    """Print the number of dropped rows by reason, with the first place of each."""
    places = {reason: shown[0] for source in reversed(manifest.sources) for reason, shown in source.places.items()}
    if manifest.dropped:
        print_line("Dropped, by reason:")
    for reason, n in manifest.dropped.items():
        print_line(f"  {n:>12,}  {reason}" + (f"  (first: {places[reason]})" if reason in places else ""))


def _show_counts(folder: Path) -> None:
    """Print the counts of a corpus."""
    from erda.corpus.corpus_store import CorpusStore

    store = CorpusStore.open(folder)
    counts = {name: f"{n:,}" for name, n in store.counts().items()} | {"version": store.digest[:12]}
    print_columns("<<", [*counts.items(), ("excluded", ", ".join(store.manifest.excluded_from) or "nothing")])
    print_line("Sources (rows before removing duplicates):")
    for source in store.manifest.sources:
        print_line(f"  {source.n_rows:>12,}  {Path(source.path).name}")
    _print_dropped(store.manifest)


def index_corpus(args: argparse.Namespace) -> None:
    """Embed rows without a vector, and make the index."""
    from erda.corpus.corpus_store import CorpusStore
    from erda.corpus.similarity import load_similarity
    from erda.corpus.vector_index import build_index
    from erda.corpus.vector_shards import EmbedSettings, ShardWorker, ray_embedder

    if args.workers and not args.address:
        raise SettingsError("--workers: only with --address.")
    settings = settings_of(EmbedSettings, args.sets, {}, what="setting of embedding")
    store = CorpusStore.open(args.corpus)
    here = {"device": args.device, "dtype": settings.dtype}
    model = load_similarity(args.model, **({} if args.address else here))  # Ray: only for its fingerprint
    embedder = None
    if args.address:
        origin = {"corpus": store.folder, "digest": store.digest, "model": args.model, "fingerprint": model.fingerprint}
        worker = ShardWorker(**origin, **here, batch_size=settings.batch_size)
        embedder = ray_embedder(worker, args.address, args.workers)
    index = build_index(store, model, embedder=embedder, batch_size=settings.batch_size)
    about = index.about
    print_line(f"{about.n_rows:,} rows, {about.dim} dimensions, {about.factory}: {about.file.size / 1e6:,.1f} MB")
    recall = f"recall@1 {about.search.recall:.3f} against exact search"
    print_line("exact search" if about.factory == "Flat" else recall)
    print_line(f"in {index.shards.folder}")


def augment(args: argparse.Namespace) -> None:
    """Find extra examples, write them, and print some."""
    from erda.corpus.augment import AugmentSettings, open_augmenter
    from erda.data.own_data import read_examples
    from erda.files import check_output, write_lines

    settings = settings_of(AugmentSettings, args.sets, {}, what="setting of the augmentation")
    out = args.out or args.file.with_name(args.file.name.split(".")[0] + ".extra.jsonl")
    check_output(out, args.file, *args.known, overwrite=args.overwrite)
    examples = read_examples(args.file).examples
    known = [example for path in args.known for example in read_examples(path).examples]
    found = open_augmenter(args.corpus, args.model).find(examples, known=known, settings=settings)
    write_lines(out, (json.dumps(extra.to_json(), ensure_ascii=False) for extra in found.extras))
    _print_augmentation(found)
    print_line()
    print_line(f"{len(found.extras)} extra examples written to {out}")


def _print_augmentation(found: Augmentation) -> None:
    """Print the best extra examples and the counts."""
    rows = [("relation", "score", "margin", "rule", "sentence")]
    for extra in sorted(found.extras, key=lambda extra: -extra.score)[:SHOWN_EXTRAS]:
        scores = f"{extra.score:.2f}", f"{extra.margin:+.2f}"
        rows.append((str(extra.example.relation), *scores, extra.rule, marked(extra.example)))
    print_columns("<>><<", rows)
    counts = ", ".join(f"{n} by {rule}" for rule, n in found.counts.items())
    print_line()
    print_line(f"{found.n_examples} examples, {found.n_matched} with their entity pair in the corpus: {counts}")
    if found.dropped:
        print_line("rejected: " + "; ".join(f"{n} {reason}" for reason, n in found.dropped.items()))


def train_model(args: argparse.Namespace) -> None:
    """Train a similarity model and print its measures before and after."""
    from erda.corpus.similarity_run import run_training
    from erda.corpus.training_batches import TrainCommandSettings

    settings = settings_of(TrainCommandSettings, args.sets, {}, what="setting of a training")
    asked = {**chosen(args, "encoder", "out", "validation"), "command": shlex.join(["erda", *sys.argv[1:]])}
    for line in (*run_training(args.sources, settings, **asked), f"saved in {args.out}"):
        print_line(line)


def write_pairs(args: argparse.Namespace) -> None:
    """Pack sentences into a file of pairs."""
    from erda.corpus.exclude import Excluded
    from erda.corpus.training_pairs import PACKED, read_pair_rows
    from erda.encoders.layers import load_tokenizer
    from erda.encoders.weights import find_model

    if args.out.suffix != PACKED or args.out.exists():
        raise SettingsError(f"--out is {args.out}: expected a new file whose name ends in {PACKED}.")
    tokenizer = load_tokenizer(find_model(args.encoder), mode="markers")
    rows = read_pair_rows(args.sources, tokenizer, excluded=Excluded.read(args.exclude) if args.exclude else None)
    rows.save(args.out)
    size = args.out.stat().st_size / 2**20
    print_line(f"{args.out}: {len(rows):,} sentences, {rows.n_links:,} pairs, {size:.1f} MiB")
    for reason, n in (rows.made_of.left_out or {}).items():
        print_line(f"  dropped: {n:,}, {reason}")
