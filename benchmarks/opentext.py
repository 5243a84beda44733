"""Open text: every pair of entities in 500 documents is asked; what is found, and how much of it is right.

The definition is in docs/open-text.md. Vectors and entity types are computed once:

python benchmarks/opentext.py tag /tmp/opentext --tagger FOLDER_OF_THE_SPACY_MODEL
python benchmarks/opentext.py embed /tmp/opentext                      # of the packaged encoder
python benchmarks/opentext.py score /tmp/opentext                      # 5 relations x 5 sentences, nothing judged
python benchmarks/opentext.py score /tmp/opentext --relations 15 --shots 20 --types none
python benchmarks/opentext.py judge /tmp/opentext                      # after 50 judgements of each relation
python benchmarks/opentext.py choose /tmp/opentext                     # constants of the score, from all relations

Another encoder has its own statistics (`tools/build_unlabelled.py --background --out FOLDER`); spaCy is not needed:
python benchmarks/opentext.py embed /tmp/opentext --encoder mpnet --device cuda --statistics FOLDER --save-as mpnet
python benchmarks/opentext.py score /tmp/opentext --vectors mpnet
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
import opentext_choose
from erda.app.calibration import IN_TEXT, text_confidences
from erda.data.streams import with_written_patterns
from erda.encoders import build_encoder
from erda.encoders.contract import Unlabelled
from erda.methods.open_head import Pairs, compete
from erda.methods.openness import TaughtPairs, distinctness, fit_open_head
from erda.methods.posterior import Posterior
from erda.text.descriptions import patterns_of
from erda.types import Relation, Task
from targets import Figure, measure

PACKAGED = "minilm"
LEAST_POSITIVES = 10  # pairs in the odd documents that a usable relation has
N_BINS = 15
ROUNDS, PER_ROUND = 5, 10
OTHER_SHOTS = (1, 2, 20)  # examples of further draws from which constants are chosen
SHARE_OF_OTHERS = 0.1  # of the sentences without a taught relation, in dense text
TARGETS = {"score": (38, 36, 45, 35), "judge": (50, 55, 65, 40)}  # mean AP, precision at recall 0.5, precision, recall


@dataclass(frozen=True, slots=True)
class Measured:
    """Measures of one draw, in percent."""

    average_precision: float
    precision_at_half: float  # precision at recall 0.5
    precision: float  # at the default operating point, over all answers
    recall: float
    f1: float
    macro_precision: float  # mean over the relations with answers
    macro_recall: float  # mean over relations
    calibration: float  # expected calibration error over all questions, of the most likely relation
    answer_calibration: float  # the same over the answers alone
    chance_calibration: float  # what the answers would show if every confidence were right


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


def chance_error(confidences: np.ndarray, *, n_samples: int = 100) -> float:
    """Mean calibration error that chance alone gives: as many answers, each right with its confidence."""
    drawn = np.random.default_rng(0).random((n_samples, len(confidences))) < confidences
    return float(np.mean([calibration_error(confidences, right) for right in drawn]))


def measured(scores: np.ndarray, confidences: np.ndarray, gold: np.ndarray, *, least: float) -> Measured:
    """Measure one draw. Arrays are [n_questions, n_relations]; `least` is the default threshold."""
    ranks = np.mean([ranked(scores[:, i], gold[:, i]) for i in range(gold.shape[1])], axis=0)
    answered = (confidences >= least) & (gold >= 0)
    found, asked = (answered & (gold == 1)).sum(axis=0), (gold == 1).sum(axis=0)
    precision, recall = found.sum() / max(int(answered.sum()), 1), found.sum() / asked.sum()
    each = answered.sum(axis=0)
    rows, top = np.arange(len(gold)), confidences.argmax(axis=1)
    counted = gold[rows, top] >= 0
    return Measured(
        float(ranks[0]),
        float(ranks[1]),
        100 * precision,
        100 * recall,
        200 * precision * recall / max(precision + recall, 1e-9),
        100 * float((found[each > 0] / each[each > 0]).mean()) if each.any() else 0.0,
        100 * float((found / asked).mean()),
        calibration_error(confidences[rows, top][counted], gold[rows, top][counted] == 1),
        calibration_error(confidences[answered], gold[answered] == 1),
        chance_error(confidences[answered]),
    )


@dataclass(frozen=True)
class Bench:
    """The data of the benchmark, and the packaged statistics that scores are compared with."""

    folder: Path
    vectors: str  # name of the vectors
    types: str  # tagger, none
    patterns: bool = False  # relations have written patterns

    @cached_property
    def loaded(self) -> tuple[opentext_cache.World, opentext_cache.CachedEncoder]:
        """Questions, teaching sentences and their vectors."""
        return opentext_cache.load(self.folder, self.vectors)

    @property
    def world(self) -> opentext_cache.World:
        """Questions and teaching sentences."""
        return self.loaded[0]

    @property
    def encoder(self) -> opentext_cache.CachedEncoder:
        """Vectors of teaching sentences and questions, by sentence."""
        return self.loaded[1]

    @cached_property
    def unlabelled(self) -> Unlabelled:
        """Statistics of unlabelled pairs of the encoder."""
        found = self.encoder.unlabelled()
        assert found is not None
        return found

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
    def lessons(self) -> Pairs:
        """All teaching sentences, with the types that count."""
        return self.typed(self.world.lessons)


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """Relations and the rows of their teaching sentences."""

    relations: tuple[Relation, ...]
    rows: tuple[np.ndarray, ...]


def draws(bench: Bench, half: str, n_relations: int, shots: int, n_draws: int) -> Iterator[Draw]:
    """Draw relations of one half, and sentences of each: the same ones for any number of relations."""
    relations = map(with_written_patterns, bench.world.relations) if bench.patterns else bench.world.relations
    pool, known = bench.usable[half], {relation.id: relation for relation in relations}
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


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Log odds of each relation in open text, and the two-covariance scores: [n, n_relations] each."""

    log_odds: np.ndarray  # after the competition of the pairs of a sentence
    likelihoods: np.ndarray
    distinctness: np.ndarray  # [n_relations, 2]


