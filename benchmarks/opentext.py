"""Open text: every pair of entities in 500 documents is asked; what is found, and how much of it is right.

The definition is in docs/open-text.md. Vectors and entity types are computed once:

python benchmarks/opentext.py prepare /tmp/opentext --tagger FOLDER_OF_THE_SPACY_MODEL
python benchmarks/opentext.py score /tmp/opentext                      # 5 relations x 5 sentences, nothing judged
python benchmarks/opentext.py score /tmp/opentext --relations 15 --shots 20 --types none --unlabelled packaged
python benchmarks/opentext.py judge /tmp/opentext                      # after 50 judgements of each relation
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

import opentext_cache
from erda.encoders import build_encoder
from erda.methods.expected import Fitted
from erda.methods.posterior import Posterior
from erda.types import Relation, Task
from opentext_score import (
    Pairs,
    Unlabelled,
    compete,
    evidence,
    judged_evidence,
    kernel_rows,
)
from targets import Figure, measure

LEAST_POSITIVES = 10  # pairs in the odd documents that a usable relation has
N_SAMPLE = 4_000  # unlabelled pairs that scores are compared with
N_BINS = 15
ANSWERED_AT = 0.25  # confidence of the default operating point, chosen on the half `choose`
OPEN, JUDGED = (1.166, -7.783), (1.132, -0.622)  # slope and intercept of the log odds, chosen on the half `choose`
ROUNDS, PER_ROUND = 5, 10
TARGETS = {"score": (38, 36, 45, 35), "judge": (50, 55, 65, 40)}  # mean AP, precision at recall 0.5, precision, recall


@dataclass(frozen=True, slots=True)
class Measured:
    """Measures of one draw, in percent."""

    average_precision: float
    precision_at_half: float  # precision at recall 0.5
    precision: float  # at the default operating point, over all answers
    recall: float
    f1: float
    calibration: float  # expected calibration error over all questions, of the most likely relation
    answer_calibration: float  # the same over the answers alone


def ranked(scores: np.ndarray, gold: np.ndarray) -> tuple[float, float]:
    """Average precision, and precision at recall 0.5. Gold: 1 holds, 0 does not, -1 ignored."""
    counted = gold >= 0
    right = gold[counted][np.argsort(-scores[counted], kind="stable")]
    found = np.cumsum(right)
    precision = found / np.arange(1, len(right) + 1)
    half = int(np.searchsorted(found, found[-1] / 2))
    return 100 * float((precision * right).sum() / found[-1]), 100 * float(precision[half])


def calibration_error(confidences: np.ndarray, right: np.ndarray) -> float:
    """Mean of |confidence - share of right answers| over bins of equal width, in percent."""
    bins = np.minimum((confidences * N_BINS).astype(int), N_BINS - 1)
    gap = np.bincount(bins, confidences, N_BINS) - np.bincount(bins, right, N_BINS)
    return 100 * float(np.abs(gap).sum() / max(len(right), 1))


def measured(scores: np.ndarray, confidences: np.ndarray, gold: np.ndarray) -> Measured:
    """Measure one draw. All arrays are [n_questions, n_relations]."""
    ranks = np.mean([ranked(scores[:, i], gold[:, i]) for i in range(gold.shape[1])], axis=0)
    answered = (confidences >= ANSWERED_AT) & (gold >= 0)
    n_right = int((answered & (gold == 1)).sum())
    precision, recall = n_right / max(int(answered.sum()), 1), n_right / int((gold == 1).sum())
    rows, top = np.arange(len(gold)), confidences.argmax(axis=1)
    counted = gold[rows, top] >= 0
    return Measured(
        float(ranks[0]),
        float(ranks[1]),
        100 * precision,
        100 * recall,
        200 * precision * recall / max(precision + recall, 1e-9),
        calibration_error(confidences[rows, top][counted], gold[rows, top][counted] == 1),
        calibration_error(confidences[answered], gold[answered] == 1),
    )


@dataclass(frozen=True)
class Bench:
    """The data of the benchmark and the unlabelled text that scores are compared with."""

    world: opentext_cache.World
    types: str  # tagger, none
    unlabelled: str  # own, packaged

    @cached_property
    def documents(self) -> np.ndarray:
        """Number of the document of each question."""
        return np.array([one.document for one in self.world.questions])

    @cached_property
    def odd(self) -> np.ndarray:
        """Rows of the questions that are asked."""
        return np.flatnonzero(self.documents % 2 == 1)

    @cached_property
    def even(self) -> np.ndarray:
        """Rows of the user's own unlabelled text."""
        return np.flatnonzero(self.documents % 2 == 0)

    @cached_property
    def sentences(self) -> np.ndarray:
        """Number of the sentence of each question."""
        places = [(one.document, one.sentence) for one in self.world.questions]
        return np.unique(np.array(places), axis=0, return_inverse=True)[1].ravel()

    def gold(self, relations: Sequence[str]) -> np.ndarray:
        """1 holds, 0 does not, -1 ignored: [n_questions, n_relations]."""
        holds = [
            [int(name in one.holds) - int(name in one.ignored) for name in relations] for one in self.world.questions
        ]
        return np.array(holds, dtype=np.int8)

    @cached_property
    def usable(self) -> dict[str, list[str]]:
        """Relations with enough positive pairs, in two halves: `choose` and `report`."""
        names = [relation.id for relation in self.world.relations]
        found = (self.gold(names)[self.odd] == 1).sum(axis=0)
        order = sorted(name for name, n in zip(names, found, strict=True) if n >= LEAST_POSITIVES)
        random.Random(0).shuffle(order)
        return {"choose": sorted(order[::2]), "report": sorted(order[1::2]), "all": sorted(order)}

    def typed(self, pairs: Pairs) -> Pairs:
        """Pairs with the types that count."""
        return pairs if self.types == "tagger" else replace(pairs, types=np.zeros_like(pairs.types))

    @cached_property
    def asked(self) -> Pairs:
        """All questions, with the types that count."""
        return self.typed(self.world.asked)

    @cached_property
    def statistics(self) -> Unlabelled:
        """Statistics of the user's own text and the packaged background, or of the background alone."""
        world, background = self.world, self.typed(self.world.background)
        own = self.asked[self.even]
        if self.unlabelled == "packaged":
            return Unlabelled.of(background.vectors, background[np.arange(N_SAMPLE)], self.smoothing)
        rows = np.sort(np.random.default_rng(0).choice(len(own), N_SAMPLE, replace=False))
        return Unlabelled.of(np.concatenate([own.vectors, world.background.vectors]), own[rows], self.smoothing)

    @cached_property
    def smoothing(self) -> np.ndarray:
        """How tags stand for each other: P(tag t | annotated type) P(annotated type | tag s), of the even documents."""
        world = self.world
        counts = np.full((len(world.type_names), len(world.annotated_names) - 1), 0.5)
        np.add.at(counts, (world.asked.types[self.even].ravel(), world.annotated[self.even].ravel() - 1), 1)
        return np.asarray((counts / counts.sum(axis=1, keepdims=True)) @ (counts / counts.sum(axis=0)).T)

    @cached_property
    def encoder(self) -> opentext_cache.CachedEncoder:
        """Vectors of teaching sentences and questions, by sentence."""
        world = self.world
        examples = [*world.teaching, *(one.example for one in world.questions)]
        vectors = np.concatenate([world.lessons.vectors, world.asked.vectors])
        return opentext_cache.CachedEncoder(examples, vectors, build_encoder("minilm"))

    @cached_property
    def kernels(self) -> np.ndarray:
        """Kernel rows of all questions."""
        return kernel_rows(self.asked, self.statistics).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """Relations and the rows of their teaching sentences."""

    relations: tuple[Relation, ...]
    rows: tuple[np.ndarray, ...]


