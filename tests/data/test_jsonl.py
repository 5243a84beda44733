"""Our own format: round trips, text with character offsets, and every kind of invalid row."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from toy_examples import examples, row, write_lines

from erda.data.formats.jsonl_examples import example_from_json, example_to_json, read_jsonl
from erda.errors import DataError
from erda.text.keys import EntityPair, lookup_keys
from erda.types import Example, Span, pair_in_sentence


@given(examples())
def test_an_example_survives_json(example: Example) -> None:
    text = json.dumps(example_to_json(example))
    assert example_from_json(json.loads(text)) == example


def test_names_mark_their_first_mentions_that_do_not_overlap() -> None:
    tail = {"name": "New York", "type": "GPE"}
    example = example_from_json({"text": "New York City is in New York.", "head": "New York City", "tail": tail})
    assert (example.head.name, example.head.span) == ("New York City", Span(0, 3))
    assert (example.tail.name, example.tail.span, example.tail.type) == ("New York", Span(5, 7), "GPE")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(tail={"span": [2, 9]}), "tail span (2, 9) ends after the last token (4 tokens)."),
        (row(tail={"span": [2, 2]}), "tail span (2, 2) is empty"),
        (row(tail={"span": [-1, 2]}), "tail span (-1, 2) starts before the first token."),
        (row(tail={"span": [0, 1]}), "head and tail are the same span (0, 1)"),
        (row(tail={"span": [0, 2]}), "head span (0, 1) overlaps tail span (0, 2)"),
        (row(tail={"span": [True, 2]}), "tail.span[0]: expected a whole number, got True."),
        (row(tail=None), "tail: is missing."),
        (row(tokens=[]), "tokens: expected at least 1 values, got 0."),
        (row(tokens=["a", "", "b"]), "tokens[1]: expected text, got ''."),
        (row(tokens=["Ann", "met", " "]), "tail span (2, 3) covers no word."),
        (row(text="Ann met Bob"), "give either 'tokens' or 'text', not both."),
        (row(relation=7), "relation: expected text, got 7."),
        (row(id=7.5), "id: expected text, got 7.5."),
        (row(relation="meats"), "unknown relation 'meats'. Did you mean 'meets'? Known: meets."),
        ({**row(), "tokens": None}, "give either 'tokens' or 'text', both are missing."),
        (row(tail={}), "tail: its span is missing; only a text finds its entities by two names."),
        ({"text": "Ann met Bob", "head": "Ann", "tail": {"span": [8, 11]}}, "head: its span is missing;"),
        ({"text": "Ann met Bob", "head": "Ann", "tail": "Eve"}, "the tail 'Eve' does not occur in the text."),
        ({"text": "Ann met Bob", "head": 7, "tail": "Bob"}, "head: expected an object, got 7."),
        ({"text": "Ann Bob", "head": {"span": [0, 3]}, "tail": {"span": [4, 9]}}, "after the last character (7 char"),
        ({"text": "Ann   Bob", "head": {"span": [0, 3]}, "tail": {"span": [3, 5]}}, "tail span (3, 5) covers no word."),
        ("{'tokens': []}", "is not valid JSON (key must be a string at column 2)."),
        (row(tokens=["\ud800", "met", "Bob"]), "is not valid JSON ("),
        ("[1, 2]", "expected an object, got "),
        ("[" * 100_000, "is not valid JSON (recursion limit exceeded"),
        ('{"id": ' + "7" * 5_000 + "}", "is not valid JSON (number out of range"),
    ],
)
def test_an_invalid_row_is_reported_with_its_line(tmp_path: Path, bad: object, message: str) -> None:
    path = write_lines(tmp_path / "mine.jsonl", [row(), bad, row(tokens=["Eve", "met", "Bob"])])
    with pytest.raises(DataError) as caught:
        read_jsonl(path, {"meets"})
    assert str(caught.value).startswith(f"{path}:2: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_faults_are_counted_and_twenty_are_shown(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "mine.jsonl", [row(tail={"span": [2, 9]})] * 33)
    with pytest.raises(DataError) as caught:
        read_jsonl(path)
    lines = str(caught.value).splitlines()
    assert len(lines) == 21
    assert lines[19].startswith(f"{path}:20: ")
    assert lines[20] == "... and 13 more (33 in all)."


def test_a_duplicate_is_kept_once_and_reported(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "mine.jsonl", [row(), row(relation="knows"), row(), row(tail={"span": [3, 4]})])
    reading = read_jsonl(path)
    assert [example.id for example in reading.examples] == ["mine:1", "mine:2", "mine:4"]
    assert reading.duplicates == ((3, 1),)


@pytest.mark.parametrize("content", [b"", b"\n\n", gzip.compress(b"", mtime=0)])
def test_an_empty_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"mine\.jsonl: the file is empty"):
        read_jsonl(path)


def test_a_type_changes_no_key_and_no_equality() -> None:
    row = {"text": "Ann met Bob.", "head": {"span": [0, 3], "type": "PER"}, "tail": {"span": [8, 11]}}
    typed = example_from_json(row)
    plain: Example = replace(typed, head=replace(typed.head, type=None))
    assert typed == plain
    assert hash(typed) == hash(plain)
    assert pair_in_sentence(typed) == pair_in_sentence(plain)
    assert lookup_keys(EntityPair.of(typed)) == lookup_keys(EntityPair.of(plain))
    assert example_from_json(example_to_json(typed)).head.type == "PER"
    assert "type" not in example_to_json(plain)["head"], "rows and checksums without types stay as they were"
