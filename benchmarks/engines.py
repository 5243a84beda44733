"""Engines of a frozen encoder on a CPU: accuracy cost of int8, and speed.

python benchmarks/engines.py                              both, MiniLM with the adapter that ships
python benchmarks/engines.py accuracy --encoder mpnet
python benchmarks/engines.py speed --sentences 500
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from embed import N_ROUNDS, marked_text
from erda.benchmark.measures import ALL_SEEN
from erda.benchmark.run.planned_runs import run_experiment
from erda.corpus.similarity import SimilarityModel
from erda.data.catalogue import open_stream
from erda.encoders import build_encoder
from erda.encoders.adapter import TrainedWeights
from erda.encoders.contract import Encoder, unit_rows
from erda.encoders.weights import find_model
from erda.errors import ErdaError, join_faults
from erda.methods import DEFAULT_METHOD
from erda.settings.load import run_settings
from erda.types import Example
from targets import Figure, measure

N_COMPARED = 400
N_SINGLE = 100
ENGINES = ("torch", "onnx", "onnx-int8")


def accuracy(options: argparse.Namespace) -> Iterator[Figure]:
    """Accuracy on FewRel 5-shot validation data after eight tasks without training, and similarity of the vectors."""
    sentences = _sentences()[:N_COMPARED]
    expected = unit_rows(_encoder("torch", options).embed(sentences))
    reached = {engine: _accuracy(engine, options) for engine in ENGINES}
    yield Figure(f"{options.encoder}, {options.method}, all-seen on validation data: torch", reached["torch"], "%")
    for engine in ENGINES[1:]:
        yield Figure(f"  {engine}", reached[engine], "%")
        yield Figure("    minus torch", reached[engine] - reached["torch"], "points", ">= -0.3")
        cosines = (unit_rows(_encoder(engine, options).embed(sentences)) * expected).sum(axis=1)
        yield Figure("    cosine of the vectors, mean", float(cosines.mean()))
        yield Figure("    cosine of the vectors, worst", float(cosines.min()), "", ">= 0.98")


def speed(options: argparse.Namespace) -> Iterator[Figure]:
    """Sentences per second beside sentence-transformers, in turn, on all cores; milliseconds per sentence."""
    from sentence_transformers import SentenceTransformer

    sentences = _sentences()[: options.sentences]
    folder = find_model(options.encoder)
    weights = TrainedWeights.load(options.adapter, base=options.encoder) if options.adapter else None
    ours = {dtype: SimilarityModel(folder, weights, dtype=dtype) for dtype in ("int8", "float32")}
    theirs = SentenceTransformer(str(folder.path), device="cpu")
    theirs.max_seq_length = ours["int8"].encoder.tokenizer.limit
    texts = [marked_text(example) for example in sentences]
    work: dict[str, Callable[[], Any]] = {
        "int8": lambda: ours["int8"].encode(sentences),
        "float32": lambda: ours["float32"].encode(sentences),
        "sentence-transformers": lambda: theirs.encode(texts, batch_size=64, show_progress_bar=False),
    }
    times = [{name: _seconds(one) for name, one in work.items()} for _ in range(N_ROUNDS)]
    for name in work:
        middle = statistics.median(one[name] for one in times)
        yield Figure(f"{options.encoder}, {len(sentences):,} sentences: {name}", len(sentences) / middle, "a second")
    for name, target in (("sentence-transformers", ">= 2"), ("float32", "")):
        ratio = statistics.median(one[name] / one["int8"] for one in times)
        yield Figure(f"  int8 as fast as {name}", ratio, "times", target)
    for engine in ENGINES[::-1]:
        encoder = _encoder(engine, options)
        single = [_seconds(partial(encoder.embed, [one])) for one in sentences[:N_SINGLE]]
        target = "<= 5" if engine == "onnx-int8" and options.encoder == "minilm" else ""
        yield Figure(f"one sentence, {engine} (median)", 1000 * statistics.median(single), "ms", target)


@cache
def _sentences() -> list[Example]:
    """Sentences of FewRel's validation data, shuffled."""
    stream = open_stream("fewrel", shots=5, seed=100)
    found = [example for task in range(len(stream)) for example in stream.validation(task).examples]
    return [found[i] for i in torch.randperm(len(found), generator=torch.Generator().manual_seed(0))]


def _encoder(engine: str, options: argparse.Namespace) -> Encoder:
    return build_encoder(options.encoder, engine=engine, **_settings(options))


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    return {"mode": "markers", "trained_layers": 0, "adapter": options.adapter}


def _accuracy(engine: str, options: argparse.Namespace) -> float:
    encoder = {f"encoder.{name}": value for name, value in {**_settings(options), "engine": engine}.items()}
    asked = run_settings(
        preset="fewrel-5-shot",
        methods=options.method,
        encoder=options.encoder,
        seeds=options.seed,
        settings={**encoder, "evaluate_on": "validation"},
    )
    finished = run_experiment(asked, out=options.out / options.encoder / engine)
    if finished.faults:
        raise ErdaError(join_faults(finished.faults))
    (record,) = finished.records
    return 100 * (record.accuracy[ALL_SEEN] or [0.0])[-1]


def _seconds(work: Callable[[], Any]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


MEASURES = {"accuracy": accuracy, "speed": speed}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen measurements and print each figure beside its target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="WHAT", help=f"of {', '.join(MEASURES)} (default: both)")
    parser.add_argument("--encoder", default="minilm", metavar="NAME", help="minilm or mpnet (default: minilm)")
    parser.add_argument("--adapter", default="shipped", metavar="NAME", help="trained weights (default: shipped)")
    parser.add_argument("--method", default=DEFAULT_METHOD, metavar="NAME", help=f"(default: {DEFAULT_METHOD})")
    parser.add_argument("--seed", type=int, default=100, metavar="N", help="order of the tasks (default: 100)")
    parser.add_argument("--sentences", type=int, default=1000, metavar="N", help="of `speed` (default: 1,000)")
    parser.add_argument("--out", type=Path, default=Path("runs/engines"), help="records (default: runs/engines)")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.what if name not in MEASURES]:
        parser.error(f"no such measurement: {', '.join(unknown)}; there are {', '.join(MEASURES)}")
    return measure(lambda: (figure for name in options.what or MEASURES for figure in MEASURES[name](options)))


if __name__ == "__main__":
    sys.exit(main())
