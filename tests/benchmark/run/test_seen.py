"""Encoders whose training read labels of a stream's relations: no run without --allow-seen, and marked records."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_models import build_model, encoder_of

from erda.benchmark.experiments import SEEN, group_records
from erda.benchmark.records import read_records
from erda.cli.main import main
from erda.encoders.adapter import TrainedWeights
from erda.encoders.weights import origin


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [
        {
            "tokens": ["Ada", "was", word, "of", "Rome", str(number)],
            "head": {"name": "Ada", "span": [0, 1]},
            "tail": {"name": "Rome", "span": [4, 5]},
            "relation": word,
        }
        for word in ("P17", "P6", "P112", "P36")
        for number in range(8)
    ]
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_run_over_seen_relations_needs_a_word_and_is_marked(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bert = build_model(tmp_path / "bert")
    fresh = TrainedWeights.fresh(encoder_of(bert, mode="markers").layers, base=origin(bert), max_pieces=20, rank=2)

    def run(name: str, trained_on: tuple[str, ...], *more: str) -> int:
        replace(fresh, trained_on=trained_on).save(tmp_path / name)
        words = f"run --dataset {data} --shots 2 --set way=2 --set candidates=3 --encoder {bert.path} --seeds 100"
        out = ["--out", str(tmp_path / "runs" / f"{name}{len(more)}")]
        return main([*words.split(), "--set", f"encoder.adapter={tmp_path / name}", *out, *more])

    assert run("fold", ("P50", "P57"), "--allow-seen") == 0, "no relation in common"
    assert run("seen", ("P36", "P6", "P50")) != 0
    said = capsys.readouterr().err
    assert "2 of the 4 relations" in said
    assert "P36 (P36)" in said
    assert str(tmp_path / "seen") in said
    assert "--allow-seen" in said
    assert run("seen", ("P36", "P6", "P50"), "--allow-seen") == 0
    assert SEEN in capsys.readouterr().out
    plain, marked = read_records(tmp_path / "runs").records
    assert (plain.seen, sorted(marked.seen)) == ([], ["P36", "P6"])
    same = replace(plain, seen=["P36"])
    one, other = group_records([plain, same])
    assert (SEEN in one.title, SEEN in other.title) == (False, True)
    assert one.slug != other.slug
