"""An extractor over a world of a few words: vectors are sums over words, so that nothing has to be loaded."""

from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from toy_words import BORN, CAPITAL, DIM, FOUNDED, QUESTIONS, Words

from erda.app.extractor import Extractor
from erda.app.texts import TextRow
from erda.encoders.trainable import TrainableEncoder
from erda.types import Example

__all__ = ["BORN", "CAPITAL", "DIM", "FOUNDED", "QUESTIONS", "Words"]
PEOPLE = ("Bob", "Mary", "Hugo", "Lena", "Otto", "Rosa", "Karl", "Ida")
ROWS = [TextRow(f"{person} was born in Town{place}.") for place, person in enumerate(PEOPLE)]
ROWS += [TextRow(f"Firm{place} was founded by {person}.") for place, person in enumerate(PEOPLE)]


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
