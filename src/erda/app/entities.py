"""Find the entities of a text, by offsets, by names, with spaCy or by capital letters; ask about their pairs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from erda.app.questions import CAPITALS, GIVEN, NAMES, Tagged
from erda.data.entity_model import GET, PIPELINE, model_folder
from erda.errors import DataError, SettingsError, unknown_name
from erda.text.keys import TaggedSentence
from erda.text.marks import Mark, check_text
from erda.text.names import CapitalisedTagger, NameTagger
from erda.text.sentences import split_sentences, tokens_of, words_at
from erda.text.spacy_tagger import TokenTagger, spacy_tagger, with_capitals
from erda.types import Entity, Span

TAGGERS, AND_CAPITALS = ("both", "trained", "capitals"), f"+{CAPITALS}"
INSTALL = "pip install 'erda[entities]'"


Entities = Iterable[str | Mark] | Mapping[str, str | None] | NameTagger | Tagged | None


def tagged_sentences(text: str, entities: Entities = None, *, taught: NameTagger | None) -> Tagged:
    """Split a text into sentences with the given entities (a `NameTagger` serves many texts), or find them."""
    if isinstance(entities, Tagged):
        return entities
    if not isinstance(text, str):
        raise DataError(f"expected a text, got {text!r:.80}; pass one text at a time.")
    if not text.strip():
        raise DataError("the text is empty.")
    check_text(text, most=None)
    if isinstance(entities, str):
        raise DataError("entities: expected a list of names or marks, got a single text; put it in a list.")
    if entities is None:
        return next(find_tagger().many([text], taught))
    if isinstance(entities, NameTagger):
        return Tagged(tuple(entities(text)), NAMES)
    given = list(entities)
    if marks := [one for one in given if isinstance(one, Mark)]:
        if len(marks) < len(given):
            raise DataError("entities: give names or marks, not both.")
        return Tagged(tuple(_marked(text, marks)), GIVEN)
    if any(not isinstance(one, str) for one in given):
        raise DataError("entities: expected names, or character spans (erda.text.marks.Mark).")
    names = dict(entities) if isinstance(entities, Mapping) else dict.fromkeys(map(str, given))
    return Tagged(tuple(NameTagger(names)(text)), NAMES)


@dataclass(frozen=True, slots=True)
class Finder:
    """The tagger for texts whose entities are not given: `name` for the output, `hint` how to get a better one."""

    name: str
    hint: str = ""
    pipeline: str | Path | None = None  # an installed one by its name, the fetched one by its folder

    def many(self, texts: Sequence[str], taught: NameTagger | None) -> Iterator[Tagged]:
        """Tag texts; a pipeline takes half the time of one text after another. The names of `taught` examples count."""
        capitals = CapitalisedTagger(taught)
        each: Iterable[Iterable[TaggedSentence]] = map(capitals, texts)
        if self.pipeline:
            each = spacy_tagger(self.pipeline).texts(texts)
        if self.name.endswith(AND_CAPITALS):
            pairs = zip(texts, each, strict=True)
            each = ([with_capitals(text, one, capitals) for one in own] for text, own in pairs)
        return (Tagged(tuple(sentences), self.name, self.hint) for sentences in each)

    @property
    def of_tokens(self) -> TokenTagger | None:
        """The tagger that adds types to taught examples; None where no pipeline runs."""
        return spacy_tagger(self.pipeline).tokens if self.pipeline else None


def find_tagger() -> Finder:
    """The tagger that $ERDA_TAGGER names: `trained` (a spaCy pipeline), `capitals`, or `both`, the default."""
    asked = os.environ.get("ERDA_TAGGER") or "both"
    if asked not in TAGGERS:
        raise SettingsError(unknown_name("tagger", asked, TAGGERS))
    if asked == "capitals":
        return Finder(CAPITALS)
    folder, has_spacy = model_folder(), find_spec("spacy") is not None
    pipeline = folder if has_spacy and folder else installed_pipeline()
    if pipeline:
        name = f"spacy:{PIPELINE if isinstance(pipeline, Path) else pipeline}"
        return Finder(name + AND_CAPITALS if asked == "both" else name, pipeline=pipeline)
    missing = "; ".join([*([] if has_spacy else [INSTALL]), *([] if folder else [GET])])
    if asked == "trained":
        raise SettingsError(f"$ERDA_TAGGER is 'trained', but no trained tagger is installed. Run: {missing}")
    return Finder(CAPITALS, f"Entities were guessed by capital letters. A trained tagger: {missing}")


def installed_pipeline() -> str | None:
    """The spaCy pipeline to use, English ones first, or None; spaCy is not imported, which would take seconds."""
    names = _listed_pipelines() if find_spec("spacy") else ()
    return min(names, key=lambda name: (not name.startswith("en_"), name), default=None)


@cache
def _listed_pipelines() -> frozenset[str]:
    return frozenset(entry_points(group="spacy_models").names)


def _marked(text: str, marks: Sequence[Mark]) -> Iterator[TaggedSentence]:
    """Split into sentences with marked entities: tokens end at entity borders, and no sentence ends inside one."""
    ordered = sorted(marks, key=lambda mark: (mark.start, mark.end))
    for mark in ordered:
        if not 0 <= mark.start < mark.end <= len(text) or not tokens_of(text, mark.start, mark.end):
            raise DataError(f"entity ({mark.start}, {mark.end}) covers no word of the text ({len(text)} characters).")
    for start, end in split_sentences(text, [(mark.start, mark.end) for mark in ordered]):
        own = [mark for mark in ordered if start <= mark.start and mark.end <= end]
        borders = sorted({start, end, *(at for mark in own for at in (mark.start, mark.end))})
        offsets, token_at = list[tuple[int, int]](), {start: 0}
        for left, right in pairwise(borders):
            offsets += tokens_of(text, left, right)
            token_at[right] = len(offsets)
        entities = tuple(
            Entity(
                mark.name or " ".join(text[mark.start : mark.end].split()),
                Span(token_at[mark.start], token_at[mark.end]),
                mark.id,
                mark.type,
            )
            for mark in own
        )
        yield TaggedSentence(tuple(words_at(text, offsets)), entities, tuple(offsets))
