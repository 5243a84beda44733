"""Load pretrained transformers, and split them into frozen lower layers and trained upper layers.

BERT, RoBERTa (and models of the same shape) and MPNet can be split between any two layers. Any other model of
`AutoModel` runs as a whole, so its lower layers can be frozen but not cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, scaled_dot_product_attention

from erda.encoders import ALL, Mode, PooledLayers
from erda.encoders.tokens import SPECIAL, MarkedTokenizer
from erda.encoders.weights import ModelFolder
from erda.errors import ModelError, SettingsError
from erda.files import first_line

BERT_KIN = ("bert", "roberta", "xlm-roberta", "camembert")


def load_model(folder: ModelFolder) -> Any:
    """Load the model of a folder without its pooler, in float32; raise a ModelError if weights are missing."""
    from transformers import AutoModel
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with torch.random.fork_rng(devices=[]):  # transformers draws missing weights at random; they raise below
            model, report = AutoModel.from_pretrained(
                folder.path, output_loading_info=True, dtype=torch.float32, trust_remote_code=False
            )
    except Exception as error:  # damage raises many types: safetensors, json, OSError, KeyError, ...
        raise ModelError(f"Cannot load the model in {folder.path}: {first_line(error)}") from error
    finally:
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    if wrong := [*missing, *map(str, report.get("mismatched_keys") or ())]:
        raise ModelError(f"The weights in {folder.path} lack {len(wrong)} tensors, first {wrong[0]}.")
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # unused
    return model


def load_tokenizer(folder: ModelFolder, *, mode: Mode, max_pieces: int = 0) -> MarkedTokenizer:
    """Load the tokenizer of a model folder; `max_pieces` lowers the model's own limit."""
    from transformers import AutoConfig, AutoTokenizer

    try:
        config = AutoConfig.from_pretrained(folder.path, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(folder.path, add_prefix_space=True, trust_remote_code=False)
        reserved = 0 if config.model_type == "bert" else 2  # RoBERTa and MPNet number positions from the padding id on
        limit = min(tokenizer.model_max_length, config.max_position_embeddings - reserved)
    except Exception as error:  # as in `load_model`
        raise ModelError(f"Cannot read the tokenizer in {folder.path}: {first_line(error)}") from error
    if len(tokenizer) > config.vocab_size:
        raise ModelError(f"{folder.path}: the tokenizer has {len(tokenizer)} pieces, the model {config.vocab_size}.")
    if not tokenizer.is_fast:
        raise ModelError(f"{type(tokenizer).__name__} has no fast version; save the model with a tokenizer.json.")
    return MarkedTokenizer(
        tokenizer.backend_tokenizer,
        special={name: getattr(tokenizer, f"{name}_token_id") for name in SPECIAL},
        mode=mode,
        vocab_size=config.vocab_size,
        limit=min(limit, max_pieces or limit),
    )


class LayeredModel(nn.Module):
    """Embeddings and layers of a pretrained model, the lower ones frozen.

    `trained_layers` counts from the top; -1 trains everything, including the embeddings. Piece ids from the vocabulary
    size on are marks. Their embeddings are separate rows, initialised as copies of the rows `mark_origins`.
    `pooled_layers` above 1 averages as many last layers, each scaled to length 1: the last layer fits the pairs it was
    trained on, those before are more general. If fewer layers are trained, the average starts at the last frozen one.
    """

    def __init__(
        self,
        model: Any,
        *,
        mark_origins: Sequence[int] = (),
        trained_layers: int = ALL,
        pooled_layers: PooledLayers = 1,
    ) -> None:
        super().__init__()
        self.model = model
        words = model.get_input_embeddings()
        self.vocab_size: int = words.num_embeddings
        self.hidden_size: int = model.config.hidden_size
        self.marks = nn.Parameter(words.weight.detach()[list(mark_origins)].clone()) if mark_origins else None
        self.layers = _layer_list(model)  # a tuple, so that the weights are not registered twice
        self.n_layers = len(self.layers)
        if not ALL <= trained_layers <= self.n_layers:
            raise SettingsError(
                f"trained_layers: expected 0 to {self.n_layers}, or -1 (all, and the embeddings), got {trained_layers}."
            )
        self.n_frozen = None if trained_layers == ALL else self.n_layers - trained_layers
        kind = model.config.model_type
        self.mpnet = kind == "mpnet"
        self.splits = self.mpnet or kind in BERT_KIN
        self.pooled_layers = pooled_layers
        if pooled_layers > 1 and not (self.splits and pooled_layers <= self.n_layers):
            raise ModelError(f"cannot pool {pooled_layers} layers of model type '{kind}' with {self.n_layers} layers.")
        if self.n_frozen is not None:
            self.requires_grad_(False)
            for layer in self.layers[self.n_frozen :]:
                layer.requires_grad_(True)

    def frozen_modules(self) -> list[nn.Module]:
        """Frozen modules, which never use dropout."""
        if self.n_frozen is None:
            return []
        embeddings = getattr(self.model, "embeddings", None)
        return [*([embeddings] if embeddings is not None else []), *self.layers[: self.n_frozen]]

    def forward(self, ids: Tensor, lengths: Tensor, places: Tensor) -> Tensor:
        """Run the whole model: padded piece ids [n, length] -> last states at `places` [n, p]: [n, p, hidden].

        Levitated marks: `places` [n, 4 or 6] are those of `Layout`, and [n, 2, hidden] is returned.
        """
        if places.shape[1] > 2:
            return self._run_levitated(ids, lengths, places[:, :2], places[:, 2:])
        if self.splits:
            return self.run(self.embed(ids), lengths, 0, self.n_layers, places)
        mask = _valid(lengths, ids.shape[1]).long()
        return states_at(self.model(inputs_embeds=self._rows(ids), attention_mask=mask).last_hidden_state, places)

    def embed(self, ids: Tensor) -> Tensor:
        """Piece ids [n, length] -> states before the first layer, [n, length, hidden]."""
        states: Tensor = self.model.embeddings(inputs_embeds=self._rows(ids))
        return states

    def run(self, states: Tensor, lengths: Tensor, start: int, stop: int, places: Tensor | None = None) -> Tensor:
        """Run layers `start` to `stop` over padded sentences: [n, length, hidden] -> [n, length, hidden].

        With `places` [n, p], return the pooled states at these places, [n, p, hidden]; the last feed-forward block runs
        only there.
        """
        from transformers.masking_utils import create_bidirectional_mask

        padding = _valid(lengths, states.shape[1])
        mask = create_bidirectional_mask(config=self.model.config, inputs_embeds=states, attention_mask=padding)
        bias = self.model.encoder.compute_position_bias(states) if self.mpnet else None
        return self._run(states, mask, bias, slice(start, stop), places)

    def _run_levitated(self, ids: Tensor, lengths: Tensor, places: Tensor, spans: Tensor) -> Tensor:
        """Run the whole model with the marks after the sentence, at the positions `spans` [n, n_marks].

        The words read the words; the marks read the words and the marks.
        """
        at, n_words = torch.arange(ids.shape[1], device=ids.device), (lengths - spans.shape[1])[:, None]
        positions = torch.where(at < n_words, at, spans.gather(1, (at - n_words).clamp(0, spans.shape[1] - 1)))
        first = 0 if self.model.config.model_type == "bert" else self.model.embeddings.padding_idx + 1
        states = self.model.embeddings(inputs_embeds=self._rows(ids), position_ids=positions + first)
        is_word, is_mark = at < n_words, (at >= n_words) & (at < lengths[:, None])
        reads = is_word[:, None, :] | (is_mark[:, :, None] & is_mark[:, None, :])
        mask = torch.zeros(reads.shape, dtype=states.dtype, device=ids.device).masked_fill(~reads, -1e4)[:, None]
        bias = None
        if self.mpnet:
            bucket = self.model.encoder.relative_position_bucket(positions[:, None, :] - positions[:, :, None])
            bias = self.model.encoder.relative_attention_bias(bucket).permute(0, 3, 1, 2)
        return self._run(states, mask, bias, slice(0, self.n_layers), places)

    def _attend(self, layer: Any, states: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        if bias is None or layer.training or not states.is_cuda:
            attended: Tensor = layer.attention(states, mask, *([] if bias is None else [bias]))[0]
            return attended
        block, shape = layer.attention.attn, (*states.shape[:2], -1, layer.attention.attn.attention_head_size)
        query, key, value = (part(states).view(shape).transpose(1, 2) for part in (block.q, block.k, block.v))
        both = (bias if mask is None else bias + mask).to(query.dtype)
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=both)  # transformers has none for MPNet
        attended = layer.attention.LayerNorm(block.o(mixed.transpose(1, 2).flatten(2)) + states)
        return attended

    def _run(
        self, states: Tensor, mask: Tensor | None, bias: Tensor | None, layers: slice, places: Tensor | None
    ) -> Tensor:
        start, stop, pooled = layers.start, layers.stop, []
        for number, layer in enumerate(self.layers[start:stop], start=start + 1):
            if places is not None and number - 1 > max(stop - self.pooled_layers, 0):
                pooled.append(states_at(states, places))
            attended = self._attend(layer, states, mask, bias)
            if places is not None and number == stop:
                attended = states_at(attended, places)
            states = layer.output(layer.intermediate(attended), attended)
        if not pooled:
            return states
        units = (normalize(one.flatten(1), dim=1).view_as(one) for one in (*pooled, states))  # [n, p, hidden] each
        return torch.stack(list(units)).mean(0)

    def _rows(self, ids: Tensor) -> Tensor:
        """Embedding rows of word pieces and of marks."""
        words = self.model.get_input_embeddings()
        if self.marks is None:
            rows: Tensor = words(ids)
            return rows
        marked = ids >= self.vocab_size
        rows = words(ids.masked_fill(marked, 0))
        which = ids[..., None] - self.vocab_size == torch.arange(len(self.marks), device=ids.device)
        marks = which.to(rows.dtype) @ self.marks  # its backward pass is faster than that of indexing
        return torch.where(marked[..., None], marks, rows)


def _layer_list(model: Any) -> tuple[Any, ...]:
    n_layers = getattr(model.config, "num_hidden_layers", 0)
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == n_layers:
            return tuple(module)
    raise ModelError(f"Model type '{model.config.model_type}' has no list of layers; use a BERT-like encoder.")


def states_at(states: Tensor, places: Tensor) -> Tensor:
    """States [n, length, hidden] at places [n, p]: [n, p, hidden]."""
    return states.gather(1, places[..., None].expand(-1, -1, states.shape[-1]))


def _valid(lengths: Tensor, length: int) -> Tensor:
    """True for pieces, False for padding: [n, length]."""
    return torch.arange(length, device=lengths.device) < lengths[:, None]