def draws(bench: Bench, half: str, n_relations: int, shots: int, n_draws: int) -> Iterator[Draw]:
    """Draw relations of one half, and sentences of each: the same ones for any number of relations."""
    pool, known = bench.usable[half], {relation.id: relation for relation in bench.world.relations}
    for seed in range(n_draws):
        names = pool
        if n_relations < len(pool):
            names = sorted(random.Random(f"{half} {n_relations} {shots} {seed}").sample(pool, n_relations))
        rows = []
        for name in names:
            own = list(bench.world.taught[name])
            random.Random(f"{name} {seed}").shuffle(own)
            rows.append(np.array(own[:shots]))
        yield Draw(tuple(known[name] for name in names), tuple(rows))


def fitted(bench: Bench, draw: Draw, judged: Sequence[np.ndarray]) -> tuple[Fitted, np.ndarray, list[Pairs]]:
    """Posterior taught by the draw's sentences and by questions judged right; centred names; examples as pairs."""
    world, lessons = bench.world, bench.typed(bench.world.lessons)
    examples = []
    for relation, rows, right in zip(draw.relations, draw.rows, judged, strict=True):
        examples += [world.teaching[row] for row in rows]
        examples += [replace(world.questions[row].example, relation=relation.id) for row in right]
    method = Posterior(bench.encoder)
    method.learn(Task(0, draw.relations, tuple(examples)))
    names = np.stack([method.rows["name"][relation.id] for relation in draw.relations])
    names = names - np.concatenate([names, method.shared["common"]]).mean(axis=0)
    pairs = [lessons[rows] + bench.asked[right] for rows, right in zip(draw.rows, judged, strict=True)]
    return method.fitted, names, pairs


