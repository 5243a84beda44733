"""Small tables of the paper for tests."""

from typing import Any

from erda.benchmark.paper.paper_tables import ROWS, PaperRow, PaperTable
from erda.settings.load import given_values

SEQRUN, WITHOUT_AUGMENTATION, ERDA = (ROWS[label] for label in ("SeqRun", "ERDA w.o. DA", "ERDA"))
TINY = {"dataset": "atlas", "way": 2, "first_shots": 5, "test_per_relation": 3}
SMALL = {**TINY, "n_tasks": 2}
CHANGES = given_values({**SMALL, "seeds": 100})
FOLDER = "fewrel-5-shot-on-atlas"


def small_table(name: str = "main", *rows: PaperRow, **changes: Any) -> PaperTable:
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
