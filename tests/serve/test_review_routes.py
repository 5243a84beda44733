"""A review on the server: undo, restart, the reasons when nothing is left."""

from pathlib import Path
from time import sleep
from typing import Any

from toy_server import Served, serving, toy_store, wait_for
from toy_words import Words

from erda.app.extractor import Extractor
from erda.app.review_journal import FOLDER, ReviewJournal

TOWNS = ("Bern", "Rome", "Kyiv", "Oslo", "Riga", "Lima")
TEXT = " ".join(f"{town} is the capital of Land{town} ." for town in TOWNS)


def begin(served: Served, text: str = TEXT) -> Any:
    return served.post("/v1/review/texts", {"texts": [text]})


def judge(served: Served, pair: Any, holds: bool | None = True, **more: Any) -> Any:
    return served.post("/v1/review/judge", {"key": pair["key"], "holds": holds, **more})


def counts(served: Served) -> dict[str, tuple[int, int]]:
    listed = served.get("/v1/relations")["relations"]
    return {one["id"]: (one["n_examples"], one["n_counterexamples"]) for one in listed}


def test_a_pair_is_shown_until_it_is_judged_and_never_again(served: Served) -> None:
    pair, seen = begin(served)["pair"], set[str]()
    while pair:
        assert pair["key"] not in seen
        assert served.post("/v1/review/next", {})["pair"] == pair, "a reload shows the same pair"
        assert served.get("/v1/review")["pair"] is None, "no pair is handed out"
        seen.add(pair["key"])
        pair = judge(served, pair)["pair"]
    state = served.get("/v1/review")
    assert (state["n_left"], state["n_judged"]) == (0, len(seen))
    assert len(seen) >= len(TOWNS)
    assert "Every likely pair" in begin(served)["reason"]


def test_a_pronoun_comes_with_the_name_that_it_stands_for(served: Served) -> None:
    found = begin(served, text="Ada Poe met Bob Roe . She was born in London .")["pair"]
    assert (found["head"], found.get("head_resolved"), found["relation"]) == ("She", "Ada Poe", "born in")


def test_judgements_are_counted_become_a_version_and_can_be_undone(served: Served) -> None:
    before = counts(served)
    first = begin(served)["pair"]
    assert (first["relation"], first["head"], first["tail"]) == ("capital of", first["head"], f"Land{first['head']}")
    second = judge(served, first, holds=True)["pair"]
    third = judge(served, second, holds=False)["pair"]
    fourth = judge(served, third, holds=None)["pair"]
    state = judge(served, fourth, holds=True, instead="born in")
    assert (state["n_judged"], state["right"]) == (3, [True, False, False])
    assert (state["n_yes"], state["n_no"]) == ({"capital of": 1, "born in": 1}, {"capital of": 1})
    assert state["keys"] == [fourth["key"]]
    undone = served.post("/v1/review/undo", {})
    assert undone["pair"]["key"] == fourth["key"]
    assert (undone["right"], undone["keys"]) == ([True, False], [fourth["key"]])
    served.app.state.desk.save_soon()
    served.post("/v1/relations/describe", {"relation": "born in", "description": "a town"})  # after the save
    assert counts(served)["capital of"] == (before["capital of"][0] + 1, 1)
    undone = served.post("/v1/review/undo", {"keys": [first["key"], second["key"]]})
    assert counts(served) == before
    assert undone["pair"]["key"] == second["key"]


def test_a_second_judgement_of_the_same_pair_is_rejected(served: Served) -> None:
    pair = begin(served)["pair"]
    judge(served, pair)
    body = {"key": pair["key"], "holds": False}
    assert served.post("/v1/review/judge", body, 409)["error"] == "already_judged"
    assert served.post("/v1/review/judge", {**body, "key": "0" * 16}, 422)["error"] == "invalid"


def test_a_judgement_is_about_the_relation_that_was_shown(served: Served) -> None:
    """Also after a rename and new versions that propose another relation."""
    pair = begin(served)["pair"]
    assert pair["relation"] == "capital of"
    served.post("/v1/relations/rename", {"relation": "capital of", "to": "seat"})
    served.post("/v1/teach", {"relation": "capital of", "examples": ["[[Rome]] beat {{Carthage}} ."]})
    state = judge(served, pair, holds=False)
    assert state["n_no"] == {"seat": 1}


def test_accepting_all_makes_one_version_and_is_no_measure_of_quality(served: Served) -> None:
    start = begin(served)
    least = start["confidences"][2]
    accepted = served.post("/v1/review/accept", {"min_confidence": least})
    assert len(accepted["keys"]) == 3
    assert (accepted["version"], accepted["right"], accepted["n_judged"]) == (start["version"] + 1, [], 3)
    undone = served.post("/v1/review/undo", {"keys": accepted["keys"]})
    assert (undone["n_judged"], undone["n_left"]) == (0, start["n_left"])
    assert undone["version"] == accepted["version"] + 1, "one undo is one version"
    history = served.get("/v1/history")["versions"]
    assert history[-1]["what"] == "took back 3 examples of capital of"


def test_a_ranking_in_progress_ends_with_its_texts(served: Served) -> None:
    judge(served, begin(served)["pair"])
    served.app.state.desk.save_soon()
    while served.get("/v1/review")["version"] == 2:  # then the new version ranks the pairs in the background
        sleep(0.01)
    assert served.post("/v1/review/texts", {"texts": []})["pair"] is None


def test_the_reason_is_given_when_nothing_is_left(served: Served, tmp_path: Path) -> None:
    assert "No text" in served.post("/v1/review/next", {})["reason"]
    assert "No entity" in begin(served, text="nothing at all .")["reason"]
    assert begin(served, text="")["pair"] is None
    ended = served.post("/v1/review/texts", {"texts": []})
    assert (ended["n_texts"], ended["pair"]) == (0, None)
    with serving(Extractor.open(tmp_path / "new", encoder=Words())) as empty:
        assert empty.post("/v1/review/next", {}, 409)["error"] == "nothing_taught"
        assert empty.post("/v1/review/texts", {"texts": [TEXT]}, 409)["error"] == "nothing_taught"
        assert not (tmp_path / "new").exists()


def test_a_restart_resumes_and_long_texts_are_a_job(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with serving(toy_store(store)) as served:
        pair = begin(served)["pair"]
        judge(served, pair)
    assert ReviewJournal(store / FOLDER).pending == (), "the stop makes a version"
    with serving(Extractor.open(store, encoder=Words())) as served:
        assert counts(served)["capital of"] == (3, 0)
        resumed = served.post("/v1/review/next", {})
        assert (resumed["pair"]["key"] != pair["key"], resumed["right"]) == (True, [True])
        answer = served.call("POST", "/v1/review/texts", {"texts": [TEXT], "job": True})
        assert answer.status_code == 202
        job = wait_for(served, answer.json()["id"])
        assert (job["state"], job["result"]["n_texts"]) == ("done", 1)
        assert served.post("/v1/review/next", {})["pair"]["key"] != pair["key"]
