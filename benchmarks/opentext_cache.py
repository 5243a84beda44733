"""Vectors and entity types of the open-text benchmark, computed once: questions and teaching sentences.

Types come from a spaCy model and are assigned to annotated mentions by overlap (docs/open-text.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from erda.data.catalogue import load_dataset
from erda.data.dataset import shuffled
from erda.encoders import build_encoder
from erda.encoders.base import Encoder, unit_rows
from erda.errors import DataError
from erda.files import data_folder
from erda.methods.open_head import Pairs, type_numbers
from erda.text.spacy_tagger import UNUSED
from erda.text.token_types import token_tagger, type_of
from erda.types import Example, Relation, Span
from opentext_documents import Question, questions_of, read_documents

TAUGHT_AT_MOST = 160  # sentences of a relation to draw from


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Everything that the benchmark asks and teaches. Types are those of the packaged statistics; 0 is unknown."""

    questions: list[Question]
    asked: Pairs
    relations: tuple[Relation, ...]
    taught: dict[str, list[int]]  # relation -> rows of `teaching`
    teaching: list[Example]
    lessons: Pairs


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


def prepare(folder: Path, *, tagger: Path) -> None:
    """Tag and embed everything into `folder`; about 51,000 sentences."""
    import spacy

    tag = token_tagger(spacy.load(tagger, exclude=[*UNUSED, "senter"]))
    documents = read_documents(data_folder())
    questions = list(questions_of(documents))
    _, teaching = teaching_sentences(documents)
    tags = tag([token for sentence in document["sents"] for token in sentence] for document in documents)
    starts = [np.cumsum([0, *map(len, document["sents"])]) for document in documents]
    types = {"questions": [], "teaching": []}  # type: dict[str, list[list[str]]]
    for one in questions:
        found, offset = tags[one.document], int(starts[one.document][one.sentence])
        types["questions"].append([type_of(e.span, found, offset=offset) for e in (one.example.head, one.example.tail)])
    for example, found in zip(teaching, tag(example.tokens for example in teaching), strict=True):
        types["teaching"].append([type_of(entity.span, found) for entity in (example.head, example.tail)])
    folder.mkdir(parents=True, exist_ok=True)
    reader = packaged_encoder()
    for name, examples in {"questions": [one.example for one in questions], "teaching": teaching}.items():
        vectors = unit_rows(reader.embed(examples)).astype(np.float16)
        places = np.array([(one.head.span.start, one.tail.span.start) for one in examples])
        np.savez(folder / f"{name}.npz", vectors=vectors, types=np.array(types[name]), starts=places)


def packaged_encoder() -> Encoder:
    """The encoder that an extractor uses by default."""
    return build_encoder("minilm", adapter="shipped", engine="packaged", trained_layers=0)


def load(folder: Path, type_names: Sequence[str]) -> World:
    """Read what `prepare` wrote."""
    names = ("questions", "teaching")
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
    pairs = {
        name: Pairs(
            unit_rows(array["vectors"].astype(np.float32)),
            type_numbers(array["types"].tolist(), type_names),
            array["starts"],
        )
        for name, array in arrays.items()
    }
    taught: dict[str, list[int]] = {relation.id: [] for relation in relations}
    for row, example in enumerate(teaching):
        taught[str(example.relation)].append(row)
    return World(questions, pairs["questions"], relations, taught, teaching, pairs["teaching"])


def _place(example: Example) -> tuple[tuple[str, ...], Span, Span]:
    """What decides the vector of an example: the sentence and both spans, not the relation."""
    return example.tokens, example.head.span, example.tail.span


class CachedEncoder(Encoder):
    """Reads the vectors of known sentences from a table; embeds relation names itself."""

    def __init__(self, examples: Sequence[Example], vectors: np.ndarray, encoder: Encoder) -> None:
        self.spec, self.dim = encoder.spec, encoder.dim
        self.background_file, self.unlabelled_file = encoder.background_file, encoder.unlabelled_file
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
