"""The batches of a training by step number: settings, pairs of sentences, names masked and sentences cropped at random.

Positive pair: two sentences with the same two entities. Hard negative: exactly one shared entity, in the same role.
Each epoch draws new pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from erda.corpus.training_pairs import UNLABELLED, UNRELATED, PairRows
from erda.encoders import PooledLayers
from erda.encoders.packed import AS_IT_IS, MASKED, SOMETHING, WHOLE, Shown
from erda.errors import DataError
from erda.fields import Count, Fraction, Settings, Share, Weight

NONE = -1  # no hard negative
AROUND = 3  # maximum number of pieces that a cropped sentence keeps before and after its entities
LABELLED_BLANK = 0.5  # probability that a name of a labelled sentence is masked
EPOCH, STEP = 1, 2  # salts, so that the seeds of an epoch and of a step differ
MAX_PIECES = 128
TEMPERATURES = {"infonce": 0.07, "paper": 1.0, "labelled": 0.07, "distil": 0.05}
NEEDED = {"labelled": "rows with a relation, and rows with 'no_relation'", "distil": "rows without a label"}
LEARNING_RATES = {"adapter": 2e-3, "full": 2e-4}


class TrainingSettings(Settings):
    """Training settings. A temperature or learning rate of 0 means the default of the objective or of the weights.

    Objectives: `infonce` and `paper` learn from pairs of sentences with the same entities, `labelled` from relations
    and pairs without a relation, `distil` from the vectors of trained models (`teachers`).
    """

    objective: Literal["infonce", "paper", "labelled", "distil"] = "infonce"  # only "paper" uses hard negatives
    start: str = ""  # trained weights to start from: `shipped`, or a folder of a training
    teachers: tuple[str, ...] = ()  # of `distil`: folders of trainings; their cosines are averaged
    mode: Literal["markers", "levitated", "starts"] = "markers"
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
        unlabelled = len(self.among) or (settings.labelled_share == 1 and len(self._labelled))
        found = {"labelled": min(len(labelled), len(self._unrelated)), "distil": settings.batch_size and unlabelled}
        if not found.get(settings.objective, self.n_pairs > 1):
            needed = NEEDED.get(settings.objective, "pairs of sentences with the same two entities")
            said = f"objective '{settings.objective}' with batch_size {settings.batch_size} needs {needed}."
            raise DataError(f"too few sentences to train on: {said}")
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
