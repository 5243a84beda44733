"""Open text: relations that the encoder was never trained on, taught by a few sentences and asked among others.

The definitions are in docs/open-text.md, the relations held out of training in folds.json. Vectors of all sentences are
computed once per encoder (opentext_data.py); every command prints a table and keeps it in results/open/COMMAND.jsonl.

python benchmarks/opentext.py embed /tmp/open                                         # vectors of the encoder `open`
python benchmarks/opentext.py documents --encoder /tmp/open --fold redocred-A         # all pairs of 250 documents
python benchmarks/opentext.py refusal --encoder /tmp/open                             # 20 of 40 relations of FewRel
python benchmarks/opentext.py grid --encoder /tmp/open --fold redocred-A              # by relations and sentences
python benchmarks/opentext.py nota --encoder /tmp/open                                # FewRel 2.0, none of the above
python benchmarks/opentext.py denied --encoder /tmp/open                              # denials, doubts, reversals
python benchmarks/opentext.py domains --encoder /tmp/open                             # text unlike Wikipedia

Another machine can compute the vectors: `list` writes the sentences, `pack` takes their vectors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import opentext_data as data
from erda.benchmark.run.loop import commit
from erda.corpus.similarity_run import auc
from erda.data.catalogue import load_dataset
from erda.data.dataset import relations_by_pair, shuffled
from erda.encoders import build_encoder
from erda.encoders.contract import Encoder
from erda.errors import ErdaError
from erda.files import write_lines
from erda.methods import openness
from erda.types import Example, Relation, pair_in_sentence
from opentext_documents import documents
from opentext_score import Answered, Row, Taught, answers, calibration_error, means, reliability, share

RESULTS = Path(__file__).parents[1] / "results" / "open"
SIZES, SHOTS = (3, 5, 10, 20, 40), (1, 2, 5, 10, 20)  # of the grid
MOST_ASKED = 600  # known, unknown and unrelated questions of a cell
WAYS, SHARED = 5, 10  # relations of an episode; episodes with the same taught sentences


# -- marked pairs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pool:
    """Sentences to teach, and questions with all their gold relations (none: no relation holds)."""

    relations: Mapping[str, Relation]
    teaching: Mapping[str, Sequence[Example]]
    questions: Sequence[data.Question]


def pool_of(encoder: data.VectorEncoder, dataset: str, fold: str) -> Pool:
    """Sentences of a domain, or of the relations of a fold: fewrel-validation, fewrel-test, redoc41, redocred-test."""
    teaching, questions = defaultdict[str, list[Example]](list), list[data.Question]()
    written = data.domains().get(dataset)
    source = dataset if written else "fewrel" if dataset.startswith("fewrel") else "redoc41"
    for one in written or encoder.load("fewrel-taught" if source == "fewrel" else "redoc41"):
        if dataset != "redocred-test" or data.letters(one.tokens) not in data.sentences_in("test"):
            teaching[str(one.relation)].append(one)
    if written or source == "fewrel":
        questions += [_asked(one, {str(one.relation)}) for one in written or encoder.load(dataset)]
    elif dataset == "redoc41":
        holds = relations_by_pair(load_dataset("redoc41").train)
        for one in (one for own in teaching.values() for one in own):
            questions.append(_asked(one, {str(name) for name in holds[pair_in_sentence(one)]}))
        questions += [_asked(one, set()) for one in encoder.load("unrelated")]
    else:
        encoder.load("test")
        questions += data.test()
    asked = teaching if written or fold == "all" else [name for name in data.fold(fold) if name in teaching]
    return Pool({name: data.relations(source)[name] for name in asked}, teaching, questions)


def _asked(example: Example, holds: set[str]) -> data.Question:
    return data.Question(0, 0, example, frozenset(holds))


def cell(encoder: Encoder, pool: Pool, n_relations: int, shots: int, seed: int) -> tuple[Row, np.ndarray]:
    """Teach a draw and ask known relations, the other relations of the fold, and pairs without a relation.

    Return the shares in percent, and of every question: confidence and correctness of the best relation, whether it was
    answered and is known, and a weight by which half of the questions are known, as the score expects: [5, n].
    """
    names = sorted(shuffled(pool.relations, seed, f"{n_relations}")[:n_relations])
    taught = [Taught(pool.relations[name], shuffled(pool.teaching[name], seed, name)[:shots]) for name in names]
    spent = {pair_in_sentence(example) for one in taught for example in one.examples}
    kinds: dict[str, list[data.Question]] = {"known": [], "unknown": [], "none": []}
    for one in shuffled(pool.questions, seed, "asked"):
        kind = "known" if one.holds & set(names) else "unknown" if one.holds & pool.relations.keys() else "none"
        is_clear = kind == "known" or (not one.ignored & set(names) and (kind == "unknown" or not one.holds))
        if is_clear and len(kinds[kind]) < MOST_ASKED and pair_in_sentence(one.example) not in spent:
            kinds[kind].append(one)
    asked = [one for own in kinds.values() for one in own]
    found = answers(encoder, taught, [one.example for one in asked])
    best, of = found.best, np.repeat(list(kinds), [len(own) for own in kinds.values()])
    right = np.array([number >= 0 and names[number] in one.holds for number, one in zip(best, asked, strict=True)])
    forced = np.array(
        [names[number] in one.holds for number, one in zip(found.confidences.argmax(axis=1), asked, strict=True)]
    )
    known, answered = of == "known", best >= 0
    sure = found.confidences.sum(axis=1)
    in_text = answers(encoder, taught, [one.example for one in asked], [one.example.tokens for one in asked]).holds
    gold = np.array([[name in one.holds for name in names] for one in asked])
    row = {
        "known answered": share(answered[known]),
        "of them right": share(right[known & answered]),
        "unknown answered": share(answered[of == "unknown"]),
        "none answered": share(answered[of == "none"]),
        "forced choice": share(forced[known]),
        "AUROC": 100 * auc(sure[known], sure[~known]) if not known.all() else None,
        "known in text": share((in_text & gold)[known].any(axis=1)),
        "unknown in text": share(in_text[of == "unknown"].any(axis=1)),
    }
    weights = np.where(known, 1 / max(known.sum(), 1), 1 / max((~known).sum(), 1))
    return row, np.stack([found.confidences.max(axis=1), forced, answered, known, weights])


def cells(
    encoder: data.VectorEncoder, fold: str, dataset: str, sizes: Sequence[tuple[int, int]], n: int
) -> Iterator[Row]:
    """Means over `n` draws for each pair of numbers of relations and sentences."""
    pool = pool_of(encoder, dataset, fold)
    for n_relations, shots in sizes:
        if n_relations > len(pool.relations):
            continue
        found = [cell(encoder, pool, n_relations, shots, seed) for seed in range(n)]
        confidences, right, answered, known, weights = np.concatenate([asked for _, asked in found], axis=1)
        given, asked = answered > 0, known > 0
        drawn = {"questions": dataset, "relations": n_relations, "shots": shots, "draws": n}
        kept = {
            "calibration error": calibration_error(confidences[given], right[given], weights[given]),
            "error of known": calibration_error(confidences[asked], right[asked]),
            "_bins": reliability(confidences[given], right[given]),
        }
        yield drawn | means([row for row, _ in found]) | kept


def refusal(encoder: data.VectorEncoder, options: argparse.Namespace) -> Iterator[Row]:
    """Half of the relations of the fold are taught; test questions about all of them are asked."""
    yield from cells(encoder, options.fold, "fewrel-test", [(20, options.shots)], options.draws)


def grid(encoder: data.VectorEncoder, options: argparse.Namespace) -> Iterator[Row]:
    """Every number of relations with every number of sentences."""
    sizes = [(n_relations, shots) for n_relations in SIZES for shots in SHOTS]
    for dataset in ("fewrel-validation",) if options.fold == "fewrel-40" else ("redoc41", "redocred-test"):
        yield from cells(encoder, options.fold, dataset, sizes, options.draws)


def nota(encoder: data.VectorEncoder, options: argparse.Namespace) -> Iterator[Row]:
    """FewRel 2.0, 5-way 5-shot: a question is about one of five relations, or about none of them.

    An episode asks one sentence of each relation and as many of others; ten episodes share their taught sentences.
    Published systems are trained for each share of none; `rate stated` tells it to the score, which assumes a half.
    """
    own, known, right = defaultdict[str, list[Example]](list), data.relations("fewrel"), []
    stated: dict[float, list[np.ndarray]] = {0.15: [], 0.5: []}
    for example in encoder.load("fewrel-nota"):
        own[str(example.relation)].append(example)
    for seed in range(options.episodes // SHARED):
        names = shuffled(own, seed, "relations")
        some = {name: shuffled(own[name], seed, name) for name in names}
        taught = [Taught(known[name], some[name][: options.shots]) for name in names[:WAYS]]
        asked = [some[name][options.shots + i] for i in range(SHARED) for name in names[:WAYS]]
        draw = random.Random(seed)
        others = [draw.choice(some[draw.choice(names[WAYS:])]) for _ in asked]
        found, gold = answers(encoder, taught, asked + others), [*list(range(WAYS)) * SHARED, *[-1] * len(others)]
        right.append(found.best == gold)
        for rate, own_right in stated.items():
            own_right.append(best_at(found, 1 - rate) == gold)
    for rate, own_right in stated.items():
        each, told = (np.array(one).reshape(len(right), 2, -1).mean(axis=2) for one in (right, own_right))
        accuracy = 100 * each @ (1 - rate, rate)  # of known relations, and of none
        drawn = {"ways": WAYS, "shots": options.shots, "episodes": len(each) * SHARED, "none": 100 * rate}
        row = {"accuracy": accuracy.mean(), "SE": accuracy.std(ddof=1) / len(each) ** 0.5}
        row |= {"of known": 100 * each[:, 0].mean(), "of none": 100 * each[:, 1].mean()}
        yield drawn | row | {"rate stated": float((100 * told @ (1 - rate, rate)).mean())}


def best_at(found: Answered, rate: float) -> np.ndarray:
    """Columns of the answers, or -1, if `rate` of the questions are about known relations."""
    known = found.confidences.sum(axis=1, keepdims=True).clip(1e-9, 1 - 1e-9)
    sure = found.confidences / known / (1 + (1 / known - 1) * (1 - rate) / rate)
    return np.where(sure.max(axis=1) >= 0.5, sure.argmax(axis=1), -1)


def denied(encoder: data.VectorEncoder, options: argparse.Namespace) -> Iterator[Row]:
    """Hand-written sentences that state, deny, doubt or reverse a relation."""
    encoder.load("denied")
    rows, relations = data.denied(), list(data.relations("denied").values())
    own = {
        one.id: [example for kind, example in rows if (kind, example.relation) == ("taught", one.id)]
        for one in relations
    }
    taught = [Taught(one, own[one.id][: options.shots]) for one in relations]
    columns = {one.id: column for column, one in enumerate(relations)}
    for kind in ("stated", "denied", "doubted", "reversed"):
        some = [example for of, example in rows if of == kind]
        marked = answers(encoder, taught, some)
        both = [one for example in some for one in (example, data.swapped(example))]
        in_text = answers(encoder, taught, both, [one.tokens for one in both]).holds[::2]
        gold = np.array([columns[str(one.relation)] for one in some])
        yield {
            "kind": kind,
            "n": len(some),
            "shots": options.shots,
            "answered with the relation": share(marked.best == gold),
            "answered": share(marked.best >= 0),
            "in text with the relation": share(in_text[np.arange(len(some)), gold]),
        }


def domains(encoder: data.VectorEncoder, options: argparse.Namespace) -> Iterator[Row]:
    """Hand-written sentences of four domains: teach some relations, ask about all relations of the domain."""
    for part in ("domain-names", "domains"):
        encoder.load(part)
    for name in data.domains():
        yield from cells(encoder, options.fold, name, [(options.relations, options.shots)], options.draws)


# -- commands ---------------------------------------------------------------------------------------------------------

COMMANDS = {"documents": documents, "refusal": refusal, "grid": grid, "nota": nota, "denied": denied}
COMMANDS |= {"domains": domains}
FOLDS = {"documents": "redocred-A", "refusal": "fewrel-40", "grid": "fewrel-40", "nota": "nota-16"}


def print_table(rows: Sequence[Row]) -> None:
    """Print rows of equal keys; keys that begin with "_" are for the record alone."""
    names = [name for name in rows[0] if not name.startswith("_")]
    print(*names, sep=" | ")
    for row in rows:
        print(*(f"{row[name]:.1f}" if isinstance(row[name], float) else row[name] for name in names), sep=" | ")


def keep(command: str, rows: Sequence[Row], about: Row) -> None:
    """Write records, in place of those of the same encoder, fold and setting."""
    path, measured = RESULTS / f"{command}.jsonl", [about | row for row in rows]
    drawn = ("questions", "relations", "shots", "draws", "judged", "patterns", "episodes", "none", "kind")
    setting = ("encoder", "fold", "finder", *drawn)
    old = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    new = {tuple(row.get(name) for name in setting) for row in measured}
    kept = [row for row in old if tuple(row.get(name) for name in setting) not in new]
    write_lines(path, [json.dumps(row) for row in (*kept, *measured)])


def run(options: argparse.Namespace) -> None:
    """Run a command on the vectors of an encoder."""
    encoder = data.VectorEncoder(options.encoder)
    if options.score:
        openness.SCORE = options.score
    rows = list(COMMANDS[options.command](encoder, options))
    print_table(rows)
    about = {"encoder": options.name or encoder.spec.name, "fingerprint": encoder.spec.fingerprint}
    score = hashlib.sha256(openness.SCORE.read_bytes()).hexdigest()
    keep(options.command, rows, about | {"fold": options.fold, "score": score[:12], "commit": commit(), "seed": 0})


def prepare(options: argparse.Namespace) -> None:
    """Write entity types, the list of sentences, or vectors. On a CPU, encoders run in int8, as they ship."""
    if options.command == "tag":
        data.tag(options.path)
    elif options.command == "list":
        data.write_list(options.path)
    elif options.command == "embed":
        name = options.encoder or "open"
        engine = "onnx-int8" if options.device == "cpu" else "torch"
        frozen = {"adapter": options.adapter, "trained_layers": 0, "engine": engine}
        settings = {} if name.startswith("open") else frozen
        encoder = build_encoder(name, device=options.device, **settings)
        data.embed(options.path, encoder, fingerprint=options.fingerprint or encoder.spec.fingerprint)
    else:
        data.pack(options.path, np.load(options.vectors), encoder=options.encoder, fingerprint=options.fingerprint)
    for path in options.statistics.glob("*.npz") if options.statistics else ():
        shutil.copy(path, options.path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in {"tag": "a spaCy model", "list": "a file", "embed": "a folder", "pack": "a folder"}.items():
        one = commands.add_parser(name, help=f"prepare; PATH is {what}")
        one.add_argument("path", type=Path)
        one.add_argument("--encoder", default="", help="name or folder of a model (default: open)")
        one.add_argument("--adapter", default="shipped", help="embed: folder of an adapter (default: %(default)s)")
        one.add_argument("--device", default="cpu")
        one.add_argument("--vectors", type=Path, help="pack: vectors of the list, .npy")
        one.add_argument("--fingerprint", default="", help="of the weights; the statistics must have the same")
        one.add_argument("--statistics", type=Path, help="folder of unlabelled.npz")
    for name, command in COMMANDS.items():
        one = commands.add_parser(name, help=command.__doc__)
        one.add_argument("--encoder", type=Path, required=True, help="folder of vectors")
        one.add_argument("--name", help="of the encoder in records (default: that of the vectors)")
        one.add_argument("--fold", default=FOLDS.get(name, "none"), help="in folds.json, or all (default: %(default)s)")
        one.add_argument("--relations", type=int, default=5)
        one.add_argument("--shots", type=int, default=5)
        one.add_argument("--draws", type=int, default=3 if name == "grid" else 10)
        one.add_argument("--episodes", type=int, default=2_000)
        one.add_argument("--judged", type=int, nargs="*", default=[0, 10, 25, 50], help="judgements per relation")
        one.add_argument("--score", type=Path, help="weights of tools/fit_open_score.py (default: the packaged ones)")
        one.add_argument("--patterns", action="store_true", help="add written patterns to descriptions")
    options = parser.parse_args(arguments)
    try:
        (run if options.command in COMMANDS else prepare)(options)
    except ErdaError as fault:
        print(fault, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
