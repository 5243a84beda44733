"""Write the labelled training data of the encoder `open`: relations of three datasets, and pairs without a relation.

python tools/labelled_rows.py --out labelled.jsonl.gz                        # for the shipped encoder
python tools/labelled_rows.py --without redocred-A fewrel-40 --out a.jsonl.gz    # folds of benchmarks/folds.json

Relations: FewRel without the test and validation sentences of its splits, redoc41 without the documents of
redocred-dev, the pairs of redocred-test that have exactly one relation, and names of relations in sentences, as
`Posterior` writes them. `no_relation`: pairs of redocred-test with no relation in their document; labelled pairs with
head and tail exchanged, unless the relation is symmetric or has an inverse; and labelled sentences that are denied or
doubted by added words. Relations of a fold, their inverses, and pairs that also have one of them are left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from erda.data.formats.jsonl_examples import read_relation_list
from erda.errors import ErdaError
from erda.files import data_folder, write_lines
from erda.methods.posterior import sentences_of
from erda.types import Example, Relation

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
from opentext_data import questions_of

FOLDS = Path(__file__).parent.parent / "benchmarks" / "folds.json"
NO_RELATION = "no_relation"
SEED = 0
EXCHANGED, DENIED = 0.5, 0.6  # share of labelled pairs that are also written with these changes
NAMED = 0.1  # sentences of a relation's name, per labelled pair
NEGATED, HEDGED = 0.4, 0.15  # shares of the denied: `not` or `never`, a doubting adverb; the others have a phrase
MOST_DOUBTED = 25  # tokens of a sentence that a phrase in front of it can doubt
# Relations whose exchanged pairs have a labelled relation; the folds' list of inverses is wider.
INVERSES = "P40 P22 P25 P36 P1376 P150 P131 P527 P361 P155 P156 P1365 P1366 P355 P749 P1441 P674 P403 P974 P710 P1344"
VERBS = {"was", "is", "were", "are", "has", "had"}
HEDGES = ["allegedly", "reportedly", "supposedly", "perhaps", "possibly", "almost", "nearly", "hardly"]
DOUBTS = [
    text.split()
    for text in (
        "it is not true that",
        "it is false that",
        "nobody knows whether",
        "it is unclear whether",
        "there is no evidence that",
        "it was never confirmed that",
        "historians doubt that",
        "it is disputed whether",
        "he denied that",
        "it is a myth that",
        "it is rumoured that",
        "some people believe that",
        "critics claimed that",
        "a newspaper wrongly wrote that",
        "many assume that",
        "she asked whether",
        "they hope that one day",
        "it would be wrong to say that",
        "it is not known if",
        "he dreamt that",
        "if",
        "according to a legend ,",
        "contrary to popular belief ,",
        "nothing proves that",
        "the court rejected the claim that",
    )
]


def letters(tokens: Sequence[str]) -> str:
    """Letters and digits of a sentence, to find equal sentences."""
    return re.sub(r"[\W_]+", "", "".join(tokens).lower())


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a dataset."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def documents(data: Path, part: str) -> list[dict[str, Any]]:
    """Documents of redocred-dev or redocred-test."""
    with gzip.open(data / "corpus" / f"redocred-{part}.json.gz", "rt", encoding="utf-8") as file:
        found: list[dict[str, Any]] = json.load(file)
    return found


def measured_sentences(data: Path) -> set[str]:
    """Sentences that no training may read: redocred-dev, and test and validation data of FewRel's splits."""
    found = {letters(sentence) for one in documents(data, "dev") for sentence in one["sents"]}
    found |= {letters(row["tokens"]) for row in read_rows(data / "fewrel" / "validation.jsonl.gz")}
    for shots in (2, 5, 10):
        lines = (data / "fewrel" / "cfrl" / f"{shots}-shot" / "test_0.txt").read_text(encoding="utf-8").splitlines()
        found |= {letters(line.split("\t")[2].split()) for line in lines}
    return found


def row_of(example: Example, relation: str, *, source: str) -> dict[str, Any]:
    """An example in the common format."""
    places = {
        side: {"name": entity.name, "id": None, "span": [entity.span.start, entity.span.end]}
        for side, entity in (("head", example.head), ("tail", example.tail))
    }
    return {"tokens": list(example.tokens), **places, "relation": relation, "source": source}


