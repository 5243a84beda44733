"""`erda.Client` gives what `Extractor` gives."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import requests
from toy_server import QUESTION, Served, serving, toy_store
from toy_words import BORN, FOUNDED, QUESTIONS

from erda import Client
from erda.answers import Answer
from erda.app.extractor import Extractor
from erda.errors import DataError, ErdaError, ModelError
from erda.text.marks import Mark


@pytest.fixture
def client(served: Served) -> Client:
    return Client(served.url)


def without_exemplars(answer: Answer) -> Answer:
    ranked = tuple(replace(one, confidence=round(one.confidence, 4), exemplar=None) for one in answer.ranked)
    return replace(answer, ranked=ranked)


def test_questions_have_the_answers_of_the_extractor(client: Client, extractor: Extractor) -> None:
    assert client.relations == extractor.relations
    assert client.predict(QUESTION) == without_exemplars(extractor.predict(QUESTION))
    assert client.predict(QUESTIONS, top=2) == [without_exemplars(one) for one in extractor.predict(QUESTIONS, top=2)]
    text, marks = "SpaceX was founded by Elon .", [Mark(0, 6, type="ORG"), Mark(22, 26)]
    found, expected = client.extract(text, marks), extractor.extract(text, marks)
    assert found.answers == tuple(map(without_exemplars, expected.answers))
    assert (found.tagger, found.n_entities, found.found[0].example.head.type) == ("given", 2, "ORG")
    why, because = client.explain(QUESTION), extractor.explain(QUESTION)
    assert [one.word for one in why.words] == [one.word for one in because.words]
    assert why.nearest[0].example == replace(because.nearest[0].example, id="")
    labelled = [{"text": FOUNDED[0], "relation": "founded by"}, {"text": BORN[0], "relation": "born in"}]
    assert client.evaluate(labelled) == extractor.evaluate(labelled)
    assert client.history() == extractor.history()


def test_changes_are_those_of_the_extractor(served: Served, tmp_path: Path) -> None:
    client, other = Client(served.url), toy_store(tmp_path / "other")
    for one in (client, other):
        told = {"description": "has\n[[X]] has a {{Y}}.", "counterexamples": [BORN[0]]}
        taught = one.teach("owns", ["[[Ann]] owns the {{dog}} ."], **told)
        assert (taught.version, taught.new, taught.n_counterexamples, taught.n_patterns) == (3, ("owns",), 1, 1)
        assert taught.warnings == (), "sent by the server"
        again = one.teach("owns", ["[[Ann]] owns the {{dog}} ."])
        assert (again.version, len(again.duplicates)) == (3, 1)
        assert one.teach_many({"near": ["[[a]] near {{b}}"]}).version == 4
        assert one.rename("near", "close to") == 5
        assert one.merge("close to", "owns") == 6
        assert one.describe("owns", "") == 7
        assert one.take_back(one.examples("owns")[0].number) == 8
        assert one.forget("born in") == 9
        assert one.declare("owns", tail_types=["ANIMAL"]) == 10
        assert one.judge(BORN[1], "owns", holds=False).n_counterexamples == 1
        assert len(one.counterexamples("owns")) == 2
        assert (one.undo(), one.rollback(3)) == (10, 3)
    assert client.relations == other.relations
    assert [one.example for one in client.examples("owns")] == [one.example for one in other.examples("owns")]


def test_thresholds_are_those_of_the_extractor(served: Served, tmp_path: Path) -> None:
    client, other = Client(served.url), toy_store(tmp_path / "other")
    rows = [{"text": f"[[a{i}]] was founded by {{{{b{i}}}}} .", "relation": "founded by"} for i in range(25)]
    rows += [{"text": f"[[e{i}]] sold {{{{f}}}} w{i}", "relation": "founded by", "holds": False} for i in range(15)]
    texts = [
        {
            "text": f"aa{i} was founded by bb{i} .",
            "entities": [{"span": [0, 3 + (i > 9)]}, {"span": [19 + (i > 9), 22 + 2 * (i > 9)]}],
            "relations": [{"head": 0, "tail": 1, "relation": "founded by"}],
        }
        for i in range(25)
    ]
    for labelled, in_text in ((rows, False), (texts, True)):
        found, expected = (one.tune(labelled, precision=0.3) for one in (client, other))
        assert found == expected
        assert (found.in_text, found.expected.n) == (in_text, 25)
    with pytest.raises(DataError, match="Give examples or texts"):
        client.tune([])


def test_the_export_is_written_as_a_folder(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "erda.serve.routes.export", lambda version, folder: (folder.mkdir(), (folder / "a").write_text("b"))
    )
    folder = client.export(tmp_path / "new" / "export")
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("a", "b")]
    assert [path.name for path in folder.parent.iterdir()] == ["export"]
    with pytest.raises(DataError, match="name another folder"):
        client.export(folder)


def test_many_examples_are_taught_as_a_job(client: Client) -> None:
    rows = [{"text": f"[[x{n}]] y {{{{z}}}}", "relation": "near"} for n in range(501)]
    assert client.teach_many(rows).n_examples == 501


def test_faults_are_those_of_the_library(client: Client, extractor: Extractor) -> None:
    with pytest.raises(DataError, match="Unknown relation 'owned by'"):
        client.examples("owned by")
    with pytest.raises(DataError, match="no head is marked"):
        client.predict("no marks")
    with pytest.raises(ModelError, match="Is it running there"):
        Client("http://127.0.0.1:9").predict(QUESTION)
    with serving(extractor, token="x" * 20) as served:
        with pytest.raises(ErdaError, match="token is missing"):
            Client(served.url).predict(QUESTION)
        assert Client(served.url, token="x" * 20).predict(QUESTION).relation == "founded by"


@pytest.mark.parametrize("status", [200, 502])
def test_any_other_answer_is_one_fault_that_quotes_it(
    tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"text": "", "head": "a", "tail": "b", "tokens": ["a"], "head_span": [0, 1], "tail_span": [4, 5]}
    lists = {one: [row] for one in ("answers", "relations", "suggestions", "examples", "versions", "moved")}
    other = [[], None, {}, {"version": 1, "answers": []}, {"version": 1, **lists, "pair": row, "confusion": [row]}]
    bodies = [
        b"<html>a proxy</html>",
        b'{"version": 1, "ans',
        b"[" * 100_000,
        *(json.dumps(one).encode() for one in other),
    ]
    calls = [
        *(("examples", "x"), ("extract", "a"), ("suggest", "x", ["a"]), ("history",), ("export", tmp_path / "export")),
        *((name, [QUESTION]) for name in ("evaluate", "tune")),
        *((name, QUESTION) for name in ("predict", "explain")),
        *(("teach", "x", [QUESTION] * n) for n in (1, 501)),
    ]
    client, answer = Client("http://127.0.0.1:9"), requests.Response()
    answer.status_code = status
    monkeypatch.setattr(client._http, "request", lambda *given, **options: answer)
    for body in bodies:
        answer._content = body
        for name, *given in calls:
            with pytest.raises(ErdaError) as fault:
                getattr(client, name)(*given)
            said = f"(status {status}, no content type) begins with '<html>"
            assert said in str(fault.value) or not body.startswith(b"<")
