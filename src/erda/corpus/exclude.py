"""Sentences that must never enter a corpus: test and validation data, in any format that we read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from erda.corpus.sources.base import numbered_lines, opened
from erda.corpus.sources.documents import iter_json_array
from erda.data.formats.cfrl import N_FIELDS
from erda.errors import DataError
from erda.text.keys import sentence_key


def excluded_keys(paths: Iterable[Path]) -> set[int]:
    """Keys of all sentences of these files; case and spacing do not matter.

    JSONL (`tokens` or `text`), CFRL splits (tab-separated), JSON lists or objects of lists whose items hold `tokens`,
    `token`, `text` or `sents` (FewRel, TACRED, DocRED), or plain text with one sentence a line.
    """
    keys: set[int] = set()
    for path in paths:
        before = len(keys)
        keys.update(map(sentence_key, _sentences(path)))
        if len(keys) == before and not any(True for _ in _sentences(path)):
            raise DataError(f"{path}: no sentence in it; nothing would be excluded. Expected JSONL, a CFRL split, ...")
    return keys


def _sentences(path: Path) -> Iterator[str]:
    endings = [ending for ending in path.suffixes if ending not in (".gz", ".bz2")]
    if endings and endings[-1] == ".json":
        yield from _from_json(path)
        return
    for number, line in numbered_lines(path):
        if line.isspace():
            continue
        if line.startswith("{"):
            try:
                yield from _from_value(json.loads(line), f"{path}:{number}")
            except ValueError as error:
                raise DataError(f"{path}:{number}: not JSON: {error}.") from None
        else:
            fields = line.rstrip("\r\n").split("\t")
            yield fields[2] if len(fields) == N_FIELDS else line


def _from_json(path: Path) -> Iterator[str]:
    with opened(path) as file:
        is_list = file.read(256).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    if is_list:
        for number, value in enumerate(iter_json_array(path), 1):
            yield from _from_value(value, f"{path}: item {number}")
        return
    try:
        groups = json.loads("".join(line for _, line in numbered_lines(path)))
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}.") from None
    for name, items in groups.items() if isinstance(groups, dict) else ():
        for number, item in enumerate(items if isinstance(items, list) else [], 1):
            yield from _from_value(item, f"{path}: {name}, item {number}")


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
    raise DataError(f"{place}: no sentence in it; expected 'tokens', 'token', 'text' or 'sents'.")
