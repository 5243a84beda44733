"""Tokenise sentences into word pieces, with marks around the two entities.

Mode `paper` writes `# head #` and `@ tail @` with pieces of the tokenizer's vocabulary. Mode `markers` writes
`[E1] head [/E1]` and `[E2] tail [/E2]`. These four marks have the ids after the model's vocabulary, so training them
changes no word. `Pieces.places` are the positions of the start marks. Mode `levitated` writes the four
marks after the sentence; `places` then name the pieces whose positions they share. Mode `starts` writes the two start
marks alone there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from erda.errors import ModelError, SettingsError
from erda.text.sentences import words_of
from erda.types import Example

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from erda.encoders import Mode

Key = TypeVar("Key")

LEVITATED = ("levitated", "starts")  # modes with the marks after the sentence
MARKS = ("[E1]", "[/E1]", "[E2]", "[/E2]")
REQUIRED = ("cls", "sep", "unk", "pad")  # special tokens of every BERT-like tokenizer
SPECIAL = (*REQUIRED, "mask")
N_SPECIAL = 6  # [CLS], [SEP] and four marks
KEPT_SENTENCES = 100_000
KEPT_WORDS = 400_000
MOST_PAIRS = 32  # of a sentence in one run


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Model input of one sentence: piece ids from [CLS] to [SEP], and the positions of the two start marks.

    A plain text has no marks: its places are 0, the position of [CLS]. `key` is a digest of the other fields.
    """

    ids: np.ndarray  # [n_pieces] int32
    places: tuple[int, ...]  # of `Layout`
    key: bytes

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_levitated(self) -> int:
        """Number of marks after the sentence."""
        return len(self.places) - 2


def open_session(graph: bytes) -> Any:
    """Load the graph of an encoder. It runs on one thread, since several sentences run in parallel."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else ONNX Runtime reports its use to its maker
    try:
        import onnxruntime
    except ImportError as fault:  # absent, or built for another machine
        raise ModelError(f"ONNX Runtime is missing or broken ({fault}). Run: pip install onnxruntime") from fault

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors have no common base class
        raise ModelError(f"ONNX Runtime {onnxruntime.__version__} cannot load the encoder: {error}") from error


def graph_inputs(batch: Sequence[Pieces]) -> dict[str, np.ndarray]:
    """Inputs of the graph of an encoder: one sentence, with the levitated marks of all its pairs."""
    ids, places, n_own = batch[0].ids, [pieces.places for pieces in batch], batch[0].n_levitated
    if not n_own:
        return {"ids": ids, "marks": np.array(places[0])}
    n_words = len(ids) - n_own
    return {
        "ids": np.concatenate([ids, np.tile(ids[n_words:], len(batch) - 1)]),
        "marks": n_words + np.arange(0, len(batch) * n_own, n_own // 2),
        "positions": np.concatenate([np.arange(n_words), np.array(places, np.int64)[:, 2:].ravel()]),
        "owners": np.repeat(np.arange(1 + len(batch)), [n_words, *[n_own] * len(batch)]),
    }


def shared_runs(batch: Sequence[Pieces]) -> list[list[int]]:
    """Rows of a batch that share a run: pairs of one sentence, if its words do not contain the marks."""
    if not all(pieces.n_levitated for pieces in batch):
        return [[row] for row in range(len(batch))]
    of_sentence: dict[bytes, list[int]] = {}
    for row, pieces in enumerate(batch):
        of_sentence.setdefault(pieces.ids[: -pieces.n_levitated].tobytes(), []).append(row)
    return [rows[at : at + MOST_PAIRS] for rows in of_sentence.values() for at in range(0, len(rows), MOST_PAIRS)]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Marked sentences in eleven segments: [CLS] before [ first ] between [ second ] after [SEP].

    Mode `levitated`: [CLS] before first between second after [SEP] [E1] [/E1] [E2] [/E2]. Mode `starts`: the segments
    of the end marks are empty.
    """

    begins: np.ndarray  # [n, 12], starts of the segments and the end of the sentence
    fixed: np.ndarray  # [n, 11], the only piece of each segment, or -1 for text
    places: np.ndarray  # [n, 2], positions of the start marks of head and tail; `levitated`: then of first and last
    # piece of head and tail, [n, 6]; `starts`: then of their first pieces, [n, 4]


