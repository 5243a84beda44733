"""An extractor over a world of a few words: vectors are sums over words, so that nothing has to be loaded."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from erda.app.extractor import Extractor
from erda.encoders.base import Encoder
from erda.encoders.trainable import TrainableEncoder
from erda.types import EncoderSpec, Example

DIM = 12


class Words(Encoder):
    """The sum of a vector for each word; a word always has the same. `kind` makes another set of weights."""

    def __init__(self, kind: str = "words") -> None:
        self.spec, self.dim = EncoderSpec("words", {}, kind), DIM

    def embed(self, examples: Sequence[Example], *, blanked: bool = False, batch_size: int | None = None) -> np.ndarray:
        return self.stacked([(*one.tokens, *one.tokens[one.head.span.start :]) for one in examples])

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        return self.stacked([text.split() for text in texts])

    def stacked(self, texts: Sequence[Sequence[str]]) -> np.ndarray:
        rows = [sum(word_vector(self.spec.fingerprint, word) for word in words) for words in texts]
        return np.array(rows, dtype=np.float32).reshape(-1, DIM)


class TrainableWords(TrainableEncoder):
    """The same vectors for methods that train, without anything to train."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.place = Words(), torch.nn.Parameter(torch.zeros(()), requires_grad=False)
        self.spec, self.dim, self.learning_rate = self.words.spec, DIM, 1.0

    def encode(self, examples: Sequence[Example]) -> torch.Tensor:
        return torch.from_numpy(self.words.embed(examples))

    def encode_texts(self, texts: Sequence[str]) -> torch.Tensor:
        return torch.from_numpy(self.words.embed_texts(texts))


@lru_cache(maxsize=20_000)
def word_vector(kind: str, word: str) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(f"{kind} {word}".encode())).normal(size=DIM)


FOUNDED = [
    "[[Tesla]] was founded by {{Martin}} .",
    "{{Bill}} founded [[Microsoft]] .",
    "[[Apple]] , founded by {{Steve}}",
]
BORN = ["[[Marie]] was born in {{Warsaw}} .", "{{Ulm}} is where [[Albert]] was born ."]
CAPITAL = ["[[Paris]] is the capital of {{France}} .", "the capital of {{Norway}} is [[Oslo]]"]
QUESTIONS = [
    "[[SpaceX]] was founded by {{Elon}} .",
    "[[Ada]] was born in {{London}} .",
    "[[Rome]] is the capital of {{Italy}} .",
]


def some_relation(number: int) -> dict[str, list[str]]:
    return {f"relation {number}": [f"[[a{number}]] is {{{{b{number}}}}}", f"{{{{c}}}} has the [[d{number}]]"]}


def open_toy(folder: Path, **asked: Any) -> Extractor:
    encoder = Words() if asked.get("method", "posterior") == "posterior" else TrainableWords()
    return Extractor.open(folder, **{"encoder": encoder, "method": "posterior", **asked})


def taught(folder: Path, **asked: Any) -> Extractor:
    """Three relations in two teachings."""
    extractor = open_toy(folder, **asked)
    extractor.teach("founded by", FOUNDED)
    extractor.teach_many({"born in": BORN, "capital of": CAPITAL})
    return extractor


def scores(extractor: Extractor) -> np.ndarray:
    answers = extractor.predict(QUESTIONS, top=100)
    return np.array([[one.score for one in sorted(answer.ranked, key=lambda one: one.relation)] for answer in answers])


def teach_until_killed(folder: Path, said: Connection) -> None:
    """Teach one relation after another, and say how many are known; go back and prune now and then."""
    extractor = open_toy(folder)
    said.send(len(extractor.relations))
    for number in range(len(extractor.relations), 10_000):
        taught = extractor.teach_many(some_relation(number))
        if number % 7 == 3:
            extractor.undo()
            extractor.rollback(taught.version)
        if number % 11 == 5:
            extractor.prune(keep=3)
        said.send(number + 1)
