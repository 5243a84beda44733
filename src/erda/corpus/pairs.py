"""Sentences that go together, to train a similarity model on: from a corpus, or from a plain file that travels.

Positive: two sentences with the same two entities. Hard negative: exactly one shared entity, in the same role. Entity
pairs are held out by a hash of the pair, so the same pairs stay out of training whatever file they come in.
"""

from __future__ import annotations

import json
import sys
from base64 import b85encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from erda.data.formats.jsonl import example_from_json
from erda.errors import DataError, SettingsError
from erda.files import decode_json, write_lines
from erda.text.keys import entity_key
from erda.text.reading import Faults, read_lines
from erda.types import Entity, Example

if TYPE_CHECKING:
    from erda.corpus.ray_jobs import RayJobs

CODE_MARK = "~"  # begins an entity id that is already a code
CODE_BYTES = 5
HELD_OUT = 0.04
MAX_PER_PAIR = 3
NONE = -1


@dataclass(frozen=True, slots=True, eq=False)
class PairSet:
    """Sentences, and rows of them that go together: `first[i]` with `second[i]`, both with the same two entities.

    `negative[i]` shares exactly one entity, in the same role, with `first[i]`; -1 where there is none.
    `pair[row]` numbers the entity pair of a row. All but `examples` are integer arrays.
    """

    examples: Sequence[Example]
    first: np.ndarray  # [n_pairs]
    second: np.ndarray  # [n_pairs]
    negative: np.ndarray  # [n_pairs]
    pair: np.ndarray  # [n_examples]

    def __len__(self) -> int:
        return len(self.first)

    def take(self, picked: np.ndarray) -> PairSet:
        """Some of the pairs, in the order given; rows keep their numbers."""
        return PairSet(self.examples, self.first[picked], self.second[picked], self.negative[picked], self.pair)

    def digest(self) -> str:
        """A short digest of what would be trained on."""
        digest = blake2b(digest_size=8)
        for rows in (self.first, self.second, self.negative):
            digest.update(np.ascontiguousarray(rows, np.int64).tobytes())
        for example in self.examples:
            digest.update(" ".join(example.tokens).encode("utf-8", "replace"))
        return digest.hexdigest()


def entity_code(entity: Entity) -> str:
    """A short code of an entity: the same for the same id, or for the same name where there is no id."""
    if entity.id and entity.id.startswith(CODE_MARK):
        return entity.id
    return _code(entity_key(entity.name, entity.id))


def check_share(held_out: float) -> None:
    """Refuse a share of held-out pairs that leaves nothing to train on."""
    if not 0 <= held_out < 1:
        raise SettingsError(f"--held-out is {held_out}: expected 0 or more and less than 1.")


def is_held_out(head: str, tail: str, share: float = HELD_OUT) -> bool:
    """Whether the pair of two entity codes is kept out of training: a `share` of all pairs, always the same ones."""
    digest = blake2b(f"held-out {head} {tail}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") < share * 2**32


def mine_pairs(examples: Sequence[Example], *, seed: int) -> PairSet:
    """Pairs of sentences in memory, in random order; each sentence goes with the next of its entity pair.

    The hard negative of a pair is a random row of the first one's head or tail, whichever is drawn first.
    """
    rng = np.random.default_rng([seed, len(examples)])
    heads, tails = (_numbered(entity_code(getattr(one, role)) for one in examples) for role in ("head", "tail"))
    _, pair = np.unique(np.stack([heads, tails]), axis=1, return_inverse=True)
    groups = _groups(pair, rng)
    chains = [list(pairwise(rows))[:MAX_PER_PAIR] for rows in groups.values()]
    together = np.array([link for chain in chains for link in chain], dtype=np.int64).reshape(-1, 2)
    together = together[rng.permutation(len(together))]
    by_head, by_tail = _groups(heads, rng), _groups(tails, rng)
    negative = np.full(len(together), NONE, dtype=np.int64)
    tail_first = rng.random(len(together)) < 0.5
    for i, row in enumerate(together[:, 0]):
        near = (by_head[heads[row]], by_tail[tails[row]])
        for rows in near[::-1] if tail_first[i] else near:
            others = [other for other in _some(rows, rng) if pair[other] != pair[row]]
            if others:
                negative[i] = others[0]
                break
    return PairSet(examples, together[:, 0], together[:, 1], negative, pair.ravel())


def read_tagged(paths: Sequence[Path]) -> list[Example]:
    """Rows of tagged JSONL files, plain or gzip."""
    from tqdm import tqdm

    examples = []
    for path in paths:
        faults = Faults(path)
        for number, line in tqdm(read_lines(path, faults), desc=path.name, unit=" rows", disable=None):
            try:
                examples.append(_lean(example_from_json(decode_json(line, dict))))
            except DataError as error:
                faults.add(number, str(error))
        faults.raise_if_any()
    return examples


