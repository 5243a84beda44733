"""An extractor as a component of a spaCy pipeline: `nlp.add_pipe("erda")` fills `doc._.relations`.

nlp.add_pipe("erda", config={"store": "my-extractor"})   # after a component that finds entities
for found in nlp("Tesla was started by Martin Eberhard.")._.relations:
    print(found.head, found.relation, found.tail, found.confidence)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import minibatch

from erda.answers import likelier
from erda.app.entities import MOST_PAIRS
from erda.app.extractor import Extractor
from erda.app.version import Version
from erda.errors import DataError
from erda.text.keys import ordered_pairs
from erda.text.sentences import split_sentences
from erda.types import Entity, Example
from erda.types import Span as Place

KEY = "erda"  # key in `doc.user_data`, which holds plain values so that documents can be serialised


@dataclass(frozen=True, slots=True)
class DocRelation:
    """A relation that holds from one entity of a document to another."""

    head: Span
    relation: str
    tail: Span
    confidence: float


class RelationFinder:
    """Asks an extractor about entities that share a sentence, and keeps the more confident direction of each pair."""

    def __init__(self, version: Version) -> None:
        self.version = version

    def __call__(self, doc: Doc) -> Doc:
        """Add relations to a document."""
        (doc,) = self.pipe([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], batch_size: int = 64) -> Iterator[Doc]:
        """Add relations to the documents of a stream, batch by batch."""
        for docs in minibatch(stream, batch_size):
            pairs = [list(_pairs(doc)) for doc in docs]
            asked = [example for own in pairs for _, examples in own for example in examples]
            places = [(i, start) for i, own in enumerate(pairs) for start, examples in own for _ in examples]
            answers = iter(self.version.answer_pairs(asked, places, top=1))
            for doc, own in zip(docs, pairs, strict=True):
                doc.user_data[KEY] = [
                    [one.relation, one.confidence, *_place(answer.example, start)]
                    for start, examples in own
                    for answer in likelier(islice(answers, len(examples)))
                    for one in answer.held
                ]
                yield doc


@Language.factory("erda", default_config={"store": "my-extractor"}, assigns=["doc._.relations"], requires=["doc.ents"])
def build_component(nlp: Language, name: str, store: str) -> RelationFinder:
    """Build the component from the current version of the extractor in the folder `store`."""
    version = Extractor.open(store).version
    if not version.relations:
        raise DataError(
            f"{store} holds no taught extractor. Create one: erda teach RELATION SENTENCE ... --store {store}"
        )
    return RelationFinder(version)


def relations_of(doc: Doc) -> list[DocRelation]:
    """The value of `doc._.relations`, in the order of the text."""
    return [
        DocRelation(doc[head_start:head_end], relation, doc[tail_start:tail_end], confidence)
        for relation, confidence, head_start, head_end, tail_start, tail_end in doc.user_data.get(KEY, ())
    ]


def _pairs(doc: Doc) -> Iterator[tuple[int, tuple[Example, ...]]]:
    """Yield the first token of each sentence and the pairs of its entities."""
    for sentence in doc.sents if doc.has_annotation("SENT_START") else _split(doc):
        entities = [
            Entity(
                entity.text,
                Place(entity.start - sentence.start, entity.end - sentence.start),
                entity.kb_id_ or None,
                entity.label_ or None,
            )
            for entity in sentence.ents
        ]
        yield sentence.start, ordered_pairs([token.text for token in sentence], entities, most=MOST_PAIRS).examples


def _split(doc: Doc) -> Iterator[Span]:
    """The sentences of a document whose pipeline sets no boundaries."""
    kept = [(entity.start_char, entity.end_char) for entity in doc.ents]
    for start, end in split_sentences(doc.text, kept):
        if span := doc.char_span(start, end, alignment_mode="expand"):
            yield span


def _place(example: Example, start: int) -> tuple[int, int, int, int]:
    head, tail = example.head.span, example.tail.span
    return start + head.start, start + head.end, start + tail.start, start + tail.end


if not Doc.has_extension("relations"):
    Doc.set_extension("relations", getter=relations_of)
