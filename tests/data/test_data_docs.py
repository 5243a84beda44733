"""Each example in docs/data.md is read by its reader."""

import json
import re
from pathlib import Path

import pytest

from erda.data.formats.jsonl_examples import read_relation_list
from erda.data.own_data import read_examples

DOCS = Path(__file__).parents[2] / "docs" / "data.md"
BLOCKS = re.findall(r"```(?:json|csv|text|ann)?\n([\[{\dTt].*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
FORMATS = (
    *("jsonl", "jsonl", "jsonl", "relations", "csv", "marked", "labelstudio", "prodigy", "brat"),
    *("fewrel", "cfrl", "tacred"),
)


@pytest.mark.parametrize(("block", "format"), list(zip(BLOCKS, FORMATS, strict=True)))
def test_each_format_has_a_readable_example(tmp_path: Path, block: str, format: str) -> None:
    path = tmp_path / ("example.ann" if format == "brat" else "example")
    path.write_text(block, encoding="utf-8")
    if format == "brat":
        path.with_suffix(".txt").write_text("Ann was born in Oslo.", encoding="utf-8")
    if format == "relations":
        assert read_relation_list(path)[0].id == json.loads(block)[0]["id"]
        return
    reading = read_examples(path)
    assert reading.format == format
    (example,) = reading.examples or reading.unrelated
    assert example.tokens[example.tail.span.start].lower() == "oslo"
