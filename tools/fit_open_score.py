"""Fit the weights of the open score on relations that an encoder was not trained on; write `open_score.json`.

python tools/fit_open_score.py A=redocred-A B=redocred-B F=fewrel-40           # folders of vectors, and their folds
python tools/fit_open_score.py B=redocred-B F=fewrel-40 --without redocred-A --out a.json   # to measure that fold;
    # then tools/fit_competition.py ... --folds redocred-B --score a.json
python tools/fit_open_score.py ... --ablation                                  # what each feature is worth

benchmarks/opentext.py makes the vectors. Draws of 1 to 30 relations are taught by 1 to 20 sentences each, and
asked the same questions after each number of sentences. Every number has the same weight.
`text`: other sentences of the relations, against unlabelled pairs of Wikipedia, which no training reads as negatives. A
relation holds in some of them, as often as in redocred-test (`prior`), so the likelihood is that of a mixture.
`marked`: a known relation holds in half of the questions; the others are about other relations of the fold, or none.
Besides each draw of random relations there is one of close relations, if the fold has enough. Each draw counts twice:
unchanged (weight 3/4) and in a simulated field (1/4), where one vector is added to all sentences.
Nothing of redocred-dev or of a test set is read. What is not fitted, like the weight of the competition, is copied from
the packaged score.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from erda.benchmark.run.loop import commit
from erda.data.catalogue import load_dataset
from erda.data.dataset import relations_by_pair
from erda.encoders.contract import Encoder, Unlabelled, unit_rows
from erda.errors import ErdaError
from erda.methods.open_head import FEATURES, OpenHead, Pairs
from erda.methods.openness import N_SPREAD, SCORE, TaughtPairs, fit_open_head, fitted_score, usual_gap
from erda.methods.posterior import Posterior
from erda.types import Example, Task, pair_in_sentence

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
import opentext_data as data

SIZES, SHOTS = (1, 2, 3, 5, 10, 20, 30), (1, 2, 5, 10, 20)
MOST_ASKED, N_UNLABELLED = 20, 6_000  # questions per relation; pairs of an unlabelled pair and a relation per draw
FIELD, IN_FIELD = (0.5, 1.0), 0.25  # length of the vector that a field adds to unit vectors; weight of fields
LEAST_CLOSE = 4  # smallest pool of close relations
LEAST_PAIRS = 10  # of a relation in redocred-test whose rate counts
UNLABELLED_MASS, L2 = 20.0, 1e-6
JUDGED = {"ridge": 10.0, "l2": 0.05, "bias": 0.3}  # of the correction; chosen on redocred-test, folds A and B
UNUSED = {  # excluded features; `--ablation` prints the loss with each of them
    "marked": ("cosine", "own", "few own", "near", "rare"),
    "text": ("contrast", "own contrast", "rivals", "few own contrast"),
}
USED = {kind: tuple(name for name in FEATURES if name not in unused) for kind, unused in UNUSED.items()}


class FieldEncoder(Encoder):
    """Simulates a field: adds one vector to all sentence vectors of an encoder."""

    def __init__(self, encoder: Encoder, shared: np.ndarray) -> None:
        self.spec, self.dim, self.unlabelled_file = encoder.spec, encoder.dim, encoder.unlabelled_file
        self._encoder, self._shared = encoder, shared

    def embed(self, examples: Sequence[Example], *, blanked: bool = False, batch_size: int | None = None) -> np.ndarray:
        """Embed sentences; those of relation names (blanked) stay unchanged."""
        vectors = self._encoder.embed(examples, blanked=blanked, batch_size=batch_size)
        return vectors if blanked else unit_rows(vectors + self._shared)


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """Questions after one draw: features [n, n_features], whether the relation holds, and weights."""

    features: np.ndarray
    holds: np.ndarray
    weight: np.ndarray
    leads: np.ndarray  # [n_known, n_relations], two-covariance scores of known questions minus the best, by `usual_gap`
    gold: np.ndarray  # [n_known], columns

    @classmethod
    def of(
        cls, right: np.ndarray, wrong: np.ndarray, masses: tuple[float, float], leads: np.ndarray, gold: np.ndarray
    ) -> Cell:
        """Build a cell; `masses` are the total weights of positive and negative pairs."""
        sizes = (len(right), len(wrong))
        weight = np.repeat(np.divide(masses, sizes), sizes)
        return cls(np.concatenate([right, wrong]), np.repeat([1.0, 0.0], sizes), weight, leads, gold)


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """Sentences of relations that an encoder has not seen, to teach and to ask."""

    encoder: data.VectorEncoder
    relations: dict[str, data.Relation]
    teaching: dict[str, list[Example]]
    asking: dict[str, list[Example]]
    unrelated: list[Example]
    holds: Mapping[object, frozenset[str | None]]  # all relations of the pairs of redoc41

    @classmethod
    def read(cls, folder: Path, fold: str, without: frozenset[str]) -> Fold:
        """Read the sentences of a fold."""
        names = data.fold(fold)
        encoder, is_text = data.VectorEncoder(folder), fold.startswith("redocred")
        parts = ("redoc41", "redoc41") if is_text else ("fewrel-taught", "fewrel-validation")
        found = [defaultdict[str, list[Example]](list) for _ in parts]
        for own, name in zip(found, parts, strict=True):
            for one in encoder.load(name):
                own[str(one.relation)].append(one)
        usable = [name for name in names if name not in without and len(found[0][name]) >= 2 * max(SHOTS)]
        known = data.relations("redoc41" if is_text else "fewrel")
        return cls(
            encoder,
            {name: known[name] for name in usable},
            {name: found[0][name] for name in usable},
            {name: found[1][name] for name in usable},
            encoder.load("unrelated") if is_text else [],
            {pair: frozenset(own) for pair, own in relations_by_pair(load_dataset("redoc41").train).items()},
        )

    def cells(self, n_draws: int, kinds: Sequence[str]) -> Iterator[tuple[str, Cell]]:
        """Questions after every draw of the grid, in text and marked."""
        unlabelled = self.encoder.unlabelled()
        assert unlabelled is not None
        sizes = [size for size in SIZES if size < len(self.relations)]
        some = Pairs(unlabelled.vectors, unlabelled.types, unlabelled.starts)[N_SPREAD:]
        kinds_of_draws = product((False, True), repeat=2) if "marked" in kinds else [(False, False)]
        for size, seed, (is_close, in_field) in product(sizes, range(n_draws), kinds_of_draws):
            draw = random.Random(f"{size} {seed} {is_close}")
            shared = draw.choice(unlabelled.vectors) * (in_field * draw.uniform(*FIELD))
            encoder = FieldEncoder(self.encoder, shared)
            pool = self._close(draw, max(2 * size, LEAST_CLOSE)) if is_close else sorted(self.relations)
            if size >= len(pool):
                continue
            names = draw.sample(pool, size)
            teaching = {name: draw.sample(self.teaching[name], max(SHOTS)) for name in names}
            rest = {name: [one for one in self.asking[name] if one not in own] for name, own in teaching.items()}
            own = [(i, one) for i, name in enumerate(names) for one in draw.sample(rest[name], MOST_ASKED)]
            unknown = [one for name in pool if name not in names for one in self.asking[name][:MOST_ASKED]]
            unknown = [one for one in unknown if not self.holds.get(pair_in_sentence(one), frozenset()) & {*names}]
            unknown = draw.sample(unknown, min(len(own), len(unknown)))
            unknown += draw.sample(self.unrelated, min(len(own) // 3, len(self.unrelated)))
            known, other = (_pairs(encoder, asked) for asked in ([one for _, one in own], unknown))
            gold = np.array([i for i, _ in own])
            for shots in SHOTS:
                method, head = self._taught({name: one[:shots] for name, one in teaching.items()}, encoder, unlabelled)
                scores = method.fitted.scores(known.vectors)
                if "text" in kinds and not is_close and not in_field:
                    features = head.features(scores, known)[np.arange(len(gold)), gold]
                    others = head.features(method.fitted.scores(some.vectors), some).reshape(-1, len(FEATURES))
                    others = others[np.random.default_rng(seed).permutation(len(others))[:N_UNLABELLED]]
                    yield "text", Cell.of(features, others, (1.0, UNLABELLED_MASS), *_NONE)
                features, others = (
                    head.features(found, one)[np.arange(len(one)), found.argmax(axis=1)]
                    for one, found in ((known, scores), (other, method.fitted.scores(other.vectors)))
                )
                leads = (scores - scores.max(axis=1, keepdims=True)) / usual_gap(method.fitted, unlabelled)
                mass = 2 * (IN_FIELD if in_field else 1 - IN_FIELD)
                yield "marked", Cell.of(features, others, (mass, mass), leads, gold)

    def _close(self, draw: random.Random, n: int) -> list[str]:
        """Return the `n` relations nearest to a random one, by their mean vectors; at most two thirds of all."""
        names = sorted(self.relations)
        means = np.stack([self.encoder.embed(self.teaching[name]).mean(axis=0) for name in names])
        apart = unit_rows(means - means.mean(axis=0))
        nearest = np.argsort(-apart @ apart[draw.randrange(len(names))], kind="stable")
        return [names[row] for row in nearest[: min(n, len(names) * 2 // 3)]]

    def _taught(
        self, taught: dict[str, list[Example]], encoder: Encoder, unlabelled: Unlabelled
    ) -> tuple[Posterior, OpenHead]:
        method = Posterior(encoder)
        learned = tuple(one for own in taught.values() for one in own)
        method.learn(Task(0, tuple(self.relations[name] for name in taught), learned))
        empty, named = _pairs(encoder, []), zip(taught.values(), method.centred_names(), strict=True)
        pairs = [TaughtPairs(_pairs(encoder, own), name, empty) for own, name in named]
        return method, fit_open_head(pairs, method.fitted, unlabelled)


def _pairs(encoder: Encoder, examples: Sequence[Example]) -> Pairs:
    unlabelled = encoder.unlabelled()
    assert unlabelled is not None
    return Pairs.of(examples, encoder.embed(examples), unlabelled.type_names)


_NONE = (np.zeros((0, 1)), np.zeros(0, dtype=int))


def prior(without: frozenset[str]) -> float:
    """Mean share of the pairs of redocred-test for which a relation holds."""
    asked = list(data.questions_of(data.read_documents("test")))
    found = Counter(name for one in asked for name in one.holds if name not in without)
    return float(np.mean([n / len(asked) for n in found.values() if n >= LEAST_PAIRS]))


def fitted(cells: Sequence[Cell], columns: Sequence[int], rate: float = 0.0) -> tuple[np.ndarray, float]:
    """Weights of log odds, and the loss. Above a rate of 0, pairs that do not hold are a mixture: `rate` of them do."""
    inputs, holds, weight = (np.concatenate([getattr(one, name) for one in cells]) for name in Cell.__slots__[:3])
    inputs, sign = inputs[:, columns], np.where(holds, 1.0, -1.0)

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        odds = inputs @ weights
        slope = np.ones(len(odds))
        if rate:  # log odds that a pair is one of those that hold, not one of the mixture
            slope = 1 / (1 + np.exp(np.clip(odds + np.log(rate / (1 - rate)), -50, 50)))
            odds = -np.log(UNLABELLED_MASS) - np.logaddexp(np.log(rate), np.log1p(-rate) - odds)
        total = weight @ np.logaddexp(0, -sign * odds)
        change = -(weight * sign * slope / (1 + np.exp(np.clip(sign * odds, -50, 50)))) @ inputs
        small = L2 * len(cells) * np.where(np.array(columns) == FEATURES.index("constant"), 0, weights)
        return float(total + small @ weights), change + 2 * small

    found = minimize(loss, np.zeros(len(columns)), jac=True, method="L-BFGS-B")
    return found.x, float(found.fun) / len(cells)


def best_threshold(cells: Sequence[Cell], weights: Sequence[float], rate: float) -> float:
    """Threshold with the best mean F1 of a draw in text, where a relation holds at this rate."""
    steps, total = np.arange(0.05, 0.7, 0.01), 0
    for one in cells:
        chance = 1 / (1 + np.exp(-(one.features @ weights)))
        right, wrong = (
            np.array([(one.weight * (one.holds == kind))[chance >= step].sum() for step in steps]) for kind in (1, 0)
        )
        total += right * rate / (np.maximum(wrong / UNLABELLED_MASS, right * rate) + rate)
    return round(float(steps[int(np.argmax(total))]), 2)


def best_share(cells: Sequence[Cell]) -> float:
    """Fit the slope by which relations share a probability; every draw has the same weight."""

    def loss(slope: float) -> float:
        found = [slope * one.leads for one in cells]
        rows = zip(found, cells, strict=True)
        return sum(
            float((np.log(np.exp(own).sum(1)) - own[np.arange(len(own)), cell.gold]).mean()) for own, cell in rows
        )

    return round(min(np.arange(0.2, 8, 0.1).tolist(), key=loss), 2)


def main() -> None:
    """Fit both models and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folds", metavar="FOLDER=FOLD", nargs="+")
    parser.add_argument("--without", metavar="FOLD", nargs="*", default=[], help="folds whose relations are left out")
    parser.add_argument("--out", type=Path, default=SCORE)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument(
        "--kinds", nargs="+", default=[*USED], choices=[*USED], help="the rest is copied: fitted to all folds"
    )
    parser.add_argument("--ablation", action="store_true", help="print what each feature is worth")
    options = parser.parse_args()
    without = frozenset(name for fold in options.without for name in data.held_out(fold))
    cells = defaultdict[str, list[Cell]](list)
    for one in options.folds:
        folder, fold = one.rsplit("=", 1)
        for kind, cell in Fold.read(Path(folder), fold, without).cells(options.draws, options.kinds):
            cells[kind].append(cell)
    rate, made = prior(without), {"made_by": "tools/fit_open_score.py", "commit": commit()}
    made |= {"folds": [one.rsplit("/", 1)[-1] for one in options.folds], "without": options.without}
    result: dict[str, Any] = fitted_score() | {"judged": JUDGED}
    for kind, given in (("marked", 0.0), ("text", rate)):
        if kind not in options.kinds:
            continue
        columns = [FEATURES.index(name) for name in USED[kind]]
        weights, loss = fitted(cells[kind], columns, given)
        print(f"{kind}: {len(cells[kind])} draws, loss {loss:.4f}")
        for column in range(len(FEATURES)) if options.ablation else ():
            other = sorted({*columns} ^ {column})
            word = "without" if column in columns else "with"
            print(f"  {word:7} {FEATURES[column]:16} {fitted(cells[kind], other, given)[1] - loss:+.4f}")
        named = dict(zip(USED[kind], weights.tolist(), strict=True))
        if kind == "text":
            named["constant"] += float(np.log(rate / (1 - rate)))
            result["prior"] = round(rate, 5)
            result["threshold"] = best_threshold(cells[kind], [named.get(name, 0.0) for name in FEATURES], rate)
        else:
            named["share"] = best_share(cells[kind])
        result[kind] = made | {name: round(value, 4) for name, value in named.items()}
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(options.out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    try:
        main()
    except ErdaError as fault:
        raise SystemExit(str(fault)) from None
