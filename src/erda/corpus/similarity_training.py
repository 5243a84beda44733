"""The training loop of the similarity model, with checkpoints.

Word pieces are on the device, and batches are assembled there. The seed and the number of the epoch or step determine
everything random, so a resumed training equals an uninterrupted one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from erda.corpus.pair_batches import PairBatches
from erda.corpus.similarity_learner import Learner
from erda.corpus.similarity_settings import Machine, TrainingSettings
from erda.corpus.training_checkpoints import (
    CHECKPOINTS,
    TrainingState,
    UnfinishedTraining,
    begin_training,
    discard_training,
    load_checkpoint,
    refuse_foreign,
    save_checkpoint,
)
from erda.corpus.training_pairs import PairRows
from erda.encoders.adapter import TrainedWeights
from erda.encoders.weights import ModelFolder
from erda.errors import DataError, one_line
from erda.files import locked, remove_unfinished

_LOWER = "start over with --no-resume and a lower --learning-rate."


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """Trained weights, and losses as (step, loss)."""

    weights: TrainedWeights
    losses: tuple[tuple[int, float], ...]
    n_steps: int
    n_pairs: int  # per epoch


def train(
    folder: ModelFolder,
    rows: PairRows,
    settings: TrainingSettings,
    *,
    out: Path,
    among: np.ndarray | None = None,
    limit: int | None = None,
    machine: Machine | None = None,
    resume: bool = True,
    after_step: Callable[[int], None] = lambda step: None,
) -> TrainingOutcome:
    """Train a similarity model over the pretrained model in `folder` and save it in `out`.

    `among` are the training rows (default: all); `limit` is the maximum number of pairs per epoch. An interrupted
    training resumes from its last checkpoint; with other settings or pairs it is rejected unless `resume` is false.
    """
    machine = machine or Machine()
    among = np.arange(len(rows)) if among is None else among
    batches = PairBatches(rows, among, settings, limit=limit)
    if batches.n_pairs < 2:
        raise DataError(f"too few pairs of sentences to train on: {batches.n_pairs}.")
    if settings.objective == "paper" and not batches.has_negatives:
        raise DataError("objective 'paper' needs hard negatives, but no two entity pairs share an entity.")
    device, checkpoints = torch.device(machine.device), out / CHECKPOINTS
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        learner = Learner(folder, rows, settings, machine, device)
        run = UnfinishedTraining(
            settings=settings.model_dump(),
            pairs=f"{rows.digest[:16]} {len(among)} {limit}",
            encoder=learner.start.base.fingerprint,
        )
        refuse_foreign(out)  # before writing anything, even the lock
        with locked(out, busy="another process trains a model here"):
            for place in (out, checkpoints):
                remove_unfinished(place)
            step, losses = 0, list[tuple[int, float]]()
            if begin_training(checkpoints, run, resume=resume):
                state = load_checkpoint(checkpoints)
                step, losses = state.step, state.losses
                learner.load_state(state.tensors)
            _learn(learner, batches, start=step, losses=losses, checkpoints=checkpoints, after_step=after_step)
            weights = learner.outcome()
            if not all(bool(one.isfinite().all()) for one in weights.tensors.values()):
                raise DataError(f"training diverged (weights are not finite); {_LOWER}")
            weights.save(out)
            discard_training(checkpoints)
    return TrainingOutcome(weights, tuple(losses), batches.n_steps, batches.n_pairs)


def _learn(
    learner: Learner,
    batches: PairBatches,
    *,
    start: int,
    losses: list[tuple[int, float]],
    checkpoints: Path,
    after_step: Callable[[int], None],
) -> None:
    """Run the steps from `start` on; append to `losses`."""
    from tqdm import tqdm

    n_steps, save_steps = batches.n_steps, learner.machine.save_steps
    log_steps = max(1, n_steps // 10)
    since: list[Tensor] = []
    steps = tqdm(range(start, n_steps), initial=start, total=n_steps, desc="training", unit=" steps", disable=None)
    for step in steps:
        since.append(learner.backward(batches[step]))
        learner.update(step, n_steps)
        done = step + 1
        if done % log_steps == 0 or done == n_steps:
            loss = float(torch.stack(since).mean())
            if not np.isfinite(loss):
                raise DataError(f"training diverged (loss {loss} at step {done}); {_LOWER}")
            losses.append((done, loss))
            since.clear()
            steps.set_postfix(loss=f"{loss:.4f}")
            if not sys.stderr.isatty():
                print(one_line(f"step {done} of {n_steps}: loss {loss:.4f}"), file=sys.stderr)
        if done % save_steps == 0 and done < n_steps:
            save_checkpoint(checkpoints, TrainingState(done, losses, learner.state()))
        after_step(done)
