"""`erda corpus train`, `erda corpus pairs` and `erda corpus evaluate`: the similarity model."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from erda.cli.checking import add_command, refuse, without_effect
from erda.cli.corpus_index import add_engine_arguments

if TYPE_CHECKING:
    from erda.corpus.ray_jobs import RayJobs

TRAIN_EXAMPLES = """examples:
  erda corpus train corpora/wiki --out models/mine
  erda corpus train corpora/wiki --limit 50000 --objective paper --out models/paper
  erda corpus train --pairs pairs.jsonl.gz --device cuda --bf16 --batch-size 512 --out models/mine
  erda corpus train corpora/wiki --encoder mpnet --rank 0 --out models/mpnet-all-weights
"""
PAIRS_EXAMPLES = """examples:
  erda corpus pairs corpora/wiki --limit 75000 --out pairs.jsonl.gz
  erda corpus pairs corpora/wiki --engine ray --address 10.0.0.1:6379 --out pairs.jsonl.gz
  erda corpus pairs tagged-0.jsonl.gz tagged-1.jsonl.gz --limit 150000 --out pairs.jsonl.gz
"""
EVALUATE_EXAMPLES = """examples:
  erda corpus evaluate
  erda corpus evaluate minilm --pairs pairs.jsonl.gz
  erda corpus evaluate models/mine --validation my-labelled.jsonl
"""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `train`, `pairs` and `evaluate`."""
    _add_train(commands)
    about = "Write the sentences of some pairs to a compact file, to train from it on a machine without the corpus."
    pairs = add_command(commands, "pairs", about, PAIRS_EXAMPLES)
    pairs.add_argument("sources", metavar="SOURCE", type=Path, nargs="+", help="corpus folders or tagged JSONL files")
    pairs.add_argument("--limit", metavar="N", type=int, help="positive pairs to write (default: all)")
    pairs.add_argument("--seed", metavar="N", type=int, default=0, help="which pairs are drawn (default: 0)")
    add_engine_arguments(pairs, "mine pairs")
    pairs.add_argument("--out", metavar="FILE", type=Path, required=True, help="file to write, .jsonl or .jsonl.gz")
    pairs.set_defaults(handler=write_pair_file)

    about = "Measure a similarity model: AUC on held-out entity pairs, and how often neighbours have the same relation."
    evaluate = add_command(commands, "evaluate", about, EVALUATE_EXAMPLES)
    evaluate.add_argument("model", metavar="MODEL", nargs="?", help="folder or encoder (default: the packaged model)")
    evaluate.add_argument(
        "--pairs", metavar="SOURCE", type=Path, nargs="+", default=[], help="where held-out pairs are"
    )
    _add_measuring(evaluate)
    evaluate.set_defaults(handler=evaluate_model)


def train_model(args: argparse.Namespace) -> int:
    """Train a similarity model and print what it gained."""
    from erda.corpus.similarity_run import Sources, run_training
    from erda.corpus.training import Machine, TrainingSettings, is_main_process
    from erda.errors import SettingsError
    from erda.fields import checked_settings

    paths = ([args.folder] if args.folder else []) + args.pairs
    if not paths:
        raise SettingsError("nothing to train on: name a corpus folder, or files with --pairs.")
    miner = _miner(args, paths)
    given = vars(args)
    settings = checked_settings(
        TrainingSettings, {name: given[name] for name in TrainingSettings.model_fields if name in given}
    )
    machine = checked_settings(Machine, {name: given[name] for name in Machine.model_fields})
    report = run_training(
        Sources(paths=paths, limit=args.limit, held_out=args.held_out, validation=args.validation, miner=miner),
        settings,
        encoder=args.encoder,
        out=args.out,
        machine=machine,
        resume=args.resume,
        measure=args.measure,
        command=shlex.join(["erda", *sys.argv[1:]]),
    )
    if is_main_process():
        print("\n".join([*report.lines(), f"saved in {args.out}"]))
    return 0


def write_pair_file(args: argparse.Namespace) -> int:
    """Write a compact file of pairs."""
    from erda.corpus.pairs import write_pairs
    from erda.corpus.similarity_run import read_examples

    examples = read_examples(args.sources, limit=args.limit, seed=args.seed, miner=_miner(args, args.sources))
    n_rows, n_pairs = write_pairs(examples, args.out, limit=args.limit, seed=args.seed)
    print(f"{args.out}: {n_rows:,} sentences, {n_pairs:,} pairs, {args.out.stat().st_size / 2**20:.1f} MiB")
    return 0


