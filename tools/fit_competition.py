"""Fit how much the best pair with the same head counts against the other pairs of its sentence; add it to the score.

python tools/fit_competition.py FOLDER --tagger FOLDER    vectors of benchmarks/opentext.py; a spaCy pipeline
python tools/fit_competition.py ... --folds redocred-B --score a.json    for a score without the fold redocred-A
python tools/fit_competition.py ... --among sentence      print the weight if all pairs of a sentence compete

Relations of the folds redocred-A and redocred-B are taught, and all pairs of the documents of redocred-test are asked.
The encoder must not have read their labels, so FOLDER holds vectors of `minilm`, with statistics
(docs/open-text.md). Log odds of the present score and the lead of the best pair enter a logistic regression; its slope
and constant belong to this encoder and are dropped.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from erda.benchmark.run.loop import commit
from erda.encoders import build_encoder
from erda.encoders.contract import Unlabelled, unit_rows
from erda.errors import ErdaError
from erda.methods import openness
from erda.methods.open_head import Pairs, leads
from erda.methods.openness import SCORE, TaughtPairs, fit_open_head, fitted_score
from erda.methods.posterior import Posterior
from erda.text.spacy_tagger import UNUSED, SpacyTagger, type_of
from erda.types import Example, Task

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
import opentext_data as data

FOLDS = ("redocred-A", "redocred-B")
SIZE, SHOTS, N_DRAWS = 5, (2, 5, 10), 8  # relations and sentences of a draw; draws of a fold
LEAST_POSITIVES = 10  # pairs of a usable relation
Asked = tuple[np.ndarray, np.ndarray, np.ndarray]  # log odds, leads and whether the relation holds


def typed_pairs(questions: Sequence[data.Question], tagger: Path) -> list[Example]:
    """The pairs of the questions with entity types."""
    import spacy

    documents = data.read_documents("test")
    tags = SpacyTagger(spacy.load(tagger, exclude=[*UNUSED, "senter"])).tokens(
        [token for sentence in document["sents"] for token in sentence] for document in documents
    )
    starts = [np.cumsum([0, *map(len, document["sents"])]) for document in documents]
    found = []
    for one in questions:
        own, offset = tags[one.document], int(starts[one.document][one.sentence])
        ends = (
            replace(e, type=type_of(e.span, own, offset=offset) or None) for e in (one.example.head, one.example.tail)
        )
        found.append(Example(one.example.tokens, *ends))
    return found


def draws(
    encoder: data.VectorEncoder,
    unlabelled: Unlabelled,
    questions: Sequence[data.Question],
    pairs: Pairs,
    *,
    groups: np.ndarray,
    folds: Sequence[str],
) -> Iterator[Asked]:
    """Teach each draw, and ask about all pairs but ignored ones (`Question.ignored`); those of a group compete."""
    known = data.relations("redoc41")
    teaching = defaultdict[str, list[Example]](list)
    for example in encoder.load("redoc41"):
        if data.letters(example.tokens) not in data.sentences_in("test"):
            teaching[str(example.relation)].append(example)
    nothing = Pairs(np.zeros((0, encoder.dim)), np.zeros((0, 2), int), np.zeros((0, 2), int))
    for fold in folds:
        gold = {
            name: np.array([int(name in one.holds) - int(name in one.ignored) for one in questions])
            for name in data.fold(fold)
            if len(teaching[name]) >= 2 * max(SHOTS)
        }
        usable = [name for name, holds in gold.items() if (holds == 1).sum() >= LEAST_POSITIVES]
        for seed, shots in ((seed, shots) for seed in range(N_DRAWS) for shots in SHOTS):
            draw = random.Random(f"{fold} {seed}")
            taught = {name: draw.sample(teaching[name], max(SHOTS))[:shots] for name in draw.sample(usable, SIZE)}
            method = Posterior(encoder)
            examples = tuple(one for own in taught.values() for one in own)
            method.learn(Task(0, tuple(known[name] for name in taught), examples))
            learned = [
                TaughtPairs(Pairs.of(own, encoder.embed(own), unlabelled.type_names), name, nothing)
                for own, name in zip(taught.values(), method.centred_names(), strict=True)
            ]
            head = fit_open_head(learned, method.fitted, unlabelled)
            odds = head.log_odds(method.fitted.scores(pairs.vectors), pairs, in_text=True)
            holds = np.stack([gold[name] for name in taught], axis=1)
            yield odds[holds >= 0], leads(odds, groups)[holds >= 0], holds[holds >= 0]
            print(f"{fold}, draw {seed}, {shots} sentences", flush=True)


def fitted(asked: Sequence[Asked]) -> tuple[float, float, float]:
    """Weight of the lead, slope and constant with the largest likelihood."""
    odds, behind, holds = (np.concatenate(some) for some in zip(*asked, strict=True))

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        weight, slope, constant = weights
        own = odds - weight * behind
        logits = slope * own + constant
        wrong = 1 / (1 + np.exp(-np.clip(logits, -60, 60))) - holds
        change = [-slope * (wrong * behind).mean(), (wrong * own).mean(), wrong.mean()]
        return float((np.logaddexp(0, logits) - holds * logits).mean()), np.array(change)

    found = minimize(
        loss, np.array([0.0, 1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=[(0, None), (0.1, None), (None, None)]
    )
    weight, slope, constant = found.x.tolist()
    return weight, slope, constant


def main() -> None:
    """Fit the weight and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="vectors of `minilm`")
    parser.add_argument(
        "--tagger", type=Path, required=True, help="folder of a spaCy pipeline (erda data get entities)"
    )
    parser.add_argument("--vectors", type=Path, help="keep the vectors of all pairs in this file, .npy")
    parser.add_argument("--folds", nargs="+", default=FOLDS, choices=FOLDS)
    parser.add_argument(
        "--score", type=Path, default=SCORE, help="file of tools/fit_open_score.py (default: the packaged)"
    )
    parser.add_argument("--among", default="head", choices=("head", "sentence"))
    options = parser.parse_args()
    openness.SCORE = options.score
    encoder, questions = data.VectorEncoder(options.folder), list(data.questions_of(data.read_documents("test")))
    unlabelled, pairs = encoder.unlabelled(), typed_pairs(questions, options.tagger)
    if unlabelled is None:
        raise SystemExit(f"{options.folder} has no statistics; see docs/open-text.md, Run it.")
    if options.vectors and options.vectors.is_file():
        vectors = np.load(options.vectors)
    else:
        vectors = build_encoder("minilm", trained_layers=0, engine="onnx-int8").embed(pairs).astype(np.float16)
        if options.vectors:
            np.save(options.vectors, vectors)
    asked = Pairs.of(pairs, unit_rows(vectors.astype(np.float32)), unlabelled.type_names)
    numbers: dict[object, int] = {}
    by_head = options.among == "head"
    places = ((one.document, one.sentence, one.example.head.span if by_head else None) for one in questions)
    groups = np.array([numbers.setdefault(place, len(numbers)) for place in places])
    weight, slope, constant = fitted(
        list(draws(encoder, unlabelled, questions, asked, groups=groups, folds=options.folds))
    )
    print(f"weight {weight:.3f}, slope {slope:.3f}, constant {constant:.3f}")
    if by_head:
        made = {"made_by": "tools/fit_competition.py", "commit": commit(), "encoder": encoder.spec.name}
        competition = {"weight": round(weight, 3), **made, "folds": list(options.folds)}
        score = fitted_score() | {"competition": competition}
        options.score.write_text(json.dumps(score, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except (ErdaError, OSError) as fault:
        raise SystemExit(str(fault)) from None