def scored(bench: Bench, draw: Draw, rows: np.ndarray, judged: Sequence[tuple[np.ndarray, np.ndarray]] = ()) -> Scored:
    """Teach the draw's sentences and the questions judged right and wrong, and score questions `rows`."""
    world, nothing = bench.world, np.zeros(0, dtype=int)
    judged = judged or [(nothing, nothing)] * len(draw.relations)
    examples = []
    for relation, own, (right, _) in zip(draw.relations, draw.rows, judged, strict=True):
        examples += [world.teaching[row] for row in own]
        examples += [replace(world.questions[row].example, relation=relation.id) for row in right]
    method = Posterior(bench.encoder)
    method.learn(Task(0, draw.relations, tuple(examples)))
    names = method.centred_names()
    taught = [
        TaughtPairs(
            Pairs.joined([bench.lessons[own], bench.asked[right]]),
            names[i],
            counterexamples=bench.asked[wrong],
            n_patterns=len(patterns_of(draw.relations[i].description)),
        )
        for i, (own, (right, wrong)) in enumerate(zip(draw.rows, judged, strict=True))
    ]
    head = fit_open_head(taught, method.fitted, bench.unlabelled)
    asked = bench.asked[rows]
    likelihoods, rivals = head.scores_and_rivals(method.fitted, asked.vectors)
    log_odds = compete(head.log_odds(likelihoods, rivals, asked), asked.starts, bench.sentences[rows])
    return Scored(log_odds, likelihoods, distinctness(taught, bench.unlabelled))


