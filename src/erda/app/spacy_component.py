"""An extractor as a component of a spaCy pipeline: `nlp.add_pipe("erda")` fills `doc._.relations`.

nlp.add_pipe("erda", config={"store": "my-extractor"})   # after a component that finds entities
for found in nlp("Tesla was started by Martin Eberhard.")._.relations:
    print(found.head, found.relation, found.tail, found.confidence)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import minibatch

from erda.app.extractor import Extractor
from erda.app.questions import GIVEN, Tagged
from erda.app.version import Version
from erda.errors import DataError
from erda.text.spacy_tagger import document_sentences

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
            tagged = [Tagged(tuple(document_sentences(doc)), GIVEN) for doc in docs]
            asked = [self.version.questions(doc.text, one) for doc, one in zip(docs, tagged, strict=True)]
            for doc, found in zip(docs, self.version.answer_texts(asked, top=1), strict=True):
                places = [(answer, astuple(answer.place)) for answer in found.found if answer.place]
                doc.user_data[KEY] = [
                    [one.relation, one.confidence, *place] for answer, place in places for one in answer.held
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
    found = []
    for relation, confidence, *places in doc.user_data.get(KEY, ()):
        head, tail = (doc.char_span(*one, alignment_mode="expand") for one in (places[:2], places[2:]))
        found.append(DocRelation(head, relation, tail, confidence))
    return found


if not Doc.has_extension("relations"):
    Doc.set_extension("relations", getter=relations_of)
