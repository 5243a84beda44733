"""A review on the server: undo, restart, the reasons when nothing is left."""

from pathlib import Path
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
    again = {"key": next(iter(seen)), "holds": False}
    assert served.post("/v1/review/judge", again, 409)["error"] == "already_judged"
    assert served.post("/v1/review/judge", {**again, "key": "0" * 16}, 422)["error"] == "invalid"
    state = served.get("/v1/review")
    assert (state["n_left"], state["n_judged"]) == (0, len(seen))
    assert len(seen) >= len(TOWNS)
    assert "Every likely pair" in begin(served)["reason"]


def test_judgements_are_counted_become_a_version_and_can_be_undone(served: Served) -> None:
    before = counts(served)
    first = begin(served)["pair"]
    assert (first["relation"], first["head"], first["tail"]) == ("capital of", first["head"], f"Land{first['head']}")
    second = judge(served, first, holds=True)["pair"]
    third = judge(served, second, holds=False)["pair"]
    fourth = judge(served, third, holds=None)["pair"]
    state = judge(served, fourth, holds=True, instead="born in")
    assert (state["n_judged"], state["right"]) == (3, [True, False, False])
    assert state["progress"].startswith("Expected: ")
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
