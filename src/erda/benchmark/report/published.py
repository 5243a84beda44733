"""Published results (`published.toml`), and the row that matches a record.

The numbers are per cent, as printed. A row of the paper matches by dataset, shots, encoder, method and the components
that its ablations switch off; other settings (temperature, batch size, ...) are not compared.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from erda.benchmark.measures import CANDIDATES
from erda.benchmark.records import Record
from erda.benchmark.statistics import Summary

FILE = Path(__file__).with_name("published.toml")
PAPER_ORDERS = "erda"  # the order family of the paper's six runs
# augmentation settings outside the paper's ablation, with the paper's values
PAPER_AUGMENTATION: dict[str, Any] = {
    "n_neighbours": 1,
    "neighbour_threshold": 0.0,
    "search_matched": False,
    "agreement": "none",
    "n_rehearsed": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One row of a published table: accuracy in per cent, after each task or only after the last."""

    row: str  # its name in the publication
    source: str  # table of the publication
    dataset: str
    shots: int
    encoder: str  # "bilstm" or "bert" in the paper's rows, the encoder's name in rows of later work
    protocol: str
    accuracy: list[float]
    deviation: list[float] | None = None  # n in the denominator, see published.toml
    n: int = 1  # runs
    method: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)  # changed by an ablation
    by_seed: Mapping[str, list[float]] = field(default_factory=dict)  # accuracy of each run, if published
    parameters: str = ""  # of the encoder: "110M", "7-8B"
    remark: str = ""  # further differences from the matching record

    @property
    def last(self) -> Summary:
        """Accuracy after the last task."""
        return Summary(self.accuracy[-1], self.deviation[-1] if self.deviation else None, self.n)

    @property
    def components(self) -> dict[str, Any]:
        """Components of its method."""
        return {**COMPONENTS.get(self.method, {}), **self.settings}


TABLES = tomllib.loads(FILE.read_text(encoding="utf-8"))
COMPONENTS: Mapping[str, Mapping[str, Any]] = TABLES["components"]  # method -> its components in the paper
_SHARED = ("source", "dataset", "shots", "encoder")
PAPER = tuple(
    Published(**{name: table[name] for name in _SHARED}, protocol=TABLES["protocol"], n=TABLES["n_runs"], **row)
    for table in TABLES["tables"]
    for row in table["rows"]
)


def find_published(record: Record, protocol: str = CANDIDATES) -> Published | None:
    """Row of the paper for a record, with a remark on further differences; None if the paper has none."""
    if record.evaluate_on != "test" or record.seen or record.settings.get("stream"):  # not the published split as it is
        return None
    setting, components = (record.dataset, record.shots, protocol), _components(record)
    for row in PAPER:
        same_encoder = record.encoder == "bilstm" if row.encoder == "bilstm" else is_base_size(record)
        same_method = row.method == record.method and row.components == components
        if same_method and same_encoder and setting == (row.dataset, row.shots, row.protocol):
            by_seed = row.by_seed if record.order_family == PAPER_ORDERS else {}
            return replace(row, by_seed=by_seed, remark=_remark(record))
    return None


def is_base_size(record: Record) -> bool:
    """Whether the encoder is a base-size transformer, judged by name: `mpnet`, `bert-base-uncased`, ..."""
    names = [record.encoder, str(record.encoder_spec.get("name", ""))]
    return any("base" in re.split(r"[^a-z0-9]+", name.lower()) or name == "mpnet" for name in names)


def _components(record: Record) -> dict[str, Any]:
    """Components of a record's method; settings without effect have the paper's values."""
    given = record.settings.get("method", {})
    found = {name: given.get(name, value) for name, value in COMPONENTS.get(record.method, {}).items()}
    if "augmentation" in found:
        parts = ("entity_matching", "similarity_search")
        found["augmentation"] = bool(record.corpus and found["augmentation"] and any(found[part] for part in parts))
        if not found["augmentation"]:
            found |= dict.fromkeys(parts, True)
    return found


def _remark(record: Record) -> str:
    remarks = []
    if record.encoder != "bilstm":
        remarks.append(f"{Path(record.encoder).name} beside the paper's BERT-base")
    given = record.settings.get("encoder", {})
    if given:
        remarks.append("encoder with " + ", ".join(f"{name}={value}" for name, value in given.items()))
    given = record.settings.get("method", {}) if record.corpus else {}
    beyond = [
        f"{name}={given[name]}" for name, theirs in PAPER_AUGMENTATION.items() if given.get(name, theirs) != theirs
    ]
    if beyond and given.get("augmentation", True):
        remarks.append("augmentation beyond the paper's: " + ", ".join(beyond))
    if record.order_family != PAPER_ORDERS:
        remarks.append(f"task orders {record.order_family}, the paper's are {PAPER_ORDERS}")
    return "; ".join(remarks)
