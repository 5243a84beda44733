"""`erda corpus train | pairs | evaluate | background`: train and measure similarity models."""

from __future__ import annotations

import argparse
import shlex
import sys
from functools import partial
from pathlib import Path

from erda.cli.checking import add_command, below_one, refuse
from erda.cli.printing import print_line
from erda.cli.store_options import add_overwrite
from erda.errors import SettingsError

TRAIN_EXAMPLES = """examples:
  erda corpus train corpora/wiki --out models/mine
  erda corpus train corpora/wiki --limit 50000 --objective paper --out models/paper
  erda corpus train --pairs pairs.npz --device cuda --bf16 --batch-size 1024 --epochs 3 --out models/mine
  erda corpus train corpora/wiki --encoder mpnet --rank 0 --out models/mpnet-all-weights
"""
PAIRS_EXAMPLES = """examples:
  erda corpus pairs corpora/wiki --limit 75000 --out pairs.npz
  erda corpus pairs tagged-0.jsonl.gz tagged-1.jsonl.gz --exclude test.jsonl validation.jsonl --out pairs.npz
"""
BACKGROUND_EXAMPLES = """examples:
  erda corpus background models/mine tagged.jsonl.gz
  erda corpus background models/mine tagged-0.jsonl.gz tagged-1.jsonl.gz --sentences 20000 --device cuda
"""
EVALUATE_EXAMPLES = """examples:
  erda corpus evaluate
  erda corpus evaluate minilm --pairs pairs.npz
  erda corpus evaluate models/mine --validation my-labelled.jsonl
"""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `train`, `pairs`, `evaluate` and `background`."""
    _add_train(commands)
    about = "Pack sentences as word pieces into one file, to train from it on a machine without the corpus."
    pairs = add_command(commands, "pairs", about, PAIRS_EXAMPLES)
    pairs.add_argument("sources", metavar="SOURCE", type=Path, nargs="+", help="corpus folders or tagged JSONL files")
    about = "pretrained model with the word pieces; minilm and mpnet share theirs (default: minilm)"
    pairs.add_argument("--encoder", metavar="NAME", default="minilm", help=about)
    add_exclude_arguments(pairs)
    pairs.add_argument("--limit", metavar="N", type=int, help="positive pairs to write (default: all)")
    pairs.add_argument("--seed", metavar="N", type=int, default=0, help="seed of the draw (default: 0)")
    pairs.add_argument("--out", metavar="FILE", type=Path, required=True, help="output file, .npz")
    add_overwrite(pairs)
    pairs.set_defaults(handler=write_pair_file)

    about = "Measure a similarity model: AUC on held-out entity pairs, and how often neighbours have the same relation."
    evaluate = add_command(commands, "evaluate", about, EVALUATE_EXAMPLES)
    evaluate.add_argument("model", metavar="MODEL", nargs="?", help="folder or encoder (default: the packaged model)")
    evaluate.add_argument(
        "--pairs", metavar="SOURCE", type=Path, nargs="+", default=[], help="sources of held-out pairs"
    )
    _add_measuring(evaluate)
    evaluate.set_defaults(handler=evaluate_model)

    about = "Write the background of trained weights: vectors of general sentences, used for the answer 'no relation'."
    background = add_command(commands, "background", about, BACKGROUND_EXAMPLES)
    background.add_argument("model", metavar="MODEL", help="folder of a model, or packaged minilm or mpnet")
    background.add_argument("sources", metavar="FILE", type=Path, nargs="+", help="tagged JSONL files")
    background.add_argument("--sentences", metavar="N", type=int, default=6000, help="number to draw (default: 6000)")
    background.add_argument("--seed", metavar="N", type=int, default=0, help="seed of the draw (default: 0)")
    background.add_argument("--device", metavar="NAME", default="cpu", help="cpu or cuda (default: cpu)")
    background.set_defaults(handler=write_background)


def train_model(args: argparse.Namespace) -> None:
    """Train a similarity model and print its measures before and after."""
    from erda.corpus.similarity_run import Sources, run_training
    from erda.corpus.similarity_settings import Machine, TrainingSettings
    from erda.fields import checked_settings

    paths = ([args.folder] if args.folder else []) + args.pairs
    if not paths:
        raise SettingsError("nothing to train on: name a corpus folder, or files with --pairs.")
    given = vars(args)
    settings = checked_settings(
        TrainingSettings, {name: given[name] for name in TrainingSettings.model_fields if name in given}
    )
    machine = checked_settings(Machine, {name: given[name] for name in Machine.model_fields})
    report = run_training(
        Sources(paths=paths, limit=args.limit, held_out=args.held_out, validation=args.validation),
        settings,
        encoder=args.encoder,
        out=args.out,
        machine=machine,
        resume=args.resume,
        measure=args.measure,
        command=shlex.join(["erda", *sys.argv[1:]]),
    )
    for line in (*report.lines(), f"saved in {args.out}"):
        print_line(line)


def write_pair_file(args: argparse.Namespace) -> None:
    """Pack sentences into a file of pairs."""
    from erda.corpus.exclude import Excluded
    from erda.corpus.training_pairs import PACKED, check_limit, read_rows
    from erda.encoders.layers import load_tokenizer
    from erda.encoders.weights import find_model
    from erda.outputs import check_output

    check_limit(args.limit)
    if args.out.suffix != PACKED:
        raise SettingsError(f"--out is {args.out}: expected a name ending in {PACKED}.")
    check_output(args.out, *args.sources, *args.exclude, overwrite=args.overwrite)
    rows = read_rows(
        args.sources,
        load_tokenizer(find_model(args.encoder), mode="markers"),
        limit=None if args.limit is None else 2 * args.limit,
        seed=args.seed,
        excluded=Excluded.read(args.exclude, overlap=args.exclude_overlap) if args.exclude else None,
    )
    if args.limit is not None:
        rows = rows.limited(args.limit, seed=args.seed)
    rows.save(args.out)
    print_line(
        f"{args.out}: {len(rows):,} sentences, {rows.n_links:,} pairs, {args.out.stat().st_size / 2**20:.1f} MiB"
    )
    for reason, n in (rows.made_of.left_out or {}).items():
        print_line(f"  dropped: {n:,}, {reason}")


def write_background(args: argparse.Namespace) -> None:
    """Write the background of trained weights."""
    from erda.corpus.background_maker import make_background

    refuse(below_one(args, "sentences"))
    path = make_background(args.model, args.sources, n_sentences=args.sentences, seed=args.seed, device=args.device)
    print_line(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")
    print_line("Existing stores keep their background; to use the new one: erda teach --relearn --store DIR")


def evaluate_model(args: argparse.Namespace) -> None:
    """Measure a model."""
    from erda.corpus.similarity_run import ABOUT, measure_model

    found = measure_model(
        args.model, args.pairs, held_out=args.held_out, validation=args.validation, device=args.device, seed=args.seed
    )
    for name, text in ABOUT.items():
        if getattr(found, name) is not None:
            print_line(f"{text:<44}{getattr(found, name):6.3f}")
    print_line(f"on {found.n_pairs:,} held-out pairs and {found.n_validation:,} labelled sentences")


def _add_train(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = (
        "Train a similarity model on sentences with the same two entities. The same command resumes an interrupted "
        "training from its last checkpoint."
    )
    parser = add_command(commands, "train", about, TRAIN_EXAMPLES)
    add = parser.add_argument
    count, number = partial(add, metavar="N", type=int), partial(add, type=float)
    add("folder", metavar="DIR", type=Path, nargs="?", help="corpus of 'erda corpus build'")
    about = "packed file of 'erda corpus pairs', or tagged JSONL files"
    add("--pairs", metavar="FILE", type=Path, nargs="+", default=[], help=about)
    add("--out", metavar="DIR", type=Path, required=True, help="folder of the model")
    add("--encoder", metavar="NAME", default="minilm", help="pretrained model to start from (default: minilm)")
    count("--limit", help="pairs per epoch (default: all)")
    add("--objective", choices=("infonce", "paper"), default="infonce", help="loss (default: infonce)")
    number("--temperature", metavar="T", default=0.0, help="default: 0.07 for infonce, 1 for paper")
    number("--blank-names", metavar="P", default=0.7, help="probability of masking a name (default: 0.7)")
    about = "probability of cropping to the words between the entities, names masked (default: 0)"
    number("--crop", metavar="P", default=0.0, help=about)
    count("--rank", default=32, help="rank of the adapter; 0 trains all weights (default: 32)")
    number("--scale", metavar="X", default=1.0, help="factor of the adapter (default: 1)")
    add("--start", metavar="DIR", default="", help="trained weights to start from, of the same rank")
    number("--learning-rate", metavar="X", default=0.0, help="default: 2e-3 for an adapter, 2e-4 for all weights")
    number("--weight-decay", metavar="X", default=0.01, help="weight decay of matrices (default: 0.01)")
    count("--batch-size", default=256, help="pairs per batch and device (default: 256)")
    count("--epochs", dest="n_epochs", default=1, help="epochs; each draws new pairs (default: 1)")
    about = "last layers whose states make a vector, after training (default: 1)"
    count("--pooled-layers", default=1, help=about)
    count("--max-pieces", default=128, help="maximum word pieces per sentence (default: 128)")
    add("--bf16", action="store_true", help="compute in bfloat16 (GPUs)")
    count("--save-steps", default=500, help="steps between checkpoints (default: 500)")
    add("--measure", action=argparse.BooleanOptionalAction, default=True, help="measure before and after (default)")
    add("--resume", action=argparse.BooleanOptionalAction, default=True, help="resume an unfinished training (default)")
    _add_measuring(parser)
    parser.set_defaults(handler=train_model)


def add_exclude_arguments(parser: argparse.ArgumentParser) -> None:
    """Add options that exclude test and validation data."""
    about = "files of test and validation data; their sentences are dropped, ignoring case and spacing"
    parser.add_argument("--exclude", metavar="FILE", type=Path, nargs="+", action="extend", default=[], help=about)
    about = (
        "also drop sentences with this share of the word 8-grams of an excluded sentence (default: 0.5; 0: keep "
        "near-duplicates)"
    )
    parser.add_argument("--exclude-overlap", metavar="SHARE", type=float, default=0.5, help=about)


def _add_measuring(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    about = "labelled sentences (default: FewRel's validation data, if in the data folder)"
    add("--validation", metavar="FILE", type=Path, help=about)
    add("--held-out", metavar="P", type=float, default=0.04, help="share of held-out entity pairs (default: 0.04)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="device (default: cpu)")
    add("--seed", metavar="N", type=int, default=0, help="random seed (default: 0)")
