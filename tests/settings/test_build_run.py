"""The encoder and the stream of a run."""

import json
from pathlib import Path

from erda.encoders.transformer import TransformerEncoder
from erda.settings.build import build_run_encoder, open_run_stream
from erda.settings.load import run_settings


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
