"""Open-set quality of an extractor: detection of unknown relations, calibration, risk against coverage.

FewRel, the published 5-shot split: ten draws of 40 of the 80 relations are taught, and all questions are asked.
redoc41: five draws of five examples teach its 41 relations; 55 further examples of each are asked, and sentences of
`no_relation`, which is never taught. The constants were chosen on FewRel's validation questions and one half of redoc41
(--eval validation), and are evaluated on FewRel's test questions and the other half.

python benchmarks/openness.py
python benchmarks/openness.py --eval validation --draws 3 --adapter models/mine
python benchmarks/openness.py --figure docs/risk-coverage.png
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean

import numpy as np

from erda.app.calibration import CALIBRATIONS
from erda.corpus.similarity_run import auc
from erda.data.catalogue import load_dataset
from erda.data.dataset import shuffled
from erda.encoders import build_encoder
from erda.encoders.contract import Encoder
from erda.encoders.frozen import FrozenCache
from erda.methods import find_method
from erda.types import Example, Relation, Task
from targets import Figure, measure

SHOTS = 5
N_KNOWN = 40
N_OF_A_RELATION = 60  # examples of redoc41, taught and asked
N_BINS = 15  # of confidences, in the calibration error


@dataclass(frozen=True, slots=True)
class Quality:
    """Quality of confidences. A value is None if no questions apply.

    `auroc`: probability that a question about a known relation ranks above one about an unknown relation.
    `error`: expected calibration error on questions about known relations.
    `open_error`: the same on all questions; any answer to a question about an unknown relation is wrong.
    `risk`: share of wrong answers among the most confident tenth, two tenths, ... of all questions.
    """

    auroc: float | None
    error: float | None
    open_error: float | None
    risk: tuple[float, ...]


def quality_of(confidences: np.ndarray, gold: np.ndarray) -> Quality:
    """Quality of confidences [n, n_relations]; `gold` is the right column, or -1 for an unknown relation."""
    known, sure = gold >= 0, confidences.max(axis=1)
    right = confidences.argmax(axis=1) == gold
    total = confidences.sum(axis=1)
    return Quality(
        auc(total[known], total[~known]) if known.any() and not known.all() else None,
        calibration_error(sure[known] / total[known].clip(1e-300), right[known]),
        calibration_error(sure, right),
        tuple(risk_at(sure, right, share / 10) for share in range(1, 11)) if len(gold) else (),
    )


def calibration_error(confidences: np.ndarray, right: np.ndarray, *, n_bins: int = N_BINS) -> float | None:
    """Expected calibration error: mean |confidence - accuracy| over bins of equal width."""
    if not len(right):
        return None
    bins = np.minimum((confidences * n_bins).astype(int), n_bins - 1)
    gap = np.bincount(bins, confidences, n_bins) - np.bincount(bins, right, n_bins)
    return float(np.abs(gap).sum() / len(right))


def risk_at(confidences: np.ndarray, right: np.ndarray, coverage: float) -> float:
    """Share of wrong answers among the most confident `coverage` of all questions."""
    answered = np.argsort(-confidences, kind="stable")[: max(round(coverage * len(right)), 1)]
    return float(1 - right[answered].mean())


def fewrel_draws(questions: str, n_draws: int, n_known: int, shots: int | None) -> Iterator[tuple[Task, list[Example]]]:
    """Yield taught and asked examples of each draw; without `shots`, teach all examples of a relation."""
    dataset = load_dataset("fewrel")
    asked = dataset.validation if questions == "validation" else dataset.test
    for seed in range(n_draws):
        known = shuffled(dataset.relations, seed, "known")[:n_known]
        yield Task(0, tuple(known), tuple(_taught(dataset.train, known, shots, seed))), list(asked)


def redoc41_draws(questions: str, n_draws: int) -> Iterator[tuple[Task, list[Example]]]:
    """Yield draws that teach all relations and ask examples of each and of none."""
    dataset = load_dataset("redoc41")
    half = [one for one in dataset.train if _is_of_half(one, questions)]
    unrelated = [one for one in dataset.unrelated if _is_of_half(one, questions)]
    some = list(_taught(half, dataset.relations, N_OF_A_RELATION, seed=0))
    none = shuffled(unrelated, 0, "unrelated")[: len(some) // 2]
    for seed in range(1, n_draws + 1):
        taught = tuple(_taught(some, dataset.relations, SHOTS, seed))
        yield Task(0, dataset.relations, taught), [one for one in some if one not in set(taught)] + none


def _taught(examples: Sequence[Example], known: Sequence[Relation], shots: int | None, seed: int) -> Iterator[Example]:
    for relation in known:
        own = [example for example in examples if example.relation == relation.id]
        yield from shuffled(own, seed, relation.id)[:shots]


def _is_of_half(example: Example, questions: str) -> bool:
    """Whether an example is in this half; the split is by sentence, as examples of one sentence share words."""
    return (random.Random(" ".join(example.tokens)).random() < 0.5) == (questions == "validation")


def asked(method: str, encoder: Encoder, task: Task, questions: Sequence[Example]) -> Quality:
    """Quality of the confidences after a task."""
    learner = find_method(method)(encoder)
    learner.learn(task)
    predictions = learner.predict([replace(question, relation=None) for question in questions])
    columns = {relation: column for column, relation in enumerate(predictions.relations)}
    gold = np.array([columns.get(question.relation or "", -1) for question in questions])
    n_examples = Counter(example.relation for example in task.examples)
    calibration = CALIBRATIONS[learner.score_kind].given([n_examples[one] for one in predictions.relations])
    return quality_of(calibration.confidences(predictions.scores), gold)


def figures(options: argparse.Namespace) -> Iterator[Figure]:
    """Means over the draws, beside their targets."""
    cache = FrozenCache(options.cache, max_bytes=2**31)
    encoder = build_encoder(options.encoder, adapter=options.adapter, trained_layers=0, cache=cache)
    ask = partial(asked, options.method, encoder)
    curves: dict[str, Sequence[float]] = {}
    for name, n_known, shots, target in (
        (f"FewRel, {N_KNOWN} of 80 relations, as in the split", N_KNOWN, None, ">= 80"),
        (f"FewRel, {N_KNOWN} of 80 relations, 5 examples each", N_KNOWN, SHOTS, ""),
        ("FewRel, 5 relations, 5 examples each", 5, SHOTS, ""),
        ("FewRel, 1 relation, 1 example", 1, 1, ""),
    ):
        found = [ask(*draw) for draw in fewrel_draws(options.eval, options.draws, n_known, shots)]
        yield from _lines(name, found, target, "<= 6" if target else "")
        curves[name] = _curve(found)
    found = [ask(*draw) for draw in redoc41_draws(options.eval, max(options.draws // 2, 1))]
    yield from _lines("redoc41, 41 relations, no_relation untaught", found, ">= 75", "")
    curves["redoc41, 41 relations and no_relation"] = _curve(found)
    if options.figure:
        _draw(curves, options.figure)


def _lines(name: str, found: Sequence[Quality], least: str, most: str) -> Iterator[Figure]:
    yield Figure(f"{name}: AUROC of known", _mean([one.auroc for one in found]), "%", least)
    yield Figure("  calibration error, known relations", _mean([one.error for one in found]), "%", most)
    yield Figure("  calibration error, all questions", _mean([one.open_error for one in found]), "%")
    for share in (2, 5, 10):
        yield Figure(f"  wrong answers at {10 * share} % coverage", _mean([one.risk[share - 1] for one in found]), "%")


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return 100 * mean(there) if there else None


def _curve(found: Sequence[Quality]) -> Sequence[float]:
    return [mean(one.risk[i] for one in found) for i in range(10)]


def _draw(curves: Mapping[str, Sequence[float]], path: Path) -> None:
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(6, 4), layout="constrained")
    axes = drawing.subplots()
    for name, risk in curves.items():
        axes.plot(range(10, 101, 10), [100 * value for value in risk], marker="o", label=name)
    axes.set(
        xlabel="questions answered, most confident first (%)", ylabel="wrong answers among them (%)", ylim=(0, 100)
    )
    axes.legend(fontsize="small")
    drawing.savefig(path, dpi=120)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; draw the risk-coverage curves if a file is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--eval", choices=("test", "validation"), default="test", help="which questions (default: test)")
    add("--draws", metavar="N", type=int, default=10, help="draws of known relations (default: 10)")
    add("--method", metavar="NAME", default="posterior", help="default: posterior")
    add("--encoder", metavar="NAME", default="minilm", help="default: minilm")
    add("--adapter", metavar="NAME", default="shipped", help="trained weights; empty: none (default: shipped)")
    add("--cache", metavar="DIR", type=Path, help="folder that keeps vectors for the next time")
    add("--figure", metavar="FILE", type=Path, help="where to draw the risk-coverage curves")
    return measure(partial(figures, parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())
