"""Training data of an encoder: sentences as word pieces in one file, and the batches of a training.

Unlabelled sentences make pairs. Positive: two sentences with the same two entities. Hard negative: exactly one shared
entity, in the same role. A hash of the entity pair decides whether it is held out, so the same pairs are held out of
every file. Labelled sentences have a relation, or `no_relation`.
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
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from erda.corpus.exclude import Excluded
from erda.data.formats.jsonl_examples import example_from_line
from erda.encoders import PooledLayers
from erda.encoders.packed import AS_IT_IS, MASKED, SOMETHING, WHOLE, PackedSentences, Packer, Shown
from erda.encoders.tokens import MarkedTokenizer
from erda.errors import DataError, one_line
from erda.fields import Count, Fraction, Settings, Share, Weight
from erda.files import decode_json, read_arrays, sha256_of, write_arrays
from erda.text.keys import entity_key, sentence_key
from erda.text.reading import Faults, read_lines
from erda.types import Example

CODE_BYTES = 5
BATCH = 10_000  # sentences in memory at a time
NONE = -1  # no hard negative
PACKED = ".npz"
AROUND = 3  # maximum number of pieces that a cropped sentence keeps before and after its entities
LABELLED_BLANK = 0.5  # probability that a name of a labelled sentence is masked
EPOCH, STEP = 1, 2  # salts, so that the seeds of an epoch and of a step differ
AGAIN = "Write it again with `erda corpus pairs`."
MAX_PIECES = 128
UNLABELLED, UNRELATED = -2, -1  # numbers in place of a relation's
NO_RELATION = "no_relation"
TEMPERATURES = {"infonce": 0.07, "paper": 1.0, "labelled": 0.07, "distil": 0.05}
LEARNING_RATES = {"adapter": 2e-3, "full": 2e-4}


class TrainingSettings(Settings):
    """Training settings. A temperature or learning rate of 0 means the default of the objective or of the weights.

    Objectives: `infonce` and `paper` learn from pairs of sentences with the same entities, `labelled` from relations
    and pairs without a relation, `distil` from the vectors of trained models (`teachers`).
    """

    objective: Literal["infonce", "paper", "labelled", "distil"] = "infonce"  # only "paper" uses hard negatives
    start: str = ""  # trained weights to start from: `shipped`, or a folder of a training
    teachers: tuple[str, ...] = ()  # of `distil`: folders of trainings; their cosines are averaged
    mode: Literal["markers", "levitated"] = "markers"
    n_relations: Count = 48  # of `labelled`, per batch
    n_sentences: Annotated[int, Field(ge=2, le=1000)] = 6  # of each of them
    n_unrelated: Count = 512  # pairs without a relation, per batch
    labelled_share: Fraction = 0.5  # of `distil`: share of the sentences of a batch that are labelled
    n_steps: Annotated[int, Field(ge=1, le=10_000_000)] = 600  # of `labelled` and `distil`
    temperature: Annotated[float, Field(ge=0, le=100)] = 0.0
    blank_names: Fraction = 0.7  # probability that an entity name is masked, independently for each name
    crop: Fraction = 0.0  # probability that a sentence is cropped to the words between its entities, both names masked
    rank: Annotated[int, Field(ge=0, le=1024)] = 32  # of the low-rank adapter; 0: all weights but word vectors
    scale: float = 1.0
    learning_rate: Fraction = 0.0
    warmup: Fraction = 0.06  # share of the steps
    weight_decay: Weight = 0.01
    batch_size: Annotated[int, Field(ge=0, le=1_000_000)] = 256  # pairs; of `distil`: sentences
    n_epochs: Annotated[int, Field(ge=1, le=1000)] = 1
    max_pieces: Count = MAX_PIECES
    pooled_layers: PooledLayers = 1  # of the trained model; `infonce` and `paper` read the last layer
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0

    @property
    def effective_temperature(self) -> float:
        """The temperature, or the default of the objective."""
        return self.temperature or TEMPERATURES[self.objective]

    @property
    def effective_learning_rate(self) -> float:
        """The learning rate, or the default of an adapter or of all weights."""
        return self.learning_rate or LEARNING_RATES["adapter" if self.rank else "full"]


class Machine(Settings):
    """Hardware settings. They do not change the result, apart from rounding."""

    device: str = "cpu"  # cpu or cuda
    bf16: bool = False
    save_steps: Count = 500


class TrainCommandSettings(Settings):
    """All settings of `erda corpus train`."""

    training: TrainingSettings = TrainingSettings()
    machine: Machine = Machine()
    limit: Count | None = None  # pairs per epoch
    held_out: Share = 0.04  # share of the entity pairs


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
        made_of = Provenance(self.made_of.sources | other.made_of.sources, self.made_of.excluded, self.made_of.left_out)
        return PairRows(
            self.sentences.joined(other.sentences),
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


@dataclass(frozen=True, slots=True, eq=False)
class PairSet:
    """Sentence pairs by row: `first[i]` and `second[i]` have the same two entities; all arrays [n_pairs].

    `negative[i]` shares exactly one entity, in the same role, with `first[i]`; `NONE` if there is no such row.
    """

    first: np.ndarray
    second: np.ndarray
    negative: np.ndarray

    def __len__(self) -> int:
        return len(self.first)

    def take(self, picked: slice | np.ndarray) -> PairSet:
        """Select pairs, in the order of `picked`."""
        return PairSet(self.first[picked], self.second[picked], self.negative[picked])


def mine_pairs(rows: PairRows, among: np.ndarray, *, seed: int | Sequence[int], negatives: bool = True) -> PairSet:
    """Draw pairs of the rows `among` in random order; each row is in at most one pair.

    The hard negative of a pair is a random row with the head, or with the tail, of `first`.
    """
    rng = np.random.default_rng(seed)
    mixed = rng.permutation(among)
    order = mixed[np.argsort(rows.pair[mixed], kind="stable")]
    pair = rows.pair[order]
    starts = np.flatnonzero(np.diff(pair, prepend=-1))
    counts = np.diff(starts, append=len(pair))
    nth = np.arange(len(pair)) - np.repeat(starts, counts)
    (links,) = np.nonzero((nth % 2 == 0) & (nth + 1 < np.repeat(counts, counts)))
    links = rng.permutation(links)
    first, second = order[links], order[links + 1]
    if not negatives or not len(first):
        return PairSet(first, second, np.full(len(first), NONE))
    return PairSet(first, second, _negatives(rows, among, first, rng))


def _negatives(rows: PairRows, among: np.ndarray, anchors: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """For each anchor, draw a row with the same head or the same tail, but not both; `NONE` if there is none."""
    pair, own = rows.pair, rows.pair[anchors]
    found = []
    for entity in (rows.head, rows.tail):
        order = among[np.lexsort((pair[among], entity[among]))]
        group, own_start = np.searchsorted(entity[order], entity[anchors]), np.zeros(int(pair.max(initial=0)) + 1, int)
        own_start[pair[order][::-1]] = np.arange(len(order))[::-1]
        n_group, n_own = np.bincount(entity[among])[entity[anchors]], np.bincount(pair[among])[own]
        at = group + rng.integers(np.maximum(n_group - n_own, 1))
        at += np.where(at >= own_start[own], n_own, 0)  # skip the anchor's own entity pair
        found.append(np.where(n_group > n_own, order[np.minimum(at, len(order) - 1)], NONE))
    first, other = np.where(rng.random(len(anchors)) < 0.5, found, found[::-1])
    return np.where(first == NONE, other, first)


@lru_cache(maxsize=1 << 20)
def entity_code(name: str, entity_id: str | None) -> str:
    """Short code of an entity's id, or of its name if it has no id."""
    key = entity_key(name, entity_id).encode("utf-8", "replace")
    return sys.intern("~" + b85encode(blake2b(key, digest_size=CODE_BYTES).digest()).decode("ascii"))


