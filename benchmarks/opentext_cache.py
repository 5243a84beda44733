"""Vectors and entity types of the open-text benchmark, computed once: questions, teaching sentences, background.

Types come from a spaCy model and are assigned to annotated mentions by overlap (docs/open-text.md).
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from erda.data.catalogue import load_dataset
from erda.data.dataset import shuffled
from erda.encoders import build_encoder
from erda.encoders.base import Encoder, unit_rows
from erda.errors import DataError
from erda.files import data_folder
from erda.types import Entity, Example, Relation, Span
from opentext_documents import Question, questions_of, read_documents
from opentext_score import Pairs

TAUGHT_AT_MOST = 160  # sentences of a relation to draw from
N_BACKGROUND = 30_000  # pairs
WIKI_ROWS, WIKI_SHARE = 120_000, 0.03  # rows read of each part of wiki-large, and the share of them kept
NO_SPACE_BEFORE = frozenset([".", ",", ";", ":", ")", "!", "?", "'s", "%", "n't", "''", "]", "-", "–", "/"])
NO_SPACE_AFTER = frozenset(["(", "[", "$", "``", "£", "#", "-", "–", "/"])
UNKNOWN = ""
Tags = list[tuple[int, int, str]]


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Everything that the benchmark asks and teaches. Types are numbers into `type_names`; 0 is unknown."""

    questions: list[Question]
    asked: Pairs
    annotated: np.ndarray  # [n, 2] annotated types of the questions, into `annotated_names`
    relations: tuple[Relation, ...]
    taught: dict[str, list[int]]  # relation -> rows of `teaching`
    teaching: list[Example]
    lessons: Pairs
    background: Pairs
    type_names: list[str]
    annotated_names: list[str]


def letters(tokens: Sequence[str]) -> str:
    """A sentence by its letters and digits alone, to find equal sentences."""
    return "".join(character for character in " ".join(tokens).lower() if character.isalnum())


def teaching_sentences(documents: Sequence[dict[str, list[list[str]]]]) -> tuple[tuple[Relation, ...], list[Example]]:
    """Sentences of redoc41 that stand in none of the documents, relation by relation."""
    dataset = load_dataset("redoc41")
    known = {letters(sentence) for document in documents for sentence in document["sents"]}
    free = [example for example in dataset.train if letters(example.tokens) not in known]
    rows = []
    for relation in dataset.relations:
        rows += shuffled([one for one in free if one.relation == relation.id], 0, relation.id)[:TAUGHT_AT_MOST]
    return dataset.relations, rows


def background_sentences(known: set[str]) -> Iterator[tuple[str, ...]]:
    """Sentences of wiki-large that are not `known` (by their letters), each once."""
    draw = random.Random(0)
    for part in range(4):
        with gzip.open(data_folder() / f"corpus/wiki-large-{part}.jsonl.gz", "rt", encoding="utf-8") as file:
            for _, line in zip(range(WIKI_ROWS), file, strict=False):
                if draw.random() < WIKI_SHARE:
                    tokens = tuple(json.loads(line)["tokens"])
                    if 5 <= len(tokens) <= 80 and letters(tokens) not in known:
                        known.add(letters(tokens))
                        yield tokens


class Tagger:
    """Entity types of tokenised text by a spaCy model."""

    def __init__(self, folder: Path) -> None:
        import spacy

        unused = ["parser", "tagger", "lemmatizer", "attribute_ruler", "senter"]
        self._model = spacy.load(folder, exclude=unused)

    def tag(self, texts: Sequence[Sequence[str]]) -> list[Tags]:
        """Entities of each text: first token, end, type."""
        from spacy.tokens import Doc

        vocabulary = self._model.vocab
        documents = [
            Doc(vocabulary, words=[word if word.strip() else "_" for word in text], spaces=_spaces(text))
            for text in texts
        ]
        return [[(e.start, e.end, e.label_) for e in one.ents] for one in self._model.pipe(documents, batch_size=64)]


def _spaces(tokens: Sequence[str]) -> list[bool]:
    """Whether a space follows each token."""
    found, quoted = [], False
    for token, after in zip(tokens, [*tokens[1:], ""], strict=True):
        space = not (after in NO_SPACE_BEFORE or after.startswith("'") or token in NO_SPACE_AFTER)
        if token == '"':
            quoted = not quoted
            space = space and not quoted
        found.append(space and not (after == '"' and quoted))
    return found


def type_of(span: Span, tags: Tags, offset: int = 0) -> str:
    """The type of the tagged entity that overlaps a mention most; "" where none does."""
    shared = [(min(end, span.end + offset) - max(start, span.start + offset), name) for start, end, name in tags]
    best = max(shared, key=lambda one: one[0], default=(0, UNKNOWN))
    return best[1] if best[0] > 0 else UNKNOWN


