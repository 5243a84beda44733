"""Train a similarity model: losses, optimiser step, training loop and checkpoints.

Word pieces are on the device, and batches are assembled there. Each step merges the adapter into the pretrained weights
once (in bfloat16 if requested); trained tensors and their gradients are float32. The seed and the number of the epoch
or step determine everything random, so a resumed training equals an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, kl_div, normalize, softplus

from erda.corpus.similarity import SimilarityModel, load_similarity
from erda.corpus.training_batches import Batch, Batches, Machine, TrainingSettings, as_taught
from erda.corpus.training_pairs import PairRows
from erda.encoders import TransformerSettings
from erda.encoders.adapter import KINDS, SETTINGS_FILE, TrainedSettings, TrainedWeights
from erda.encoders.packed import SentenceBatches, on_device
from erda.encoders.transformer import TransformerEncoder
from erda.encoders.weights import ModelFolder, origin
from erda.errors import DataError, SettingsError
from erda.fields import Settings
from erda.files import locked, read_arrays, read_json, remove_own, remove_unfinished, write_arrays, write_json

N_CHUNKS = {"cpu": 8, "cuda": 6}  # of sentences of similar length, per batch
CHECKPOINTS = "checkpoints"
RUN_FILE = "run.json"
REPORT_FILE = "training.json"
NOT_OURS = "Use another folder for --out, or remove it yourself."
_FILE = "checkpoint.npz"
_LOWER = "delete the folder and start over with a lower learning_rate."


def infonce_loss(similarities: Tensor, same: Tensor, temperature: float) -> Tensor:
    """Mean cross-entropy of row i with target column i, over similarities [n, m], m >= n.

    Other columns of the same entity pair, where `same` [n, m] is true, are ignored.
    """
    own = torch.eye(*similarities.shape, dtype=torch.bool, device=similarities.device)
    logits = (similarities / temperature).masked_fill(same & ~own, -1e4)
    return cross_entropy(logits, torch.arange(len(logits), device=logits.device))


def paper_loss(positive: Tensor, negative: Tensor, temperature: float = 1.0) -> Tensor:
    """Mean of -log sigma(s) over positive pairs plus mean of -log(1 - sigma(s)) over negative pairs.

    `positive` [n] and `negative` [m] are similarities. The paper takes sums over equally many pairs of both kinds, and
    has no temperature (1.0).
    """
    loss = softplus(-positive / temperature).mean()
    return loss + softplus(negative / temperature).mean() if len(negative) else loss


def labelled_loss(vectors: Tensor, relation: Tensor, temperature: float) -> Tensor:
    """Supervised contrastive loss of unit vectors [n, dim]; `relation` [n] below 0: no relation.

    Mean over labelled sentences of -log of the share of their own relation's sentences. Sentences without a relation
    are negatives of all others and never anchors.
    """
    logits = (vectors @ vectors.T / temperature).fill_diagonal_(-1e4)
    anchors = relation >= 0
    own = (relation[:, None] == relation)[anchors].fill_diagonal_(False)
    shares = logits[anchors] - logits[anchors].logsumexp(dim=1, keepdim=True)
    return -((shares * own).sum(1) / own.sum(1).clamp(min=1)).mean()


def distillation_loss(similarities: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """Mean KL divergence between the rows of two cosine matrices [n, n], each without its diagonal."""
    n = len(taught)
    aside = ~torch.eye(n, dtype=torch.bool, device=taught.device)
    own, other = ((one / temperature)[aside].view(n, n - 1).log_softmax(1) for one in (similarities, taught))
    return kl_div(own, other, reduction="batchmean", log_target=True)


class Learner:
    """A pretrained model, its trained tensors, and the optimiser."""

    def __init__(
        self, folder: ModelFolder, rows: PairRows, settings: TrainingSettings, machine: Machine, device: torch.device
    ) -> None:
        self.rows, self.settings, self.machine, self.device = rows, settings, machine, device
        base = origin(folder)
        like = TransformerSettings(mode=settings.mode, max_pieces=settings.max_pieces)
        before = TrainedWeights.load(settings.start, base=base.name) if settings.start else None
        encoder = TransformerEncoder(folder, like, weights=None if settings.rank else before).requires_grad_(False)
        self.start = TrainedWeights.fresh(
            encoder.layers,
            base=base,
            max_pieces=settings.max_pieces,
            rank=settings.rank,
            scale=settings.scale,
            seed=settings.seed,
        )
        if settings.rank and before is not None:
            self.start = self.start.after(before)
        if settings.objective == "distil" and not settings.teachers:
            raise SettingsError("objective 'distil': name the teachers, such as --set teachers=models/large.")
        load = partial(load_similarity, device=str(device), dtype="bfloat16" if device.type == "cuda" else "float32")
        teachers = [load(name) for name in settings.teachers if settings.objective == "distil"]
        sources = (before, *(teacher.encoder for teacher in teachers))
        labels = {*rows.relations, *(name for one in sources if one is not None for name in one.trained_on)}
        self.start = replace(self.start, mode=settings.mode, trained_on=tuple(sorted(labels)))
        if settings.objective in ("labelled", "distil"):
            encoder.layers.pooled_layers = settings.pooled_layers
        self.encoder = encoder.to(device).eval()
        self.dtype = torch.bfloat16 if machine.bf16 else torch.float32
        self.trained = {name: one.float().to(device).requires_grad_() for name, one in self.start.tensors.items()}
        self.weights = replace(self.start, tensors=self.trained)
        self.sentences = SentenceBatches(rows.sentences, encoder.tokenizer, device)
        self.taught = teacher_vectors(rows, teachers) if teachers else None
        matrices, others = (
            [one for one in self.trained.values() if (one.dim() > 1) == is_matrix] for is_matrix in (True, False)
        )
        self.optimiser = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=settings.effective_learning_rate,
            fused=device.type == "cuda",
        )

    def backward(self, batch: Batch) -> Tensor:
        """Compute the loss of a batch and add its gradient to the trained tensors."""
        chunks, place = self.sentences.chunks(batch.shown, N_CHUNKS[self.device.type])
        merged = self.weights.merged(self.encoder.layers)
        named = {f"layers.{name}": value.to(self.dtype) for name, value in merged.items()}
        vectors = torch.cat([functional_call(self.encoder, named, chunk) for chunk in chunks])
        loss = self.loss(vectors[place], batch)
        loss.backward()
        return loss.detach()

    def loss(self, vectors: Tensor, batch: Batch) -> Tensor:
        """Compute the loss of a batch from its vectors [2n + m + k, dim]."""
        vectors, temperature = normalize(vectors, dim=-1), self.settings.effective_temperature
        if self.taught is not None:
            taught = self.taught[on_device(batch.shown.rows, self.device)].float()
            return distillation_loss(vectors @ vectors.T, taught @ taught.T, temperature)
        anchor, pair, relation = (on_device(one, self.device) for one in (batch.anchor, batch.pair, batch.relation))
        first, second, negative, labelled = vectors.split([len(pair), len(pair), len(anchor), len(relation)])
        if self.settings.objective == "paper":
            return paper_loss((first * second).sum(-1), (first[anchor] * negative).sum(-1), temperature)
        losses = [labelled_loss(labelled, relation, temperature)] if len(relation) else []
        if len(pair):
            same, similarities = pair[:, None] == pair, first @ second.T
            both = [infonce_loss(one, same, temperature) for one in (similarities, similarities.T)]
            losses.append(torch.stack(both).mean())
        return torch.stack(losses).sum()

    def update(self, step: int, n_steps: int) -> None:
        """Take one optimiser step: linear warm-up, then linear decay to zero; gradients clipped to norm 1."""
        warmup = round(self.settings.warmup * n_steps)
        share = step / warmup if step < warmup else (n_steps - step) / max(1, n_steps - warmup)
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.effective_learning_rate * share
        nn.utils.clip_grad_norm_(self.trained.values(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad()

    def outcome(self) -> TrainedWeights:
        """The trained weights to save, in half precision."""
        last = {name: one.detach().cpu().half() for name, one in self.trained.items()}
        return replace(self.start, tensors=last, pooled_layers=self.settings.pooled_layers)

    def state(self) -> dict[str, np.ndarray]:
        """The arrays of a checkpoint."""
        state = {f"trained.{name}": one for name, one in self.trained.items()}
        for number, moments in self.optimiser.state_dict()["state"].items():
            state |= {f"optimiser.{number}.{key}": one for key, one in moments.items()}
        return {name: one.detach().cpu().numpy() for name, one in state.items()}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the arrays of a checkpoint."""
        for name, one in self.trained.items():
            one.copy_(torch.from_numpy(state[f"trained.{name}"]))
        moments: dict[int, dict[str, Tensor]] = {}
        for name, array in state.items():
            if name.startswith("optimiser."):
                _, number, key = name.split(".")
                moments.setdefault(int(number), {})[key] = torch.from_numpy(array)
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})