def pair_place(head: str, tail: str) -> int:
    """Hash a pair of entity codes to [0, 2^32); pairs below a threshold are held out."""
    return int.from_bytes(blake2b(f"held-out {head} {tail}".encode(), digest_size=4).digest(), "little")


# -- batches: each epoch draws new pairs; names are masked and sentences cropped at random -----------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """n pairs with m hard negatives and k labelled sentences, in the order first, second, negative, labelled."""

    shown: Shown  # [2n + m + k]
    pair: np.ndarray  # [n] numbers of entity pairs
    anchor: np.ndarray  # [m] the pair of each negative
    relation: np.ndarray  # [k] numbers of relations, or UNRELATED


class Batches:
    """The batches of a training by step number, determined by the seed: at most `limit` pairs of `among` per epoch."""

    def __init__(
        self, rows: PairRows, among: np.ndarray, settings: TrainingSettings, *, limit: int | None = None
    ) -> None:
        self.rows, self.settings, self.limit = rows, settings, limit
        relation, by_epochs = rows.relation[among], settings.objective in ("infonce", "paper")
        self.among = among if by_epochs else among[relation == UNLABELLED]
        self._unrelated = among[relation == UNRELATED]
        labelled = among[relation >= 0]
        order = labelled[np.argsort(rows.relation[labelled], kind="stable")]
        self._of_relation = np.split(order, np.flatnonzero(np.diff(rows.relation[order])) + 1) if len(order) else []
        self._labelled = np.concatenate([self._unrelated, labelled])
        self._epoch, self._pairs = 0, self._drawn(0)
        self.n_pairs = len(self._pairs)
        self.n_batches = max(1, self.n_pairs // max(settings.batch_size, 1))  # an incomplete last batch is dropped
        self.n_steps = self.n_batches * settings.n_epochs if by_epochs else settings.n_steps

    def __getitem__(self, step: int) -> Batch:
        settings = self.settings
        rng = np.random.default_rng([settings.seed, step, STEP, 0])
        if settings.objective == "distil":
            return self._to_distil(rng)
        epoch, at = divmod(step, self.n_batches)
        if epoch != self._epoch:
            self._epoch, self._pairs = epoch, self._drawn(epoch)
        size = settings.batch_size
        pairs = self._pairs.take(slice(at * size, (at + 1) * size))
        (anchor,) = np.nonzero(pairs.negative != NONE)
        labelled = self._draw_labelled(rng) if settings.objective == "labelled" else self.among[:0]
        rows = np.concatenate([pairs.first, pairs.second, pairs.negative[anchor], labelled])
        blank = np.where(np.arange(len(rows)) < len(rows) - len(labelled), settings.blank_names, LABELLED_BLANK)
        names = np.where(rng.random((len(rows), 2)) < blank[:, None], MASKED, AS_IT_IS)
        around = np.full((len(rows), 2), WHOLE)
        if settings.crop:
            cropped = rng.random(len(rows)) < settings.crop
            names[cropped] = rng.choice([MASKED, SOMETHING], (int(cropped.sum()), 1))
            around[cropped] = rng.integers(AROUND + 1, size=(int(cropped.sum()), 2))
        return Batch(Shown(rows, names, around), self.rows.pair[pairs.first], anchor, self.rows.relation[labelled])

    def _draw_labelled(self, rng: np.random.Generator) -> np.ndarray:
        """Sentences of some relations, and pairs without a relation."""
        settings, n = self.settings, len(self._of_relation)
        drawn = [self._of_relation[i] for i in rng.permutation(n)[: settings.n_relations]]
        rows = [own[rng.integers(len(own), size=settings.n_sentences)] for own in drawn]
        return np.concatenate([*rows, self._unrelated[rng.integers(len(self._unrelated), size=settings.n_unrelated)]])

    def _to_distil(self, rng: np.random.Generator) -> Batch:
        """Sentences without their labels, shown as the teachers saw them (`as_taught`)."""
        n_labelled = round(self.settings.labelled_share * self.settings.batch_size) if len(self._labelled) else 0
        sizes = (self.settings.batch_size - n_labelled, n_labelled)
        pools = zip((self.among, self._labelled), sizes, strict=True)
        drawn = [own[rng.integers(len(own), size=n)] for own, n in pools if n]
        return Batch(as_taught(np.unique(np.concatenate(drawn))), *([self.among[:0]] * 3))

    def _drawn(self, epoch: int) -> PairSet:
        if self.settings.objective == "distil" or not self.settings.batch_size:
            return PairSet(*[self.among[:0]] * 3)
        seed, negatives = [self.settings.seed, epoch, EPOCH], self.settings.objective == "paper"
        return mine_pairs(self.rows, self.among, seed=seed, negatives=negatives).take(slice(self.limit))


def as_taught(rows: np.ndarray) -> Shown:
    """How teachers and student see rows: whole, every second one with both names masked."""
    names = np.repeat(np.where(rows % 2, MASKED, AS_IT_IS)[:, None], 2, axis=1)
    return Shown(rows, names, np.full((len(rows), 2), WHOLE))


# -- reading ---------------------------------------------------------------------------------------------------------


def read_pair_rows(
    paths: Sequence[Path],
    tokenizer: MarkedTokenizer,
    *,
    limit: int | None = None,
    seed: int = 0,
    excluded: Excluded | None = None,
) -> PairRows:
    """Read tagged JSONL files and corpus folders as word pieces, or load packed files.

    `limit` is the approximate number of positive pairs from each corpus folder (None: all rows). Sentences that
    `excluded` rejects are skipped.
    """
    packed = [path for path in paths if path.suffix == PACKED]
    if packed and (len(packed) < len(paths) or excluded is not None):
        raise DataError(f"{packed[0]}: cannot be combined with other sources or --exclude; pack all sources again.")
    if packed:
        return reduce(PairRows.joined, map(PairRows.load, packed))
    sentences = chain.from_iterable(
        _corpus_rows(path, seed=seed, limit=limit) if path.is_dir() else tagged_rows(path) for path in paths
    )
    packer, codes, left_out = Packer(tokenizer), list[tuple[str, str]](), Counter[str]()
    labels = list[str | None]()
    while batch := list(islice(sentences, BATCH)):
        if excluded is not None:
            texts = [" ".join(example.tokens) for example in batch]
            rejected = excluded.rejected({text: sentence_key(text) for text in texts})
            left_out.update(rejected[text] for text in texts if text in rejected)
            batch = [example for example, text in zip(batch, texts, strict=True) if text not in rejected]
        packer.add(batch)
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
    return PairRows(packer.packed(), head, tail, place, relation, relations, made_of)


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


def _corpus_rows(folder: Path, *, seed: int, limit: int | None) -> Iterator[Example]:
    """Yield the rows of a corpus folder: all, or those of heads with about `limit` positive pairs."""
    from tqdm import tqdm

    from erda.corpus.corpus_store import CorpusStore

    store = CorpusStore.open(folder)
    rows = np.arange(len(store)) if limit is None else store.rows_of_heads(limit, seed=seed)
    with tqdm(total=len(rows), desc=one_line(folder.name), unit=" rows", disable=None) as bar:
        for start in range(0, len(rows), BATCH):
            found = store.rows(rows[start : start + BATCH])
            bar.update(len(found))
            yield from found


def _source_digest(path: Path) -> str:
    from erda.corpus.corpus_store import read_manifest

    return read_manifest(path).digest if path.is_dir() else sha256_of(path)
