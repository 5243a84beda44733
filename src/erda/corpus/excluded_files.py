"""Read the sentences of test and validation files in every format of erda."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from erda.data.formats.cfrl import N_FIELDS
from erda.errors import DataError
from erda.files import decode_json
from erda.text.reading import JsonWalk, read_lines


def sentences_of_file(path: Path) -> Iterator[str]:
    """Yield the sentences of a file.

    JSONL (`tokens` or `text`), CFRL splits (tab-separated), JSON lists or objects of lists whose items hold `tokens`,
    `token`, `text` or `sents` (FewRel, TACRED, DocRED), or plain text with one sentence per line.
    """
    endings = [ending for ending in path.suffixes if ending not in (".gz", ".bz2")]
    if endings and endings[-1] == ".json":
        yield from _from_json(path)
        return
    for number, line in read_lines(path):
        if not line.strip():
            continue
        if line.startswith("{"):
            yield from _from_value(decode_json(line, dict, place=f"{path}:{number}"), f"{path}:{number}")
        else:
            fields = line.split("\t")
            yield fields[2] if len(fields) == N_FIELDS else line


def _from_json(path: Path) -> Iterator[str]:
    walk = JsonWalk(path)
    for _ in [None] if walk.begins_with("[") else walk.fields():
        for line, value in walk.array():
            yield from _from_value(value, f"{path}:{line}")
    walk.end()


def _from_value(value: Any, place: str) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("sents"), list):
            yield from (" ".join(map(str, sentence)) for sentence in value["sents"])
            return
        for name in ("tokens", "token"):
            if isinstance(value.get(name), list):
                yield " ".join(map(str, value[name]))
                return
        if isinstance(value.get("text"), str):
            yield value["text"]
            return
    raise DataError(f"{place}: no sentence; expected 'tokens', 'token', 'text' or 'sents'.")
