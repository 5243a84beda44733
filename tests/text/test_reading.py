"""Text files: plain and packed, UTF-8 and other encodings, and JSON item by item."""

import bz2
import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from erda.errors import DataError
from erda.text import reading
from erda.text.reading import Faults, JsonWalk, Meter, read_lines, read_start

PACKED = [lambda raw: raw, gzip.compress, bz2.compress]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("pack", PACKED)
def test_lines_are_numbered_in_plain_and_packed_files(tmp_path: Path, pack: object) -> None:
    path = tmp_path / "x"
    path.write_bytes(pack("\ufeffone\r\ntwö\n\nfour".encode()))
    assert list(read_lines(path)) == [(1, "one"), (2, "twö"), (3, ""), (4, "four")]
    assert list(read_lines(path, skip=3)) == [(4, "four")]
    assert read_start(path) == "one\r\ntwö\n\nfour"
    meter = Meter()
    assert [meter.position() > 0 for _ in read_lines(path, meter=meter)] == [True] * 4
    assert meter.position() == 0


@pytest.mark.parametrize("pack", PACKED[1:])
def test_a_truncated_packed_file_is_damaged(tmp_path: Path, pack: object) -> None:
    packed = pack(os.urandom(5000).hex().encode())
    (tmp_path / "x").write_bytes(packed[: len(packed) // 2])
    for read in (read_lines, lambda path: JsonWalk(path).array()):
        with pytest.raises(DataError, match=r"x: the packed file is damaged or cut short .* fetch or pack it again"):
            list(read(tmp_path / "x"))


def test_an_unreadable_file_is_not_reported_as_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"x: no such file\.$"):
        list(read_lines(tmp_path / "x"))
    with pytest.raises(DataError, match=r"is a folder; name a file in it\.$"):
        list(read_lines(tmp_path))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"x: cannot be read \(Permission denied\)\.$"):
        list(read_lines(tmp_path / "x"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *(('["Oslo"]'.encode(f"utf-16{end}"), "this is UTF-16; save it") for end in ("", "-le", "-be")),
        (bytes(99), "zero"),
    ],
)
def test_utf_16_and_zero_bytes_get_their_hints(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.txt").write_bytes(content)
    for read in (lambda path: list(read_lines(path)), read_start, JsonWalk):
        with pytest.raises(DataError, match=said):
            read(tmp_path / "x.txt")


def test_a_pipe_is_rejected(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"[[a]] b {{c}}\n")
    os.close(write_end)
    with pytest.raises(DataError, match="is a pipe"):
        list(read_lines(Path(f"/dev/fd/{read_end}")))
    os.close(read_end)


@pytest.mark.parametrize("pack", PACKED[1:])
def test_unpacking_is_limited(tmp_path: Path, pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LEAST_BOUND", 1000)
    path = tmp_path / "x.json"
    path.write_bytes(pack(b"[" + b"{},\n" * 100_000 + b"{}]"))
    for read in (lambda path: list(JsonWalk(path).array()), lambda path: list(read_lines(path))):
        with pytest.raises(DataError, match="unpacks to more than 100 times its size"):
            read(path)


def test_another_encoding_raises_or_is_added_to_the_faults(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"good\nK\xf6ln\ngood\n")
    with pytest.raises(DataError, match=r"x\.txt:2: not UTF-8 \(byte 0xf6\); save the file as UTF-8"):
        list(read_lines(path))
    faults = Faults(path)
    assert [number for number, _ in read_lines(path, faults)] == [1, 3]
    assert faults.total == 1
    path.write_bytes(b'[1,\n2, "\xf6"]')
    with pytest.raises(DataError, match=r"x\.txt:2: not UTF-8"):
        list(JsonWalk(path).array())
    path.write_bytes('["Kö'.encode()[:-1])
    with pytest.raises(DataError, match=r"x\.txt:1: not UTF-8"):
        list(JsonWalk(path).array())


def test_a_line_that_is_too_long_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE", 1 << 20)
    (tmp_path / "x").write_bytes(b"x" * (1 << 20))
    with pytest.raises(DataError, match=r"x:1: a line is longer than 1 MB; .*: fold -s"):
        list(read_lines(tmp_path / "x"))


@given(st.lists(JSON, max_size=5), st.sampled_from([None, 1]), st.booleans())
def test_json_walk_equals_json(
    tmp_path_factory: pytest.TempPathFactory, values: list[object], indent: int | None, ascii: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "x.json"
    text = json.dumps(values, indent=indent, ensure_ascii=ascii)
    path.write_text(text, encoding="utf-8")
    walk = JsonWalk(path)
    found = list(walk.array())
    walk.end()
    assert [value for _, value in found] == values
    if indent and all(isinstance(value, int) for value in values):
        assert [line for line, _ in found] == list(range(2, 2 + len(values)))
    path.write_text(json.dumps({"a": values, "b": []}, indent=indent), encoding="utf-8")
    walk = JsonWalk(path)
    assert {key: [value for _, value in walk.array()] for _, key in walk.fields()} == {"a": values, "b": []}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.json: the file is empty; expected JSON."),
        ("[" * 100_000, ":1: not JSON: nested too deeply."),
        ("[\n" + "9" * 5000 + "]", ":2: not JSON: a number with too many digits."),
        ('[1,\n"\\ud800"]', ":2: not JSON: unpaired surrogate"),
        ("[1\n2]", ":2: not JSON: expected ',' or ']'."),
        ("[1,\n\n", ":3: not JSON: the file ends before ']'."),
        ("[{},\n]", ":2: not JSON: a value is missing before ']'."),
        ('[{"a" 1}]', ":1: not JSON: Expecting ':' delimiter"),
        ("nonsense", ":1: not JSON: expected an array."),
        ('["\\ud83d\\ude00"] 1', ":1: not JSON: extra data after the end."),
    ],
)
def test_invalid_json_is_reported_in_one_line_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.json").write_text(text)

    def read() -> None:
        walk = JsonWalk(tmp_path / "x.json")
        list(walk.array())
        walk.end()

    with pytest.raises(DataError, match=re.escape(message)):
        read()