def labelled(data: Path) -> Iterator[dict[str, Any]]:
    """All labelled rows of the three datasets, and the pairs without a relation, in the common format."""
    for name in ("fewrel/full", "redoc41/examples"):
        for row in read_rows(data / f"{name}.jsonl.gz"):
            if not row["source"].startswith("re-docred:dev"):
                yield row
    for one in questions_of(documents(data, "test")):
        known = one.holds | one.ignored
        if len(known) <= 1 and one.holds == known:
            relation = next(iter(known), NO_RELATION)
            yield row_of(one.example, relation, source="redocred-test")


def denied(row: dict[str, Any], draw: random.Random) -> dict[str, Any] | None:
    """Deny or doubt a sentence: `not`, `never` or an adverb after a verb between the entities, or a phrase in front."""
    tokens, spans = row["tokens"], sorted([row["head"]["span"], row["tail"]["span"]])
    verbs = [i for i in range(spans[0][1], spans[1][0]) if tokens[i].lower() in VERBS]
    chance = draw.random()
    if verbs and (chance < NEGATED + HEDGED or len(tokens) > MOST_DOUBTED):
        is_hedged = NEGATED <= chance < NEGATED + HEDGED
        return inserted(row, verbs[0] + 1, [draw.choice(HEDGES if is_hedged else ["not", "not", "never"])])
    return inserted(row, 0, draw.choice(DOUBTS)) if len(tokens) <= MOST_DOUBTED else None


def inserted(row: dict[str, Any], place: int, words: Sequence[str]) -> dict[str, Any]:
    """Insert words before the token `place`."""
    moved = {}
    for side in ("head", "tail"):
        start, end = row[side]["span"]
        span = [start + len(words) * (start >= place), end + len(words) * (end > place)]
        moved[side] = row[side] | {"span": span}
    tokens = [*row["tokens"][:place], *words, *row["tokens"][place:]]
    return row | moved | {"tokens": tokens, "relation": NO_RELATION, "source": f"denied:{row['source']}"}


def named(data: Path) -> list[Relation]:
    """Relations of FewRel and redoc41, with names and descriptions."""
    lists = [read_relation_list(data / name / "relations.json") for name in ("redoc41", "fewrel")]
    return list({one.id: one for own in lists for one in own}.values())


def written(data: Path, without: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the training data."""
    folds = json.loads(FOLDS.read_text(encoding="utf-8"))
    held_out = {name for fold in without for name in folds["folds"][fold]["held_out"]}
    both_ways = {*folds["symmetric"], *INVERSES.split()}
    measured, draw = measured_sentences(data), random.Random(SEED)
    rows: dict[tuple[object, ...], dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in labelled(data):
        key = letters(row["tokens"])
        if key not in measured:
            rows[key, *row["head"]["span"], *row["tail"]["span"]][row["relation"]] = row
    kept = [row for own in rows.values() if not held_out & own.keys() for row in own.values()]
    for row in kept:
        yield row
        if row["relation"] == NO_RELATION:
            continue
        if row["relation"] not in both_ways and draw.random() < EXCHANGED:
            exchanged = {"head": row["tail"], "tail": row["head"], "relation": NO_RELATION}
            yield row | exchanged | {"source": f"exchanged:{row['source']}"}
        if draw.random() < DENIED and (other := denied(row, draw)):
            yield other
    counts = Counter(row["relation"] for row in kept)
    for relation in named(data):
        sentences = [*sentences_of(relation), *sentences_of(replace(relation, description=""))]
        for example in draw.choices(sentences, k=round(NAMED * counts[relation.id])):
            yield row_of(example, relation.id, source="name")


def main() -> None:
    """Write the file and print its counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    folds = list(json.loads(FOLDS.read_text(encoding="utf-8"))["folds"])
    parser.add_argument("--without", metavar="FOLD", nargs="*", default=[], choices=folds, help=", ".join(folds))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    rows = list(written(data_folder(), args.without))
    write_lines(args.out, (json.dumps(row, ensure_ascii=False) for row in rows))
    counts = Counter(row["relation"] for row in rows)
    n_none = counts.pop(NO_RELATION)
    print(f"{args.out}: {len(counts)} relations, {counts.total():,} examples, {n_none:,} pairs without a relation")


if __name__ == "__main__":
    try:
        main()
    except (ErdaError, OSError) as fault:
        raise SystemExit(str(fault)) from None
