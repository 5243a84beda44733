"""Rows of the leaderboard: lines of records, and published results, with the facts of `facts.toml`."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from erda.benchmark.experiments import PERCENT, SEEN, Line, dataset_in_words
from erda.benchmark.measures import ALL_SEEN, CANDIDATES, PROTOCOLS
from erda.benchmark.records import Record
from erda.benchmark.report.published import PAPER, TABLES, Published
from erda.benchmark.report.report_files import Section
from erda.methods import METHODS

FACTS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("facts.toml").read_text(encoding="utf-8"))
ORDERS = {"erda": "task orders of ERDA", "sckd": "task orders of SCKD"}
UNKNOWN = "not known"
LATER = tuple(
    Published(row=name, source="later work", **{**table, "accuracy": accuracy})
    for table in TABLES["later"]
    for name, accuracy in table["accuracy"].items()
)
EARLIER: dict[str, str] = FACTS["adapter"]["earlier"]  # by fingerprint
DRAWN_ANEW = ("fewrel-fresh",)  # datasets nobody chose settings on


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardRow:
    """One method over one encoder in one setting. Accuracies are per cent after the last task."""

    method: str
    remark: str = ""
    encoder: str
    millions: float | None  # parameters of the encoder
    training: str  # "frozen" or "trained"
    keeps: str  # per relation
    names: str  # "yes", "no" or UNKNOWN
    pretraining: str
    setting: str  # dataset, shots and streams: rows with the same one may be compared
    dataset: str
    shots: int
    all_seen: float | None
    candidates: float | None
    interval: tuple[float, float] | None = None  # 95 % over relations, all-seen
    n_records: int = 0
    has_predictions: bool = False  # in all of its records
    published: str = ""  # source; "" for our own records

    @property
    def parameters(self) -> str:
        """Parameters of the encoder in words: "22M", "7-8B"."""
        if self.millions is None:
            return "size not known"
        return "7-8B" if self.millions >= 7000 else f"{self.millions:g}M"

    @property
    def size(self) -> str:
        """Class of encoders that may be compared: by parameters."""
        if self.millions is None:
            return UNKNOWN
        return next(
            name
            for most, name in ((1, "BiLSTM"), (50, "small"), (400, "base"), (1e9, "large"))
            if self.millions <= most
        )


def named_adapter(record: Record) -> Record:
    """Record that names an earlier adapter where it was made with that one, which was `shipped` at the time."""
    name = EARLIER.get(record.encoder_spec.get("fingerprint", ""))
    if name is None:
        return record
    own = {**record.settings.get("encoder", {}), "adapter": name}
    return replace(record, settings={**record.settings, "encoder": own})


def record_rows(sections: Iterable[Section]) -> list[LeaderboardRow]:
    """One row per line of records; a line that several tables share counts once, and ablations do not count."""
    rows: dict[tuple[int, ...], LeaderboardRow] = {}
    for section in sections:
        for line in section.experiment.lines:
            records = tuple(map(id, line.records))
            if not line.label.startswith("w.o.") and records not in rows and line.first.evaluate_on == "test":
                rows[records] = _row(line)
    return list(rows.values())


def _row(line: Line) -> LeaderboardRow:
    first = line.first
    method = FACTS["methods"].get(first.method, {})
    encoder = FACTS["encoders"].get(Path(first.encoder).name, {})
    adapter = _encoder_setting(first, "adapter")
    is_earlier = first.settings.get("encoder", {}).get("adapter") in EARLIER.values()
    words = " + earlier adapter" if is_earlier else " + adapter" if adapter else ""
    distilled = FACTS["adapter"]["distilled"] if adapter and first.encoder == "minilm" and not is_earlier else ""
    interval = line.relation_interval(ALL_SEEN)
    remarks = [method.get("remark", "")]
    if first.corpus:
        remarks.append(f"extra sentences from the corpus {Path(first.corpus).name}")
    if (n_layers := first.encoder_spec.get("pooled_layers") or _encoder_setting(first, "pooled_layers") or 1) > 1:
        remarks.append(f"mean of the last {n_layers} layers")
    if first.settings.get("method", {}).get("whiten"):
        remarks.append("with Posterior's score")
    if first.settings.get("method", {}).get("balanced"):
        remarks.append("assumes equally frequent relations")
    if first.settings.get("method", {}).get("classifier"):
        remarks.append("with a classifier from ten examples on")
    last = {name: one.mean if (one := line.accuracy(name, -1)) else None for name in PROTOCOLS}
    return LeaderboardRow(
        method=_label(line, method.get("title", first.method)),
        remark="; ".join(filter(None, remarks)),
        encoder=encoder.get("title", Path(first.encoder).name) + words,
        millions=encoder.get("millions"),
        training="frozen" if _is_frozen(first, method) else "trained",
        keeps=method.get("keeps", UNKNOWN),
        names=_reads_names(first),
        pretraining=encoder.get("pretraining", UNKNOWN) + (FACTS["adapter"]["text"] if adapter else "") + distilled,
        setting=setting_of(first),
        dataset=first.dataset,
        shots=first.shots,
        all_seen=last[ALL_SEEN],
        candidates=last[CANDIDATES],
        interval=interval and (PERCENT * interval[0], PERCENT * interval[1]),
        n_records=len(line.records),
        has_predictions=all(record.packed for record in line.records),
    )


def _label(line: Line, title: str) -> str:
    """Title of the method; the label of its line where that says more than its name."""
    if line.label in (line.method, title) or line.label.startswith((f"{title},", f"{line.method} (")):
        return title if line.method != "erda" else f"{title}{'' if line.first.corpus else ' w.o. DA'}"
    return line.label


def _encoder_setting(record: Record, name: str) -> Any:
    return record.encoder_spec.get("settings", {}).get(name, record.settings.get("encoder", {}).get(name))


def _is_frozen(record: Record, facts: dict[str, Any]) -> bool:
    trains = record.settings.get("method", {}).get("train_encoder", True)
    return bool(facts.get("frozen")) or not trains or _encoder_setting(record, "trained_layers") == 0


def _reads_names(record: Record) -> str:
    """Whether relation names enter the scores: by the record, or by its method if the record is older."""
    given, method = record.settings.get("method", {}), METHODS.get(record.method)
    uses = record.uses_names if record.uses_names is not None else method and method.uses_names
    if uses is None:
        return UNKNOWN
    return "yes" if given.get("names") or (uses and given.get("name_weight", 1)) else "no"


def setting_of(record: Record) -> str:
    """Dataset, shots and streams in words."""
    given = record.settings.get("stream", {})
    streams = [f"{name.replace('_', ' ')} {value}" for name, value in given.items() if name != "patterns"]
    streams += ["five written patterns of each relation"] if given.get("patterns") else []
    streams += [SEEN] if record.seen else []
    orders = (
        ORDERS.get(record.order_family, record.order_family)
        if record.dataset in ("fewrel", "tacred")
        else "drawn streams"
    )
    return ", ".join([dataset_in_words(record.dataset), f"{record.shots} shots", orders, *streams])


def published_rows(rows: Sequence[Published] = (*PAPER, *LATER)) -> list[LeaderboardRow]:
    """Published results: the paper's without its ablations, and later work."""
    facts = FACTS["published"]
    made = []
    for row in rows:
        if row.settings and row.row != "ERDA w.o. DA":
            continue
        bert = row.encoder == "bert"
        millions = facts["millions"].get(row.parameters, 110 if bert else 0.1 if row.encoder == "bilstm" else None)
        made.append(
            LeaderboardRow(
                method=row.row,
                remark=row.remark,
                encoder={"bert": "BERT-base", "bilstm": "BiLSTM"}.get(row.encoder, row.encoder),
                millions=millions,
                training="trained",
                keeps=facts["keeps"],
                names="yes" if row.row.split(" w.o.")[0] in facts["reads_names"] else UNKNOWN,
                pretraining=facts["pretraining"].get(row.encoder, UNKNOWN),
                setting=", ".join([dataset_in_words(row.dataset), f"{row.shots} shots", ORDERS["erda"]]),
                dataset=row.dataset,
                shots=row.shots,
                all_seen=row.last.mean if row.protocol == ALL_SEEN else None,
                candidates=row.last.mean if row.protocol == CANDIDATES else None,
                published="Qin and Joty 2022" if row in PAPER else "later work",
            )
        )
    return list({(row.setting, row.method, row.encoder, row.all_seen is None): row for row in made}.values())


def ranked(rows: Iterable[LeaderboardRow]) -> list[LeaderboardRow]:
    """Rows setting by setting, best first by all-seen, else by candidates.

    Settings with newly drawn relations or sentences come first, then those with the most records.
    """
    found = list(rows)
    n_records = Counter[str]()
    for row in found:
        n_records[row.setting] += row.n_records

    def key(row: LeaderboardRow) -> tuple[Any, ...]:
        order = (row.dataset not in DRAWN_ANEW, -n_records[row.setting], row.setting)
        return (*order, row.all_seen is None, -(row.all_seen or row.candidates or 0.0), row.method)

    return sorted(found, key=key)
