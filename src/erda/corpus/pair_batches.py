"""Training batches: each epoch draws new pairs; names are masked and sentences cropped at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from erda.corpus.similarity_settings import TrainingSettings
from erda.corpus.training_pairs import NONE, PairRows, PairSet, mine_pairs
from erda.encoders.packed import AS_IT_IS, MASKED, SOMETHING, WHOLE, Shown

AROUND = 3  # maximum number of pieces that a cropped sentence keeps before and after its entities
EPOCH, STEP = 1, 2  # salts, so that the seeds of an epoch and of a step differ


@dataclass(frozen=True, slots=True, eq=False)
class PairBatch:
    """n pairs with m hard negatives, in the order first, second, negative."""

    shown: Shown  # [2n + m]
    pair: np.ndarray  # [2n + m] numbers of entity pairs
    anchor: np.ndarray  # [m] the pair of each negative


class PairBatches:
    """The batches of a training by step number, determined by the seed: at most `limit` pairs of `among` per epoch."""

    def __init__(
        self, rows: PairRows, among: np.ndarray, settings: TrainingSettings, *, limit: int | None = None
    ) -> None:
        self.rows, self.among, self.settings, self.limit = rows, among, settings, limit
        self._epoch, self._pairs = 0, self._drawn(0)
        self.n_pairs = len(self._pairs)
        self.n_batches = max(1, self.n_pairs // settings.batch_size)  # an incomplete last batch is dropped

    @property
    def n_steps(self) -> int:
        """Number of batches of all epochs."""
        return self.n_batches * self.settings.n_epochs

    @property
    def has_negatives(self) -> bool:
        """Whether any pair of the epoch has a hard negative."""
        return bool((self._pairs.negative != NONE).any())

    def __getitem__(self, step: int) -> PairBatch:
        settings = self.settings
        epoch, at = divmod(step, self.n_batches)
        if epoch != self._epoch:
            self._epoch, self._pairs = epoch, self._drawn(epoch)
        size = settings.batch_size
        pairs = self._pairs.take(slice(at * size, (at + 1) * size))
        rng = np.random.default_rng([settings.seed, step, STEP, 0])
        (anchor,) = np.nonzero(pairs.negative != NONE)
        rows = np.concatenate([pairs.first, pairs.second, pairs.negative[anchor]])
        names = np.where(rng.random((len(rows), 2)) < settings.blank_names, MASKED, AS_IT_IS)
        around = np.full((len(rows), 2), WHOLE)
        if settings.crop:
            cropped = rng.random(len(rows)) < settings.crop
            names[cropped] = rng.choice([MASKED, SOMETHING], (int(cropped.sum()), 1))
            around[cropped] = rng.integers(AROUND + 1, size=(int(cropped.sum()), 2))
        return PairBatch(Shown(rows, names, around), self.rows.pair[rows], anchor)

    def _drawn(self, epoch: int) -> PairSet:
        seed, negatives = [self.settings.seed, epoch, EPOCH], self.settings.objective == "paper"
        return mine_pairs(self.rows, self.among, seed=seed, negatives=negatives).take(slice(self.limit))
