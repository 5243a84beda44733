"""Figures of embedding and augmentation: sentences per second beside sentence-transformers, and seconds per task.

python benchmarks/embed.py sentences.jsonl.gz --sentences 2000 --batch-size 32
python benchmarks/embed.py shots.jsonl --augment corpora/wiki
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from erda.corpus.augment import Augmenter
from erda.corpus.similarity import SimilarityModel
from erda.errors import DataError, ErdaError
from erda.types import Example

N_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class EmbedFigures:
    """Sentences per second of erda and of sentence-transformers; `ratio` is the median of erda's over theirs."""

    n_sentences: int
    batch_size: int
    ours: float
    theirs: float
    ratio: float
    ratios: tuple[float, ...]

    def lines(self) -> list[str]:
        """The figures for people."""
        rounds = ", ".join(f"{ratio:.2f}" for ratio in self.ratios)
        return [
            f"{self.n_sentences:,} sentences, batches of {self.batch_size}, {N_ROUNDS} rounds in turn",
            f"erda                  {self.ours:8.1f} sentences a second",
            f"sentence-transformers {self.theirs:8.1f} sentences a second",
            f"erda is {self.ratio:.2f} times as fast (rounds: {rounds})",
        ]


def bench_embed(
    examples: Sequence[Example], model: SimilarityModel, folder: Path, *, batch_size: int = 64
) -> EmbedFigures:
    """Embed the same sentences with our model and with sentence-transformers' `encode` of the weights in `folder`.

    sentence-transformers gets the sentences with the marks of mode `paper` in the text, so that both process about as
    many word pieces; erda pools at the marks, sentence-transformers by mean.
    """
    from sentence_transformers import SentenceTransformer

    if not examples:
        raise DataError("no sentences to embed.")
    texts = [marked_text(example) for example in examples]
    theirs = SentenceTransformer(str(folder), device="cpu")
    theirs.max_seq_length = model.encoder.tokenizer.limit
    model.encode(examples[:batch_size], batch_size=batch_size)
    theirs.encode(texts[:batch_size], batch_size=batch_size, show_progress_bar=False)
    times: list[tuple[float, float]] = []
    for _ in range(N_ROUNDS):
        start = time.perf_counter()
        model.encode(examples, batch_size=batch_size)
        middle = time.perf_counter()
        theirs.encode(texts, batch_size=batch_size, show_progress_bar=False)
        times.append((middle - start, time.perf_counter() - middle))
    ratios = tuple(their_time / our_time for our_time, their_time in times)
    ours, other = (len(examples) / float(np.median(column)) for column in zip(*times, strict=True))
    return EmbedFigures(len(examples), batch_size, ours, other, float(np.median(ratios)), ratios)


@dataclass(frozen=True, slots=True)
class AugmentFigures:
    """Seconds to augment a task with an empty cache: wall-clock, processor, and the model's share."""

    n_examples: int
    n_rows: int
    seconds: float
    cpu_seconds: float
    encode_seconds: float
    counts: dict[str, int]

    def lines(self) -> list[str]:
        """The figures for people."""
        found = ", ".join(f"{n} by {rule}" for rule, n in self.counts.items())
        return [
            f"{self.n_examples} examples, corpus of {self.n_rows:,} rows: {self.seconds:.2f} s a task "
            f"({self.cpu_seconds:.2f} s of processor); the similarity model alone: {self.encode_seconds:.2f} s",
            f"found: {found}",
        ]


def bench_augment(augmenter: Augmenter, examples: Sequence[Example], **settings: Any) -> AugmentFigures:
    """Augment one task with an empty cache, after a warm-up on one example."""
    augmenter.find(examples[:1], **settings)
    fresh = Augmenter(augmenter.store, augmenter.index, augmenter.model)
    start, cpu_start = time.perf_counter(), time.process_time()
    found = fresh.find(examples, **settings)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    start = time.perf_counter()
    augmenter.model.encode(examples, batch_size=16)
    encode_seconds = time.perf_counter() - start
    return AugmentFigures(len(examples), len(augmenter.store), seconds, cpu_seconds, encode_seconds, found.counts)


def marked_text(example: Example) -> str:
    """Sentence with the marks of mode `paper` in its text."""
    words = list(example.tokens)
    for mark, span in (("#", example.head.span), ("@", example.tail.span)):
        words[span.start] = f"{mark} {words[span.start]}"
        words[span.end - 1] += f" {mark}"
    return " ".join(words)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", type=Path, help="sentences with two entities, our own JSONL")
    parser.add_argument("--sentences", metavar="N", type=int, default=1024, help="how many (default: 1,024)")
    parser.add_argument("--batch-size", metavar="N", type=int, default=64, help="sentences a batch (default: 64)")
    parser.add_argument("--encoder", metavar="NAME", default="minilm", help="weights for both (default: minilm)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument("--augment", metavar="DIR", type=Path, help="instead: augment FILE, a task, with this corpus")
    parser.add_argument("--model", metavar="NAME", help="its similarity model (default: the one that ships)")
    parser.add_argument("--examples", metavar="N", type=int, default=50, help="of the task: the last (default: 50)")
    options = parser.parse_args(arguments)
    if min(options.batch_size, options.sentences, options.examples) < 1:
        parser.error("--batch-size, --sentences and --examples must be at least 1")
    try:
        figures = _augment(options) if options.augment else _embed(options)
    except ErdaError as fault:
        print(fault, file=sys.stderr)
        return 2
    print("\n".join(figures.lines()))
    return 0


def _embed(options: argparse.Namespace) -> EmbedFigures:
    from erda.data.formats.jsonl_examples import read_jsonl
    from erda.encoders import check_device
    from erda.encoders.weights import find_model

    check_device(options.device)
    reading = read_jsonl(options.file)
    examples = list(chain(reading.examples, reading.unrelated))[: options.sentences]
    folder = find_model(options.encoder)
    model = SimilarityModel(folder, device="cpu")
    return bench_embed(examples, model, folder.path, batch_size=options.batch_size)


def _augment(options: argparse.Namespace) -> AugmentFigures:
    from erda.corpus.augment import open_augmenter
    from erda.data.own_data import read_examples

    examples = read_examples(options.file).examples[-options.examples :]
    return bench_augment(open_augmenter(options.augment, options.model), examples)


if __name__ == "__main__":
    sys.exit(main())
