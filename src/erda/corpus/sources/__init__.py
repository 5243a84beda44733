"""Sources of sentences, one module per format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from erda.corpus.sources.jsonl_source import JsonlSource
from erda.corpus.sources.source import CorpusRow, Limits, Source, SourceBatch, Tally, pair_rows
from erda.corpus.sources.wikipedia_source import WikipediaSource
from erda.data.entity_model import GET, NAME, model_folder
from erda.errors import SettingsError, unknown_name
from erda.text.names import NameTagger, read_names
from erda.text.spacy_tagger import Tagger, spacy_tagger

__all__ = ["SOURCES", "CorpusRow", "Limits", "Source", "SourceBatch", "SourceSettings", "Tally", "open_source"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """Settings of sources. `names` or `spacy` find the entities of plain text."""

    format: str | None = None  # default: by the file's name
    names: Path | None = None
    spacy: str | None = None
    n_workers: int = 1  # processes that parse wikitext

    def __post_init__(self) -> None:
        if self.n_workers < 1:
            raise SettingsError(f"workers must be at least 1, got {self.n_workers}.")


class PlainSource(Source):
    """Sentences of a text file, whose entities a tagger finds; a sentence never spans two lines."""

    def __init__(self, path: Path, tagger: Tagger) -> None:
        super().__init__(path)
        self._tag = tagger

    def rows(self, number: int, unit: str, limits: Limits, tally: Tally) -> Iterator[CorpusRow]:
        """Rows of all sentences of a line."""
        for sentence in self._tag(unit):
            tally.read += 1
            yield from pair_rows(sentence, source=f"{self.path.name}:{number}", limits=limits, tally=tally)


def _plain(path: Path, settings: SourceSettings) -> Source:
    if settings.names:
        return PlainSource(path, NameTagger(read_names(settings.names)))
    if settings.spacy:
        folder = model_folder() if settings.spacy == NAME else None
        return PlainSource(path, spacy_tagger(folder or settings.spacy))
    raise SettingsError(
        f"{path}: plain text has no entity marks; give a list of entity names with --names FILE, or a spaCy pipeline "
        f"with --spacy MODEL ('{GET}' fetches one: --spacy {NAME})."
    )


SOURCES: dict[str, Callable[[Path, SourceSettings], Source]] = {
    "jsonl": lambda path, settings: JsonlSource(path),
    "wikipedia": lambda path, settings: WikipediaSource(path, n_workers=settings.n_workers),
    "text": _plain,
}
_BY_ENDING = {".jsonl": "jsonl", ".xml": "wikipedia", ".txt": "text"}


def open_source(path: Path, settings: SourceSettings) -> Source:
    """Open a file as a source, in `settings.format` or in the format of its name (compressed or not)."""
    kind = settings.format
    if kind is None:
        endings = [ending for ending in path.suffixes if ending not in (".gz", ".bz2")]
        kind = _BY_ENDING.get(endings[-1] if endings else "")
        if kind is None:
            raise SettingsError(
                f"{path}: unknown format; expected a name in {', '.join(_BY_ENDING)} (also .gz, .bz2), or --format "
                f"{', '.join(SOURCES)}."
            )
    if kind not in SOURCES:
        raise SettingsError(unknown_name("format", kind, SOURCES))
    return SOURCES[kind](path, settings)
