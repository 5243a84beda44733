import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tiny_models import build_model
from toy_corpus import ToySimilarity, erda_corpus, random_rows, row, toy_store

from erda.corpus.augment import ENTITY_MATCH, NEIGHBOUR, Augmenter, open_augmenter
from erda.corpus.similarity import load_similarity
from erda.corpus.vector_index import build_index
from erda.corpus.vector_shards import vectors_folder
from erda.data.formats.jsonl_examples import example_from_json, example_to_json
from erda.data.own_data import read_examples
from erda.errors import DataError, SettingsError
from erda.types import Example

CORPUS = [
    row("Ibsen wrote the play Gengangere in exile .", "Ibsen", "Gengangere", source="Ibsen"),
    row("Gengangere , a play that Ibsen wrote in exile .", "Ibsen", "Gengangere"),
    row("Tourists ask Ibsen fans whether Gengangere sells", "Ibsen", "Gengangere"),
    row("Undset wrote the novel Kransen at home .", "Undset", "Kransen"),
    row("Bergen lies on the coast of Norway .", "Bergen", "Norway"),
    row("Malmo sits on the coast of Sweden .", "Malmo", "Sweden"),
    row("Turku lies on a coast of Finland .", "Turku", "Finland"),
    row("Nobody asked Hedda about Brand yesterday", "Hedda", "Brand"),
]


def example(text: str, head: str, tail: str, relation: str | None, example_id: str = "") -> Example:
    return example_from_json({**row(text, head, tail), "relation": relation, "id": example_id or text[:8]})


AUTHOR = example("IBSEN wrote the drama GENGANGERE in exile .", "IBSEN", "GENGANGERE", "author", "a1")
NOVEL = example("Lagerlof wrote the novel Jerusalem at home .", "Lagerlof", "Jerusalem", "author", "a2")
COAST = example("Oslo lies on the coast of Norway .", "Oslo", "Norway", "country", "c1")


@pytest.fixture
def augmenter(tmp_path: Path) -> Augmenter:
    store, model = toy_store(tmp_path, CORPUS), ToySimilarity(dim=512)
    return Augmenter(store, build_index(store, model), model)


def texts(examples: Sequence[Example]) -> list[str]:
    return [" ".join(one.tokens) for one in examples]


def test_matches_above_alpha_get_the_relation(augmenter: Augmenter) -> None:
    found = augmenter.find([AUTHOR], match_threshold=0.5)
    assert texts(found.examples) == [
        "Ibsen wrote the play Gengangere in exile .",
        "Gengangere , a play that Ibsen wrote in exile .",
    ]
    assert {one.relation for one in found.examples} == {"author"}
    assert {extra.rule for extra in found.extras} == {ENTITY_MATCH}
    assert (found.n_matched, found.n_searched, found.dropped) == (1, 0, {"below match_threshold": 1})


def test_scores_and_margins_equal_a_loop(augmenter: Augmenter) -> None:
    examples = [AUTHOR, NOVEL, COAST]
    vectors = augmenter.model.encode(examples)
    author, country = vectors[:2].mean(axis=0), vectors[2]
    for extra in augmenter.find(examples, n_neighbours=2).extras:
        own, found = augmenter.model.encode([extra.origin, extra.example])
        assert extra.score == pytest.approx(float(own @ found), abs=1e-3)
        vector = augmenter.index.shards.vectors([extra.row])[0]
        near = [float(vector @ mean / np.linalg.norm(mean)) for mean in (author, country)]
        expected = near[0] - near[1] if extra.example.relation == "author" else near[1] - near[0]
        assert extra.margin == pytest.approx(expected, abs=1e-5)


