"""A pretrained transformer as encoder, pooled at [CLS] (as in the paper) or at the two start marks.

With a `FrozenCache`, frozen lower layers run once per sentence, and the trained layers read the cached states. Frozen
states come from the same computation with and without the cache. On a CPU it uses no padding, so the states do not
depend on the batch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from erda.encoders import ALL, BY_MODE, TransformerSettings
from erda.encoders.adapter import TrainedWeights
from erda.encoders.frozen import FrozenCache, FrozenStates
from erda.encoders.layers import LayeredModel, load_model, load_tokenizer, states_at
from erda.encoders.tokens import LEVITATED, Pieces
from erda.encoders.trainable import TrainableEncoder
from erda.encoders.weights import ModelFolder
from erda.types import EncoderSpec, Example

LEARNING_RATES = {"paper": 1e-4} | dict.fromkeys(("markers", *LEVITATED), 2e-5)
CPU_PIECES, GPU_PIECES = 2048, 65536  # word pieces per batch of the frozen layers
MIN_ROWS = 32  # smaller matrix products use other kernels with other rounding; sentences are repeated up to this size


class TransformerEncoder(TrainableEncoder):
    """A pretrained model with frozen lower layers; `TransformerSettings` documents the settings.

    `weights`, trained over the model in `folder`, are merged into the pretrained weights. A plain text has no marks:
    both modes pool its [CLS] state, mode `markers` once for each half of the vector.
    """

    def __init__(
        self,
        folder: ModelFolder,
        settings: TransformerSettings,
        *,
        weights: TrainedWeights | None = None,
        seed: int = 0,
        cache: FrozenCache | None = None,
    ) -> None:
        super().__init__()
        mode, max_pieces = settings.mode, settings.max_pieces
        if weights is not None:
            weights.check_base(folder)
            max_pieces = min(max_pieces or weights.max_pieces, weights.max_pieces)
        self.tokenizer = load_tokenizer(folder, mode=mode, max_pieces=max_pieces)
        by_mode = 1 if mode == "paper" else ALL
        trained_layers = by_mode if settings.trained_layers == BY_MODE else settings.trained_layers
        marks = () if mode == "paper" else self.tokenizer.mark_origins
        pooled_layers = weights.pooled_layers if weights else 1
        self.layers = LayeredModel(
            load_model(folder), mark_origins=marks, trained_layers=trained_layers, pooled_layers=pooled_layers
        )
        if weights is not None:
            weights.apply(self.layers)
        for module in self.layers.modules():
            if isinstance(module, nn.Dropout):
                module.p = settings.dropout
        self.mode, self.pooled_layers = mode, pooled_layers
        self.trained_on = weights.trained_on if weights else ()
        self.precision = settings.precision
        self.learning_rate = settings.learning_rate or LEARNING_RATES[mode]
        self.cache = cache
        pooled = self.layers.hidden_size * (1 if mode == "paper" else 2)
        self.dim = settings.projection or pooled
        self.linear: nn.Linear | None = None
        if settings.projection or mode == "paper":
            self.linear = _orthogonal(pooled, self.dim, seed)
        filled = {"trained_layers": trained_layers, "learning_rate": self.learning_rate}
        fingerprint = weights.fingerprint if weights else folder.fingerprint
        self.spec = EncoderSpec(folder.name, settings.model_dump() | filled, fingerprint)
        self._fingerprint = ""
        self._fingerprint_of: list[tuple[int, int]] = []
        self._frozen_weights = [one for one in self.layers.parameters() if not one.requires_grad]
        self.eval()

    def train(self, mode: bool = True) -> TransformerEncoder:
        """Set training mode; frozen layers stay in eval mode, without dropout."""
        super().train(mode)
        for module in self.layers.frozen_modules():
            module.eval()
        return self

    @contextmanager
    def last_layer(self) -> Iterator[None]:
        """Read the last layer alone within the context, where the encoder averages several."""
        n_layers, self.layers.pooled_layers = self.layers.pooled_layers, 1
        try:
            yield
        finally:
            self.layers.pooled_layers = n_layers

    def encode(self, examples: Sequence[Example]) -> Tensor:
        """Encode one batch of marked sentences: [n_examples, dim]."""
        return self.encode_pieces(self.tokenizer.encode(examples))

    def encode_blanked(self, examples: Sequence[Example]) -> Tensor:
        """Encode one batch with both entity names masked: [n_examples, dim]."""
        return self.encode_pieces(self.tokenizer.encode(examples, blanked=[(True, True)] * len(examples)))

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Encode one batch of plain texts: [n_texts, dim]."""
        return self.encode_pieces(self.tokenizer.encode_texts(texts))

    def encode_pieces(self, batch: Sequence[Pieces]) -> Tensor:
        """Encode one batch of sentences that are already word pieces: [n, dim]."""
        if not batch:
            return torch.zeros(0, self.dim, device=self.device)
        if not self.layers.splits or self.layers.n_frozen is None or self.mode in LEVITATED:
            vectors: Tensor = self(*self._collate(batch))
            return vectors
        with self._autocast():
            return self._pooled(self._states_above_frozen(batch))

    def forward(self, ids: Tensor, lengths: Tensor, places: Tensor) -> Tensor:
        """Encode padded piece ids [n, length], lengths [n] and pooled places [n, p]: [n, dim]."""
        with self._autocast():
            return self._pooled(self.layers(ids, lengths, places))

    def _pooled(self, states: Tensor) -> Tensor:
        """Pooled states [n, p, hidden] -> vectors [n, dim]."""
        vectors = states.flatten(1)
        return (vectors if self.linear is None else self.linear(vectors)).float()

    # -- from word pieces to pooled states -----------------------------------------------------------------------------

    def _collate(self, batch: Sequence[Pieces]) -> tuple[Tensor, Tensor, Tensor]:
        """Padded piece ids [n, longest], lengths [n] and pooled places [n, p]."""
        rows, padding = [torch.from_numpy(item.ids) for item in batch], self.tokenizer.pad_id
        ids = pad_sequence(rows, batch_first=True, padding_value=padding).long().to(self.device)
        return ids, torch.tensor([len(item) for item in batch], device=self.device), self._places(batch)

    def _places(self, batch: Sequence[Pieces]) -> Tensor:
        """Places to pool: [CLS] in mode `paper`, the two start marks in mode `markers`: [n, p]."""
        places = [(0,) if self.mode == "paper" else item.places for item in batch]
        return torch.tensor(places, device=self.device)

    def _states_above_frozen(self, batch: Sequence[Pieces]) -> Tensor:
        """States of the last layer at the pooled places: [n, p, hidden]."""
        layers, store = self.layers, self._store()
        if store is None:
            parts = self._frozen_states(batch)
        else:
            parts = [torch.from_numpy(one) for one in store.of(batch, self._frozen_arrays, passing=self.training)]
        states = pad_sequence(parts, batch_first=True).to(self.device).float()
        if self._n_frozen == layers.n_layers:
            return states
        lengths = torch.tensor([len(item) for item in batch], device=self.device)
        places = self._places(batch)
        return layers.run(states, lengths, self._n_frozen, layers.n_layers, places)

    @torch.no_grad()
    def _frozen_states(self, batch: Sequence[Pieces]) -> list[Tensor]:
        """States of each sentence after the frozen layers: [n_pieces, hidden]. If all are frozen, only the pooled rows.

        On a CPU, all sentences of a batch have the same length; on a GPU, they are padded.
        """
        layers, on_cpu = self.layers, self.device.type == "cpu"
        found: dict[int, Tensor] = {}
        for group in _groups([len(item) for item in batch], CPU_PIECES if on_cpu else GPU_PIECES, same_length=on_cpu):
            some = [batch[i] for i in group]
            ids, lengths, places = self._collate(some)
            copies = -(-MIN_ROWS // ids.numel())
            with self._autocast():
                states = layers.embed(ids.repeat(copies, 1))
                all_frozen = self._n_frozen == layers.n_layers
                at = places.repeat(copies, 1) if all_frozen and layers.pooled_layers > 1 else None
                states = layers.run(states, lengths.repeat(copies), 0, self._n_frozen, at)[: len(some)].float()
            if all_frozen:
                found.update(zip(group, states_at(states, places) if at is None else states, strict=True))
            else:
                found.update((i, rows[: len(batch[i])]) for i, rows in zip(group, states, strict=True))
        return [found[i] for i in range(len(batch))]

    def _frozen_arrays(self, batch: Sequence[Pieces]) -> list[np.ndarray]:
        """`_frozen_states` on the CPU; one copy from a GPU for the whole batch."""
        states = self._frozen_states(batch)
        return [part.numpy() for part in torch.cat(states).cpu().split([len(one) for one in states])]

    @property
    def _n_frozen(self) -> int:
        return self.layers.n_frozen or 0

    # -- the cache ---------------------------------------------------------------------------------------------------

    def _store(self) -> FrozenStates | None:
        """Cached states of these frozen weights; None without a cache or without frozen layers."""
        if self.cache is None or self.cache.max_bytes == 0 or not self.layers.splits or self.layers.n_frozen is None:
            return None
        now = [(parameter.data_ptr(), parameter._version) for parameter in self._frozen_weights]
        if now != self._fingerprint_of:  # first call, or changed weights
            self._fingerprint = self._frozen_fingerprint()
            self._fingerprint_of = now
        return self.cache.states(self._fingerprint, self.layers.hidden_size)

    def _frozen_fingerprint(self) -> str:
        """Sha256 of the frozen weights and of everything else that determines their output.

        It leaves out the tokenizer: the key of a sentence contains its piece ids.
        """
        import transformers

        about = {
            "model": self.layers.model.config.to_diff_dict(),
            "attention": self.layers.model.config._attn_implementation,
            "frozen": self.layers.n_frozen,
            "pooled": (self.mode, self.layers.pooled_layers) if self.layers.n_frozen == self.layers.n_layers else "",
            "precision": self.precision,
            "device": self.device.type,
            "versions": [torch.__version__, transformers.__version__],
        }
        digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
        for name, parameter in self.layers.named_parameters():
            if not parameter.requires_grad:
                digest.update(f"{name} {tuple(parameter.shape)}".encode())
                digest.update(parameter.detach().cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


def _orthogonal(n_in: int, n_out: int, seed: int) -> nn.Linear:
    """A linear layer initialised as a rotation, which keeps all angles of the pretrained model."""
    linear = nn.utils.skip_init(nn.Linear, n_in, n_out)
    nn.init.orthogonal_(linear.weight, generator=torch.Generator().manual_seed(seed))
    nn.init.zeros_(linear.bias)
    return linear


def _groups(lengths: Sequence[int], size: int, *, same_length: bool = False) -> Iterator[list[int]]:
    """Group sentences by length, at most `size` pieces per group including padding; optionally of equal length."""
    group: list[int] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        full = (len(group) + 1) * lengths[i] > size
        if group and (full or (same_length and lengths[i] != lengths[group[0]])):
            yield group
            group = []
        group.append(i)
    if group:
        yield group
