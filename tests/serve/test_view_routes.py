"""Routes of the page's views: entities, map, judgements."""

import numpy as np
import pytest
from toy_server import Served

from erda.serve.routes import plane_of


def test_entities_and_sentences_are_spans_of_code_points(served: Served) -> None:
    text = "𝒳 Ada met Bob . Then Carl left ."
    found = served.post("/v1/entities", {"text": text})
    assert [text[start:end] for start, end in found["sentences"]] == ["𝒳 Ada met Bob .", "Then Carl left ."]
    names = [text[slice(*one["span"])] for one in found["entities"]]
    assert names == [one["name"] for one in found["entities"]]
    assert {"Bob", "Carl"} <= set(names)


def test_a_judgement_becomes_an_example_or_a_counterexample(served: Served) -> None:
    body = {"text": "[[Rome]] is the capital of {{Italy}} .", "relation": "capital of"}
    taught = served.post("/v1/judge", {**body, "holds": False})
    assert (taught["n_examples"], taught["n_counterexamples"]) == (0, 1)
    listed = served.get("/v1/examples?relation=capital of")
    assert [one["head"] for one in listed["counterexamples"]] == ["Rome"]
    assert served.post("/v1/judge", body)["n_examples"] == 1
    (known,) = [one for one in served.get("/v1/relations")["relations"] if one["id"] == "capital of"]
    assert (known["n_examples"], known["n_counterexamples"], known["threshold"]) == (3, 0, None)
    served.post("/v1/judge", {**body, "relation": "unknown"}, status=422)


def test_the_map_holds_every_example_once(served: Served) -> None:
    found = served.get("/v1/map")
    assert [one["number"] for one in found["points"]] == list(range(7))
    assert {one["relation"] for one in found["points"]} == {"founded by", "born in", "capital of"}
    assert all(abs(one[axis]) <= 1 for one in found["points"] for axis in "xy")
    assert 0 < found["share"] <= 1


@pytest.mark.parametrize("n", [1, 2, 9])
def test_the_plane_is_that_of_the_covariance(n: int) -> None:
    vectors = np.random.default_rng(0).normal(size=(n, 5)) * [5, 1, 3, 0.1, 0.2]
    plane, share = plane_of(vectors)
    values, axes = np.linalg.eigh(np.cov(vectors.T, bias=True) if n > 1 else np.zeros((5, 5)))
    expected = (vectors - vectors.mean(axis=0)) @ axes[:, ::-1][:, :2]
    scale = np.abs(expected).max() or 1.0
    np.testing.assert_allclose(np.abs(plane), np.abs(expected) / scale, atol=1e-6)
    assert share == pytest.approx(values[-2:].sum() / values.sum() if n > 1 else 1.0)


def test_a_text_that_is_too_long_is_rejected_with_its_length(served: Served) -> None:
    found = served.post("/v1/entities", {"text": "a" * 100_001}, 422)
    assert found["message"] == "text: expected at most 100,000 characters, got 100,001."
