"""Refusal: how many questions about untaught relations are answered, by an extractor as a user has it.

FewRel: half of the 80 relations are taught, and test questions about all of them are asked with `predict`. redoc41: 41
relations are taught, and rows of `no_relation` are asked too. Forced choice (the first of `ranked`) is printed as well.

python benchmarks/opentext_refusal.py
python benchmarks/opentext_refusal.py --shots 20 --draws 5
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from erda.app.extractor import Extractor
from erda.data.catalogue import load_dataset
from erda.data.dataset import shuffled
from erda.encoders import build_encoder
from erda.encoders.contract import Encoder
from erda.encoders.frozen import FrozenCache
from erda.types import Example, Task
from openness import redoc41_draws
from targets import Figure, measure

N_ASKED = 2_000  # test questions of FewRel
N_KNOWN = 40


def fewrel_draws(shots: int, n_draws: int) -> Iterator[tuple[Task, list[Example]]]:
    """Yield draws of taught relations and sentences, and the questions."""
    dataset = load_dataset("fewrel")
    asked = shuffled(dataset.test, 0, "asked")[:N_ASKED]
    known_sentences = {one.tokens for one in (*dataset.test, *dataset.validation)}
    pool = [one for one in load_dataset("fewrel-full").train if one.tokens not in known_sentences]
    for seed in range(n_draws):
        relations = shuffled(dataset.relations, seed, "known")[:N_KNOWN]
        own = {one.id: [example for example in pool if example.relation == one.id] for one in relations}
        taught = [example for name, some in own.items() for example in shuffled(some, seed, name)[:shots]]
        yield Task(0, tuple(relations), tuple(taught)), asked


def shares(task: Task, asked: Sequence[Example], encoder: Encoder) -> tuple[float, float, float]:
    """Percent of questions answered about known relations, about others, and right ones by forced choice."""
    with TemporaryDirectory() as folder:
        extractor = Extractor.open(Path(folder) / "store", encoder=encoder)
        extractor.teach_many(task)
        answers = extractor.predict(list(asked), top=1)
    known = np.array([one.relation in {relation.id for relation in task.relations} for one in asked])
    answered = np.array([answer.relation is not None for answer in answers])
    right = np.array([a.ranked[0].relation == one.relation for a, one in zip(answers, asked, strict=True)])
    return 100 * answered[known].mean(), 100 * answered[~known].mean(), 100 * right[known].mean()


def figures(options: argparse.Namespace) -> Iterator[Figure]:
    """Means over the draws, beside their targets."""
    cache = FrozenCache(None, max_bytes=2**31)
    encoder = build_encoder("minilm", cache=cache, adapter="shipped", engine="packaged", trained_layers=0)
    fewrel = np.mean([shares(*draw, encoder) for draw in fewrel_draws(options.shots, options.draws)], axis=0)
    yield Figure(f"FewRel, 40 of 80 relations x {options.shots}: known answered", fewrel[0], "%", ">= 65")
    yield Figure("  others answered", fewrel[1], "%", "<= 25")
    yield Figure("  right by forced choice among the 40", fewrel[2], "%")
    redoc41 = np.mean([shares(*draw, encoder) for draw in redoc41_draws("test", 1)], axis=0)
    yield Figure("redoc41, 41 relations x 5: known answered", redoc41[0], "%")
    yield Figure("  no_relation answered", redoc41[1], "%", "<= 30")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--draws", type=int, default=3)
    return measure(lambda: figures(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())
