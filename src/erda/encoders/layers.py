"""A pretrained transformer taken apart: embeddings, any run of its layers, and its last layer at a few places only.

BERT, RoBERTa (and their kin of the same shape) and MPNet can be taken apart; any other model of `AutoModel` is run
whole, so its lower layers can be frozen but not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from erda.encoders.settings import ALL
from erda.encoders.weights import ModelFolder
from erda.errors import ModelError, SettingsError
from erda.files import first_line

BERT_KIN = ("bert", "roberta", "xlm-roberta", "camembert")


def load_model(folder: ModelFolder) -> Any:
    """The pretrained model of a folder without its pooler, in float32; a ModelError where weights are missing."""
    from transformers import AutoModel
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with torch.random.fork_rng(devices=[]):  # weights that a file lacks are drawn at random, then refused below
            model, report = AutoModel.from_pretrained(
                folder.path, output_loading_info=True, dtype=torch.float32, trust_remote_code=False
            )
    except Exception as error:  # each kind of damage raises another type: safetensors, json, OSError, KeyError, ...
        raise ModelError(f"Cannot load the model in {folder.path}: {first_line(error)}") from error
    finally:
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    wrong = [*missing, *map(str, report.get("mismatched_keys") or ())]
    if wrong:
        raise ModelError(f"The weights in {folder.path} lack {len(wrong)} tensors, the first is {wrong[0]}.")
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # not used here: it must neither be trained nor saved
    return model


class LayeredModel(nn.Module):
    """Embeddings and layers of a pretrained model, the lower ones frozen.

    `trained_layers` counts from the top; -1 trains everything, the embeddings included. Piece ids from the vocabulary
    size on are marks: rows of their own, that start as copies of the rows `mark_origins`.
    """

    def __init__(self, model: Any, *, mark_origins: Sequence[int] = (), trained_layers: int = ALL) -> None:
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
                f"trained_layers is {trained_layers}: expected 0 to {self.n_layers}, or -1 for all and the embeddings."
            )
        self.n_frozen = None if trained_layers == ALL else self.n_layers - trained_layers
        kind = model.config.model_type
        self.mpnet = kind == "mpnet"
        self._buckets: dict[tuple[int, torch.device], Tensor] = {}  # of MPNet's distances, by length
        self.splits = self.mpnet or kind in BERT_KIN
        if self.n_frozen is not None:
            self.requires_grad_(False)
            for layer in self.layers[self.n_frozen :]:
                layer.requires_grad_(True)

    def frozen_modules(self) -> list[nn.Module]:
        """What must stay as it is: always without dropout."""
        if self.n_frozen is None:
            return []
        embeddings = getattr(self.model, "embeddings", None)
        return [*([embeddings] if embeddings is not None else []), *self.layers[: self.n_frozen]]

    def embed(self, ids: Tensor) -> Tensor:
        """Piece ids [n, length] -> states before the first layer, [n, length, hidden]."""
        states: Tensor = self.model.embeddings(inputs_embeds=self._rows(ids))
        return states

    def run(self, states: Tensor, lengths: Tensor, start: int, stop: int) -> Tensor:
        """Layers `start` to `stop` over padded sentences: [n, length, hidden] -> the same shape."""
        if start >= stop:
            return states
        n, length, width = states.shape
        mask = self._mask(states, lengths)
        for layer in self.layers[start:stop]:
            attention, *projections = self.attention(layer)
            shape = (n, length, attention.num_attention_heads, attention.attention_head_size)
            query, key, value = (projection(states).view(shape).transpose(1, 2) for projection in projections)
            dropout = attention.dropout.p if attention.training else 0.0
            mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
            states = self._above_attention(layer, mixed.transpose(1, 2).reshape(n, length, width), states)
        return states

    def _mask(self, states: Tensor, lengths: Tensor) -> Tensor | None:
        """What attention may see, [n, 1, 1, length] of truth values, or MPNet's bias with -inf where it may not."""
        length = states.shape[1]
        bias = self.position_bias(length)
        if lengths.device.type == "cpu" and bool((lengths == length).all()):  # elsewhere, asking costs more
            return bias
        keep = _valid(lengths, length)[:, None, None, :]
        return keep if bias is None else bias.masked_fill(~keep, -torch.inf)

    def run_packed(self, states: Tensor, blocks: Sequence[tuple[int, int]], start: int, stop: int) -> Tensor:
        """Layers `start` to `stop` over sentences laid end to end: [n_pieces, hidden] -> the same shape.

        `blocks` are (number of sentences, their length) in the order of the rows. Nothing is padded, so a sentence's
        states do not depend on what else is in the batch.
        """
        longest = max(length for _, length in blocks)
        bias = self.position_bias(longest)
        for layer in self.layers[start:stop]:
            attention, *projections = self.attention(layer)
            shape = (attention.num_attention_heads, attention.attention_head_size)
            projected = [projection(states) for projection in projections]  # queries, keys, values
            context = torch.empty_like(projected[0])
            row = 0
            for n, length in blocks:
                rows = slice(row, row + n * length)
                query, key, value = (part[rows].view(n, length, *shape).transpose(1, 2) for part in projected)
                mask = None if bias is None else bias[..., :length, :length]
                mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
                context[rows] = mixed.transpose(1, 2).reshape(n * length, -1)
                row = rows.stop
            states = self._above_attention(layer, context, states)
        return states

    def last_at(self, states: Tensor, lengths: Tensor, places: Tensor) -> Tensor:
        """The last layer, but only at `places` [n, p]: padded states [n, length, hidden] -> [n, p, hidden].

        With few places (p = 1 or 2) it is far cheaper to move queries into the space of the states than to project
        every state to keys and values: q.(K s + k) = (q K).s + const; sum_j a_j (V s_j + v) = V (sum_j a_j s_j) + v.
        """
        layer = self.layers[-1]
        here = states_at(states, places)
        n, p, width = here.shape
        attention, query, key, value = self.attention(layer)
        heads, size = attention.num_attention_heads, attention.attention_head_size
        queries = query(here).view(n * p, heads, size).transpose(0, 1) * size**-0.5
        moved = torch.bmm(queries, key.weight.view(heads, size, width))  # [heads, n p, hidden]
        moved = moved.view(heads, n, p, width).permute(1, 0, 2, 3).reshape(n, heads * p, width)
        scores = torch.bmm(moved, states.transpose(1, 2)).view(n, heads, p, -1)
        bias = self.position_bias(states.shape[1])
        if bias is not None:
            scores = scores + bias[0][:, places].transpose(0, 1)
        scores = scores.masked_fill(~_valid(lengths, states.shape[1])[:, None, None, :], -torch.inf)
        weights = attention.dropout(scores.softmax(-1))  # [n, heads, p, length]
        mixed = torch.bmm(weights.to(states.dtype).view(n, heads * p, -1), states).view(n, heads, p, width)
        mixed = mixed.permute(1, 0, 2, 3).reshape(heads, n * p, width)
        context = torch.bmm(mixed, value.weight.view(heads, size, width).transpose(1, 2)).view(heads, n, p, size)
        context = context + value.bias.view(heads, 1, 1, size) * weights.sum(-1).transpose(0, 1)[..., None]
        return self._above_attention(layer, context.permute(1, 2, 0, 3).reshape(n, p, width), here)

    def attention(self, layer: Any) -> tuple[Any, Any, Any, Any]:
        """A layer's attention and its query, key and value projections."""
        if self.mpnet:
            attention = layer.attention.attn
            return attention, attention.q, attention.k, attention.v
        attention = layer.attention.self
        return attention, attention.query, attention.key, attention.value

    def attention_output(self, layer: Any) -> tuple[Any, Any]:
        """The projection after a layer's attention, and the normalisation that closes the residual connection."""
        block = layer.attention
        return (block.attn.o, block.LayerNorm) if self.mpnet else (block.output.dense, block.output.LayerNorm)

    def position_rows(self, n: int) -> Tensor:
        """What the places of a sentence's first `n` pieces (and BERT's segment) add to their rows: [n, hidden]."""
        embeddings = self.model.embeddings
        first = 0 if self.model.config.model_type == "bert" else embeddings.padding_idx + 1
        rows: Tensor = embeddings.position_embeddings.weight[first : first + n]
        return rows if self.mpnet else rows + embeddings.token_type_embeddings.weight[0]

    def position_bias(self, n: int) -> Tensor | None:
        """What MPNet adds to the scores of attention by distance: [1, heads, n, n]."""
        if not self.mpnet:
            return None
        encoder = self.model.encoder
        key = (n, encoder.relative_attention_bias.weight.device)
        if key not in self._buckets:
            at = torch.arange(n)
            self._buckets[key] = encoder.relative_position_bucket(at[None] - at[:, None]).to(key[1])
        bias: Tensor = encoder.relative_attention_bias(self._buckets[key])
        return bias.permute(2, 0, 1)[None].contiguous()

    def _above_attention(self, layer: Any, context: Tensor, states: Tensor) -> Tensor:
        """The rest of a layer: output projection, both residual connections, the feed-forward part."""
        if self.mpnet:
            block = layer.attention
            attended = block.LayerNorm(block.dropout(block.attn.o(context)) + states)
        else:
            attended = layer.attention.output(context, states)
        output: Tensor = layer.output(layer.intermediate(attended), attended)
        return output

    def whole(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """The whole model as it comes: piece ids [n, length] -> [n, length, hidden]."""
        mask = _valid(lengths, ids.shape[1]).long()
        states: Tensor = self.model(inputs_embeds=self._rows(ids), attention_mask=mask).last_hidden_state
        return states

    def _rows(self, ids: Tensor) -> Tensor:
        """Rows of the embedding matrix, and of the marks for ids past its end."""
        words = self.model.get_input_embeddings()
        if self.marks is None:
            rows: Tensor = words(ids)
            return rows
        marked = ids >= self.vocab_size
        rows = words(ids.masked_fill(marked, 0))
        which = ids[..., None] - self.vocab_size == torch.arange(len(self.marks), device=ids.device)
        return torch.where(marked[..., None], which.to(rows.dtype) @ self.marks, rows)  # a product: fast backwards


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
    """True where a piece is, False where padding is: [n, length]."""
    return torch.arange(length, device=lengths.device) < lengths[:, None]
