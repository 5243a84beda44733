"""Documents with entity mentions, in DocRED's JSON: a list of documents with `title`, `sents` and `vertexSet`.

An entry of `vertexSet` is one entity with its mentions; its id is "name:<its longest mention>". The file is streamed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from erda.corpus.sources.source import CorpusRow, Limits, Source, Tally, pair_rows, split_spaced
from erda.text.pairs import TaggedSentence
from erda.text.reading import JsonWalk
from erda.types import Entity, Span


class DocumentSource(Source):
    """Sentences of documents with entity mentions."""

    batch_size = 200

    def units(self, skip: int) -> Iterator[tuple[int, Any]]:
        """Yield the documents."""
        return enumerate((value for _, value in JsonWalk(self.path, self.meter).array()), 1)

    def rows(self, number: int, unit: Any, limits: Limits, tally: Tally) -> list[CorpusRow]:
        """Rows of all sentences of a document."""
        tally.read += 1
        return _document_rows(unit, f"{self.path.name}: document {number}", limits, tally)


def _document_rows(document: Any, place: str, limits: Limits, tally: Tally) -> list[CorpusRow]:
    sentences = document.get("sents") if isinstance(document, dict) else None
    vertices = document.get("vertexSet") if isinstance(document, dict) else None
    if not isinstance(sentences, list) or not isinstance(vertices, list) or not all(map(_is_words, sentences)):
        tally.drop("document without 'sents' and 'vertexSet'", place)
        return []
    spaced = [split_spaced(sentence) for sentence in sentences]
    mentions: list[list[Entity]] = [[] for _ in sentences]
    for vertex in vertices:
        marked = [mention for mention in vertex if _is_mention(mention, sentences)] if isinstance(vertex, list) else []
        if not marked:
            tally.drop("entity without a mention", place)
            continue
        tally.drop("mention outside its sentence", place, n=len(vertex) - len(marked))
        name = max((mention["name"] for mention in marked), key=len)
        for mention in marked:
            places = spaced[mention["sent_id"]][1]
            start, end = (places[at] for at in mention["pos"])
            if start < end:
                mentions[mention["sent_id"]].append(Entity(mention["name"], Span(start, end), f"name:{name}"))
            else:
                tally.drop("mention without a word", place)
    title = document.get("title")
    source = f"document:{title}" if isinstance(title, str) and title else place
    rows: list[CorpusRow] = []
    for (words, _), found in zip(spaced, mentions, strict=True):
        sentence = TaggedSentence(tuple(words), tuple(found))
        rows += pair_rows(sentence, source=source, limits=limits, tally=tally)
    return rows


def _is_words(sentence: Any) -> bool:
    return isinstance(sentence, list) and all(isinstance(token, str) for token in sentence)


def _is_mention(mention: Any, sentences: list[list[str]]) -> bool:
    if not isinstance(mention, dict) or not isinstance(mention.get("name"), str) or not mention["name"].strip():
        return False
    number, position = mention.get("sent_id"), mention.get("pos")
    if type(number) is not int or not 0 <= number < len(sentences):
        return False
    if not isinstance(position, list) or len(position) != 2 or any(type(at) is not int for at in position):
        return False
    return 0 <= position[0] < position[1] <= len(sentences[number])