def test_only_examples_with_an_empty_q_are_searched(augmenter: Augmenter) -> None:
    found = augmenter.find([AUTHOR, NOVEL, COAST], match_threshold=0.99)
    assert found.n_matched == 1
    assert [(extra.origin.id, extra.rule) for extra in found.extras] == [("a2", NEIGHBOUR), ("c1", NEIGHBOUR)]
    expected = ["Undset wrote the novel Kransen at home .", "Bergen lies on the coast of Norway ."]
    assert texts(found.examples) == expected


@pytest.mark.parametrize(
    ("settings", "matches", "neighbours"),
    [
        ({"match_threshold": 0.5, "search_matched": True, "n_neighbours": 2}, 2, 4),
        ({"match_threshold": 0.5, "similarity_search": False}, 2, 0),
        ({"entity_matching": False}, 0, 2),
        ({"entity_matching": False, "similarity_search": False}, 0, 0),
    ],
)
def test_settings_select_the_rules(augmenter: Augmenter, settings: dict, matches: int, neighbours: int) -> None:
    found = augmenter.find([AUTHOR, COAST], **settings)
    assert found.counts == {ENTITY_MATCH: matches, NEIGHBOUR: neighbours}
    assert len(set(texts(found.examples))) == matches + neighbours


def test_known_sentences_are_not_members_of_q(augmenter: Augmenter) -> None:
    known = [
        example("ibsen   wrote the play gengangere in EXILE .", "ibsen", "gengangere", None),
        example("Gengangere , a play that Ibsen wrote in exile .", "Ibsen", "Gengangere", None),
        example("Tourists ask Ibsen fans whether Gengangere sells", "Ibsen", "Gengangere", None),
    ]
    found = augmenter.find([AUTHOR], known=known)
    assert found.n_matched == 0
    assert [extra.rule for extra in found.extras] == [NEIGHBOUR]
    assert texts(found.examples) == ["Undset wrote the novel Kransen at home ."]
    assert found.dropped["known sentence"] >= 3


def test_each_sentence_is_used_once_with_the_higher_score(augmenter: Augmenter) -> None:
    twin = example("Harbour Oslo lies on the coast of Norway .", "Oslo", "Norway", "harbour", "c2")
    found = augmenter.find([twin, COAST], n_neighbours=8)
    assert len(set(texts(found.examples))) == len(found.extras)
    assert found.dropped["used for another example"] > 0
    assert next(extra.origin.id for extra in found.extras if "Bergen" in extra.example.tokens) == "c1"


def test_limits_and_thresholds(augmenter: Augmenter) -> None:
    one = augmenter.find([AUTHOR], match_threshold=-0.5, max_matches=1)
    assert texts(one.examples) == ["Ibsen wrote the play Gengangere in exile ."]
    assert one.dropped["beyond max_matches"] == 2
    rests = example("Oslo rests on the coast of Norway .", "Oslo", "Norway", "country")
    assert augmenter.find([rests], neighbour_threshold=0.5).counts == {ENTITY_MATCH: 0, NEIGHBOUR: 1}
    assert augmenter.find([rests], neighbour_threshold=0.95).extras == ()
    assert augmenter.find([]).extras == ()
    with pytest.raises(SettingsError):
        augmenter.find([COAST], n_neighbours=0)
    with pytest.raises(DataError):
        augmenter.find([example("Oslo lies in Norway .", "Oslo", "Norway", None)])


def test_agreement_rejects_sentences_nearer_to_another_relation(augmenter: Augmenter) -> None:
    wrong = example("Hamsun lies on the floor .", "Hamsun", "floor", "posture", "w1")
    loose = augmenter.find([wrong, COAST])
    assert any(extra.margin < 0 for extra in loose.extras if extra.origin is wrong)
    strict = augmenter.find([wrong, COAST], agreement="mean")
    assert strict.dropped["nearer to another relation"] > 0
    assert all(extra.margin >= 0 for extra in strict.extras)
    assert any(extra.origin is COAST for extra in strict.extras)
    exemplars = [example("Lund lies on the coast of Sweden .", "Lund", "Sweden", "shore", "e1")]
    found = augmenter.find([wrong], exemplars=exemplars, agreement="mean", agreement_margin=0.05)
    assert not [extra for extra in found.extras if "coast" in extra.example.tokens]