def judged_questions(bench: Bench, draw: Draw, gold: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows of the questions judged right and wrong in all rounds, for each relation."""
    seen: list[np.ndarray] = [np.zeros(0, dtype=int) for _ in draw.relations]
    judged: list[tuple[np.ndarray, np.ndarray]] = []
    for _ in range(ROUNDS):
        scores = scored(bench, draw, bench.even, judged).log_odds
        for i, some in enumerate(seen):
            own = np.where(gold[bench.even, i] < 0, -np.inf, scores[:, i])
            own[np.isin(bench.even, some)] = -np.inf
            order = np.argsort(-own, kind="stable")
            _, first = np.unique(bench.sentences[bench.even[order]], return_index=True)
            seen[i] = np.concatenate([some, bench.even[order[np.sort(first)[:PER_ROUND]]]])
        judged = [(some[gold[some, i] == 1], some[gold[some, i] == 0]) for i, some in enumerate(seen)]
    return judged


def dense(sentences: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Rows of denser text: sentences in which a relation of the draw holds, and a tenth of the others."""
    holds = np.unique(sentences[(gold == 1).any(axis=1)])
    some = np.random.default_rng(0).random(int(sentences.max()) + 1) < SHARE_OF_OTHERS
    return np.flatnonzero(np.isin(sentences, holds) | some[sentences])


def chosen_constants(arguments: argparse.Namespace) -> Iterator[str]:
    """Fit the constants of the score to the labels of some draws."""
    bench = Bench(arguments.folder, arguments.vectors, arguments.types, arguments.patterns)
    units = []
    for shots, n_draws in ((arguments.shots, arguments.draws), *((n, arguments.draws // 3) for n in OTHER_SHOTS)):
        for draw in draws(bench, arguments.half, arguments.relations, shots, n_draws):
            found, gold = scored(bench, draw, bench.odd), bench.gold([one.id for one in draw.relations])[bench.odd]
            for i, relation in enumerate(draw.relations):
                counted = gold[:, i] >= 0
                odds, holds = found.log_odds[counted, i], gold[counted, i].astype(float)
                n_examples = len(draw.rows[i])
                units.append(opentext_choose.Unit(relation.id, odds, found.distinctness[i], n_examples, holds))
    return opentext_choose.report(units)


def figures(arguments: argparse.Namespace) -> Iterator[Figure]:
    """Measure all draws and compare the means with the targets."""
    bench = Bench(arguments.folder, arguments.vectors, arguments.types, arguments.patterns)
    found, before, answers_of_all = [], [], []
    chosen = draws(bench, arguments.half, arguments.relations, arguments.shots, arguments.draws)
    for draw in chosen:
        gold = bench.gold([relation.id for relation in draw.relations])
        judged = judged_questions(bench, draw, gold) if arguments.command == "judge" else ()
        scores = scored(bench, draw, bench.odd, judged)
        answers = gold[bench.odd]
        kept = dense(bench.sentences[bench.odd], answers) if arguments.dense else np.arange(len(answers))
        odds, today, answers = scores.log_odds[kept], scores.likelihoods[kept], answers[kept]
        confidences = text_confidences(odds)
        found.append(measured(odds, confidences, answers, least=IN_TEXT))
        given = (confidences >= IN_TEXT) & (answers >= 0)
        answers_of_all.append(np.stack([confidences[given], answers[given] == 1]))
        before.append(np.mean([ranked(today[:, i], answers[:, i]) for i in range(today.shape[1])], axis=0))
    means = np.mean([astuple(one) for one in found], axis=0)
    has_targets = (arguments.relations, arguments.shots) == (5, 5)
    target = [f">= {number}" if has_targets else "" for number in TARGETS[arguments.command]]
    yield Figure("two-covariance score alone: mean average precision", float(np.mean(before, axis=0)[0]), "%")
    yield Figure("two-covariance score alone: precision at recall 0.5", float(np.mean(before, axis=0)[1]), "%")
    yield Figure("mean average precision", means[0], "%", target[0])
    yield Figure("precision at recall 0.5", means[1], "%", target[1])
    yield Figure("default: precision", means[2], "%", target[2])
    yield Figure("default: recall", means[3], "%", target[3])
    yield Figure("default: F1", means[4], "%")
    yield Figure("default: precision, mean over relations", means[5], "%")
    yield Figure("default: recall, mean over relations", means[6], "%")
    yield Figure("calibration error, all questions", means[7], "%", "<= 8" if has_targets else "")
    together = calibration_error(*np.concatenate(answers_of_all, axis=1))
    yield Figure("calibration error, answers of all draws together", together, "%", "<= 8" if has_targets else "")
    yield Figure("calibration error, answers of one draw", means[8], "%")
    yield Figure("the same if every confidence were right", means[9], "%")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    tag = commands.add_parser("tag", help="write the entity types of all mentions")
    tag.add_argument("folder", type=Path)
    tag.add_argument("--tagger", type=Path, required=True, help="folder of a spaCy model with entities")
    embed = commands.add_parser("embed", help="embed everything once")
    embed.add_argument("folder", type=Path)
    embed.add_argument("--encoder", default="", help="name or folder of a model (default: the packaged encoder)")
    embed.add_argument("--adapter", default="", help="folder of an adapter (default: the shipped one)")
    embed.add_argument("--device", default="cpu")
    embed.add_argument("--statistics", type=Path, help="folder of unlabelled.npz and background.npz")
    embed.add_argument("--save-as", default=PACKAGED, help="name of the vectors")
    for name in ("score", "judge", "choose"):
        one = commands.add_parser(name)
        one.add_argument("folder", type=Path)
        one.add_argument("--vectors", default=PACKAGED, help="name of the vectors (embed --save-as)")
        one.add_argument("--relations", type=int, default=5)
        one.add_argument("--shots", type=int, default=5)
        one.add_argument("--draws", type=int, default=31 if name == "choose" else 10)
        one.add_argument("--half", choices=("choose", "report", "all"), default="all" if name == "choose" else "report")
        one.add_argument("--dense", action="store_true", help="leave out nine of ten sentences without a relation")
        one.add_argument("--patterns", action="store_true", help="add written patterns to descriptions")
        one.add_argument("--types", choices=("tagger", "none"), default="tagger")
    given = parser.parse_args(arguments)
    if given.command == "tag":
        print(opentext_cache.tag(given.folder, tagger=given.tagger))
        return 0
    if given.command == "embed":
        settings = {"adapter": given.adapter} if given.adapter else {}
        if not given.encoder:
            settings |= {"adapter": "shipped", "engine": "packaged"}
        encoder = build_encoder(given.encoder or PACKAGED, device=given.device, trained_layers=0, **settings)
        opentext_cache.embed(given.folder / given.save_as, encoder, statistics=given.statistics)
        return 0
    if given.command == "choose":
        print(*chosen_constants(given), sep="\n")
        return 0
    return measure(lambda: figures(given))


if __name__ == "__main__":
    sys.exit(main())
