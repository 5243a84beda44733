"""The model that learns: objectives, the gradient of a batch, one step of the optimiser.

The weights that are used (pretrained ones with the adapter in them) are made once a step, in bfloat16 where that is
asked for; gradients go to what is trained, in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, kl_div, log_softmax, normalize, softplus

from erda.corpus.batches import Batch
from erda.corpus.pairs import PairRows
from erda.corpus.recipe import Machine, TrainingSettings
from erda.corpus.similarity import SimilarityModel
from erda.encoders.adapter import TrainedWeights
from erda.encoders.packed import Chunk, SentenceBatches, on_device
from erda.encoders.settings import TransformerSettings
from erda.encoders.transformer import TransformerEncoder
from erda.encoders.weights import ModelFolder, find_model, origin
from erda.errors import ModelError

N_CHUNKS = 8  # a batch is computed in parts of like length


# -- objectives: pure functions of similarities ----------------------------------------------------------------------


def infonce_loss(similarities: Tensor, same: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of row i against column i: similarities [n, m] with m >= n, large is close.

    Columns other than i where `same` [n, m] is true (the same entity pair) are neither right nor wrong: left out.
    """
    logits = _logits(similarities, same, temperature)
    return cross_entropy(logits, torch.arange(len(logits), device=logits.device))


def paper_loss(positive: Tensor, negative: Tensor, temperature: float = 1.0) -> Tensor:
    """-log sigma(s) over positive pairs, -log(1 - sigma(s)) over negative ones, the mean of each added.

    `positive` [n] and `negative` [m] are similarities. The paper has sums over as many of one kind as of the other,
    and no temperature (1.0).
    """
    loss = softplus(-positive / temperature).mean()
    return loss + softplus(negative / temperature).mean() if len(negative) else loss


def teacher_loss(logits: Tensor, teacher_logits: Tensor) -> Tensor:
    """KL(teacher || student) of the distributions over columns, mean over rows: logits [n, m] of both."""
    return kl_div(log_softmax(logits, 1), log_softmax(teacher_logits, 1), reduction="batchmean", log_target=True)


def _logits(similarities: Tensor, same: Tensor, temperature: float) -> Tensor:
    own = torch.eye(*similarities.shape, dtype=torch.bool, device=similarities.device)
    return (similarities / temperature).masked_fill(same & ~own, -1e4)


# -- the model that learns -------------------------------------------------------------------------------------------


class _Vectors(nn.Module):
    """Vectors of chunks: [n, dim]. With dropout, a seed for each chunk says what is dropped."""

    def __init__(self, encoder: TransformerEncoder, dropout: float) -> None:
        super().__init__()
        self.encoder, self.dropout = encoder, dropout

    def forward(self, chunks: list[Chunk], seed: int) -> Tensor:
        found = []
        for number, chunk in enumerate(chunks):
            if self.dropout:
                torch.manual_seed(seed + number)
            found.append(self.encoder(*chunk))
        return torch.cat(found)