def test_a_record_contains_the_provenance(augmenter: Augmenter) -> None:
    found = augmenter.find([AUTHOR, COAST], match_threshold=0.5)
    record = json.loads(json.dumps(found.to_json()))
    assert record["counts"] == {"entity-match": 2, "neighbour": 1}
    assert record["settings"]["match_threshold"] == 0.5
    first = record["extras"][0]
    assert example_from_json(first) == found.examples[0]
    assert (first["relation"], first["source"]) == ("author", "Ibsen")
    provenance = first["augmentation"]
    assert provenance["found_for"] == "a1"
    assert provenance["found_for_sentence"] == " ".join(AUTHOR.tokens)
    assert augmenter.store.rows([provenance["row"]])[0].tokens == found.examples[0].tokens


def test_an_augmenter_opens_the_model_of_the_only_index(tmp_path: Path) -> None:
    store, tiny, mine = (
        toy_store(tmp_path, random_rows(60, n_entities=6)),
        build_model(tmp_path / "tiny").path,
        tmp_path / "mine",
    )
    with pytest.raises(DataError, match="run: erda corpus index"):
        open_augmenter(store.folder)
    erda_corpus("train", store.folder, "--encoder", tiny, "--out", mine, "--set", "rank=2", "--set", "held_out=0")
    erda_corpus("index", store.folder, "--model", mine)
    expected = load_similarity(mine).fingerprint
    shutil.rmtree(mine)
    assert open_augmenter(store.folder).origin()["model"] == expected
    erda_corpus("index", store.folder, "--model", tiny)
    with pytest.raises(DataError, match="indexes of 2 similarity models; delete all but one"):
        open_augmenter(store.folder)
    shutil.rmtree(vectors_folder(store, expected))
    assert open_augmenter(store.folder).index.about.fingerprint == load_similarity(tiny).fingerprint
    assert open_augmenter(store.folder, tiny).find([AUTHOR, COAST]).n_examples == 2


def test_the_command_writes_jsonl_and_prints_a_table(
    augmenter: Augmenter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("erda.corpus.similarity.load_similarity", lambda *_, **__: augmenter.model)
    file = tmp_path / "shots.jsonl"
    file.write_text("".join(json.dumps(example_to_json(one)) + "\n" for one in (AUTHOR, NOVEL, COAST)))
    corpus = augmenter.store.folder
    erda_corpus("augment", file, "--corpus", corpus, "--set", "match_threshold=-0.5", "--set", "n_neighbours=2")
    out = capsys.readouterr().out
    assert len(out.split("\n\n")[0].splitlines()) == 1 + 7, "a title and the extra examples"
    assert "neighbour     [Bergen] lies on the coast of {Norway} ." in out
    assert "3 examples, 1 with their entity pair in the corpus: 3 by entity-match, 4 by neighbour" in out
    extras = tmp_path / "shots.extra.jsonl"
    assert [one.relation for one in read_examples(extras).examples] == ["author"] * 5 + ["country"] * 2
    before = extras.read_bytes(), file.read_bytes()
    for more, said in (
        ([], r"shots\.extra\.jsonl exists"),
        (["--known", extras, "--overwrite"], "is the input"),
        (["--out", file, "--overwrite"], "is the input"),
    ):
        with pytest.raises(SettingsError, match=said):
            erda_corpus("augment", file, "--corpus", corpus, *more)
    assert (extras.read_bytes(), file.read_bytes()) == before
    known = ["--known", extras, "--out", tmp_path / "more.jsonl"]
    erda_corpus("augment", file, "--corpus", corpus, *known, "--set", "similarity_search=false")
    assert "0 by entity-match" in capsys.readouterr().out