def scores_of(
    bench: Bench, draw: Draw, rows: np.ndarray, judged: Sequence[np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Evidence for each relation on questions `rows`, and today's score: [n, n_relations] each."""
    judged = judged or [np.zeros(0, dtype=int)] * len(draw.relations)
    model, names, pairs = fitted(bench, draw, judged)
    asked, statistics = bench.asked[rows], bench.statistics
    today, sample = model.scores(asked.vectors), model.scores(statistics.sample.vectors)
    columns = [
        evidence(own, names[i], statistics, asked, likelihoods=today[:, i], sample_likelihoods=sample[:, i])
        for i, own in enumerate(pairs)
    ]
    return np.stack(columns, axis=1), today


def competing(bench: Bench, scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Scores after the competition of the pairs of a sentence."""
    return np.stack([compete(column, bench.sentences[rows]) for column in scores.T], axis=1)


def judged_scores(bench: Bench, draw: Draw, gold: np.ndarray) -> np.ndarray:
    """Scores of the odd documents after all rounds of judgements on the even ones: [n, n_relations]."""
    n_even, statistics = len(bench.even), bench.statistics
    rows = np.concatenate([bench.even, bench.odd])
    seen: list[np.ndarray] = [np.zeros(0, dtype=int) for _ in draw.relations]  # positions in `even`
    for _ in range(ROUNDS + 1):
        right = [bench.even[some[gold[bench.even[some], i] == 1]] for i, some in enumerate(seen)]
        scores, _ = scores_of(bench, draw, rows, right)
        for i, some in enumerate(seen):
            if len(some):
                lessons = bench.typed(bench.world.lessons)[draw.rows[i]]
                kernels = np.concatenate([bench.kernels[bench.even[some]], kernel_rows(lessons, statistics)])
                known = np.concatenate([scores[some, i], np.full(len(lessons), np.nan)])
                holds = np.concatenate([gold[bench.even[some], i] == 1, np.ones(len(lessons))]).astype(float)
                (scores[:, i],) = judged_evidence(
                    [scores[:, i]],
                    scores[:n_even, i],
                    rows=[bench.kernels[rows]],
                    judged_rows=kernels,
                    judged_scores=known,
                    holds=holds,
                )
        final = competing(bench, scores, rows)
        for i, some in enumerate(seen):
            own = np.where(gold[bench.even, i] < 0, -np.inf, final[:n_even, i])
            own[some] = -np.inf
            order = np.argsort(-own, kind="stable")
            _, first = np.unique(bench.sentences[bench.even[order]], return_index=True)
            seen[i] = np.concatenate([some, order[np.sort(first)[:PER_ROUND]]])
    return final[n_even:]


def figures(arguments: argparse.Namespace) -> Iterator[Figure]:
    """Measure all draws and compare the means with the targets."""
    bench = Bench(opentext_cache.load(arguments.folder), arguments.types, arguments.unlabelled)
    found, before = [], []
    slope, intercept = JUDGED if arguments.command == "judge" else OPEN
    chosen = draws(bench, arguments.half, arguments.relations, arguments.shots, arguments.draws)
    for draw in chosen:
        gold = bench.gold([relation.id for relation in draw.relations])
        scores, today = scores_of(bench, draw, bench.odd)
        final = competing(bench, scores, bench.odd)
        if arguments.command == "judge":
            final = judged_scores(bench, draw, gold)
        confidences = 1 / (1 + np.exp(-(slope * final + intercept)))
        found.append(measured(final, confidences, gold[bench.odd]))
        before.append(np.mean([ranked(today[:, i], gold[bench.odd][:, i]) for i in range(today.shape[1])], axis=0))
    means = np.mean([astuple(one) for one in found], axis=0)
    has_targets = (arguments.relations, arguments.shots) == (5, 5)
    target = [f">= {number}" if has_targets else "" for number in TARGETS[arguments.command]]
    yield Figure("two-covariance score alone: mean average precision", float(np.mean(before, axis=0)[0]), "%")
    yield Figure("two-covariance score alone: precision at recall 0.5", float(np.mean(before, axis=0)[1]), "%")
    yield Figure("mean average precision", means[0], "%", target[0])
    yield Figure("precision at recall 0.5", means[1], "%", target[1])
    yield Figure(f"precision at confidence {ANSWERED_AT}", means[2], "%", target[2])
    yield Figure(f"recall at confidence {ANSWERED_AT}", means[3], "%", target[3])
    yield Figure("F1", means[4], "%")
    yield Figure("calibration error, all questions", means[5], "%", "<= 8" if has_targets else "")
    yield Figure("calibration error, answers alone", means[6], "%")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare", help="tag and embed everything once")
    prepare.add_argument("folder", type=Path)
    prepare.add_argument("--tagger", type=Path, required=True, help="folder of a spaCy model with entities")
    for name in ("score", "judge"):
        one = commands.add_parser(name)
        one.add_argument("folder", type=Path)
        one.add_argument("--relations", type=int, default=5)
        one.add_argument("--shots", type=int, default=5)
        one.add_argument("--draws", type=int, default=10)
        one.add_argument("--half", choices=("choose", "report", "all"), default="report")
        one.add_argument("--types", choices=("tagger", "none"), default="tagger")
        one.add_argument("--unlabelled", choices=("own", "packaged"), default="own")
    given = parser.parse_args(arguments)
    if given.command == "prepare":
        opentext_cache.prepare(given.folder, tagger=given.tagger)
        return 0
    return measure(lambda: figures(given))


if __name__ == "__main__":
    sys.exit(main())