def _miner(args: argparse.Namespace, sources: Sequence[Path]) -> RayJobs | None:
    """Who draws the pairs of corpus folders: a cluster, or None for this process."""
    from erda.errors import SettingsError

    refuse(without_effect(args, local=(), ray=("address",)))
    if args.engine == "local":
        return None
    if not any(path.is_dir() for path in sources):
        shown = ", ".join(map(str, sources))
        raise SettingsError(f"--engine ray: mines folders of 'erda corpus build' only, and {shown} is none.")
    from erda.corpus.ray_jobs import RayJobs

    return RayJobs(address=args.address or "auto")


def evaluate_model(args: argparse.Namespace) -> int:
    """Measure a model."""
    from erda.corpus.similarity_run import ABOUT, measure_model

    found = measure_model(
        args.model, args.pairs, held_out=args.held_out, validation=args.validation, device=args.device, seed=args.seed
    )
    for name, text in ABOUT.items():
        if getattr(found, name) is not None:
            print(f"{text:<44}{getattr(found, name):6.3f}")
    print(f"on {found.n_pairs:,} held-out pairs and {found.n_validation:,} labelled sentences")
    return 0


def _add_train(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = (
        "Train a similarity model on sentences with the same two entities. An interrupted training goes on from its "
        "last checkpoint."
    )
    parser = add_command(commands, "train", about, TRAIN_EXAMPLES)
    add = parser.add_argument
    count, number = partial(add, metavar="N", type=int), partial(add, type=float)
    add("folder", metavar="DIR", type=Path, nargs="?", help="folder of a corpus ('erda corpus build')")
    about = "tagged JSONL to train on, instead or besides"
    add("--pairs", metavar="FILE", type=Path, nargs="+", default=[], help=about)
    add("--out", metavar="DIR", type=Path, required=True, help="folder of the model")
    add("--encoder", metavar="NAME", default="minilm", help="pretrained model to start from (default: minilm)")
    count("--limit", help="pairs to train on (default: all that there are)")
    add_engine_arguments(parser, "mine pairs")
    add("--objective", choices=("infonce", "paper"), default="infonce", help="what is learned (default: infonce)")
    number("--temperature", metavar="T", default=0.0, help="default: 0.07 for infonce, 1 for paper")
    number("--blank-names", metavar="P", default=0.7, help="chance that a name is hidden (default: 0.7)")
    number("--hard-negatives", metavar="P", default=1.0, help="share of pairs that bring one (default: 1)")
    count("--rank", default=32, help="rank of the adapter; 0 trains all weights (default: 32)")
    number("--scale", metavar="X", default=1.0, help="factor of the adapter (default: 1)")
    number("--learning-rate", metavar="X", default=0.0, help="default: 2e-3 for an adapter, 2e-4 for all")
    count("--batch-size", default=256, help="pairs in a batch, on each device (default: 256)")
    count("--epochs", dest="n_epochs", default=1, help="passes, each over pairs drawn anew (default: 1)")
    count("--max-pieces", default=128, help="longest sentence in word pieces (default: 128)")
    add("--bf16", action="store_true", help="compute in bfloat16 (GPUs)")
    count("--workers", dest="n_workers", default=0, help="processes that prepare batches (default: 0)")
    count("--save-steps", default=500, help="steps between checkpoints (default: 500)")
    add("--measure", action=argparse.BooleanOptionalAction, default=True, help="measure before and after (default)")
    add("--resume", action=argparse.BooleanOptionalAction, default=True, help="go on with an unfinished training")
    _add_measuring(parser)
    parser.set_defaults(handler=train_model)


def _add_measuring(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--validation", metavar="FILE", type=Path, help="labelled sentences (default: FewRel's, if in the data folder)")
    add("--held-out", metavar="P", type=float, default=0.04, help="share of entity pairs kept apart (default: 0.04)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute (default: cpu)")
    add("--seed", metavar="N", type=int, default=0, help="everything random comes from it (default: 0)")