def read_corpus(folder: Path, *, seed: int, limit: int | None, miner: RayJobs | None = None) -> list[Example]:
    """The sentences of at most `limit` positive pairs of a corpus folder and of hard negatives for them.

    `miner` draws them on a cluster: the same ones as `CorpusStore` with the same seed.
    """
    from erda.corpus.store import CorpusStore

    store = CorpusStore.open(folder)
    positives, negatives = store.positive_pairs, store.hard_negatives
    if miner is not None:
        positives, negatives = partial(miner.positive_pairs, store), partial(miner.hard_negatives, store)
    positive = positives(seed=seed, limit=limit, max_per_pair=MAX_PER_PAIR)
    if not len(positive):
        raise DataError(f"{folder}: no entity pair has two sentences, so there is nothing to train on.")
    negative = negatives(seed=seed, anchors=positive.first)
    rows = np.unique(np.concatenate([positive.first, positive.second, negative.second]))
    found: list[Example] = []
    for start in range(0, len(rows), 20_000):
        found += [_lean(example) for example in store.rows(rows[start : start + 20_000])]
    return found


def split_held_out(examples: Iterable[Example], share: float = HELD_OUT) -> tuple[list[Example], list[Example]]:
    """Examples to train on, and those of held-out entity pairs."""
    training: list[Example] = []
    held_out: list[Example] = []
    for example in examples:
        out = is_held_out(entity_code(example.head), entity_code(example.tail), share)
        (held_out if out else training).append(example)
    return training, held_out


def write_pairs(examples: Sequence[Example], path: Path, *, limit: int | None, seed: int = 0) -> tuple[int, int]:
    """Write the sentences of about `limit` positive pairs as compact JSONL; gives the numbers of rows and of pairs.

    Whole entity pairs are drawn at random. Rows hold tokens, spans and codes of the entities, and nothing else.
    """
    if limit is not None and limit < 1:
        raise SettingsError(f"--limit is {limit}: expected 1 or more.")
    groups: dict[tuple[str, str], list[Example]] = {}
    for example in examples:
        groups.setdefault((entity_code(example.head), entity_code(example.tail)), []).append(example)
    whole = [key for key, rows in groups.items() if len(rows) > 1]
    drawn: set[tuple[str, str]] = set()
    n_rows = n_pairs = 0
    for i in np.random.default_rng(seed).permutation(len(whole)):
        if limit is not None and n_pairs >= limit:
            break
        drawn.add(whole[i])
        size = min(len(groups[whole[i]]), MAX_PER_PAIR + 1)
        n_rows, n_pairs = n_rows + size, n_pairs + size - 1
    write_lines(
        path,
        (
            json.dumps(_compact(example, key), ensure_ascii=False, separators=(",", ":"))
            for key in whole  # in the order of the sources, where neighbours are alike: it packs smaller
            if key in drawn
            for example in groups[key][: MAX_PER_PAIR + 1]
        ),
    )
    return n_rows, n_pairs


@lru_cache(maxsize=1 << 20)
def _code(key: str) -> str:
    digest = blake2b(key.encode("utf-8", "replace"), digest_size=CODE_BYTES).digest()
    return sys.intern(CODE_MARK + b85encode(digest).decode("ascii"))


def _lean(example: Example) -> Example:
    """An example that shares its words with others, so that millions fit in memory; only what training needs."""
    tokens = tuple(map(sys.intern, example.tokens))
    head, tail = (Entity("", one.span, entity_code(one)) for one in (example.head, example.tail))
    return Example(tokens, head, tail)


def _compact(example: Example, codes: tuple[str, str]) -> dict[str, object]:
    spans = [(one.span.start, one.span.end) for one in (example.head, example.tail)]
    head, tail = ({"span": span, "id": code} for span, code in zip(spans, codes, strict=True))
    return {"tokens": example.tokens, "head": head, "tail": tail}


def _numbered(names: Iterable[str]) -> np.ndarray:
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def _groups(keys: np.ndarray, rng: np.random.Generator) -> dict[int, list[int]]:
    """Rows by key, each group in random order."""
    groups: dict[int, list[int]] = {}
    for row in rng.permutation(len(keys)).tolist():
        groups.setdefault(int(keys[row]), []).append(row)
    return groups


def _some(rows: list[int], rng: np.random.Generator, n: int = 8) -> Iterator[int]:
    """A few rows of a group (which is in random order already), from a random place on."""
    start = int(rng.integers(len(rows)))
    return (rows[(start + step) % len(rows)] for step in range(min(n, len(rows))))
