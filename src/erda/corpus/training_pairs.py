"""Training data of an encoder: sentences as word pieces in one file.

Unlabelled sentences with the same two entities make pairs (`training_batches.py`). A hash of the entity pair decides
whether it is held out, so the same pairs are held out of every file. Labelled sentences have a relation, or
`no_relation`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from base64 import b85encode
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache, reduce
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path

import numpy as np

from erda.corpus.exclude import Excluded
from erda.data.formats.jsonl_examples import example_from_line
from erda.encoders.packed import PackedSentences
from erda.encoders.tokens import MarkedTokenizer
from erda.errors import DataError, one_line
from erda.files import decode_json, read_arrays, sha256_of, write_arrays
from erda.text.keys import entity_key, sentence_key
from erda.text.reading import Faults, read_lines
from erda.types import Example

CODE_BYTES = 5
BATCH = 10_000  # sentences in memory at a time
PACKED = ".npz"
AGAIN = "Write it again with `erda corpus pairs`."
UNLABELLED, UNRELATED = -2, -1  # numbers in place of a relation's
NO_RELATION = "no_relation"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of the rows: sha256 by source, and the excluded sentences."""

    sources: dict[str, str]
    excluded: str = ""  # digest of `Excluded`
    left_out: dict[str, int] | None = None  # number of excluded sentences by reason


