import json
from pathlib import Path

import pytest
from toy_runs import toy_record

from erda.benchmark.records import RECORD
from erda.errors import RecordError, SettingsError
from erda.files import sealed, write_json
from paper import paper_figures, time_table

SEEDS = (100, 110, 120, 130, 140, 150)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("toy")
    toy_record(folder)
    (path,) = folder.rglob(RECORD)
    return json.loads(path.read_text())


def put(out: Path, template: dict, variant: str, method: str, *, last: float, seeds: tuple[int, ...] = SEEDS) -> None:
    """Write records of a row; its final accuracy is `last` plus a small offset per order."""
    for number, seed in enumerate(seeds):
        record = {**template, "method": method, "seed": seed, "dataset": "fewrel", "shots": 5, "encoder": "bilstm"}
        value = last + number / 1000 + (seed * 7 % 30) / 10_000 * (method == "erda")
        record["accuracy"] = {name: [0.9, 0.8, value] for name in template["accuracy"]}
        record["order_family"] = "erda"
        record["corpus"] = "wiki" if variant == "augmented" else ""
        record["manifest"] = {**template["manifest"], "digest": f"stream-{seed}"}
        write_json(out / "fewrel-5-shot" / variant / method / str(seed) / RECORD, sealed(record))


def test_figures_come_from_records_beside_their_targets(tmp_path: Path, template: dict) -> None:
    put(tmp_path, template, "augmented", "erda", last=0.60)
    put(tmp_path, template, "plain", "erda", last=0.55)
    put(tmp_path, template, "plain", "idlvq-c", last=0.50)
    put(tmp_path, template, "plain", "emr", last=0.30)
    with pytest.raises(RecordError, match="run `erda paper main` first"):
        paper_figures(tmp_path / "fewrel-5-shot" / "plain")
    with pytest.raises(SettingsError, match="already holds records"):
        time_table("main", tmp_path)
    figures = {figure.name.strip(): figure for figure in paper_figures(tmp_path)}
    assert figures["ERDA, BiLSTM, candidates after task 8"].verdict == "met"
    gain = figures["over ERDA w.o. DA"]
    assert gain.value == pytest.approx(5.0, abs=0.01)
    assert (gain.target, gain.verdict) == (">= 1.5", "met")
    assert figures["over IDLVQ-C"].value == pytest.approx(10.2, abs=0.2)
    assert figures["EMR against the paper's 37.51"].value == pytest.approx(30.25 - 37.51, abs=0.01)
    assert figures["away from it"].verdict == "NOT MET"
    assert all(figure.verdict == "met" for name, figure in figures.items() if name.startswith("p, "))
