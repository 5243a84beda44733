"""A journal keeps every line that was written whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from erda.corpus.shard_journal import add_to_journal, journal_values
from erda.errors import WriteError


@dataclass(frozen=True)
class Part:
    name: str
    rows: tuple[int, ...]


def test_a_journal_keeps_every_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    assert journal_values(path, Part) == []
    first, second = Part("a", (1,)), Part("b", ())
    add_to_journal(path, first)
    with path.open("ab") as file:
        file.write(b'{"name": "cut sho')
    add_to_journal(path, second)
    with path.open("ab") as file:
        file.write(b"\xff\xfe\n")
    assert journal_values(path, Part) == [first, None, second, None]
    path.write_bytes(path.read_bytes().replace(b"[1]", b"[2]"))
    assert journal_values(path, Part)[0] is None
    with pytest.raises(WriteError, match="Cannot write"):
        add_to_journal(tmp_path / "none" / "journal.jsonl", first)