@torch.no_grad()
def teacher_vectors(rows: PairRows, teachers: Sequence[SimilarityModel]) -> Tensor:
    """Vectors of all rows by several models, side by side, so that their cosine is the mean of theirs: [n, dim]."""
    shown = as_taught(np.arange(len(rows)))
    parts = [model.encode_shown(rows.sentences, shown).half() for model in teachers]
    return torch.cat(parts, dim=1) / len(parts) ** 0.5


# -- the training loop ------------------------------------------------------------------------------------------------


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
) -> TrainingOutcome:
    """Train a similarity model over the pretrained model in `folder` and save it in `out`.

    `among` are the training rows (default: all); `limit` is the maximum number of pairs per epoch. An interrupted
    training resumes from its last checkpoint; with other settings or pairs it is rejected.
    """
    machine = machine or Machine()
    among = np.arange(len(rows)) if among is None else among
    batches = Batches(rows, among, settings, limit=limit)
    device, checkpoints = torch.device(machine.device), out / CHECKPOINTS
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        learner = Learner(folder, rows, settings, machine, device)
        run = UnfinishedTraining(
            settings=settings.model_dump(mode="json"),
            pairs=f"{rows.digest[:16]} {len(among)} {limit}",
            encoder=learner.start.base.fingerprint,
        )
        refuse_foreign(out)  # before writing anything, even the lock
        with locked(out, busy="another process trains a model here"):
            for place in (out, checkpoints):
                remove_unfinished(place)
            note = checkpoints / RUN_FILE
            if note.is_file() and read_json(note, UnfinishedTraining, remedy=NOT_OURS) != run:
                raise SettingsError(
                    f"{checkpoints}: an unfinished training with another encoder, other settings or other pairs. "
                    "Finish it with the same command as before, or delete this folder."
                )
            write_json(note, run)
            losses = _learn(learner, batches, checkpoints / _FILE)
            weights = learner.outcome()
            if not all(bool(one.isfinite().all()) for one in weights.tensors.values()):
                raise DataError(f"training diverged (weights are not finite); {_LOWER}")
            weights.save(out)
            for own in (_FILE, RUN_FILE):  # `run.json`, which proves ownership, goes last
                remove_own(checkpoints, own.__eq__)
    return TrainingOutcome(weights, tuple(losses), batches.n_steps, batches.n_pairs)


