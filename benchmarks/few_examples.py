"""Accuracy with no, one, two and five examples of each relation, with and without written patterns.

python benchmarks/few_examples.py                      # FewRel's test data, packaged MiniLM
python benchmarks/few_examples.py --evaluate-on validation --encoder mpnet

All 80 relations of FewRel's published 5-shot split are taught at once, each by its name, its description and the same
number of examples. The first task has 100 examples per relation; only that number of them is used. `all-seen`
accuracy, mean over disjoint draws of the examples.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from erda.data.catalogue import open_stream
from erda.data.patterns import with_patterns
from erda.data.streams import TaskStream
from erda.encoders import build_encoder
from erda.encoders.base import Encoder
from erda.methods.posterior import Posterior
from erda.types import Example, Task

NUMBERS = {0: 1, 1: 5, 2: 2, 5: 1}  # examples of each relation -> disjoint draws


class Kept(Encoder):
    """An encoder with a cache of sentence vectors."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.spec, self.dim = encoder, encoder.spec, encoder.dim
        self._known: dict[tuple[Example, bool], np.ndarray] = {}

    def embed(self, examples: Sequence[Example], *, blanked: bool = False, batch_size: int | None = None) -> np.ndarray:
        """Return cached vectors; embed only new sentences."""
        new = [one for one in dict.fromkeys(examples) if (one, blanked) not in self._known]
        if new:
            vectors = self.encoder.embed(new, blanked=blanked, batch_size=batch_size)
            self._known |= {(one, blanked): row for one, row in zip(new, vectors, strict=True)}
        rows = [self._known[one, blanked] for one in examples]
        return np.array(rows, dtype=np.float32).reshape(-1, self.dim)

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Embed plain texts."""
        return self.encoder.embed_texts(texts)

    def background(self) -> np.ndarray | None:
        """Return the background of the encoder."""
        return self.encoder.background()


def accuracy(
    encoder: Encoder, stream: TaskStream, questions: Sequence[tuple[Example, str]], n: int, draw: int
) -> float:
    """Teach all relations by `n` examples each, and ask all questions: per cent right."""
    taught = []
    for task in stream:
        for relation in task.relations:
            own = [example for example in task.examples if example.relation == relation.id]
            taught += own[n * draw : n * (draw + 1)]
    method = Posterior(encoder)
    method.learn(Task(0, stream.relations, tuple(taught)))
    best = method.predict([example for example, _ in questions]).best
    return 100 * float(np.mean([found == gold for found, (_, gold) in zip(best, questions, strict=True)]))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--evaluate-on", choices=("test", "validation"), default="test")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    encoder = Kept(
        build_encoder(given.encoder, device=given.device, trained_layers=0, adapter="shipped", engine="packaged")
    )
    plain = open_stream("fewrel", shots=5)
    asked = [getattr(plain, given.evaluate_on)(k) for k in range(len(plain))]
    questions = [pair for one in asked for pair in zip(one.examples, one.gold, strict=True)]
    print(f"{'examples of each relation':26}" + "".join(f"{n:8}" for n in NUMBERS))
    for what, stream in (("names and descriptions", plain), ("and five patterns each", with_patterns(plain))):
        means = [
            np.mean([accuracy(encoder, stream, questions, n, draw) for draw in range(draws)])
            for n, draws in NUMBERS.items()
        ]
        print(f"{what:26}" + "".join(f"{mean:8.2f}" for mean in means))


if __name__ == "__main__":
    main()
