"""Sentences over the tiny vocabulary; the words between two names express the relation."""

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from erda.corpus.training_batches import Batches, TrainingSettings
from erda.corpus.training_pairs import PairRows, read_pair_rows
from erda.encoders.layers import load_tokenizer
from erda.encoders.weights import ModelFolder
from erda.fields import changed_settings
from erda.types import Entity, Example, Span

SMALL = TrainingSettings(rank=4, batch_size=8, learning_rate=1e-2)
HOW = ["was born in", "is the capital of", "is a river in", "was queen of"]
FILLERS = ["the", "a", "of", "is", "city", "king"]


def toy_sentences(n_pairs: int = 60, *, seed: int = 0, per_pair: int = 3) -> list[Example]:
    """Make `per_pair` sentences per entity pair; pair h has relation h % 4 and shares its tail with other pairs."""
    rng = random.Random(seed)
    found = []
    for number in range(n_pairs):
        head, tail = f"h{number}", f"t{number % 10}"
        for _ in range(per_pair):
            around = [rng.choice(FILLERS) for _ in range(8)]
            words = [*around[:3], head, around[3], *HOW[number % len(HOW)].split(), around[4], tail, *around[5:]]
            at = words.index(tail)
            found.append(
                Example(
                    tuple(words),
                    Entity(head, Span(3, 4), f"toy:{head}"),
                    Entity(tail, Span(at, at + 1), f"toy:{tail}"),
                    relation=HOW[number % len(HOW)],
                )
            )
    return found


def write_tagged(path: Path, examples: Iterable[Example]) -> Path:
    """Write examples as tagged JSONL."""
    from erda.data.formats.jsonl_examples import example_to_json

    path.write_text("".join(json.dumps(example_to_json(one) | {"id": None}) + "\n" for one in examples))
    return path


def toy_rows(folder: ModelFolder, path: Path, examples: Sequence[Example]) -> PairRows:
    """Pack examples for a tiny model."""
    return read_pair_rows([write_tagged(path, examples)], load_tokenizer(folder, mode="markers"))


def batches_of(rows: PairRows, *, limit: int | None = None, **changes: Any) -> Batches:
    """Batches of all sentences, with the settings `SMALL` and `changes`."""
    settings = changed_settings(SMALL, changes)
    return Batches(rows, np.arange(len(rows)), settings, limit=limit)
