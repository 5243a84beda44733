"""The batches of a training: pairs drawn anew each pass, and how their sentences are shown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from erda.corpus.pairs import NONE, PairRows, PairSet, mine_pairs
from erda.corpus.recipe import TrainingSettings
from erda.encoders.packed import AS_IT_IS, MASKED, SOMETHING, WHOLE, Shown

AROUND = 3  # pieces that a cropped sentence keeps before and after its entities, at most
PASS, STEP = 1, 2  # what a number drawn from the seed is for


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """n pairs with m hard negatives: sentences as they are shown, all firsts, all seconds, then the negatives."""

    shown: Shown  # [2n + m]
    pair: np.ndarray  # [2n + m] numbers of entity pairs
    anchor: np.ndarray  # [m] which first a negative was drawn for
    seed: int  # of dropout


class PairBatches:
    """The batches of a training by their numbers; the same in every run of a seed. Each pass draws its pairs anew.

    `among` are the rows to train on, `limit` bounds the pairs of a pass, `n_shares` devices get a share of each.
    """

    def __init__(
        self,
        rows: PairRows,
        among: np.ndarray,
        settings: TrainingSettings,
        *,
        limit: int | None = None,
        share: int = 0,
        n_shares: int = 1,
    ) -> None:
        self.rows, self.among, self.settings, self.limit = rows, among, settings, limit
        self.share, self.n_shares = share, n_shares
        self._epoch, self._pass = 0, self._drawn(0)
        self.n_pairs = len(self._pass)
        self.n_batches = max(1, self.n_pairs // (settings.batch_size * n_shares))  # what is left over waits a pass

    @property
    def n_steps(self) -> int:
        """Batches of all passes."""
        return self.n_batches * self.settings.n_epochs

    @property
    def has_negatives(self) -> bool:
        """Whether any pair of the pass has a hard negative."""
        return bool((self._pass.negative != NONE).any())

    def __getitem__(self, step: int) -> Batch:
        settings = self.settings
        epoch, at = divmod(step, self.n_batches)
        if epoch != self._epoch:
            self._epoch, self._pass = epoch, self._drawn(epoch)
        size = settings.batch_size * self.n_shares
        pairs = self._pass.take(slice(at * size + self.share, min((at + 1) * size, self.n_pairs), self.n_shares))
        rng = np.random.default_rng([settings.seed, step, STEP, self.share])
        (anchor,) = np.nonzero((pairs.negative != NONE) & (rng.random(len(pairs)) < settings.hard_negatives))
        rows = np.concatenate([pairs.first, pairs.second, pairs.negative[anchor]])
        names = np.where(rng.random((len(rows), 2)) < settings.blank_names, MASKED, AS_IT_IS)
        around = np.full((len(rows), 2), WHOLE)
        if settings.crop:
            cropped = rng.random(len(rows)) < settings.crop
            names[cropped] = rng.choice([MASKED, SOMETHING], (int(cropped.sum()), 1))
            around[cropped] = rng.integers(AROUND + 1, size=(int(cropped.sum()), 2))
        shown = Shown(rows, names, around)
        return Batch(shown, self.rows.pair[rows], anchor, int(rng.integers(2**62)))

    def _drawn(self, epoch: int) -> PairSet:
        seed, negatives = [self.settings.seed, epoch, PASS], self.settings.hard_negatives > 0
        return mine_pairs(self.rows, self.among, seed=seed, negatives=negatives).take(slice(self.limit))
