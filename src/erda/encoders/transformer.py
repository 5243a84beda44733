"""A pretrained transformer as encoder: the paper's [CLS] state, or the states of the two entity-start marks.

Frozen lower layers run once for each sentence where a `FrozenCache` is handed in; the trained layers above read their
states. With and without the cache those states come from the same computation (on a CPU without any padding), so
predictions are the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from erda.encoders.adapter import TrainedWeights
from erda.encoders.frozen import FrozenCache, FrozenStates
from erda.encoders.layers import LayeredModel, load_model, states_at
from erda.encoders.marked import MarkedEncoder
from erda.encoders.settings import ALL, BY_MODE, EncoderSpec, TransformerSettings
from erda.encoders.tokens import MarkedTokenizer, Pieces, pad
from erda.encoders.weights import ModelFolder
from erda.types import Example

DEFAULTS = TransformerSettings()
TRAINED_LAYERS = {"paper": 1, "markers": ALL}
LEARNING_RATES = {"paper": 1e-4, "markers": 2e-5}
CPU_PIECES, GPU_PIECES = 2048, 65536  # how many pieces go through frozen layers at once
MIN_ROWS = 32  # matrix products of a few rows use other kernels, whose last digits differ; so they are filled up


class TransformerEncoder(MarkedEncoder):
    """A pretrained model, its lower layers frozen; `TransformerSettings` says what the settings do.

    `weights` are merged into the pretrained ones: those of `settings.adapter`, or any that were trained over `folder`.
    A plain text has no marks: in both modes it is read from its [CLS] state, in `markers` once for each half.
    """

    def __init__(
        self,
        folder: ModelFolder,
        settings: TransformerSettings = DEFAULTS,
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
        self.tokenizer = MarkedTokenizer.load(folder, mode=mode, max_pieces=max_pieces)
        trained_layers = TRAINED_LAYERS[mode] if settings.trained_layers == BY_MODE else settings.trained_layers
        marks = self.tokenizer.mark_origins if mode == "markers" else ()
        self.layers = LayeredModel(load_model(folder), mark_origins=marks, trained_layers=trained_layers)
        if weights is not None:
            weights.apply(self.layers)
        for module in self.layers.modules():
            if isinstance(module, nn.Dropout):
                module.p = settings.dropout
        self.mode = mode
        self.precision = settings.precision
        self.learning_rate = settings.learning_rate or LEARNING_RATES[mode]
        self.cache = cache
        pooled = self.layers.hidden_size * (2 if mode == "markers" else 1)
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
        """Switch dropout on or off; frozen layers never have any."""
        super().train(mode)
        for module in self.layers.frozen_modules():
            module.eval()
        return self

    def encode_pieces(self, batch: Sequence[Pieces]) -> Tensor:
        """Vectors of sentences that are already word pieces: [n, dim]."""
        if not batch:
            return torch.zeros(0, self.dim, device=self.device)
        if not self.layers.splits or self.layers.n_frozen is None:
            vectors: Tensor = self(*(tensor.to(self.device) for tensor in self.tokenizer.collate(batch)))
            return vectors
        with self._autocast():
            return self._pooled(self._states_above_frozen(batch))

    def forward(self, ids: Tensor, lengths: Tensor, places: Tensor) -> Tensor:
        """Vectors of one batch of `MarkedTokenizer.collate`, the whole model computed: [n, dim]."""
        layers = self.layers
        with self._autocast():
            if not layers.splits:
                return self._pooled(states_at(layers.whole(ids, lengths), places))
            states = layers.run(layers.embed(ids), lengths, 0, layers.n_layers - 1)
            return self._pooled(layers.last_at(states, lengths, places))

    def _pooled(self, states: Tensor) -> Tensor:
        """States at the pooled places [n, p, hidden] -> vectors [n, dim]."""
        vectors = states.flatten(1)
        return (vectors if self.linear is None else self.linear(vectors)).float()

    def warm(self, examples: Sequence[Example], *, progress: bool = True) -> None:
        """Run the frozen layers over sentences that are not kept yet, in large batches of like length."""
        store = self._store()
        if store is None:
            return
        from tqdm import tqdm

        pieces = list({item.key: item for item in self.tokenizer.encode(examples)}.values())
        order = sorted(range(len(pieces)), key=lambda i: len(pieces[i]))
        with tqdm(total=len(pieces), desc="frozen layers", unit="sentence", disable=None if progress else True) as bar:
            for group in _groups(order, [len(item) for item in pieces], GPU_PIECES):
                store.of([pieces[i] for i in group], self._frozen_states)
                bar.update(len(group))

    # -- from word pieces to the states that are pooled ----------------------------------------------------------------

    def _states_above_frozen(self, batch: Sequence[Pieces]) -> Tensor:
        """The last layer's states at [CLS], or at the two start marks: [n, 1 or 2, hidden]."""
        layers, store = self.layers, self._store()
        make = self._frozen_states
        parts = make(batch) if store is None else store.of(batch, make, passing=self.training)
        states = pad_sequence(parts, batch_first=True).to(self.device).float()
        if self._n_frozen == layers.n_layers:
            return states
        lengths = torch.tensor([len(item) for item in batch], device=self.device)
        states = layers.run(states, lengths, self._n_frozen, layers.n_layers - 1)
        return layers.last_at(states, lengths, self._places(batch))

    @torch.no_grad()
    def _frozen_states(self, batch: Sequence[Pieces]) -> list[Tensor]:
        """States of each sentence after the frozen layers: [its rows, hidden]."""
        states: dict[int, Tensor] = {}
        order = sorted(range(len(batch)), key=lambda i: len(batch[i]))
        on_cpu = self.device.type == "cpu"
        run = self._run_packed if on_cpu else self._run_padded
        for group in _groups(order, [len(item) for item in batch], CPU_PIECES if on_cpu else GPU_PIECES):
            some = [batch[i] for i in group]
            with self._autocast():
                states.update(zip(group, run(some).float().split(self._n_rows(some)), strict=True))
        return [states[i] for i in range(len(batch))]

    def _run_packed(self, batch: Sequence[Pieces]) -> Tensor:
        """Frozen layers over sentences in the order of their lengths, laid end to end: [sum of rows, hidden]."""
        layers, pad_id = self.layers, self.tokenizer.pad_id
        blocks = [list(block) for _, block in groupby(batch, key=len)]
        states = torch.cat([layers.embed(pad(block, pad_id)[0]).flatten(0, 1) for block in blocks])
        shapes = [(len(block), len(block[0])) for block in blocks]
        n_rows = states.shape[0]
        if n_rows < MIN_ROWS:
            states = torch.cat([states, states.new_zeros(MIN_ROWS - n_rows, states.shape[1])])
            shapes.append((1, MIN_ROWS - n_rows))
        states = layers.run_packed(states, shapes, 0, self._n_frozen)[:n_rows]
        if self._n_frozen < layers.n_layers:
            return states
        lengths = np.fromiter(map(len, batch), dtype=np.int64, count=len(batch))
        starts = torch.from_numpy(np.cumsum(lengths) - lengths)
        return states[(starts[:, None] + self._places(batch)).flatten()]

    def _run_padded(self, batch: Sequence[Pieces]) -> Tensor:
        """The same with padding, which suits a GPU: few large operations."""
        ids, lengths, places = (tensor.to(self.device) for tensor in self.tokenizer.collate(batch))
        states = self.layers.run(self.layers.embed(ids), lengths, 0, self._n_frozen)
        if self._n_frozen == self.layers.n_layers:
            return states_at(states, places).flatten(0, 1)
        return states[torch.arange(ids.shape[1], device=self.device) < lengths[:, None]]

    def _places(self, batch: Sequence[Pieces]) -> Tensor:
        return self.tokenizer.places(batch).to(self.device)

    @property
    def _n_frozen(self) -> int:
        return self.layers.n_frozen or 0

    def _n_rows(self, batch: Sequence[Pieces]) -> list[int]:
        """How many states of each sentence are kept: all, or only the pooled ones where no layer is trained."""
        if self.layers.n_frozen == self.layers.n_layers:
            return [1 if self.mode == "paper" else 2] * len(batch)
        return list(map(len, batch))

    # -- the cache ---------------------------------------------------------------------------------------------------

    def _store(self) -> FrozenStates | None:
        """Where the states of these frozen weights are kept; None without a cache or without frozen layers."""
        if self.cache is None or self.cache.max_bytes == 0 or not self.layers.splits or self.layers.n_frozen is None:
            return None
        now = [(parameter.data_ptr(), parameter._version) for parameter in self._frozen_weights]
        if now != self._fingerprint_of:  # the first time, or somebody changed the weights
            self._fingerprint = self._frozen_fingerprint()
            self._fingerprint_of = now
        return self.cache.states(self._fingerprint, self.layers.hidden_size)

    def _frozen_fingerprint(self) -> str:
        """sha256 of the frozen weights and of whatever else decides their output."""
        import transformers

        about = {
            "model": self.layers.model.config.to_diff_dict(),
            "frozen": self.layers.n_frozen,
            "pooled": self.mode if self.layers.n_frozen == self.layers.n_layers else "",
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
    """A linear layer that starts as a rotation: angles stay, so training starts from the pretrained geometry."""
    linear = nn.utils.skip_init(nn.Linear, n_in, n_out)
    nn.init.orthogonal_(linear.weight, generator=torch.Generator().manual_seed(seed))
    nn.init.zeros_(linear.bias)
    return linear


def _groups(order: Sequence[int], lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Sentences in the order of their lengths, cut into groups of at most `size` pieces (padding counted)."""
    group: list[int] = []
    for i in order:
        if group and (len(group) + 1) * lengths[i] > size:
            yield group
            group = []
        group.append(i)
    if group:
        yield group
