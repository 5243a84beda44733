"""Sentences of a corpus to accept or reject."""

from pathlib import Path

import pytest
from toy_extractor import open_toy

from erda.app.candidates import LEAST_CONFIDENCE
from erda.app.extractor import Extractor

pytest.importorskip("faiss", reason="needs the extra corpus")
pytest.importorskip("duckdb", reason="needs the extra corpus")

WROTE = ["[[Gengangere]] , a play that {{Ibsen}} wrote", "{{Undset}} wrote the novel [[Kransen]] at home ."]
COAST = ["[[Bergen]] lies on the coast of {{Norway}} .", "[[Malmo]] sits on the coast of {{Sweden}} ."]


@pytest.fixture
def extractor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Extractor:
    from toy_corpus import ToySimilarity, row, toy_store

    from erda.corpus.augment import Augmenter
    from erda.corpus.vector_index import build_index

    texts = [
        f"{name} wrote the {kind} {book} at home ." for name, kind, book in zip("ABCD", "wxyz", "EFGH", strict=True)
    ]
    rows = [row(text, text.split()[4], text.split()[0]) for text in texts]
    rows += [
        row("Gengangere , a play that Ibsen wrote", "Gengangere", "Ibsen"),
        row("Turku is a city", "Turku", "city"),
    ]
    store, model = toy_store(tmp_path, rows), ToySimilarity(dim=512)
    found = Augmenter(store, build_index(store, model), model)
    monkeypatch.setattr("erda.corpus.augment.open_augmenter", lambda corpus: found)
    extractor = open_toy(tmp_path / "mine")
    extractor.teach_many({"author": WROTE, "coast": COAST})
    return extractor


def test_the_least_certain_comes_first_and_can_be_taught(extractor: Extractor, tmp_path: Path) -> None:
    found = extractor.suggest("author", tmp_path, n=3)
    assert len(found) == 3
    doubts = [abs(one.confidence - 0.5) for one in found]
    assert doubts == sorted(doubts)
    sentences = [" ".join(one.example.tokens) for one in found]
    assert "Gengangere , a play that Ibsen wrote" not in sentences, "it is known"
    assert {one.example.relation for one in found} == {"author"}
    assert extractor.teach("author", [found[0].example]).n_examples == 1
    assert sentences[0] not in [" ".join(one.example.tokens) for one in extractor.suggest("author", tmp_path, n=9)]
    everything = extractor.suggest("author", tmp_path, n=100_000)
    assert min(one.confidence for one in everything) >= LEAST_CONFIDENCE