def prepare(folder: Path, *, tagger: Path, encoder: str = "minilm") -> None:
    """Tag and embed everything into `folder`; about 81,000 sentences."""
    tag = Tagger(tagger).tag
    documents = read_documents(data_folder())
    questions = list(questions_of(documents))
    _, teaching = teaching_sentences(documents)
    tags = tag([[token for sentence in document["sents"] for token in sentence] for document in documents])
    starts = [np.cumsum([0, *map(len, document["sents"])]) for document in documents]
    types = {"questions": [], "teaching": [], "background": []}  # type: dict[str, list[tuple[str, str]]]
    for one in questions:
        found, offset = tags[one.document], int(starts[one.document][one.sentence])
        spans = one.example.head.span, one.example.tail.span
        types["questions"].append((type_of(spans[0], found, offset), type_of(spans[1], found, offset)))
    for example, found in zip(teaching, tag([example.tokens for example in teaching]), strict=True):
        types["teaching"].append((type_of(example.head.span, found), type_of(example.tail.span, found)))
    known = {letters(sentence) for document in documents for sentence in document["sents"]}
    known |= {letters(one.tokens) for one in (*load_dataset("redoc41").train, *load_dataset("redoc41").unrelated)}
    sentences = list(background_sentences(known))
    pairs = [
        (Example(text, _entity(text, head), _entity(text, tail)), (head[2], tail[2]))
        for text, found in zip(sentences, tag(sentences), strict=True)
        for head in found
        for tail in found
        if head is not tail
    ]
    random.Random(0).shuffle(pairs)
    types["background"] = [pair[1] for pair in pairs[:N_BACKGROUND]]
    groups = {
        "questions": [one.example for one in questions],
        "teaching": teaching,
        "background": [pair[0] for pair in pairs[:N_BACKGROUND]],
    }
    folder.mkdir(parents=True, exist_ok=True)
    reader = build_encoder(encoder)
    for name, examples in groups.items():
        vectors = unit_rows(reader.embed(examples)).astype(np.float16)
        places = np.array([(one.head.span.start, one.tail.span.start) for one in examples])
        np.savez(folder / f"{name}.npz", vectors=vectors, types=np.array(types[name]), starts=places)


def _entity(tokens: Sequence[str], tagged: tuple[int, int, str]) -> Entity:
    start, end, _ = tagged
    return Entity(" ".join(tokens[start:end]), Span(start, end))


def load(folder: Path) -> World:
    """Read what `prepare` wrote."""
    names = ("questions", "teaching", "background")
    if not all((folder / f"{name}.npz").is_file() for name in names):
        raise DataError(
            f"{folder} has no vectors yet. Run: python benchmarks/opentext.py prepare {folder} --tagger DIR"
        )
    arrays = {name: np.load(folder / f"{name}.npz") for name in names}
    documents = read_documents(data_folder())
    questions = list(questions_of(documents))
    relations, teaching = teaching_sentences(documents)
    if len(questions) != len(arrays["questions"]["vectors"]) or len(teaching) != len(arrays["teaching"]["vectors"]):
        raise DataError(f"{folder} was made from other data. Delete it and run prepare again.")
    found = sorted({name for array in arrays.values() for name in array["types"].ravel()} - {UNKNOWN})
    number = {name: i for i, name in enumerate([UNKNOWN, *found])}
    pairs = {
        name: Pairs(
            unit_rows(array["vectors"].astype(np.float32)), np.vectorize(number.get)(array["types"]), array["starts"]
        )
        for name, array in arrays.items()
    }
    annotated_names = sorted({name for one in questions for name in one.types})
    annotated = np.array([[1 + annotated_names.index(name) for name in one.types] for one in questions])
    taught: dict[str, list[int]] = {relation.id: [] for relation in relations}
    for row, example in enumerate(teaching):
        taught[str(example.relation)].append(row)
    return World(
        questions,
        pairs["questions"],
        annotated,
        relations,
        taught,
        teaching,
        pairs["teaching"],
        pairs["background"],
        [UNKNOWN, *found],
        [UNKNOWN, *annotated_names],
    )


def _place(example: Example) -> tuple[tuple[str, ...], Span, Span]:
    """What decides the vector of an example: the sentence and both spans, not the relation."""
    return example.tokens, example.head.span, example.tail.span


class CachedEncoder(Encoder):
    """Reads the vectors of known sentences from a table; embeds relation names itself."""

    def __init__(self, examples: Sequence[Example], vectors: np.ndarray, encoder: Encoder) -> None:
        self.spec, self.dim = encoder.spec, encoder.dim
        self.background_file = encoder.background_file
        self._encoder = encoder
        self._known = dict(zip(map(_place, examples), vectors, strict=True))
        self._names: dict[Example, np.ndarray] = {}

    def embed(self, examples: Sequence[Example], *, blanked: bool = False, batch_size: int | None = None) -> np.ndarray:
        """Look up sentences; embed blanked ones once."""
        if not blanked:
            return np.stack([self._known[_place(example)] for example in examples])
        new = [example for example in dict.fromkeys(examples) if example not in self._names]
        if new:
            self._names |= dict(zip(new, self._encoder.embed(new, blanked=True), strict=True))
        return np.stack([self._names[example] for example in examples])

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Embed plain texts."""
        return self._encoder.embed_texts(texts)