@dataclass(frozen=True, eq=False)
class PairRows:
    """Sentences as word pieces, and the numbers of their two entities."""

    sentences: PackedSentences
    head: np.ndarray  # [n] int32
    tail: np.ndarray  # [n] int32
    place: np.ndarray  # [n] uint32, hash of the entity pair
    relation: np.ndarray  # [n] int32, number of the relation, UNRELATED or UNLABELLED
    relations: tuple[str, ...]  # ids of the relations
    made_of: Provenance

    def __len__(self) -> int:
        return len(self.sentences)

    @cached_property
    def pair(self) -> np.ndarray:
        """Number of each row's entity pair: [n]."""
        n_entities = int(max(self.head.max(), self.tail.max())) + 1 if len(self) else 1
        return np.unique(self.head.astype(np.int64) * n_entities + self.tail, return_inverse=True)[1]

    @cached_property
    def digest(self) -> str:
        """Sha256 of the training data."""
        digest = hashlib.sha256()
        for name, array in self._arrays().items():
            digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def split(self, held_out: float) -> tuple[np.ndarray, np.ndarray]:
        """Split into training rows and rows of held-out entity pairs."""
        out = self.place < held_out * 2**32
        return np.flatnonzero(~out), np.flatnonzero(out)

    def joined(self, other: PairRows) -> PairRows:
        """Rows of both; entities and relations of `other` are numbered anew."""
        n_entities = int(max(self.head.max(initial=-1), self.tail.max(initial=-1))) + 1
        relation = np.where(other.relation >= 0, other.relation + len(self.relations), other.relation)
        excluded = dict.fromkeys(filter(None, (self.made_of.excluded, other.made_of.excluded)))
        left_out = Counter(self.made_of.left_out or {}) + Counter(other.made_of.left_out or {})
        made_of = Provenance(self.made_of.sources | other.made_of.sources, " ".join(excluded), dict(left_out) or None)
        return PairRows(
            PackedSentences.joined([self.sentences, other.sentences]),
            np.concatenate([self.head, other.head + n_entities]),
            np.concatenate([self.tail, other.tail + n_entities]),
            np.concatenate([self.place, other.place]),
            np.concatenate([self.relation, relation]),
            (*self.relations, *other.relations),
            made_of,
        )

    @property
    def n_links(self) -> int:
        """Number of sentence pairs in an epoch over all rows."""
        return int((np.bincount(self.pair) // 2).sum())

    def save(self, path: Path) -> None:
        """Write a file for `load`."""
        write_arrays(path, self._arrays() | {"made_of": np.array(json.dumps(asdict(self.made_of)))})

    @classmethod
    def load(cls, path: Path) -> PairRows:
        """Read a file that `save` wrote."""
        arrays = read_arrays(path, remedy=AGAIN)
        try:
            made_of = decode_json(str(arrays["made_of"]), Provenance, place=str(path), remedy=AGAIN)
            sentences = PackedSentences(*(arrays[name] for name in ("pieces", "lengths", "head_first", "vocabulary")))
            relation = arrays.get("relation", np.full(len(sentences), UNLABELLED, np.int32))
            relations = tuple(map(str, arrays.get("relations", ())))
            return cls(sentences, arrays["head"], arrays["tail"], arrays["place"], relation, relations, made_of)
        except KeyError as lacking:
            raise DataError(f"{path}: has no array {lacking}; not a file of `erda corpus pairs`.") from None

    def _arrays(self) -> dict[str, np.ndarray]:
        columns = {name: getattr(self.sentences, name) for name in ("pieces", "lengths", "head_first", "vocabulary")}
        columns |= {name: getattr(self, name) for name in ("head", "tail", "place", "relation")}
        return columns | {"relations": np.array(self.relations, dtype=str)}


@lru_cache(maxsize=1 << 20)
def entity_code(name: str, entity_id: str | None) -> str:
    """Short code of an entity's id, or of its name if it has no id."""
    key = entity_key(name, entity_id).encode("utf-8", "replace")
    return sys.intern("~" + b85encode(blake2b(key, digest_size=CODE_BYTES).digest()).decode("ascii"))


def pair_place(head: str, tail: str) -> int:
    """Hash a pair of entity codes to [0, 2^32); pairs below a threshold are held out."""
    return int.from_bytes(blake2b(f"held-out {head} {tail}".encode(), digest_size=4).digest(), "little")


# -- reading ---------------------------------------------------------------------------------------------------------


def read_pair_rows(paths: Sequence[Path], tokenizer: MarkedTokenizer, *, excluded: Excluded | None = None) -> PairRows:
    """Read tagged JSONL files and corpus folders as word pieces, or load packed files.

    Sentences that `excluded` rejects are skipped.
    """
    packed = [path for path in paths if path.suffix == PACKED]
    if packed and (len(packed) < len(paths) or excluded is not None):
        raise DataError(f"{packed[0]}: cannot be combined with other sources or --exclude; pack all sources again.")
    if packed:
        return reduce(PairRows.joined, map(PairRows.load, packed))
    sentences = chain.from_iterable(_corpus_rows(path) if path.is_dir() else tagged_rows(path) for path in paths)
    vocabulary = np.array(tokenizer.vocabulary)
    parts, codes = [PackedSentences.of([], tokenizer, vocabulary)], list[tuple[str, str]]()
    labels, left_out = list[str | None](), Counter[str]()
    while batch := list(islice(sentences, BATCH)):
        if excluded is not None:
            texts = [" ".join(example.tokens) for example in batch]
            rejected = excluded.rejected({text: sentence_key(text) for text in texts})
            left_out.update(rejected[text] for text in texts if text in rejected)
            batch = [example for example, text in zip(batch, texts, strict=True) if text not in rejected]
        parts.append(PackedSentences.of(batch, tokenizer, vocabulary))
        labels += [example.relation for example in batch]
        pairs = ((example.head, example.tail) for example in batch)
        codes += [(entity_code(head.name, head.id), entity_code(tail.name, tail.id)) for head, tail in pairs]
    made_of = Provenance(
        {path.name: _source_digest(path) for path in paths}, excluded.digest if excluded else "", dict(left_out)
    )
    numbers = {code: number for number, code in enumerate(dict.fromkeys(chain.from_iterable(codes)))}
    places = {pair: pair_place(*pair) for pair in {*codes}}
    head, tail = (np.array([numbers[pair[role]] for pair in codes], np.int32) for role in (0, 1))
    place = np.array([places[pair] for pair in codes], np.uint32)
    relations = tuple(sorted({label for label in labels if label} - {NO_RELATION}))
    known = {label: number for number, label in enumerate(relations)} | {NO_RELATION: UNRELATED, None: UNLABELLED}
    relation = np.array([known[label] for label in labels], np.int32)
    return PairRows(PackedSentences.joined(parts), head, tail, place, relation, relations, made_of)


def tagged_rows(path: Path) -> Iterator[Example]:
    """Yield the rows of a tagged JSONL file, compressed or not; raise all faults at the end."""
    from tqdm import tqdm

    faults = Faults(path)
    for number, line in tqdm(read_lines(path, faults), desc=one_line(path.name), unit=" rows", disable=None):
        try:
            yield example_from_line(line)
        except DataError as error:
            faults.add(number, str(error))
    faults.raise_if_any()


def _corpus_rows(folder: Path) -> Iterator[Example]:
    """Yield the rows of a corpus folder."""
    from tqdm import tqdm

    from erda.corpus.corpus_store import CorpusStore

    store = CorpusStore.open(folder)
    with tqdm(total=len(store), desc=one_line(folder.name), unit=" rows", disable=None) as bar:
        for found in store.batches(size=BATCH):
            bar.update(len(found))
            yield from (sentence.example for sentence in found)


def _source_digest(path: Path) -> str:
    from erda.corpus.corpus_store import read_manifest

    return read_manifest(path).digest if path.is_dir() else sha256_of(path)
