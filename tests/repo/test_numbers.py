"""Numbers of the documents: each is the accuracy of some records in `results/`, or published."""

import json
import re
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "paper.md", "docs/method.md", "docs/research.md", "docs/augmentation.md", "docs/encoders.md")
PUBLISHED = ROOT / "src/erda/benchmark/report/published.toml"
NUMBER = re.compile(r"(?<![\w.,-])\d{1,2}\.\d\d(?![\w.]*\d)")  # an accuracy in per cent, two decimals
LEAST = 4.0  # smaller numbers are settings, versions and differences


def last_of(accuracy):
    """The accuracy after the last task."""
    return accuracy[-1] if isinstance(accuracy, list) else accuracy


def published_numbers(tables):
    """Every accuracy after the last task in published.toml."""
    rows = [last_of(row["accuracy"]) for table in tables["tables"] for row in table["rows"]]
    return {
        f"{one:.2f}" for one in rows + [last_of(one) for part in tables["later"] for one in part["accuracy"].values()]
    }


@cache
def recorded_numbers():
    """The mean accuracy after the last task of every line of records (all seeds), by each protocol."""
    lines = defaultdict(list)
    for file in sorted({*(ROOT / "results").rglob("*.jsonl")} - {*(ROOT / "results/open").iterdir()}):
        with file.open(encoding="utf-8") as rows:
            for record in map(json.loads, rows):
                line = record["place"].rpartition("/")[0]
                for protocol, accuracy in record["accuracy"].items():
                    if accuracy:
                        lines[file, line, protocol].append(100 * accuracy[-1])
    means = [fmean(values) for values in lines.values()]
    return {f"{mean + rounding:.2f}" for mean in means for rounding in (-1e-6, 1e-6)}  # 53.925 is 53.92 or 53.93


def unsupported(text):
    """Numbers of a page, in tables and in prose, that neither a record nor a publication has."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    numbers = {one for one in NUMBER.findall(prose) if float(one) >= LEAST}
    return sorted(
        numbers - recorded_numbers() - published_numbers(tomllib.loads(PUBLISHED.read_text(encoding="utf-8")))
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_accuracy_has_a_record_or_was_published(page):
    assert unsupported((ROOT / page).read_text(encoding="utf-8")) == []


def test_an_invented_number_is_found():
    assert unsupported("| Posterior | 71.86 | 53.23 | 99.98 |\n\nIt reaches 98.76 % with Python 3.11.") == [
        "98.76",
        "99.98",
    ]
    assert unsupported("| Posterior | 71.87 / 91.09 ± 0.12 |") == ["71.87"]
