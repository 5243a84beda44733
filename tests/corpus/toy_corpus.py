"""Toy corpora, and a similarity model without weights."""

import argparse
import gzip
import hashlib
import json
import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from erda.cli import corpus_commands as corpus_command
from erda.corpus.corpus_build import build_corpus
from erda.corpus.corpus_store import CorpusStore
from erda.types import Example


def row(text: str, head: str, tail: str, *, ids: tuple[str | None, str | None] = (None, None), **more: Any) -> dict:
    """Make a tagged sentence; the spans are located in the text."""
    tokens = text.split()

    def entity(name: str, entity_id: str | None) -> dict:
        words = name.split()
        start = next(i for i in range(len(tokens)) if tokens[i : i + len(words)] == words)
        return {"name": name, "id": entity_id, "span": [start, start + len(words)]}

    return {"tokens": tokens, "head": entity(head, ids[0]), "tail": entity(tail, ids[1]), "relation": None, **more}


def random_rows(n: int, *, seed: int = 0, n_entities: int = 30) -> list[dict]:
    """Make rows of different sentences over a few entities, so that pairs repeat."""
    rng = random.Random(seed)
    names = [f"Entity{i}" for i in range(n_entities)]
    rows = []
    for i in range(n):
        head, tail = rng.sample(names, 2)
        text = f"Sentence {seed} {i} says that {head} met {tail} ."
        rows.append(row(text, head, tail, ids=(f"toy:{head}", f"toy:{tail}"), source=f"page{i % 7}"))
    return rows


def write_rows(path: Path, rows: list[dict]) -> Path:
    """Write a JSONL file, compressed if its name ends in .gz."""
    text = "".join(json.dumps(value) + "\n" for value in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def toy_store(folder: Path, rows: list[dict], **settings: Any) -> CorpusStore:
    """Build a corpus of rows."""
    folder.mkdir(parents=True, exist_ok=True)
    build_corpus([write_rows(folder / "rows.jsonl", rows)], folder / "corpus", **settings)
    return CorpusStore.open(folder / "corpus")


def content(store: CorpusStore) -> list[tuple]:
    """All rows as plain values, in order."""
    return [
        (s.row, s.example.tokens, s.example.head, s.example.tail, s.example.source)
        for batch in store.batches(size=1000)
        for s in batch
    ]


def erda_corpus(*arguments: object) -> None:
    """Run `erda corpus ARGUMENTS` in this process."""
    parser = argparse.ArgumentParser()
    corpus_command.add_parser(parser.add_subparsers())
    options = parser.parse_args(["corpus", *map(str, arguments)])
    options.handler(options)


class ToySimilarity:
    """Stand-in for `SimilarityModel` in tests of the index and the augmentation."""

    weights = None

    def __init__(self, name: str = "toy", dim: int = 64) -> None:
        self.base = name
        self.dim = dim
        self.fingerprint = hashlib.sha256(f"{name} {dim}".encode()).hexdigest()
        self.n_encoded = 0
        self.n_calls = 0

    def encode(self, examples: Sequence[Example], *, batch_size: int = 64) -> np.ndarray:
        self.n_calls += 1
        self.n_encoded += len(examples)
        vectors = np.zeros((len(examples), self.dim), np.float32)
        for row, example in enumerate(examples):
            inside = {*range(example.head.span.start, example.head.span.end)}
            inside |= {*range(example.tail.span.start, example.tail.span.end)}
            for place, token in enumerate(example.tokens):
                if place not in inside:
                    vectors[row, zlib.crc32(token.lower().encode()) % self.dim] += 1
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
