"""Every route, over a real connection."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_server import QUESTION, Served, serving
from toy_words import FOUNDED, QUESTIONS, Words

from erda.app.extractor import Extractor
from erda.serve.routes import plane_of

CONFIG = '<View><Labels name="ner" toName="doc"><Label value="ORG"/></Labels><Text value="$body" name="doc"/></View>'
OFFSETS = {"text": "SpaceX was founded by Elon .", "head": {"span": [0, 6]}, "tail": {"span": [22, 26], "name": "Elon"}}


def test_answers_are_those_of_the_library_and_name_their_version(served: Served, extractor: Extractor) -> None:
    expected = extractor.predict(QUESTION)
    one = served.post("/v1/predict", {"text": QUESTION})
    assert (one["version"], one["confidence"]) == (2, round(expected.confidence, 4))
    many = served.post("/v1/predict", {"questions": [*QUESTIONS, OFFSETS], "top": 1})
    assert [answer["relation"] for answer in many["answers"]] == ["founded by", "born in", "capital of", "founded by"]
    assert all(len(answer["ranked"]) == 1 for answer in many["answers"])
    assert many["version"] == 2
    assert served.post("/v1/predict", {"questions": []}) == {"version": 2, "answers": []}


@pytest.mark.parametrize(
    ("body", "where", "part"),
    [
        ({"text": 3}, "text", "expected text"),
        ({"text": QUESTION, "tpo": 1}, "tpo", "not known"),
        ({"text": "no marks"}, "", "no head is marked"),
        ({"questions": [QUESTION, "no marks"]}, "questions[1]", "no head is marked"),
        ([], "body", "expected"),
        ({**OFFSETS, "tail": {"span": [4, 5], "name": "Elon"}}, "", "characters 4 to 5 of the text are 'e', not"),
        ({**OFFSETS, "tail": {"span": [22, 99]}}, "", "ends after the last character"),
        ({"text": QUESTION, "questions": []}, "", "not both"),
        ({"text": "a" * 20_001}, "text", "expected at most 20,000 characters, got 20,001."),
    ],
)
def test_a_fault_names_its_place(served: Served, body: Any, where: str, part: str) -> None:
    failure = served.post("/v1/predict", body, status=422)
    assert failure.keys() == {"error", "message", "where"}
    assert (failure["error"], failure["where"]) == ("invalid", where)
    assert part in failure["message"]


def test_extraction_keeps_offsets_and_says_which_tagger_ran(served: Served) -> None:
    body = {"text": "Yes. SpaceX was founded by Elon .", "entities": ["SpaceX", {"span": [27, 31]}], "keep": "all"}
    assert "names or marks" in served.post("/v1/extract", body, status=422)["message"]
    body["entities"] = [{"span": [5, 11], "name": "SpaceX", "type": "ORG"}, {"span": [27, 31]}]
    found = served.post("/v1/extract", body)
    assert (found["version"], found["tagger"], found["n_entities"]) == (2, "given", 2)
    answer = next(one for one in found["answers"] if one["head"] == "SpaceX")
    assert (answer["head_start"], answer["head_end"], answer["tail_start"]) == (5, 11, 27)
    assert (answer["relation"], answer["head_type"]) == ("founded by", "ORG")
    body["entities"][0]["span"] = [4, 10]
    assert "not 'SpaceX'" in served.post("/v1/extract", body, status=422)["message"]


@pytest.mark.parametrize("format", ["graphml", "ttl", "cypher", "jsonl"])
def test_relations_of_texts_as_a_graph(served: Served, format: str) -> None:
    documents = [{"id": "a", "text": "SpaceX was founded by Elon ."}, {"text": "Elon was born in Pretoria ."}]
    answer = served.call("POST", f"/v1/graph?format={format}", {"documents": documents, "min_confidence": 0})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"] == f'attachment; filename="relations.{format}"'
    assert all(name in answer.text for name in ("SpaceX", "Elon", "Pretoria", "born in"))
    assert "too_large" in served.call("POST", "/v1/graph", {"text": "Elon . " * 20_000}).text
    assert "either" in served.call("POST", "/v1/graph", {}).text


def test_health_readiness_metrics_and_page(served: Served) -> None:
    assert served.get("/health")["status"] == "UP"
    assert served.get("/ready") == {"status": "ready", "version": 2}
    served.post("/v1/predict", {"text": QUESTION})
    metrics = served.call("GET", "/metrics").text
    assert 'erda_requests_total{method="POST",route="/v1/predict",status="200"} 1.0' in metrics
    assert "erda_version 2.0" in metrics
    assert "<html" in served.call("GET", "/").text
    assert served.call("GET", "/page/../application.py").status_code == 404
    assert served.call("GET", "/page/%2e%2e/application.py").status_code == 404


def test_an_extractor_that_knows_nothing_says_so_until_it_is_taught(tmp_path: Path) -> None:
    with serving(Extractor.open(tmp_path / "new", method="posterior", encoder=Words())) as served:
        assert served.post("/v1/predict", {"text": QUESTION}, status=409)["error"] == "nothing_taught"
        assert served.get("/v1/relations") == {"version": 0, "relations": []}
        assert served.post("/v1/teach", {"relation": "founded by", "examples": FOUNDED})["version"] == 1
        assert served.post("/v1/predict", {"text": QUESTION})["relation"] == "founded by"


def test_entities_and_sentences_are_spans_of_code_points(served: Served) -> None:
    text = "𝒳 Ada met Bob . Then Carl left ."
    found = served.post("/v1/entities", {"text": text})
    assert [text[start:end] for start, end in found["sentences"]] == ["𝒳 Ada met Bob .", "Then Carl left ."]
    names = [text[slice(*one["span"])] for one in found["entities"]]
    assert names == [one["name"] for one in found["entities"]]
    assert {"Bob", "Carl"} <= set(names)


@pytest.mark.parametrize("n", [1, 2, 9])
def test_the_plane_is_that_of_the_covariance(n: int) -> None:
    vectors = np.random.default_rng(0).normal(size=(n, 5)) * [5, 1, 3, 0.1, 0.2]
    plane, share = plane_of(vectors)
    values, axes = np.linalg.eigh(np.cov(vectors.T, bias=True) if n > 1 else np.zeros((5, 5)))
    expected = (vectors - vectors.mean(axis=0)) @ axes[:, ::-1][:, :2]
    scale = np.abs(expected).max() or 1.0
    np.testing.assert_allclose(np.abs(plane), np.abs(expected) / scale, atol=1e-6)
    assert share == pytest.approx(values[-2:].sum() / values.sum() if n > 1 else 1.0)


def test_tasks_get_regions_and_relations(served: Served) -> None:
    assert served.post("/setup", {"project": "1.2", "schema": CONFIG}) == {"model_version": "erda-2"}
    task = {"id": 1, "data": {"body": "SpaceX was founded by Elon ."}}
    drawn = [{"value": {"start": a, "end": b, "labels": [c]}} for a, b, c in ((0, 6, "ORG"), (22, 26, "\ud800"))]
    tasks = [task | {"annotations": [{"result": drawn}]}, task, {"data": {"body": 3}}, {"data": {"text": "no body"}}]
    tasks += [task | {"annotations": [{"result": wrong}]} for wrong in (5, [5], "ab", {"a": 1})]
    tasks.append(task | {"annotations": [{"result": [{"value": {**drawn[0]["value"], "labels": {"a": 1}}}]}]})
    found = served.post("/predict", {"tasks": tasks, "label_config": CONFIG})
    assert found["model_version"] == "erda-2"
    first, second, *empty = found["results"]
    head, tail, relation = first["result"]
    assert (head["from_name"], head["to_name"], head["type"]) == ("ner", "doc", "labels")
    assert head["value"] == {"start": 0, "end": 6, "text": "SpaceX", "labels": ["ORG"]}
    assert (relation["from_id"], relation["to_id"], relation["labels"]) == (head["id"], tail["id"], ["founded by"])
    assert {one["value"]["text"] for one in second["result"] if one["type"] == "labels"} == {"SpaceX", "Elon"}
    assert [one["result"] for one in empty[:6]] == [[]] * 6
    assert empty[6]["result"], "a region that cannot be read is as if it was not drawn"


def posts(document: Any) -> Iterator[tuple[str, Any]]:
    """Every documented body: its path and an example."""
    for path, methods in document["paths"].items():
        if call := methods.get("post"):
            name = call["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            yield from ((path, example) for example in document["components"]["schemas"][name]["examples"])


def test_every_call_of_the_reference_has_an_example_that_works_as_documented(served: Served) -> None:
    document = served.get("/openapi.json")
    served.post("/v1/teach", {"relation": "begun by", "examples": ["[[Rome]] was begun by {{Romulus}} ."]})
    examples = list(posts(document))
    for path, example in examples:
        answer = served.call("POST", path, example)
        # One row is too few to tune on; the pair of the example is in no text.
        good = (200, 202, 422) if path in ("/v1/tune", "/v1/review/judge") else (200, 202)
        assert answer.status_code in good, (path, json.dumps(example), answer.text)
        if "relations/" in path:
            served.post("/v1/undo", {})
    assert len(examples) >= 20
    for path, methods in document["paths"].items():
        assert all(call["description"] for call in methods.values()), path
