"""Find the entities of a text: by offsets, by names, with spaCy, or by the names in taught examples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

from erda.app.inputs import check_text
from erda.errors import DataError
from erda.text.marks import Mark
from erda.text.names import NameTagger
from erda.text.pairs import TaggedSentence
from erda.text.sentences import split_sentences, tokens_of, words_of
from erda.types import Entity, Span

Entities = Iterable[str | Mark] | Mapping[str, str | None] | NameTagger | None
PREFERRED = "en_core_web_sm"


@dataclass(frozen=True, slots=True)
class Tagged:
    """Sentences with their entities, and the tagger that found them."""

    sentences: tuple[TaggedSentence, ...]
    tagger: str


def tagged_sentences(text: str, entities: Entities = None, *, taught: NameTagger | None) -> Tagged:
    """Split a text into sentences with the given entities; without any, find them with spaCy or by taught names.

    To search many texts for the same names, pass a `NameTagger`, which is built once.
    """
    if not isinstance(text, str) or not text.strip():
        raise DataError("the text is empty.")
    check_text(text, most=None)
    if isinstance(entities, str):
        raise DataError("entities: expected a list of names or marks, got a single text; put it in a list.")
    if entities is None:
        return _found(text, taught)
    if isinstance(entities, NameTagger):
        return Tagged(tuple(entities(text)), "names")
    given = list(entities)
    if marks := [one for one in given if isinstance(one, Mark)]:
        if len(marks) < len(given):
            raise DataError("entities: give names or marks, not both.")
        return Tagged(tuple(_marked(text, marks)), "given")
    if any(not isinstance(one, str) for one in given):
        raise DataError("entities: expected names, or marks (erda.text.marks.Mark) with their characters.")
    names = dict(entities) if isinstance(entities, Mapping) else dict.fromkeys(map(str, given))
    return Tagged(tuple(NameTagger(names)(text)), "names")


def _found(text: str, taught: NameTagger | None) -> Tagged:
    if pipeline := installed_pipeline():
        return Tagged(tuple(_spacy_tagger(pipeline)(text)), f"spacy:{pipeline}")
    if taught is None:
        raise DataError(
            "No entities were given and none can be found: give entities=[names], or install spaCy with a pipeline "
            f"(pip install 'erda[spacy]'; python -m spacy download {PREFERRED})."
        )
    return Tagged(tuple(taught(text)), "taught")


def installed_pipeline() -> str | None:
    """The name of the spaCy pipeline to use, or None if none is installed."""
    if find_spec("spacy") is None:
        return None
    import spacy

    names: list[str] = sorted(spacy.util.get_installed_models())
    return PREFERRED if PREFERRED in names else names[0] if names else None


@lru_cache(maxsize=1)
def _spacy_tagger(pipeline: str) -> Any:
    from erda.corpus.sources.plain_text_source import spacy_tagger

    return spacy_tagger(pipeline)


def _marked(text: str, marks: Sequence[Mark]) -> Iterator[TaggedSentence]:
    """Split into sentences with marked entities: tokens end at entity borders, and no sentence ends inside one."""
    ordered = sorted(marks, key=lambda mark: (mark.start, mark.end))
    for mark in ordered:
        if not 0 <= mark.start < mark.end <= len(text) or not tokens_of(text, mark.start, mark.end):
            raise DataError(f"entity ({mark.start}, {mark.end}) covers no word of the text ({len(text)} characters).")
    for start, end in split_sentences(text, [(mark.start, mark.end) for mark in ordered]):
        own = [mark for mark in ordered if start <= mark.start and mark.end <= end]
        borders = sorted({start, end, *(at for mark in own for at in (mark.start, mark.end))})
        tokens, token_at = list[str](), {start: 0}
        for left, right in pairwise(borders):
            tokens += words_of(text, left, right)
            token_at[right] = len(tokens)
        entities = tuple(
            Entity(
                mark.name or " ".join(text[mark.start : mark.end].split()),
                Span(token_at[mark.start], token_at[mark.end]),
                mark.id,
            )
            for mark in own
        )
        yield TaggedSentence(tuple(tokens), entities)
