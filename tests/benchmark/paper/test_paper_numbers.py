"""Published results, and the rows that match a record."""

import statistics
from dataclasses import replace
from typing import Any

import pytest
from toy_runs import fewrel_record

from erda.benchmark.measures import ALL_SEEN, CANDIDATES
from erda.benchmark.records import Record
from erda.benchmark.report.published import COMPONENTS, PAPER, find_published, is_base_size
from erda.methods import METHODS
from erda.settings.runs import default_settings

SEEDS = [100, 110, 120, 130, 140, 150]


def fewrel(template: Record, method: str = "erda", *, corpus: str | None = None, **settings: Any) -> Record:
    """Record with the method's defaults and some changes."""
    own = {"method": {**default_settings(METHODS[method]), **settings}, "encoder": {}, "stream": {}}
    return fewrel_record(template, method, settings=own, **({} if corpus is None else {"corpus": corpus}))


def test_every_row_has_the_shape_of_its_table() -> None:
    sources = {row.source: [] for row in PAPER}
    for row in PAPER:
        sources[row.source].append(row)
        assert len(row.accuracy) == (1 if row.source == "Table 2" else 8)
        assert len(row.deviation) == len(row.accuracy)
        assert all(10 < one <= 100 for one in row.accuracy)
        assert all(0 < one < 7 for one in row.deviation)
        assert (row.dataset, row.shots, row.protocol, row.n) == ("fewrel", 5, CANDIDATES, 6)
        assert row.method in METHODS
        assert set(row.settings) <= set(COMPONENTS.get(row.method, {}))
    assert {source: len(rows) for source, rows in sources.items()} == {
        "Tables 1 and 6": 6,
        "Table 4": 6,
        "Tables 3 and 7": 7,
        "Table 2": 8,
    }


@pytest.mark.parametrize(
    ("row", "encoder", "first", "last"),
    [
        ("EMR", "bilstm", (92.78, 0.76), (37.51, 1.53)),
        ("IDLVQ-C", "bert", (96.03, 0.12), (60.32, 1.75)),
        ("ERDA", "bert", (96.38, 0.35), (68.07, 1.94)),
        ("ERDA w.o. L_mm", "bilstm", (91.67, 1.00), (51.72, 1.27)),
        ("ERDA w.o. M", "bilstm", (91.95, 0.82), (40.32, 2.22)),
        ("ERDA, lambda_con 1.0", "bilstm", (52.27, 1.07), (52.27, 1.07)),
    ],
)
def test_numbers_equal_the_paper(row: str, encoder: str, first: tuple[float, float], last: tuple[float, float]) -> None:
    (found,) = [one for one in PAPER if (one.row, one.encoder) == (row, encoder)]
    assert (found.accuracy[0], found.deviation[0]) == first
    assert (found.last.mean, found.last.deviation, found.last.n) == (*last, 6)


@pytest.mark.parametrize("name", ["ERDA", "IDLVQ-C"])
def test_the_main_row_is_the_mean_of_six_orders(name: str) -> None:
    """Mean of the six runs, and their standard deviation with n in the denominator: what ± means in the paper."""
    (row,) = [one for one in PAPER if (one.row, one.encoder) == (name, "bilstm")]
    assert list(map(int, row.by_seed)) == SEEDS
    for k in range(8):
        runs = [values[k] for values in row.by_seed.values()]
        assert statistics.fmean(runs) == pytest.approx(row.accuracy[k], abs=0.0051)
        assert statistics.pstdev(runs) == pytest.approx(row.deviation[k], abs=0.0051)


@pytest.mark.parametrize(
    ("settings", "row"),
    [
        ({}, "ERDA"),
        ({"temperature": 0.07, "batch_size": 8}, "ERDA"),  # ours, not the paper's choice of parts
        ({"multi_margin_weight": 0.0}, "ERDA w.o. L_mm"),
        ({"pairwise_margin_weight": 0.0}, "ERDA w.o. L_pm"),
        ({"contrastive_weight": 0.0}, "ERDA w.o. L_con"),
        ({"augmentation": False}, "ERDA w.o. DA"),
        ({"corpus": ""}, "ERDA w.o. DA"),
        ({"entity_matching": False}, "ERDA w.o. EM"),
        ({"similarity_search": False}, "ERDA w.o. SS"),
        ({"entity_matching": False, "similarity_search": False}, "ERDA w.o. DA"),
        ({"memory_size": 0}, "ERDA w.o. M"),
        ({"contrastive_weight": 0.02}, "ERDA, lambda_con 0.02"),
        ({"contrastive_weight": 1}, "ERDA, lambda_con 1.0"),
        ({"method": "seqrun"}, "SeqRun"),
        ({"method": "joint"}, "Joint Training"),
        ({"method": "emar"}, "EMAR"),
        ({"contrastive_weight": 0.3}, None),
        ({"memory_size": 5}, None),
        ({"multi_margin_weight": 0.0, "corpus": ""}, None),  # the paper's has augmentation
    ],
)
def test_ablations_match_their_row(template: Record, settings: dict[str, Any], row: str | None) -> None:
    found = find_published(fewrel(template, **settings), CANDIDATES)
    assert (found and found.row) == row
    assert found is None or found.remark == ""


def test_base_size_transformers_match_bert_with_a_remark(template: Record) -> None:
    record = replace(fewrel(template), encoder="mpnet", order_family="sckd")
    record.settings["encoder"] = {"mode": "markers"}
    found = find_published(record, CANDIDATES)
    assert (found.source, found.last.mean, dict(found.by_seed)) == ("Table 4", 68.07, {})
    remark = "mpnet beside the paper's BERT-base; encoder with mode=markers; task orders sckd, the paper's are erda"
    assert found.remark == remark
    assert find_published(replace(fewrel(template), order_family="sckd"), CANDIDATES).by_seed == {}  # other streams
    for name in ("bert-base-uncased", "/models/roberta-base", "all-mpnet-base-v2"):
        assert is_base_size(replace(record, encoder=name))
    for name in ("minilm", "bilstm", "bert-large-uncased", "based-model"):
        assert not is_base_size(replace(record, encoder=name))
    assert find_published(replace(record, encoder="minilm"), CANDIDATES) is None


def test_settings_outside_the_paper_match_no_row(template: Record) -> None:
    record = fewrel(template)
    assert find_published(record, ALL_SEEN) is None
    for change in ({"shots": 2}, {"dataset": "fewrel-full"}, {"evaluate_on": "validation"}, {"method": "toy"}):
        assert find_published(replace(record, **change), CANDIDATES) is None
    assert find_published(replace(record, settings={**record.settings, "stream": {"way": 5}}), CANDIDATES) is None
    assert find_published(template, CANDIDATES) is None


def test_augmentation_beyond_the_paper_is_a_remark(template: Record) -> None:
    assert find_published(fewrel(template), CANDIDATES).remark == ""
    ours = find_published(fewrel(template, n_neighbours=5, n_rehearsed=8), CANDIDATES)
    assert ours.remark == "augmentation beyond the paper's: n_neighbours=5, n_rehearsed=8"
    without = find_published(fewrel(template, corpus="", n_neighbours=5), CANDIDATES)
    assert without.remark == "", "settings without effect give no remark"
