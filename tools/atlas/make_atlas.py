"""Write the embedded dataset `atlas`: facts (which pair of names belongs to which relation) put into patterns.

    python tools/atlas/make_atlas.py            # writes src/erda/data/atlas/

Each pair of names is dealt once, to one relation or to none, and within it to one purpose. So an entity pair means one
relation everywhere, and no pair of a test sentence is in training. The relations, patterns and names are in the TOML
files beside this script. Every random choice is seeded: the rows are the same on every machine.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path

from atlas_patterns import PURPOSES, UNRELATED, Content, Pattern, RelationContent, read_content
from atlas_sentences import Fact, write_sentence
from erda.data.dataset import shuffled
from erda.data.formats.jsonl_examples import example_to_json
from erda.errors import DataError
from erda.files import write_json, write_lines
from erda.types import Example

FOLDER = Path(__file__).parents[2] / "src/erda/data/atlas"
SEED = 0
SIZES = {"train": 120, "validation": 30, "test": 50}  # examples per relation
N_UNRELATED = 500
N_CORPUS = 3000
UNRELATED_SHARE = 1 / 3  # of the corpus
KNOWN_PAIR_SHARE = 0.5  # of the related corpus sentences: they repeat an entity pair of the train pool
STRAY_PAIR_SHARE = 0.2  # of the unrelated corpus sentences: a pair of the train pool, mentioned without its relation
_FACT_SHARES = {"train": 5, "validation": 1, "test": 2, "corpus": 2}  # of ten facts
_FACTS_SEED = "atlas facts"
_MAX_TRIES = 200

Facts = Mapping[str, Mapping[str, tuple[Fact, ...]]]  # relation id or "unrelated HEAD TAIL" -> purpose -> facts


def write_atlas(folder: Path) -> None:
    """Write `relations.json` and one JSONL file per pool."""
    relations = [part.relation for part in read_content().relations if part.relation is not None]
    write_json(folder / "relations.json", [asdict(relation) for relation in relations])
    pools = {**{name: labelled_pool(name) for name in SIZES}, "unrelated": unrelated_pool(), "corpus": corpus_pool()}
    for name, examples in pools.items():
        rows = (json.dumps(example_to_json(example), ensure_ascii=False) for example in examples)
        write_lines(folder / f"{name}.jsonl.gz", rows)


def checksum() -> str:
    """The sha256 of the TOML files, the seed and the sizes: the dataset's identity in every manifest."""
    asked = ",".join(f"{name}={value}" for name, value in {"seed": SEED, **SIZES}.items())
    return hashlib.sha256(f"{read_content().checksum}:{asked}".encode()).hexdigest()


def labelled_pool(purpose: str) -> tuple[Example, ...]:
    """Labelled examples of every relation; two pools share neither a pattern nor an entity pair."""
    content = read_content()
    return tuple(example for part in content.relations for example in _draw_pool(content, part, purpose))


def unrelated_pool() -> tuple[Example, ...]:
    """Sentences that mention two entities without any of the relations (`relation` None), for no-relation tests."""
    content = read_content()
    writer = _Writer(content, random.Random(f"{SEED}:unrelated"))
    examples = []
    for index in range(N_UNRELATED):
        part = content.unrelated[index % len(content.unrelated)]
        facts = deal_facts()[part.key]["test"]
        examples.append(writer.write(part.patterns["test"], facts, f"atlas-unrelated-{index}"))
    writer.rng.shuffle(examples)
    return tuple(examples)


def corpus_pool() -> tuple[Example, ...]:
    """Unlabelled tagged sentences for augmentation: `relation` is None everywhere.

    Written in training patterns and patterns of their own, never in those of validation or test, and never a sentence
    of a pool. About a third has none of the relations. Half of the others repeat an entity pair of the train pool, so
    that entity matching finds something; some unrelated ones do too, so that it also errs. `source` holds the relation
    that a sentence expresses ("atlas:author", "atlas:unrelated"): only for measuring precision.
    """
    content, facts = read_content(), deal_facts()
    writer = _Writer(content, random.Random(f"{SEED}:corpus"))
    rng = writer.rng
    known = {part.key: shuffled(facts[part.key]["train"], SEED, f"facts:{part.key}")[: SIZES["train"]]
             for part in content.relations}  # fmt: skip
    strays = {(part.head, part.tail): _stray_pairs(content, known, part) for part in content.unrelated}
    n_unrelated = round(N_CORPUS * UNRELATED_SHARE)
    examples = []
    for index in range(N_CORPUS):
        example_id = f"atlas-corpus-{index}"
        if index < n_unrelated:
            part = content.unrelated[index % len(content.unrelated)]
            stray = strays[part.head, part.tail]
            pairs = stray if stray and rng.random() < STRAY_PAIR_SHARE else facts[part.key]["corpus"]
            examples.append(writer.write(part.patterns["corpus"], pairs, example_id, f"atlas:{UNRELATED}"))
            continue
        part = content.relations[index % len(content.relations)]
        own, trained = part.patterns["corpus"], part.patterns["train"]
        if rng.random() < KNOWN_PAIR_SHARE:  # own patterns only: a known pair in a training pattern may be in the pool
            sentence = writer.write(own, known[part.key], example_id, f"atlas:{part.key}")
        else:
            sentence = writer.write((*own, *trained), facts[part.key]["corpus"], example_id, f"atlas:{part.key}")
        examples.append(sentence)
    rng.shuffle(examples)
    return tuple(examples)


