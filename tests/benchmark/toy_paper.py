"""Tables of the paper small enough for tests."""

from __future__ import annotations

from typing import Any

from erda.benchmark.paper.plan import SEQRUN, WITHOUT_AUGMENTATION, PaperTable, Row
from erda.settings.load import assignments

TINY = {"dataset": "atlas", "way": 2, "first_shots": 5, "test_per_relation": 3, "encoder.hidden_size": 4}
SMALL = {**TINY, "n_tasks": 2}
CHANGES = assignments({**SMALL, "seeds": 100})
FOLDER = "fewrel-5-shot-on-atlas"


def small_table(name: str = "main", *rows: Row, **changes: Any) -> PaperTable:
    values: dict[str, Any] = {
        "name": name,
        "group": name,
        "title": f"Table {name}",
        "text": "",
        "preset": "fewrel-5-shot",
        "rows": rows or (SEQRUN, WITHOUT_AUGMENTATION),
        **changes,
    }
    return PaperTable(**values)
