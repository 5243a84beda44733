"""Figures of embedding and augmentation: sentences a second beside sentence-transformers, and seconds a task."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from erda.corpus.augment import Augmenter
from erda.corpus.similarity import SimilarityModel
from erda.errors import DataError
from erda.types import Example

N_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class EmbedFigures:
    """Sentences a second, ours and sentence-transformers'; `ratio` is ours over theirs, the median of the rounds."""

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

    They are given the sentences with the marks of mode `paper` written into the text, so that both read about as many
    word pieces: ours to be pooled at the marks, theirs by mean.
    """
    from sentence_transformers import SentenceTransformer

    if not examples:
        raise DataError("no sentences to embed.")
    texts = [_marked_text(example) for example in examples]
    theirs = SentenceTransformer(str(folder), device=model.device)
    theirs.max_seq_length = model.max_pieces
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
    """Seconds to augment a task with nothing remembered: by the clock, of processor, and those that are the model's."""

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
    """Augment one task as a first call does it, after a warm-up on one example."""
    augmenter.find(examples[:1], **settings)
    fresh = Augmenter(augmenter.store, augmenter.index, augmenter.model)
    start, cpu_start = time.perf_counter(), time.process_time()
    found = fresh.find(examples, **settings)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    start = time.perf_counter()
    augmenter.model.encode(examples, batch_size=16)
    encode_seconds = time.perf_counter() - start
    return AugmentFigures(len(examples), len(augmenter.store), seconds, cpu_seconds, encode_seconds, found.counts)


def _marked_text(example: Example) -> str:
    words = list(example.tokens)
    for mark, span in (("#", example.head.span), ("@", example.tail.span)):
        words[span.start] = f"{mark} {words[span.start]}"
        words[span.end - 1] += f" {mark}"
    return " ".join(words)
