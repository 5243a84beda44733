"""Documents with entity mentions, in DocRED's JSON: a list of documents with `title`, `sents` and `vertexSet`.

The mentions of an entity are those of one entry of `vertexSet`; its id is "name:<its longest mention>".
The file is walked document by document, never held as a whole.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from erda.corpus.sources.base import Batch, Limits, Meter, Row, Tally, opened, ordered_pairs, split_spaced
from erda.errors import DataError
from erda.types import Entity, Span

BATCH_DOCUMENTS = 200
_CHUNK = 1 << 20


class DocumentSource:
    """Sentences of documents whose mentions are marked."""

    unit = "documents"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.meter = Meter()

    def batches(self, skip: int, limits: Limits) -> Iterator[Batch]:
        """Batches of documents after the first `skip`."""
        rows: list[Row] = []
        tally, number = Tally(), skip
        for number, document in enumerate(iter_json_array(self.path, self.meter), 1):
            if number <= skip:
                continue
            tally.read += 1
            rows += _document_rows(document, f"{self.path.name}: document {number}", limits, tally)
            if number % BATCH_DOCUMENTS == 0:
                yield Batch(number, rows, tally)
                rows, tally = [], Tally()
        yield Batch(number, rows, tally)


def iter_json_array(path: Path, meter: Meter | None = None) -> Iterator[Any]:
    """The items of the one array that a JSON file holds, read piece by piece."""
    decoder = json.JSONDecoder()
    pending, begun, n_items = "", False, 0
    for piece, last in _pieces(path, meter):
        pending += piece
        at = 0
        if not begun:
            pending = pending.lstrip("\ufeff \t\r\n")
            if not pending and not last:
                continue
            if not pending.startswith("["):
                raise DataError(f"{path}: expected a JSON list of documents (DocRED's format).")
            begun, at = True, 1
        while True:
            at = _skip(pending, at)
            if pending.startswith("]", at):
                return
            try:
                value, at = decoder.raw_decode(pending, at)
            except ValueError as error:
                if last:
                    raise DataError(
                        f"{path}: not JSON, or cut short, after document {n_items}: {error.args[0]}."
                    ) from None
                break
            n_items += 1
            yield value
        pending = pending[at:]
    raise DataError(f"{path}: the file ends before ']', after document {n_items}; fetch it again.")


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def _pieces(path: Path, meter: Meter | None) -> Iterator[tuple[str, bool]]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with opened(path, meter) as file:
        while True:
            raw = file.read(_CHUNK)
            try:
                piece = decoder.decode(raw, final=not raw)
            except UnicodeDecodeError as error:
                raise DataError(f"{path}: not UTF-8 (byte 0x{error.object[error.start]:02x}).") from None
            yield piece, not raw
            if not raw:
                return


def _document_rows(document: Any, place: str, limits: Limits, tally: Tally) -> list[Row]:
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
            tally.drop("entity with no mention", place)
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
    rows: list[Row] = []
    for (words, _), found in zip(spaced, mentions, strict=True):
        rows += ordered_pairs(words, found, source=source, limits=limits, tally=tally)
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
