"""What a method is handed beside its encoder."""

import json
from pathlib import Path

from erda.encoders.transformer import TransformerEncoder
from erda.methods.erda import Erda
from erda.settings.build import build_run_encoder, build_run_method, open_run_stream
from erda.settings.load import run_settings

SMALL = {"n_tasks": 3, "encoder.hidden_size": 4}


def test_the_future_is_handed_in_only_where_it_is_asked_for() -> None:
    for settings, handed in ((SMALL, False), ({**SMALL, "future_relations": True}, True)):
        (run,) = run_settings(methods="erda", encoder="bilstm", settings=settings, seeds=100).runs()
        method = build_run_method(run)
        assert isinstance(method, Erda)
        assert method.future == (tuple(open_run_stream(run).relations) if handed else ())
        assert method.settings()["future_relations"] is handed
    stream = open_run_stream(run)
    assert [relation.id for relation in method.future] == [one.id for task in stream for one in task.relations]
    method.learn(next(iter(stream)))
    known = [relation.id for relation in next(iter(stream)).relations]
    assert list(method.predict(stream.test(0).examples).relations) == known


def test_for_a_method_that_leaves_the_encoder_as_it_is_nothing_of_a_transformer_is_trained() -> None:
    layer = {"encoder.trained_layers": 1}
    for method, given, trained in (
        ("posterior", {}, False),
        ("posterior", layer, False),
        ("joint", layer, True),
        ("joint", {**layer, "train_encoder": False}, False),
    ):
        (run,) = run_settings(methods=method, encoder="minilm", seeds=100, settings=given).runs()
        asked = {name.partition(".")[2]: value for name, value in given.items() if "." in name}
        assert run.settings["encoder"] == asked, "the record tells what was asked for, so that methods share a table"
        encoder = build_run_encoder(run)
        assert isinstance(encoder, TransformerEncoder)
        assert any(weights.requires_grad for weights in encoder.layers.parameters()) is trained


def test_how_a_stream_is_cut_reaches_it(tmp_path: Path) -> None:
    rows = [("meets", number) for number in range(9)] + [("likes", 9), ("Other", 10)]
    marks = {"head": {"span": [0, 1]}, "tail": {"span": [2, 3]}}
    lines = [json.dumps({"tokens": ["Ann", f"w{n}", "Bob"], "relation": name, **marks}) for name, n in rows]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines))
    cut = {"shots": 2, "way": 1, "min_examples": 3, "no_relation": "Other"}
    (run,) = run_settings(dataset=str(tmp_path / "mine.jsonl"), seeds=1, settings=cut).runs()
    stream = open_run_stream(run)
    assert [relation.id for relation in stream.relations] == ["meets"]
    assert stream.manifest.notes == ("left out, fewer than 3 examples or none in the test: likes (1)",)
