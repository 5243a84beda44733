"""Entities by a spaCy pipeline: types, sentences, and what cannot be loaded."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from erda.errors import ErdaError, ModelError, SettingsError
from erda.text.spacy_tagger import SpacyTagger, spacy_tagger


def document(text: str, *labelled: tuple[str, str]) -> SimpleNamespace:
    """A stand-in with spaCy's attributes, without sentence boundaries."""
    starts = [(text.index(name), name, label) for name, label in labelled]
    ents = [
        SimpleNamespace(start_char=start, end_char=start + len(name), text=name, label_=label, kb_id_="")
        for start, name, label in starts
    ]
    return SimpleNamespace(text=text, ents=ents, has_annotation=lambda name: False)


def test_types_are_kept_numbers_are_not_and_sentences_are_ours() -> None:
    text = "Anna met 3 people in the New York. Bob slept."
    made = document(text, ("Anna", "PERSON"), ("3", "CARDINAL"), ("the New York", "GPE"), ("Bob", ""))
    tagger = SpacyTagger(SimpleNamespace(pipe=lambda texts, **_: [made for _ in texts]))
    ((first, second),) = tagger.texts([text])
    assert [(one.name, one.type) for one in first.entities] == [("Anna", "PERSON"), ("New York", "GPE")]
    assert [(one.name, one.type) for one in second.entities] == [("Bob", None)]
    assert text[slice(*first.characters(first.entities[1].span))] == "New York"
    assert second.tokens == ("Bob", "slept", ".")


def test_pipelines_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("spacy")
    with pytest.raises(SettingsError, match="erda data get entities"):
        spacy_tagger("en_nothing")
    with pytest.raises(ModelError, match="erda data get entities"):
        spacy_tagger(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "spacy", None)
    for name in ("en_nothing", tmp_path):
        with pytest.raises(ErdaError, match=r"erda\[entities\]"):
            spacy_tagger(name)