class Learner:
    """A pretrained model, what is trained over it, and the optimiser."""

    def __init__(
        self, folder: ModelFolder, rows: PairRows, settings: TrainingSettings, machine: Machine, device: torch.device
    ) -> None:
        self.rows, self.settings, self.machine, self.device = rows, settings, machine, device
        like = TransformerSettings(mode="markers", max_pieces=settings.max_pieces, dropout=settings.dropout)
        encoder = TransformerEncoder(folder, like).requires_grad_(False)
        self.start = _start(folder, encoder, settings)
        self.encoder = encoder.to(device).train(settings.dropout > 0)
        self.dtype = torch.bfloat16 if machine.bf16 else torch.float32
        self.trained = {name: one.float().to(device).requires_grad_() for name, one in self.start.tensors.items()}
        self.average = {name: one.detach().clone() for name, one in self.trained.items()} if settings.average else {}
        self.weights = replace(self.start, tensors=self.trained)
        self.sentences = SentenceBatches(rows.sentences, encoder.tokenizer, device)
        self._vectors = _Vectors(self.encoder, settings.dropout)
        self._taught_by = TrainedWeights.load(settings.teacher) if settings.teacher else None
        matrices, others = (
            [one for one in self.trained.values() if (one.dim() > 1) == is_matrix] for is_matrix in (True, False)
        )
        self.optimiser = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=settings.effective_learning_rate,
            fused=device.type == "cuda",
        )

    def backward(self, batch: Batch) -> Tensor:
        """The loss of a batch; its gradient is in what is trained."""
        chunk_size = self.machine.chunk_size
        n_chunks = -(-len(batch.shown.rows) // chunk_size) if chunk_size else N_CHUNKS
        chunks, place = self.sentences.chunks(batch.shown, n_chunks)
        merged = {name: value.to(self.dtype) for name, value in self.weights.merged(self.encoder.layers).items()}
        if not chunk_size:
            loss = self.loss(self._encode(merged, chunks, batch.seed)[place], batch)
            loss.backward()
            return loss.detach()
        used = {name: value.detach().requires_grad_(value.requires_grad) for name, value in merged.items()}
        with torch.no_grad():
            vectors = self._encode(used, chunks, batch.seed)
        vectors.requires_grad_()
        loss = self.loss(vectors[place], batch)
        loss.backward()
        assert vectors.grad is not None
        sizes = [len(ids) for ids, *_ in chunks]
        for number, (chunk, gradient) in enumerate(zip(chunks, vectors.grad.split(sizes), strict=True)):
            self._encode(used, [chunk], batch.seed + number).backward(gradient)
        reached = [name for name, value in used.items() if value.grad is not None]
        torch.autograd.backward([merged[name] for name in reached], [used[name].grad for name in reached])
        return loss.detach()

    def loss(self, vectors: Tensor, batch: Batch) -> Tensor:
        """Of the vectors [2n + m, dim] of a batch."""
        settings, vectors = self.settings, normalize(vectors, dim=-1)
        pair, anchor, rows = (on_device(one, self.device) for one in (batch.pair, batch.anchor, batch.shown.rows))
        n = (len(vectors) - len(anchor)) // 2
        first, second, negative = vectors[:n], vectors[n : 2 * n], vectors[2 * n :]
        temperature = settings.effective_temperature
        if settings.objective == "paper":
            return paper_loss((first * second).sum(-1), (first[anchor] * negative).sum(-1), temperature)
        same = pair[:n, None] == torch.cat([pair[:n], pair[2 * n :]])
        loss = torch.stack([infonce_loss(one, same, temperature) for one in _both_ways(vectors, n)]).mean()
        if self._taught_by is None:
            return loss
        taught = self._teacher[rows].float()
        ways = zip(_both_ways(vectors, n), _both_ways(taught, n), strict=True)
        pull = [
            teacher_loss(_logits(one, same, temperature), _logits(other, same, settings.teacher_temperature))
            for one, other in ways
        ]
        return loss + settings.teacher_weight * torch.stack(pull).mean()

    def update(self, step: int, n_steps: int) -> None:
        """One step of the optimiser: warm-up, then a rate that falls to zero; gradients clipped to length 1."""
        warmup = round(self.settings.warmup * n_steps)
        share = step / warmup if step < warmup else (n_steps - step) / max(1, n_steps - warmup)
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.effective_learning_rate * share
        _mean_over_processes(self.trained)
        nn.utils.clip_grad_norm_(self.trained.values(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad()
        if self.average:
            decay = min(self.settings.average, (1 + step) / (10 + step))
            with torch.no_grad():
                torch._foreach_lerp_(list(self.average.values()), list(self.trained.values()), 1 - decay)

    def outcome(self) -> TrainedWeights:
        """What was trained, as it is saved: an adapter in half precision."""
        last = {name: one.detach().cpu() for name, one in (self.average or self.trained).items()}
        if self.start.kind == "adapter":
            last = {name: one.half() for name, one in last.items()}
        return replace(self.start, tensors=last)

    def state(self) -> dict[str, Tensor]:
        """Everything that a checkpoint needs."""
        moments = self.optimiser.state_dict()["state"]
        return {
            **{f"trained.{name}": one for name, one in self.trained.items()},
            **{f"average.{name}": one for name, one in self.average.items()},
            **{f"optimiser.{number}.{key}": one for number, kept in moments.items() for key, one in kept.items()},
        }

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        for kind, tensors in (("trained", self.trained), ("average", self.average)):
            for name, one in tensors.items():
                one.copy_(state[f"{kind}.{name}"])
        moments: dict[int, dict[str, Tensor]] = {}
        for name, one in state.items():
            if name.startswith("optimiser."):
                _, number, key = name.split(".")
                moments.setdefault(int(number), {})[key] = one
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})

    @cached_property
    def _teacher(self) -> Tensor:
        """The teacher's vectors of all rows, names in place, in half precision: [n_rows, dim]."""
        weights = self._taught_by
        assert weights is not None
        folder = find_model(self.settings.teacher_encoder or weights.base.name)
        dtype = "bfloat16" if self.machine.bf16 else "float32"
        model = SimilarityModel(folder, weights, device=str(self.device), dtype=dtype)
        rows = np.arange(len(self.rows))
        return model.encode_packed(self.rows.sentences, rows, dtype=torch.float16, progress=True)

    def _encode(self, weights: Mapping[str, Tensor], chunks: list[Chunk], seed: int) -> Tensor:
        named = {f"encoder.layers.{name}": value for name, value in weights.items()}
        vectors: Tensor = functional_call(self._vectors, named, (chunks, seed))
        return vectors


def _both_ways(vectors: Tensor, n: int) -> list[Tensor]:
    """Similarities of firsts with seconds and negatives, and of seconds with firsts and negatives: [n, n + m] each."""
    first, second, negative = vectors[:n], vectors[n : 2 * n], vectors[2 * n :]
    return [first @ torch.cat([second, negative]).T, second @ torch.cat([first, negative]).T]


def _start(folder: ModelFolder, encoder: TransformerEncoder, settings: TrainingSettings) -> TrainedWeights:
    """What a training starts from: nothing changed yet, or the weights in the folder `start`."""
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
            f"{settings.start}: has rank {found.rank} and scale {found.scale:g}, "
            f"the training rank {fresh.rank} and scale {fresh.scale:g}."
        )
    found.check_fit(encoder.layers)
    return replace(fresh, tensors=found.tensors)


def _mean_over_processes(trained: Mapping[str, Tensor]) -> None:
    """Give every process the mean of all their gradients."""
    if not distributed.is_initialized():
        return
    gradients = [one.grad for one in trained.values() if one.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    for gradient, mean in zip(gradients, flat.split([one.numel() for one in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))
