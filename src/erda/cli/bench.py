"""`erda bench`: measure what the documents claim, on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from erda.cli import bench_corpus, bench_index

ABOUT = "Measure accuracy, time and memory on this machine, beside the targets that the project set itself."


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the group `bench` to the command line."""
    group = subparsers.add_parser(
        "bench",
        help=ABOUT,
        description=ABOUT,
        epilog="examples:\n  erda bench core\n  erda bench cache --tasks 3\n  erda bench corpus corpora/wiki\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    benches = group.add_subparsers(title="benchmarks", metavar="BENCHMARK", required=True)
    for name, about in {
        "help": "seconds until `erda --help` answers",
        "core": "ERDA and SeqRun with the BiLSTM on FewRel 5-shot: accuracy, seconds a stream, memory",
        "cache": "MiniLM in mode `paper` with and without the cache of frozen layers",
        "markers": "ERDA with MiniLM, entity marks, all layers trained, on FewRel 5-shot",
    }.items():
        parser = benches.add_parser(
            name,
            help=about,
            description=about[0].upper() + about[1:] + ".",
            epilog=f"examples:\n  erda bench {name}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name != "help":
            parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="records (default: runs/bench)")
        if name in ("core", "markers"):
            parser.add_argument("--seeds", metavar="N,N", help="orders to run (default: all six)")
        if name == "markers":
            parser.add_argument("--device", metavar="NAME", help="cpu, cuda or cuda:N (default: cpu)")
        if name == "cache":
            parser.add_argument("--tasks", type=int, default=8, metavar="N", help="tasks of the stream (default: 8)")
        parser.set_defaults(handler=bench, bench=name)
    _add_paper(benches)
    bench_corpus.register_bench(benches)
    bench_index.register_bench(benches)


def bench(options: argparse.Namespace) -> int:
    """Measure, and print each figure beside its target."""
    from erda.benchmark import core_bench

    figures = {
        "help": core_bench.bench_help,
        "core": lambda: core_bench.bench_core(options.out, seeds=options.seeds),
        "cache": lambda: core_bench.bench_cache(options.out, n_tasks=options.tasks),
        "markers": lambda: core_bench.bench_markers(options.out, seeds=options.seeds, device=options.device),
    }[options.bench]()
    for figure in figures:
        print(figure.line())
    return 0


def _add_paper(benches: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = "the paper's tables: accuracy from the records of `erda paper` beside the targets"
    parser = benches.add_parser(
        "paper",
        help=about,
        description=about[0].upper() + about[1:] + "; nothing is run.",
        epilog="examples:\n  erda bench paper runs/paper",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", metavar="DIR", type=Path, help="the --out folder of `erda paper`")
    parser.set_defaults(handler=bench_paper)
    about = "minutes by the clock that a table of `erda paper` takes from nothing"
    parser = benches.add_parser(
        "table",
        help=about,
        description=about[0].upper() + about[1:] + ".",
        epilog="examples:\n  erda bench table main --corpus corpora/wiki --out runs/timing\n"
        "  erda bench table minilm --seeds 100 --out runs/timing-minilm",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("table", metavar="TABLE", help="a name of `erda paper --list`")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder for the records")
    parser.add_argument("--corpus", metavar="DIR", help="for the augmented rows")
    parser.add_argument("--seeds", metavar="N,N", help="orders to run (default: all six)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at work at once (default: 2)")
    parser.set_defaults(handler=bench_table)


def bench_paper(options: argparse.Namespace) -> int:
    """Print each figure beside its target."""
    from erda.benchmark.paper_bench import paper_figures

    for figure in paper_figures(options.directory):
        print(figure.line())
    return 0


def bench_table(options: argparse.Namespace) -> int:
    """Run a table by the clock."""
    from erda.benchmark.paper_bench import time_table

    figures = time_table(
        options.table, options.out, corpus=options.corpus, n_processes=options.jobs, seeds=options.seeds
    )
    for figure in figures:
        print(figure.line())
    return 0