def _learn(learner: Learner, batches: Batches, checkpoint: Path) -> list[tuple[int, float]]:
    """Run the steps after the checkpoint, if there is one; return all losses."""
    from tqdm import tqdm

    start, losses = 0, list[tuple[int, float]]()
    if checkpoint.is_file():
        state = read_arrays(checkpoint, remedy=f"Delete {checkpoint.parent} and start over.")
        start, losses = int(state["step"]), [(int(at), float(loss)) for at, loss in state["losses"]]
        learner.load_state(state)
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
        if done % save_steps == 0 and done < n_steps:
            progress = {"step": np.array(done), "losses": np.array(losses, np.float64).reshape(-1, 2)}
            write_arrays(checkpoint, progress | learner.state(), compress=False)
    return losses


# -- checkpoints ------------------------------------------------------------------------------------------------------
# `checkpoints/run.json` describes the unfinished training, `checkpoint.npz` is its latest checkpoint.


class UnfinishedTraining(Settings):
    """The content of `run.json`: the command that wrote the file, and the training."""

    made_by: Literal["erda corpus train"] = "erda corpus train"
    version: int = 5  # of the checkpoint
    settings: dict[str, Any]
    pairs: str
    encoder: str = ""  # fingerprint of the pretrained weights


def refuse_foreign(out: Path) -> None:
    """Reject a folder where a training would overwrite or remove files that erda did not write."""
    checkpoints = out / CHECKPOINTS
    if (checkpoints / RUN_FILE).is_file():
        read_json(checkpoints / RUN_FILE, UnfinishedTraining, remedy=NOT_OURS)
    elif checkpoints.exists():
        raise DataError(f"{checkpoints}: not written by `erda corpus train`. {NOT_OURS}")
    elif (out / SETTINGS_FILE).exists():
        read_json(out / SETTINGS_FILE, TrainedSettings, remedy=NOT_OURS)
    else:
        names = (*(f"{kind}.safetensors" for kind in KINDS), REPORT_FILE)
        if taken := [name for name in names if (out / name).exists()]:
            raise DataError(f"{out}: contains {', '.join(taken)}, but no similarity model of erda. {NOT_OURS}")
