"""The component of a spaCy pipeline; the pipeline is a blank one with rules for its entities."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from toy_extractor import BORN, FOUNDED, Words, open_toy

from erda.app import entities
from erda.app.extractor import Extractor
from erda.errors import DataError, SettingsError
from erda.text.spacy_tagger import document_sentences

spacy: Any = pytest.importorskip("spacy", reason="spaCy is not installed: pip install 'erda[entities]'")
NAMES = ["Tesla", "SpaceX", "Elon Musk", "Ada", "London"]
TEXT = "SpaceX was founded by Elon Musk . Ada was born in London ."


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    open_toy(tmp_path / "store").teach_many({"founded by": FOUNDED, "born in": BORN})
    opened = Extractor.open
    monkeypatch.setattr(Extractor, "open", lambda folder, **asked: opened(folder, **{**asked, "encoder": Words()}))
    return tmp_path / "store"


def pipeline(store: Path, *, sentences: bool = True) -> Any:
    nlp = spacy.blank("en")
    if sentences:
        nlp.add_pipe("sentencizer")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "THING", "pattern": name} for name in NAMES])
    nlp.add_pipe("erda", config={"store": str(store)})
    return nlp


def triples(doc: Any) -> set[tuple[str, str, str]]:
    return {(found.head.text, found.relation, found.tail.text) for found in doc._.relations}


def test_relations_of_a_document(store: Path) -> None:
    doc = pipeline(store)(TEXT)
    assert {(head, tail) for head, _, tail in triples(doc)} <= {
        *(("SpaceX", "Elon Musk"), ("Elon Musk", "SpaceX")),
        *(("Ada", "London"), ("London", "Ada")),
    }
    expected = Extractor.open(store).predict("[[SpaceX]] was founded by {{Elon Musk}} .")
    (found,) = [one for one in doc._.relations if one.head.text == "SpaceX"]
    assert (found.relation, found.confidence) == (expected.relation, pytest.approx(expected.confidence))
    assert doc[found.tail.start : found.tail.end].text == "Elon Musk"


@pytest.mark.parametrize("has_borders", [True, False])
def test_pairs_stay_within_a_sentence(store: Path, has_borders: bool) -> None:
    doc = pipeline(store, sentences=has_borders)(TEXT)
    first, second = document_sentences(doc)
    assert [one.name for one in first.entities] == ["SpaceX", "Elon Musk"]
    assert [(one.name, one.type) for one in second.entities] == [("Ada", "THING"), ("London", "THING")]
    assert {one.text for found in doc._.relations for one in (found.head, found.tail)} <= {*NAMES}


def test_pronouns_are_not_asked_about(store: Path) -> None:
    doc = pipeline(store)("Ada was born in London. She was born in London, and it was founded by her.")
    assert {head for head, _, _ in triples(doc)} == {"Ada"}


def test_a_document_can_be_stored(store: Path) -> None:
    nlp = pipeline(store)
    doc = nlp(TEXT)
    again = spacy.tokens.Doc(nlp.vocab).from_bytes(doc.to_bytes())
    assert triples(again) == triples(doc) != set()
    assert spacy.blank("en")("no relations")._.relations == []


def test_a_store_that_was_taught_nothing(store: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="taught"):
        pipeline(tmp_path / "nowhere")


def test_people_choose_the_tagger(extractor: Extractor, monkeypatch: pytest.MonkeyPatch) -> None:
    nlp, text = spacy.blank("en"), "the spacex car met Elon Musk at DeepMind ."
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "ORG", "pattern": name} for name in ("the spacex", "Elon")])
    monkeypatch.setattr("erda.text.spacy_tagger.load_pipeline", lambda name: nlp)
    monkeypatch.setattr("erda.app.entities.model_folder", lambda: None)
    monkeypatch.setattr("erda.app.entities.installed_pipeline", lambda: "en_toy")
    entities.spacy_tagger.cache_clear()
    for asked, tagger, names in (
        ("", "spacy:en_toy+capitalised", {"spacex", "Elon Musk", "DeepMind"}),
        ("trained", "spacy:en_toy", {"spacex", "Elon"}),
        ("capitals", "capitalised", {"Elon Musk", "DeepMind"}),
    ):
        monkeypatch.setenv("ERDA_TAGGER", asked)
        found = extractor.extract(text)
        assert (found.tagger, {one.head_name for one in found.answers}) == (tagger, names)
    monkeypatch.setenv("ERDA_TAGGER", "trainde")
    with pytest.raises(SettingsError, match="Did you mean 'trained'"):
        extractor.extract(text)
    monkeypatch.setenv("ERDA_TAGGER", "trained")
    monkeypatch.setattr("erda.app.entities.installed_pipeline", lambda: None)
    with pytest.raises(SettingsError, match="erda data get entities"):
        extractor.extract(text)


def test_pipelines_are_listed_without_importing_spacy() -> None:
    code = "from erda.app.entities import find_tagger; import sys; print(find_tagger().name, 'spacy' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split()[1] == "False"
    assert entities._listed_pipelines() == set(spacy.util.registry.models.get_entry_points())
