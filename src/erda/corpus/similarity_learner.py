"""Losses of the similarity model, the gradient of a batch, and the optimiser step.

Each step merges the adapter into the pretrained weights once (in bfloat16 if requested). Trained tensors and their
gradients are float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, normalize, softplus

from erda.corpus.pair_batches import PairBatch
from erda.corpus.similarity_settings import Machine, TrainingSettings
from erda.corpus.training_pairs import PairRows
from erda.encoders import TransformerSettings
from erda.encoders.adapter import TrainedWeights
from erda.encoders.packed import Chunk, SentenceBatches, on_device
from erda.encoders.transformer import TransformerEncoder
from erda.encoders.weights import ModelFolder, origin
from erda.errors import ModelError

N_CHUNKS = 8  # of sentences of similar length, per batch


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


class Learner:
    """A pretrained model, its trained tensors, and the optimiser."""

    def __init__(
        self, folder: ModelFolder, rows: PairRows, settings: TrainingSettings, machine: Machine, device: torch.device
    ) -> None:
        self.rows, self.settings, self.machine, self.device = rows, settings, machine, device
        like = TransformerSettings(mode="markers", max_pieces=settings.max_pieces)
        encoder = TransformerEncoder(folder, like).requires_grad_(False)
        self.start = _start(folder, encoder, settings)
        self.encoder = encoder.to(device).eval()
        self.dtype = torch.bfloat16 if machine.bf16 else torch.float32
        self.trained = {name: one.float().to(device).requires_grad_() for name, one in self.start.tensors.items()}
        self.weights = replace(self.start, tensors=self.trained)
        self.sentences = SentenceBatches(rows.sentences, encoder.tokenizer, device)
        matrices, others = (
            [one for one in self.trained.values() if (one.dim() > 1) == is_matrix] for is_matrix in (True, False)
        )
        self.optimiser = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=settings.effective_learning_rate,
            fused=device.type == "cuda",
        )

    def backward(self, batch: PairBatch) -> Tensor:
        """Compute the loss of a batch and add its gradient to the trained tensors."""
        chunks, place = self.sentences.chunks(batch.shown, N_CHUNKS)
        merged = {name: value.to(self.dtype) for name, value in self.weights.merged(self.encoder.layers).items()}
        loss = self.loss(self._encode(merged, chunks)[place], batch)
        loss.backward()
        return loss.detach()

    def loss(self, vectors: Tensor, batch: PairBatch) -> Tensor:
        """Compute the loss of a batch from its vectors [2n + m, dim]."""
        vectors = normalize(vectors, dim=-1)
        anchor = on_device(batch.anchor, self.device)
        n = (len(vectors) - len(anchor)) // 2
        first, second, negative = vectors[:n], vectors[n : 2 * n], vectors[2 * n :]
        temperature = self.settings.effective_temperature
        if self.settings.objective == "paper":
            return paper_loss((first * second).sum(-1), (first[anchor] * negative).sum(-1), temperature)
        pair = on_device(batch.pair[:n], self.device)
        same, similarities = pair[:, None] == pair, first @ second.T
        both = [infonce_loss(one, same, temperature) for one in (similarities, similarities.T)]
        return torch.stack(both).mean()

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
        """The trained weights to save: an adapter in half precision."""
        last = {name: one.detach().cpu() for name, one in self.trained.items()}
        if self.start.kind == "adapter":
            last = {name: one.half() for name, one in last.items()}
        return replace(self.start, tensors=last, pooled_layers=self.settings.pooled_layers)

    def state(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint."""
        moments = self.optimiser.state_dict()["state"]
        return {
            **{f"trained.{name}": one for name, one in self.trained.items()},
            **{f"optimiser.{number}.{key}": one for number, kept in moments.items() for key, one in kept.items()},
        }

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore the tensors of a checkpoint."""
        for name, one in self.trained.items():
            one.copy_(state[f"trained.{name}"])
        moments: dict[int, dict[str, Tensor]] = {}
        for name, one in state.items():
            if name.startswith("optimiser."):
                _, number, key = name.split(".")
                moments.setdefault(int(number), {})[key] = one
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})

    def _encode(self, weights: Mapping[str, Tensor], chunks: Sequence[Chunk]) -> Tensor:
        named = {f"layers.{name}": value for name, value in weights.items()}
        return torch.cat([functional_call(self.encoder, named, chunk) for chunk in chunks])


def _start(folder: ModelFolder, encoder: TransformerEncoder, settings: TrainingSettings) -> TrainedWeights:
    """Initial weights: an adapter that changes nothing, or the trained weights in the folder `start`."""
    fresh = TrainedWeights.fresh(
        encoder.layers,
        base=origin(folder),
        max_pieces=settings.max_pieces,
        rank=settings.rank,
        scale=settings.scale,
        seed=settings.seed,
    )
    if not settings.start:
        return fresh
    found = TrainedWeights.load(settings.start)
    found.check_base(folder)
    if (found.rank, found.scale) != (fresh.rank, fresh.scale):
        raise ModelError(
            f"{settings.start}: has rank {found.rank} and scale {found.scale:g}, but --rank is {fresh.rank} and "
            f"--scale {fresh.scale:g}; use the same values."
        )
    found.check_fit(encoder.layers)
    return replace(fresh, tensors=found.tensors)
