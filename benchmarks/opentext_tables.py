"""Tables of docs/open-text.md and docs/teaching.md, from results/open: `python benchmarks/results.py` writes them.

A table stands between `<!-- records: NAME -->` and `<!-- end of records -->`; NAME is a function of this module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from erda.errors import DataError

RESULTS = Path(__file__).parents[1] / "results" / "open"
REGION = re.compile(r"<!-- records: (\w+) -->\n.*?<!-- end of records -->", re.DOTALL)
BEFORE, FOUR, EARLIER = "packaged (MiniLM)", "open, four marks", "open, without noun pairs"
PLAIN = "without noun pairs, without contrasts"
SEEN = {"`open`": "open (relations seen)", "`open`, four marks": "open (relations seen), four marks"}
SEEN |= {"`open-mpnet`": "open-mpnet (relations seen)"}
BOTH = {"`open`": "open", "`open-mpnet`": "open-mpnet"}
Row = dict[str, Any]


def read(command: str) -> list[Row]:
    """Records of a command."""
    return [json.loads(line) for line in (RESULTS / f"{command}.jsonl").read_text(encoding="utf-8").splitlines()]


def one(rows: Sequence[Row], **asked: Any) -> Row:
    """Return the record with these values."""
    found = [row for row in rows if all(row.get(name) == value for name, value in asked.items())]
    if len(found) != 1:
        raise DataError(f"results/open: expected one record with {asked}, found {len(found)}.")
    return found[0]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are numbers."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def shares(row: Row, *names: str) -> str:
    """Percentages, with one decimal."""
    return " / ".join(f"{row[name]:.1f}" for name in names)


def whole(row: Row, *names: str) -> str:
    """Percentages without decimals."""
    return " / ".join(f"{row[name]:.0f}" for name in names)


# -- documents --------------------------------------------------------------------------------------------------------


def folds() -> str:
    """Average precision and default, fold by fold."""
    rows, lines = read("documents"), []
    for fold, judged in ((fold, judged) for fold in "AB" for judged in (0, 10, 50)):
        known = [
            [row for row in rows if (row["encoder"], row["fold"], row["judged"]) == (name, f"redocred-{fold}", judged)]
            for name in (BEFORE, "open", "open-mpnet")
        ]
        cells = [[f(own[0]) if own else "" for own in known] for f in (_precision, _default)]
        lines.append([f"{fold}, {judged}", *cells[0], *cells[1]])
    header = ("fold, judgements", "AP before", "AP", "AP, MPNet", "default before", "default", "default, MPNet")
    return table(header, lines)


def _precision(row: Row) -> str:
    return shares(row, "AP")


def _default(row: Row) -> str:
    return shares(row, "precision", "recall")


def students() -> str:
    """Precision, calibration error and mean recall over relations, fold by fold, beside students with four marks."""
    rows, lines = read("documents"), []
    for name, encoder in {**BOTH, "`open`, four marks": FOUR}.items():
        own = [one(rows, encoder=encoder, fold=f"redocred-{fold}", judged=n) for fold in "AB" for n in (0, 10, 50)]
        cells = [[f"{row[figure]:.1f}" for row in own] for figure in ("AP", "calibration error", "macro recall")]
        lines += [
            [f"{name}: {what}", " / ".join(some[:3]), " / ".join(some[3:])]
            for what, some in zip(("AP", "calibration error", "mean recall"), cells, strict=True)
        ]
    return table(("after 0 / 10 / 50 judgements", "fold A", "fold B"), lines)


def seen() -> str:
    """The weights that ship, whose training has read labels of the relations."""
    rows, lines = read("documents"), []
    for name, encoder in SEEN.items():
        for judged in (0, 10, 50):
            own = one(rows, encoder=encoder, fold="all", judged=judged, draws=6)
            lines.append([f"{name}, {judged}", _precision(own), _default(own), shares(own, "calibration error")])
    return table(("encoder, judgements", "AP", "default", "calibration error"), lines)


# -- marked pairs -----------------------------------------------------------------------------------------------------


def refusal() -> str:
    """Twenty of the forty relations of the fold."""
    rows = read("refusal")
    names = {
        **BOTH,
        "`open`, four marks": FOUR,
        "`open`, four marks, no noun pairs": EARLIER,
        "the same without contrasts": f"open, {PLAIN}",
        "`open-mpnet` without contrasts": "open-mpnet, without contrasts",
    }
    found = [(name, one(rows, encoder=encoder)) for name, encoder in names.items()]
    figures = ("known answered", "unknown answered", "AUROC", "forced choice", "calibration error")
    return table(("", *figures), [[name, *(shares(row, figure) for figure in figures)] for name, row in found])


def domains() -> str:
    """Known and unknown questions answered in each domain, marked and in text."""
    rows, lines = read("domains"), []
    for domain in dict.fromkeys(row["questions"] for row in rows):
        own = [one(rows, encoder=encoder, questions=domain) for encoder in (EARLIER, *BOTH.values())]
        marked = [
            f"{whole(row, 'known answered', 'unknown answered')} ({whole(row, 'AUROC').strip()}, "
            f"{whole(row, 'calibration error')})"
            for row in own
        ]
        lines.append([domain, *marked, *(whole(row, "known in text", "unknown in text") for row in own)])
    names = ("earlier `open`", *BOTH)
    return table(("domain", *names, *(f"{name}, in text" for name in names)), lines)


def forced_choice() -> str:
    """Forced choice in each domain, and what the score without contrasts answered."""
    rows, lines = read("domains"), []
    for domain in dict.fromkeys(row["questions"] for row in rows):
        own = [one(rows, encoder=encoder, questions=domain) for encoder in (EARLIER, *BOTH.values())]
        before = one(rows, encoder=f"open, {PLAIN}", questions=domain)
        lines.append(
            [domain, *(whole(row, "forced choice") for row in own), whole(before, "known answered", "unknown answered")]
        )
    names = ("earlier `open`", *BOTH)
    header = ("domain", *(f"forced choice, {name}" for name in names), "earlier `open` without contrasts: answered")
    return table(header, lines)


def nota() -> str:
    """None of the above."""
    rows, lines = read("nota"), []
    for name, encoder in BOTH.items():
        few, many = (one(rows, encoder=encoder, none=none) for none in (15.0, 50.0))
        figures = [shares(few, "accuracy"), shares(many, "accuracy"), shares(few, "rate stated")]
        lines.append([name, *figures, shares(many, "of known"), shares(many, "of none")])
    header = ("encoder", "15 % none", "50 % none", "15 %, stated to the score", "of known right", "of none refused")
    return table(header, lines)


def denied() -> str:
    """Sentences that state, deny, doubt or reverse a relation."""
    rows = read("denied")
    kinds = ("stated", "denied", "doubted", "reversed")
    lines = []
    for name, encoder in BOTH.items():
        own = [one(rows, encoder=encoder, kind=kind) for kind in kinds]
        wrong = sum(row["answered with the relation"] * row["n"] for row in own[1:]) / sum(row["n"] for row in own[1:])
        lines.append([name, *(whole(row, "answered with the relation") for row in own), f"{wrong:.0f}"])
    return table(("answered with the relation", *kinds, "the last three"), lines)


def grid() -> str:
    """Known and unknown questions answered, by numbers of relations and sentences."""
    rows, lines = [row for row in read("grid") if row["encoder"] == "open"], []
    shots = sorted({row["shots"] for row in rows})
    for n in sorted({row["relations"] for row in rows}):
        cells = []
        for row in (one(rows, relations=n, shots=k) for k in shots):
            answered = [row[name] for name in ("known answered", "unknown answered") if row[name] is not None]
            cells.append(f"{' / '.join(f'{share:.0f}' for share in answered)} ({row['calibration error']:.0f})")
        lines.append([str(n), *cells])
    return table(("relations", *(f"{k} sentence{'s' * (k > 1)}" for k in shots)), lines)


def finders() -> str:
    """Facts between entities of each finder."""
    names = {"both": "both (default)", "trained": "the pipeline", "capitals": "capital letters", "given": "annotated"}
    figures = [f"{match} {share}" for match in ("exact", "overlap") for share in ("precision", "recall")]
    found = [(name, one(read("facts"), finder=finder)) for finder, name in names.items()]
    header = ("entities", "exact: precision", "recall", "overlap: precision", "recall")
    return table(header, [[name, *(shares(row, figure) for figure in figures)] for name, row in found])


def review() -> str:
    """What a review expects, and the truth."""
    rows, lines = [row for row in read("review") if row["kind"] == "all"], []
    most = max(row["reviews"] for row in rows)
    for row in sorted(rows, key=lambda row: int(row["judged"])):
        left = "" if row["reviews"] == most else f" ({row['reviews']:.0f} reviews)"
        figures = ("expected precision", "precision", "error of precision", "expected found", "found", "error of found")
        lines.append([f"{row['judged']:.0f}{left}", *(shares(row, figure) for figure in figures)])
    header = ("judgements", "right: expected", "true", "error", "found: expected", "true", "error")
    return table(header, lines)


DOCUMENTS, MARKED = (folds, students, seen, finders, review), (refusal, domains, forced_choice, nota, denied, grid)
TABLES: dict[str, Callable[[], str]] = {made.__name__: made for made in (*DOCUMENTS, *MARKED)}


def with_tables(page: str) -> str:
    """A page with its tables made anew."""
    return REGION.sub(
        lambda found: f"<!-- records: {found[1]} -->\n\n{TABLES[found[1]]()}\n\n<!-- end of records -->", page
    )
