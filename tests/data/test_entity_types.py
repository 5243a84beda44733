"""Entity types come through every format that has them, and change nothing else."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from erda.data.formats import example_from_json, example_to_json, read_tacred
from erda.data.own_data import read_examples
from erda.text.keys import EntityPair, lookup_keys
from erda.types import Example, pair_in_sentence

TEXT = "Ann met Bob."
SPANS = [{"start": 0, "end": 3, "text": "Ann"}, {"start": 8, "end": 11, "text": "Bob"}]
LABELLED = [{**SPANS[0], "label": "PER"}, {**SPANS[1], "label": "DOG"}]


def write_jsonl(folder: Path) -> Path:
    row = {"text": TEXT, "head": {"span": [0, 3], "type": "PER"}, "tail": {"span": [8, 11], "type": "DOG"}}
    (folder / "a.jsonl").write_text(json.dumps({**row, "relation": "meets"}))
    return folder / "a.jsonl"


def write_csv(folder: Path) -> Path:
    (folder / "a.csv").write_text("text,relation,head_type,tail_type\n[[Ann]] met {{Bob}}.,meets,PER,DOG\n")
    return folder / "a.csv"


def write_labelstudio(folder: Path) -> Path:
    regions = [
        {"id": name, "type": "labels", "value": {**span, "labels": [label]}}
        for name, span, label in zip("ab", SPANS, ("PER", "DOG"), strict=True)
    ]
    link = {"type": "relation", "from_id": "a", "to_id": "b", "labels": ["meets"]}
    (folder / "a.json").write_text(
        json.dumps([{"data": {"text": TEXT}, "annotations": [{"result": [*regions, link]}]}])
    )
    return folder / "a.json"


def write_prodigy(folder: Path) -> Path:
    link = {"head": 0, "child": 2, "label": "meets", "head_span": LABELLED[0], "child_span": LABELLED[1]}
    row = {"text": TEXT, "tokens": [], "spans": [], "relations": [link], "answer": "accept"}
    (folder / "a.jsonl").write_text(json.dumps(row))
    return folder / "a.jsonl"


def write_brat(folder: Path) -> Path:
    (folder / "a.txt").write_text(TEXT)
    (folder / "a.ann").write_text("T1\tPER 0 3\tAnn\nT2\tDOG 8 11\tBob\nR1\tmeets Arg1:T1 Arg2:T2\n")
    return folder / "a.ann"


@pytest.mark.parametrize("write", [write_jsonl, write_csv, write_labelstudio, write_prodigy, write_brat])
def test_types_of_own_formats(tmp_path: Path, write: object) -> None:
    (example,) = read_examples(write(tmp_path)).examples
    assert (example.head.name, example.head.type, example.tail.type) == ("Ann", "PER", "DOG")


def test_types_of_tacred(tmp_path: Path) -> None:
    row = {"token": ["Ann", "met", "Bob"], "subj_start": 0, "subj_end": 0, "obj_start": 2, "obj_end": 2}
    rows = [{**row, "relation": "r", "subj_type": "PERSON", "obj_type": ""}, {**row, "relation": "s"}]
    (tmp_path / "train.json").write_text(json.dumps(rows))
    found = read_tacred(tmp_path / "train.json").examples
    assert [(one.head.type, one.tail.type) for one in found] == [("PERSON", None), (None, None)]


def test_a_type_changes_no_key_and_no_equality() -> None:
    row = {"text": TEXT, "head": {"span": [0, 3], "type": "PER"}, "tail": {"span": [8, 11]}}
    typed = example_from_json(row)
    plain: Example = replace(typed, head=replace(typed.head, type=None))
    assert typed == plain
    assert hash(typed) == hash(plain)
    assert pair_in_sentence(typed) == pair_in_sentence(plain)
    assert lookup_keys(EntityPair.of(typed)) == lookup_keys(EntityPair.of(plain))
    assert example_from_json(example_to_json(typed)).head.type == "PER"
    assert "type" not in example_to_json(plain)["head"], "rows and checksums without types stay as they were"
