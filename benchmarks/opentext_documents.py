"""Open text in documents: every ordered pair of entities that share a sentence, before and after judgements."""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

import opentext_data as data
from erda.data.streams import with_written_patterns
from erda.types import Example
from opentext_score import Answered, Row, Taught, answers, calibration_error, means, ranked, reliability, share

LEAST_POSITIVES = 10  # pairs in the odd documents that a usable relation has
PER_ROUND, ROUNDS = 10, 5


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Relations of redocred-dev and sentences that teach them. Odd documents are asked."""

    patterns: bool = False  # relations have written patterns
    left_out: Collection[str] = ()  # relations that are not drawn

    @cached_property
    def teaching(self) -> list[Example]:
        """All teaching sentences, with types."""
        return data.part("redoc41")

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """Document and sentence of each question."""
        return [(one.document, one.sentence) for one in data.dev()]

    @cached_property
    def is_odd(self) -> np.ndarray:
        """Whether each question is asked: [n]."""
        return np.array([document % 2 == 1 for document, _ in self.places])

    def gold(self, relations: Sequence[str]) -> np.ndarray:
        """1 holds, 0 does not, -1 ignored: [n_questions, n_relations]."""
        return np.array(
            [[int(name in one.holds) - int(name in one.ignored) for name in relations] for one in data.dev()], np.int8
        )

    def usable(self, fold: str) -> list[str]:
        """Relations of a fold with teaching sentences and enough positive pairs."""
        names = sorted(data.relations("redoc41"))
        found = (self.gold(names)[self.is_odd] == 1).sum(axis=0)
        asked = names if fold == "all" else data.fold(fold)
        return [name for name, n in zip(names, found, strict=True) if n >= LEAST_POSITIVES and name in asked]

    def draws(self, fold: str, n_relations: int, shots: int, n_draws: int) -> Iterator[list[Taught]]:
        """Draw relations of a fold and sentences of each: the same sentences for any number of relations."""
        pool = [name for name in self.usable(fold) if name not in self.left_out]
        known, own = data.relations("redoc41"), defaultdict(list)
        for example in self.teaching:
            own[str(example.relation)].append(example)
        for seed in range(n_draws):
            names = pool
            if n_relations < len(pool):
                names = sorted(random.Random(f"{fold} {n_relations} {shots} {seed}").sample(pool, n_relations))
            taught = []
            for name in names:
                some = list(own[name])
                random.Random(f"{name} {seed}").shuffle(some)
                relation = with_written_patterns(known[name]) if self.patterns else known[name]
                taught.append(Taught(relation, some[:shots]))
            yield taught


@dataclass(frozen=True, kw_only=True)
class Documents(Draws):
    """The questions of redocred-dev. Even documents are the user's own text, to be judged."""

    encoder: data.VectorEncoder

    @cached_property
    def questions(self) -> list[Example]:
        """All questions, with types."""
        return self.encoder.load("dev")

    @cached_property
    def teaching(self) -> list[Example]:
        """All teaching sentences, with types and vectors."""
        return self.encoder.load("redoc41")

    def asked(self, taught: Sequence[Taught], rows: np.ndarray) -> Answered:
        """Ask some of the questions."""
        questions, places = ([some[row] for row in rows] for some in (self.questions, self.places))
        return answers(self.encoder, taught, questions, places)

    def judged(self, taught: Sequence[Taught], gold: np.ndarray, seen: Sequence[np.ndarray]) -> list[Taught]:
        """Add judged questions to the taught examples."""
        found = []
        for i, (one, rows) in enumerate(zip(taught, seen, strict=True)):
            right, wrong = ([self.questions[row] for row in rows if gold[row, i] == holds] for holds in (1, 0))
            found.append(replace(one, judged=right, counterexamples=wrong))
        return found

    def shown(self, taught: Sequence[Taught], gold: np.ndarray) -> list[np.ndarray]:
        """Rows that are shown to the judge, for each relation: the best of ten new sentences in each round."""
        even, seen = np.flatnonzero(~self.is_odd), [np.zeros(0, dtype=int) for _ in taught]
        sentences = np.unique(np.array(self.places)[even], axis=0, return_inverse=True)[1].ravel()
        for _ in range(ROUNDS):
            found = self.asked(self.judged(taught, gold, seen), even).confidences
            for i, some in enumerate(seen):
                own = np.where((gold[even, i] < 0) | np.isin(even, some), -np.inf, found[:, i])
                order = np.argsort(-own, kind="stable")
                _, first = np.unique(sentences[order], return_index=True)
                seen[i] = np.concatenate([some, even[order[np.sort(first)[:PER_ROUND]]]])
        return seen


def documents(encoder: data.VectorEncoder, options: argparse.Namespace) -> Iterator[Row]:
    """Every ordered pair of entities in the odd documents, before and after judgements."""
    bench = Documents(encoder=encoder, patterns=options.patterns)
    odd, rows, given = np.flatnonzero(bench.is_odd), defaultdict(list), defaultdict(list)
    for taught in bench.draws(options.fold, options.relations, options.shots, options.draws):
        gold = bench.gold([one.relation.id for one in taught])
        seen = bench.shown(taught, gold) if any(options.judged) else [np.zeros(0, dtype=int)] * len(taught)
        for n in options.judged:
            found, right = bench.asked(bench.judged(taught, gold, [some[:n] for some in seen]), odd), gold[odd]
            ranks = np.mean([ranked(found.confidences[:, i], right[:, i]) for i in range(len(taught))], axis=0)
            answered = found.holds & (right >= 0)
            sure, correct = found.confidences[answered], right[answered] == 1
            each, asked = (answered & (right == 1)).sum(axis=0), (right == 1).sum(axis=0)
            rows[n].append(
                {
                    "AP": ranks[0],
                    "P at R 0.5": ranks[1],
                    "precision": share(correct) or 0.0,
                    "recall": 100 * each.sum() / asked.sum(),
                    "macro recall": 100 * (each / asked).mean(),
                }
            )
            given[n].append(np.stack([sure, correct]))
    for n, some in rows.items():
        together = np.concatenate(given[n], axis=1)
        error = calibration_error(*together)
        drawn = {"relations": options.relations, "shots": options.shots, "draws": len(some), "judged": n}
        spread = float(np.std([row["AP"] for row in some], ddof=1) / len(some) ** 0.5) if len(some) > 1 else None
        kept = {"calibration error": error, "SE of AP": spread, "_bins": reliability(*together)}
        yield drawn | {"patterns": options.patterns} | means(some) | kept