class MarkedTokenizer:
    """Tokenise marked sentences into word pieces, with caches of words and of sentences.

    Tokens of other tools ("Oslo's") are split into our words, so that a sentence has the same pieces as tokens and as
    marked text. A word without pieces (an empty string, a zero-width space) disappears; an entity without pieces
    becomes the unknown token. Special tokens spelled out in a sentence (`[SEP]`) are ordinary text. Sentences over
    `limit` pieces are shortened around their entities (`cut`).
    """

    def __init__(
        self, backend: Tokenizer, *, special: Mapping[str, int | None], mode: Mode, vocab_size: int, limit: int
    ) -> None:
        if limit < N_SPECIAL + 2:
            raise SettingsError(f"max_pieces: a sentence needs at least {N_SPECIAL + 2} word pieces, got {limit}.")
        ids = {name: special.get(name) for name in SPECIAL}
        known = {name: number for name, number in ids.items() if number is not None}
        if missing := [name for name in REQUIRED if name not in known]:
            raise ModelError(f"the tokenizer has no {', no '.join(missing)} token; erda needs a BERT-like encoder.")
        self.mode = mode
        self.limit = limit
        self.vocab_size = vocab_size
        self.cls_id, self.sep_id, self.unk_id, self.pad_id = (known[name] for name in REQUIRED)
        self.mask_id = known.get("mask", self.unk_id)
        self.special = {**known, "mask": self.mask_id}
        self._backend = backend
        self._backend.encode_special_tokens = True  # `[SEP]` in a sentence is ordinary text
        self._backend.no_padding()
        self._backend.no_truncation()
        self._words: dict[str, list[int]] = {}
        self._sentences: dict[Example, Pieces] = {}
        self._texts: dict[str, Pieces] = {}
        words = self._read_words(["#", "@"])
        hash_mark, at_mark = (words[mark] or [self.unk_id] for mark in "#@")
        self.mark_origins = (hash_mark[-1],) * 2 + (at_mark[-1],) * 2  # ids that the marks use or copy
        self.marks = self.mark_origins if mode == "paper" else tuple(range(vocab_size, vocab_size + len(MARKS)))
        self.text_segments = (1, 2, 3, 4, 5) if mode in LEVITATED else (1, 3, 5, 7, 9)  # of `Layout`

    @classmethod
    def from_json(
        cls, content: str, *, special: Mapping[str, int], mode: Mode, vocab_size: int, limit: int
    ) -> MarkedTokenizer:
        """Rebuild a tokenizer from `to_json`, without a model folder."""
        from tokenizers import Tokenizer

        return cls(Tokenizer.from_str(content), special=special, mode=mode, vocab_size=vocab_size, limit=limit)

    def to_json(self) -> str:
        """Serialise the word tokenizer in the format of the tokenizers library, without marks and limit."""
        content: str = self._backend.to_str()
        return content

    def encode(
        self, examples: Sequence[Example], *, blanked: Sequence[tuple[bool, bool]] | None = None
    ) -> list[Pieces]:
        """Tokenise marked sentences; `blanked[i]` says which of (head, tail) the mask token replaces."""
        if blanked is not None:
            return self._marked(examples, blanked)
        found = [self._sentences.get(example) for example in examples]
        new = [example for example, pieces in zip(examples, found, strict=True) if pieces is None]
        made = self._marked(new, [(False, False)] * len(new))
        _keep(self._sentences, dict(zip(new, made, strict=True)), KEPT_SENTENCES)
        rest = iter(made)
        return [next(rest) if pieces is None else pieces for pieces in found]

    def pieces_of(self, word: str) -> list[int]:
        """Piece ids of one word."""
        return self._read_words([word])[word]

    @property
    def vocabulary(self) -> list[str]:
        """Text of every piece, by id."""
        numbers = self._backend.get_vocab()
        texts = [""] * (max(numbers.values()) + 1)
        for text, number in numbers.items():
            texts[number] = text
        return texts

    def numbers_of(self, vocabulary: Iterable[str]) -> np.ndarray:
        """Ids of another tokenizer's pieces in this vocabulary, -1 for unknown pieces."""
        numbers = self._backend.get_vocab()
        return np.array([numbers.get(str(text), -1) for text in vocabulary], np.int32)

    def encode_texts(self, texts: Sequence[str]) -> list[Pieces]:
        """Tokenise plain texts: [CLS] text [SEP], truncated at the limit."""
        found = {text: self._texts.get(text) for text in texts}
        new = [text for text, pieces in found.items() if pieces is None]
        words = self._read_words(word for text in new for word in text.split())
        made = {}
        for text in new:
            ids = list(chain.from_iterable(words[word] for word in text.split()))
            made[text] = _pieces([self.cls_id, *ids[: self.limit - 2], self.sep_id], (0, 0))
        _keep(self._texts, made, KEPT_SENTENCES)
        return [found[text] or made[text] for text in texts]

    def _read_words(self, words: Iterable[str]) -> dict[str, list[int]]:
        """Return the word cache, after tokenising the missing `words` in one batch.

        Thread-safe: entries are only added, and a full cache is replaced, so its readers keep the old one.
        """
        known = self._words
        if len(known) > KEPT_WORDS:
            known = self._words = {}
        if new := [word for word in dict.fromkeys(words) if word not in known]:
            clean = [words_of(word.encode("utf-8", "replace").decode("utf-8")) for word in new]  # no lone surrogates
            encodings = self._backend.encode_batch_fast(clean, is_pretokenized=True, add_special_tokens=False)
            known.update((word, encoding.ids) for word, encoding in zip(new, encodings, strict=True))
        return known

    def parts(self, examples: Sequence[Example]) -> list[list[list[int]]]:
        """Tokenise sentences in five parts: before, entity, between, entity, after; an empty entity is unknown."""
        sentences = dict.fromkeys(example.tokens for example in examples)
        known = self._read_words(chain.from_iterable(sentences))
        words = {tokens: [known[token] for token in tokens] for tokens in sentences}
        pieces = {tokens: list(chain.from_iterable(own)) for tokens, own in words.items()}
        starts = {tokens: list(accumulate(map(len, own), initial=0)) for tokens, own in words.items()}
        found = []
        for example in examples:
            own, at = pieces[example.tokens], starts[example.tokens]
            one, two = sorted((example.head.span, example.tail.span))
            cuts = (0, at[one.start], at[one.end], at[two.start], at[two.end], len(own))
            parts = [own[start:end] for start, end in pairwise(cuts)]
            parts[1], parts[3] = parts[1] or [self.unk_id], parts[3] or [self.unk_id]
            found.append(parts)
        return found

    def layout(self, lengths: np.ndarray, head_first: np.ndarray) -> Layout:
        """Lay out sentences whose five parts have these `lengths`, [n, 5]."""
        sizes = np.ones((len(lengths), 11), np.int64)
        sizes[:, self.text_segments] = lengths
        sizes[:, [8, 10]] *= self.mode != "starts"
        begins = np.zeros((len(lengths), 12), np.int64)
        np.cumsum(sizes, axis=1, out=begins[:, 1:])
        head_marks, tail_marks = np.array(self.marks).reshape(2, 2)
        fixed = np.full((len(lengths), 11), -1)
        fixed[:, 0] = self.cls_id
        if self.mode in LEVITATED:
            fixed[:, 6:] = self.sep_id, *self.marks
            spans = np.stack([begins[:, 2], begins[:, 3] - 1, begins[:, 4], begins[:, 5] - 1], axis=1)
            spans = np.where(head_first[:, None], spans, spans[:, [2, 3, 0, 1]])
            shared = spans if self.mode == "levitated" else spans[:, ::2]
            return Layout(begins, fixed, np.concatenate([begins[:, [7, 9]], shared], axis=1))
        fixed[:, 10] = self.sep_id
        fixed[:, [2, 4]] = np.where(head_first[:, None], head_marks, tail_marks)
        fixed[:, [6, 8]] = np.where(head_first[:, None], tail_marks, head_marks)
        return Layout(begins, fixed, np.where(head_first[:, None], begins[:, [2, 6]], begins[:, [6, 2]]))

    def _marked(self, examples: Sequence[Example], blanked: Sequence[tuple[bool, bool]]) -> list[Pieces]:
        sentences, room = self.parts(examples), self.limit - N_SPECIAL
        head_first = [example.head.span < example.tail.span for example in examples]
        for row, (parts, blank) in enumerate(zip(sentences, blanked, strict=True)):
            for place, hidden in zip((1, 3), blank if head_first[row] else blank[::-1], strict=True):
                parts[place] = [self.mask_id] if hidden else parts[place]
            if sum(map(len, parts)) > room:
                sentences[row] = cut(parts, room)
        lengths = np.array([[len(part) for part in parts] for parts in sentences], np.int64).reshape(-1, 5)
        layout = self.layout(lengths, np.array(head_first, bool))
        found = []
        sizes, places = np.diff(layout.begins, axis=1), map(tuple, layout.places.tolist())
        for parts, size, fixed, own in zip(sentences, sizes, layout.fixed, places, strict=True):
            ids = np.repeat(fixed, size)
            ids[ids < 0] = list(chain.from_iterable(parts))
            found.append(_pieces(ids, own))
        return found