@lru_cache(maxsize=1)
def deal_facts() -> Facts:
    """Every pair of names to one relation (or none) and one purpose. Pairs have no order: (a, b) excludes (b, a)."""
    content = read_content()
    people = {"woman": "person", "man": "person"}
    groups: dict[tuple[str, str], list[RelationContent]] = {}
    for part in (*content.relations, *content.unrelated):
        kinds = sorted((people.get(part.head, part.head), people.get(part.tail, part.tail)))
        groups.setdefault((kinds[0], kinds[1]), []).append(part)
    facts: dict[str, dict[str, tuple[Fact, ...]]] = {}
    for (first, second), parts in sorted(groups.items()):
        rng = random.Random(f"{_FACTS_SEED}:{first}:{second}")
        dealt: dict[str, list[Fact]] = {part.key: [] for part in parts}
        turn = itertools.cycle(parts)
        for pair in _shuffled_pairs(content, first, second, rng):
            for part in itertools.islice(turn, len(parts)):
                if fact := _fitting(content, part, pair, rng):
                    dealt[part.key].append(fact)
                    break
        for key, listed in dealt.items():
            facts[key] = _split(listed)
    return facts


class _Writer:
    """Writes sentences that are all different, patterns and facts in turn."""

    def __init__(self, content: Content, rng: random.Random) -> None:
        self.content = content
        self.rng = rng
        self._written: set[tuple[str, ...]] = set()

    def write(
        self, patterns: Sequence[Pattern], facts: Sequence[Fact], example_id: str, source: str | None = None
    ) -> Example:
        """A sentence in one of the patterns about one of the facts that has not been written before."""
        for _ in range(_MAX_TRIES):
            example = write_sentence(
                self.content,
                self.rng.choice(patterns),
                self.rng.choice(facts),
                self.rng,
                example_id=example_id,
                source=source,
            )
            if example.tokens not in self._written:
                self._written.add(example.tokens)
                return example
        raise DataError(
            f"atlas: {len(patterns)} patterns and {len(facts)} entity pairs do not give enough different sentences "
            f"(gave up at '{example_id}')."
        )


def _draw_pool(content: Content, part: RelationContent, purpose: str) -> Iterator[Example]:
    """Examples of one relation: facts without repetition while they last, patterns evenly."""
    relation = part.key
    writer = _Writer(content, random.Random(f"{SEED}:{purpose}:{relation}"))
    facts = shuffled(deal_facts()[relation][purpose], SEED, f"facts:{relation}")
    patterns = list(part.patterns[purpose])
    for index in range(SIZES[purpose]):
        if index % len(patterns) == 0:
            writer.rng.shuffle(patterns)
        pairs = [facts[index]] if index < len(facts) else facts
        example = writer.write([patterns[index % len(patterns)]], pairs, f"atlas-{purpose}-{relation}-{index}", "atlas")
        yield replace(example, relation=relation)


def _stray_pairs(content: Content, known: Mapping[str, Sequence[Fact]], part: RelationContent) -> list[Fact]:
    """Pairs of the train pool whose names fit the types of an unrelated group."""
    heads, tails = content.members[part.head], content.members[part.tail]
    return [fact for facts in known.values() for fact in facts if fact[0] in heads and fact[1] in tails]


def _shuffled_pairs(content: Content, first: str, second: str, rng: random.Random) -> list[Fact]:
    if first == second:
        pairs = list(itertools.combinations(content.names[first], 2))
    else:
        pairs = list(itertools.product(content.names[first], content.names[second]))
    rng.shuffle(pairs)
    return pairs


def _fitting(content: Content, part: RelationContent, pair: Fact, rng: random.Random) -> Fact | None:
    """The pair as (head, tail) of the types that the relation asks for; None where it fits neither way round."""
    ways = [pair, (pair[1], pair[0])]
    rng.shuffle(ways)
    fits = (way for way in ways if way[0] in content.members[part.head] and way[1] in content.members[part.tail])
    return next(fits, None)


def _split(facts: Sequence[Fact]) -> dict[str, tuple[Fact, ...]]:
    turns = [purpose for purpose in PURPOSES for _ in range(_FACT_SHARES[purpose])]
    split: dict[str, list[Fact]] = {purpose: [] for purpose in PURPOSES}
    for index, fact in enumerate(facts):
        split[turns[index % len(turns)]].append(fact)
    return {purpose: tuple(listed) for purpose, listed in split.items()}


if __name__ == "__main__":
    write_atlas(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
