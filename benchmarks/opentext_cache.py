"""Entity types and vectors of the open-text benchmark, computed once: questions and teaching sentences.

Types come from a spaCy model and are assigned to annotated mentions by overlap (docs/open-text.md). Their file is
small: vectors can be computed on a machine with a GPU and without spaCy.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from erda.data.catalogue import load_dataset
from erda.data.dataset import shuffled
from erda.data.streams import with_written_patterns
from erda.encoders.contract import BackgroundFile, Encoder, UnlabelledFile, save_background, save_unlabelled, unit_rows
from erda.errors import DataError
from erda.files import data_folder, decode_json, read_arrays, read_bytes, write_arrays, write_lines
from erda.methods.open_head import Pairs, type_numbers
from erda.methods.posterior import COMMON_NAMES, TEMPLATES, sentences_of
from erda.text.spacy_tagger import UNUSED, token_tagger, type_of
from erda.types import EncoderSpec, Example, Relation, Span
from opentext_documents import Question, questions_of, read_documents

TYPES, VECTORS = "types.json.gz", "vectors.npz"
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


def name_sentences(relations: Sequence[Relation]) -> list[Example]:
    """Sentences of all names that `Posterior` embeds."""
    common = [Relation(name, name) for name in COMMON_NAMES]
    return [sentence for relation in (*relations, *common) for sentence in sentences_of(relation)]


def pattern_sentences(relations: Sequence[Relation]) -> list[Example]:
    """Written patterns of the relations, as `Posterior` embeds them."""
    return [sentence for one in relations for sentence in sentences_of(with_written_patterns(one))[len(TEMPLATES) :]]


@dataclass(frozen=True, slots=True)
class Types:
    """Types of heads and tails by the tagger; "" is unknown."""

    questions: list[tuple[str, str]]
    teaching: list[tuple[str, str]]


def tag(folder: Path, *, tagger: Path) -> Path:
    """Write the types of all mentions into `folder`: everything that needs spaCy."""
    import spacy

    tags_of = token_tagger(spacy.load(tagger, exclude=[*UNUSED, "senter"]))
    documents = read_documents(data_folder())
    _, teaching = teaching_sentences(documents)
    tags = tags_of([token for sentence in document["sents"] for token in sentence] for document in documents)
    starts = [np.cumsum([0, *map(len, document["sents"])]) for document in documents]
    types = Types([], [])
    for one in questions_of(documents):
        found, offset = tags[one.document], int(starts[one.document][one.sentence])
        ends = one.example.head.span, one.example.tail.span
        types.questions.append((type_of(ends[0], found, offset=offset), type_of(ends[1], found, offset=offset)))
    for example, found in zip(teaching, tags_of(example.tokens for example in teaching), strict=True):
        types.teaching.append((type_of(example.head.span, found), type_of(example.tail.span, found)))
    write_lines(folder / TYPES, [json.dumps(asdict(types))])
    return folder / TYPES


def embed(folder: Path, encoder: Encoder, *, statistics: Path | None = None) -> None:
    """Embed questions, teaching sentences and relation names into `folder`, about 51,000 sentences.

    `statistics` is the folder of `unlabelled.npz` and `background.npz`, where the encoder has none of its own.
    """
    documents = read_documents(data_folder())
    relations, teaching = teaching_sentences(documents)
    arrays = {
        "questions": encoder.embed([one.example for one in questions_of(documents)]),
        "teaching": encoder.embed(teaching),
        "names": encoder.embed(name_sentences(relations), blanked=True),
        "patterns": encoder.embed(pattern_sentences(relations), blanked=True),
    }
    fingerprint = encoder.spec.fingerprint
    background = BackgroundFile(statistics, fingerprint).read() if statistics else encoder.background()
    unlabelled = UnlabelledFile(statistics, fingerprint).read() if statistics else encoder.unlabelled()
    if unlabelled is None or background is None:
        raise DataError(f"No statistics of encoder '{encoder.spec.name}'. Run tools/build_unlabelled.py --background.")
    half = {name: unit_rows(vectors).astype(np.float16) for name, vectors in arrays.items()}
    write_arrays(folder / VECTORS, {**half, "fingerprint": np.array(fingerprint)}, compress=False)
    save_background(folder, background, fingerprint)
    save_unlabelled(folder, unlabelled, fingerprint)


def load(folder: Path, encoder: str) -> tuple[World, CachedEncoder]:
    """Read what `tag` and `embed` wrote."""
    place = folder / encoder
    for path, command in {folder / TYPES: "tag", place / VECTORS: "embed"}.items():
        if not path.is_file():
            raise DataError(f"{path} is missing. Run: python benchmarks/opentext.py {command} {folder}")
    types = decode_json(gzip.decompress(read_bytes(folder / TYPES)), Types, place=str(folder / TYPES))
    arrays = read_arrays(place / VECTORS)
    fingerprint = str(arrays["fingerprint"])
    unlabelled = UnlabelledFile(place, fingerprint).read()
    assert unlabelled is not None
    documents = read_documents(data_folder())
    questions = list(questions_of(documents))
    relations, teaching = teaching_sentences(documents)
    pairs = {}
    for name, examples, found in (
        ("questions", [one.example for one in questions], types.questions),
        ("teaching", teaching, types.teaching),
    ):
        if not len(examples) == len(found) == len(arrays[name]):
            raise DataError(f"{folder} was made from other data. Delete it and run tag and embed again.")
        starts = np.array([(one.head.span.start, one.tail.span.start) for one in examples])
        vectors = unit_rows(arrays[name].astype(np.float32))
        pairs[name] = Pairs(vectors, type_numbers(found, unlabelled.type_names), starts)
    taught: dict[str, list[int]] = {relation.id: [] for relation in relations}
    for row, example in enumerate(teaching):
        taught[str(example.relation)].append(row)
    known = dict(zip(map(_place, teaching), pairs["teaching"].vectors, strict=True))
    known |= dict(zip((_place(one.example) for one in questions), pairs["questions"].vectors, strict=True))
    blanked = dict(zip(map(_place, name_sentences(relations)), arrays["names"].astype(np.float32), strict=True))
    blanked |= dict(zip(map(_place, pattern_sentences(relations)), arrays["patterns"].astype(np.float32), strict=True))
    world = World(questions, pairs["questions"], relations, taught, teaching, pairs["teaching"])
    return world, CachedEncoder(place, fingerprint, known=known, blanked=blanked)


Place = tuple[tuple[str, ...], Span, Span]


def _place(example: Example) -> Place:
    """What decides the vector of an example: the sentence and both spans, not the relation."""
    return example.tokens, example.head.span, example.tail.span


class CachedEncoder(Encoder):
    """Reads vectors of sentences and of relation names (`blanked`) from tables; no model is loaded."""

    def __init__(
        self, folder: Path, fingerprint: str, *, known: dict[Place, np.ndarray], blanked: dict[Place, np.ndarray]
    ) -> None:
        self.spec, self.dim = EncoderSpec(folder.name, {}, fingerprint), len(next(iter(known.values())))
        self.background_file = BackgroundFile(folder, fingerprint)
        self.unlabelled_file = UnlabelledFile(folder, fingerprint)
        self._known, self._blanked = known, blanked

    def embed(self, examples: Sequence[Example], *, blanked: bool = False, batch_size: int | None = None) -> np.ndarray:
        """Look up sentences."""
        table = self._blanked if blanked else self._known
        return np.stack([table[_place(example)] for example in examples])
