"""An encoder of a few words without PyTorch: vectors are sums over words, so that nothing has to be loaded."""

import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from erda.encoders.contract import Encoder
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
