"""Packed sentences: word pieces in one flat array (a million sentences take 50 MB), and batches made on the device.

The pieces stay on the GPU, so training never waits for text. A few numbers per sentence say how a batch shows it: with
masked names, or without the words around the entities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from erda.encoders.tokens import N_SPECIAL, MarkedTokenizer, cut
from erda.errors import ModelError
from erda.types import Example

N_PARTS = 5
AS_IT_IS, MASKED, SOMETHING = 0, 1, 2  # an entity's name: unchanged, the mask token, or the word `something`
SOMETHING_WORD = "something"
WHOLE = 1 << 16  # more context pieces than any sentence has
STEP = 8  # lengths on a GPU are multiples of 8, which its kernels prefer

Chunk = tuple[Tensor, Tensor, Tensor]  # piece ids [n, length], lengths [n], `places` of `Layout`


@dataclass(frozen=True, slots=True, eq=False)
class PackedSentences:
    """Sentences in five parts: before, first entity, between, second entity, after.

    `pieces` index `vocabulary`, which is text, so that a tokenizer with other ids for the same pieces can read them.
    """

    pieces: np.ndarray  # [sum of lengths], uint16 if the vocabulary allows
    lengths: np.ndarray  # [n_sentences, 5]
    head_first: np.ndarray  # [n_sentences] bool
    vocabulary: np.ndarray  # [n_pieces] text

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def of(cls, examples: Sequence[Example], tokenizer: MarkedTokenizer, vocabulary: np.ndarray) -> PackedSentences:
        """Pack sentences at full length with the tokenizer of a vocabulary; `SentenceBatches` shortens them."""
        parts = tokenizer.parts(examples)
        flat = list(chain.from_iterable(chain.from_iterable(parts)))
        return cls(
            np.array(flat, np.min_scalar_type(len(vocabulary))),
            np.array([[len(part) for part in five] for five in parts], np.uint32).reshape(-1, N_PARTS),
            np.array([example.head.span < example.tail.span for example in examples], bool),
            vocabulary,
        )

    @classmethod
    def joined(cls, parts: Sequence[PackedSentences]) -> PackedSentences:
        """Sentences of all parts, which one tokenizer has packed."""
        first, *others = parts
        if not all(np.array_equal(first.vocabulary, one.vocabulary) for one in others):
            raise ModelError("sentences packed with different tokenizers; pack them again.")
        names = ("pieces", "lengths", "head_first")
        return replace(first, **{name: np.concatenate([getattr(one, name) for one in parts]) for name in names})

    def take(self, rows: np.ndarray) -> PackedSentences:
        """Select sentences by row."""
        totals = self.lengths.sum(1, dtype=np.int64)
        ends = np.cumsum(totals[rows])
        first = np.repeat((np.cumsum(totals) - totals)[rows] - (ends - totals[rows]), totals[rows])
        pieces = self.pieces[first + np.arange(len(first))]
        return replace(self, pieces=pieces, lengths=self.lengths[rows], head_first=self.head_first[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """Rows of sentences [n], and how a batch shows each of them."""

    rows: np.ndarray
    names: np.ndarray  # [n, 2] for head and tail: AS_IT_IS, MASKED or SOMETHING
    around: np.ndarray  # [n, 2] pieces kept before the first entity and after the second

    @classmethod
    def whole(cls, rows: np.ndarray, *, blank_names: bool = False) -> Shown:
        """Show whole sentences, with names unchanged or masked."""
        shape = (len(rows), 2)
        return cls(rows, np.full(shape, MASKED if blank_names else AS_IT_IS), np.full(shape, WHOLE))


def on_device(array: np.ndarray, device: torch.device) -> Tensor:
    """Copy an array to a device, without blocking a GPU."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class SentenceBatches:
    """Packed sentences on a device, as input of a model with its own tokenizer."""

    def __init__(self, sentences: PackedSentences, tokenizer: MarkedTokenizer, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self._tokenizer = tokenizer
        self._lengths = sentences.lengths.astype(np.int64)
        totals = self._lengths.sum(1)
        self._starts = np.cumsum(totals) - totals
        self._head_first = sentences.head_first
        pieces = tokenizer.numbers_of(sentences.vocabulary)[sentences.pieces]
        if len(pieces) and pieces.min() < 0:
            lacking = sentences.vocabulary[sentences.pieces[pieces.argmin()]]
            raise ModelError(f"sentences packed with another tokenizer: the model has no word piece {str(lacking)!r}.")
        self._cut(pieces, np.flatnonzero(totals > tokenizer.limit - N_SPECIAL))
        self._pieces = torch.from_numpy(pieces).to(self.device)
        something = tokenizer.pieces_of(SOMETHING_WORD)
        self._shown_as = np.array([-1, tokenizer.mask_id, something[0] if something else tokenizer.unk_id])

    def chunks(self, shown: Shown, n_chunks: int) -> tuple[list[Chunk], Tensor]:
        """Chunks of sentences of similar length, and the position of each row of `shown` among them, [n]."""
        table, lengths = self._table(shown)
        order = np.argsort(lengths, kind="stable")
        tensor, place = (on_device(one, self.device) for one in (table[order], np.argsort(order, kind="stable")))
        sizes = [len(part) for part in np.array_split(order, min(n_chunks, len(order)))]
        longest = lengths[order][np.cumsum(sizes) - 1].tolist()
        parts = tensor.split(sizes)
        return [self._chunk(part, length) for part, length in zip(parts, longest, strict=True)], place

    def _chunk(self, table: Tensor, length: int) -> Chunk:
        if self.device.type == "cuda":
            length = min(-(-length // STEP) * STEP, self._tokenizer.limit)
        begins, fixed, offsets, places = table.split([12, 12, 12, table.shape[1] - 36], dim=1)
        at = torch.arange(length, device=self.device)
        segment = (at >= begins[:, 1:, None]).sum(1)  # 0 to 10, and 11 for padding: [n, length]
        ids, offset = fixed.gather(1, segment), offsets.gather(1, segment)
        text = self._pieces[(offset + at).clamp(0, len(self._pieces) - 1)]
        return torch.where(ids < 0, text, ids), begins[:, 11], places

    def _table(self, shown: Shown) -> tuple[np.ndarray, np.ndarray]:
        """One row of numbers per sentence, and lengths [n].

        Columns: `begins` of the layout (12); `fixed` pieces, with names as they are shown, and the padding (12); offset
        of each segment's text in `pieces`, minus its start (12); `places`.
        """
        tokenizer, n = self._tokenizer, len(shown.rows)
        lengths, head_first = self._lengths[shown.rows].copy(), self._head_first[shown.rows]
        starts = self._starts[shown.rows, None] + np.cumsum(lengths, 1) - lengths
        names = self._shown_as[np.where(head_first[:, None], shown.names, shown.names[:, ::-1])]
        kept = np.minimum(lengths[:, [0, 4]], shown.around)
        starts[:, 0] += lengths[:, 0] - kept[:, 0]
        lengths[:, [0, 4]] = kept
        lengths[:, [1, 3]] = np.where(names < 0, lengths[:, [1, 3]], 1)
        layout = tokenizer.layout(lengths, head_first)
        text = list(tokenizer.text_segments)
        layout.fixed[:, text[1::2]] = names
        offsets = np.zeros((n, 12), np.int64)
        offsets[:, text] = starts - layout.begins[:, text]
        padding = np.full((n, 1), tokenizer.pad_id)
        columns = (layout.begins, layout.fixed, padding, offsets, layout.places)
        return np.concatenate(columns, axis=1), layout.begins[:, 11]

    def _cut(self, pieces: np.ndarray, rows: np.ndarray) -> None:
        """Shorten sentences to the limit of the model, in place."""
        for row in rows.tolist():
            start, ends = self._starts[row], np.cumsum(self._lengths[row])
            parts = [part.tolist() for part in np.split(pieces[start : start + ends[-1]], ends[:-1])]
            parts = cut(parts, self._tokenizer.limit - N_SPECIAL)
            flat = list(chain.from_iterable(parts))
            pieces[start : start + len(flat)] = flat
            self._lengths[row] = [len(part) for part in parts]