def cut(parts: Sequence[list[int]], room: int) -> list[list[int]]:
    """Shorten (before, entity, between, entity, after) to `room` pieces.

    Keep both entities, and the context pieces nearest to either entity (the left piece of a tie). If the entities alone
    do not fit, keep the first pieces of each: at least half of the room, or the whole entity.
    """
    before, first, between, second, after = parts
    n_entity = len(first) + len(second)
    if n_entity > room:
        n_first = min(len(first), max(room // 2, room - len(second)))
        return [[], first[:n_first], [], second[: room - n_first], []]
    steps = np.arange(len(between))
    distances = np.concatenate(
        [np.arange(len(before), 0, -1), np.minimum(steps + 1, len(between) - steps), np.arange(1, len(after) + 1)]
    )
    kept = np.sort(np.argsort(distances, kind="stable")[: room - n_entity])
    context = np.array([*before, *between, *after], dtype=np.int64)[kept].tolist()
    n_before = int(np.searchsorted(kept, len(before)))
    n_between = int(np.searchsorted(kept, len(before) + len(between)))
    return [context[:n_before], first, context[n_before:n_between], second, context[n_between:]]


def _pieces(ids: Sequence[int] | np.ndarray, places: tuple[int, ...]) -> Pieces:
    array = np.asarray(ids, dtype=np.int32)
    digest = blake2b(array.tobytes(), digest_size=16, person=b"%d %d" % places[:2])
    digest.update(repr(places[2:]).encode() if places[2:] else b"")
    return Pieces(array, places, digest.digest())


def _keep(store: dict[Key, Pieces], made: dict[Key, Pieces], size: int) -> None:
    """Cache new sentences and evict the oldest beyond `size`; another thread may have evicted them already."""
    store.update(made)
    for old in list(store)[: max(0, len(store) - size)]:
        store.pop(old, None)
