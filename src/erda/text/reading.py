"""Readers of UTF-8 text files, plain, gzip or bzip2: lines and JSON items with their line numbers.

Every fault of a file is a `DataError` with its path and, if possible, the line.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from erda.errors import SHOWN_FAULTS, DataError, join_faults

MAX_LINE = 1 << 26  # bytes of a line
MOST_UNPACKED = 100  # largest ratio of unpacked to packed size; text has 3 to 20
LEAST_BOUND = 1 << 26  # unpacked bytes that are always allowed
_PIECE = 1 << 20
_SPACE = re.compile(r"[ \t\n\r]*")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Meter:
    """Counts the bytes of a file on disk that have been read."""

    def __init__(self) -> None:
        self.raw: BinaryIO | None = None

    def position(self) -> int:
        """Return the bytes read so far; 0 before the file is opened and after it is closed."""
        return 0 if self.raw is None or self.raw.closed else self.raw.tell()


class Faults:
    """The faults of one file: the first twenty are kept, all are counted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.total = 0
        self._shown: list[str] = []

    def add(self, line: int, message: str) -> None:
        """Add the fault of a line."""
        self.total += 1
        if len(self._shown) < SHOWN_FAULTS:
            self._shown.append(f"{self.path}:{line}: {message}")

    def raise_if_any(self) -> None:
        """Raise a `DataError` that lists the faults, if there are any."""
        if self.total:
            raise DataError(join_faults(self._shown, total=self.total))


class _Bounded(io.RawIOBase):
    """An unpacked stream with a limit: reading fails once the size exceeds that of any plausible text."""

    def __init__(self, path: Path, unpacked: BinaryIO) -> None:
        self._path, self._unpacked = path, unpacked
        self._size, self._most = 0, max(LEAST_BOUND, MOST_UNPACKED * path.stat().st_size)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read and count the next bytes."""
        piece = self._unpacked.read(len(buffer))
        buffer[: len(piece)] = piece
        self._size += len(piece)
        if self._size > self._most:
            raise DataError(
                f"{self._path}: unpacks to more than {MOST_UNPACKED} times its size, which is not plausible for text; "
                "unpack it yourself if this is intended."
            )
        return len(piece)


@contextmanager
def opened(path: Path, meter: Meter | None = None) -> Iterator[BinaryIO]:
    """Open a file for reading bytes; gzip and bzip2 are recognised by their first bytes and unpacked."""
    try:
        with path.open("rb") as raw:
            if meter is not None:
                meter.raw = raw
            if not raw.seekable():
                raise DataError(f"{path}: is a pipe, which cannot be read twice. Save its content to a file first.")
            magic = raw.peek(3)[:3]
            if magic[:2] == b"\x1f\x8b" or magic == b"BZh":
                with gzip.open(raw) if magic[:2] == b"\x1f\x8b" else bz2.open(raw) as unpacked:
                    yield cast(BinaryIO, io.BufferedReader(_Bounded(path, cast(BinaryIO, unpacked)), _PIECE))
            else:
                yield raw
    except FileNotFoundError:
        raise DataError(f"{path}: no such file.") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder; name a file in it.") from None
    except (EOFError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # from the file system, not from unpacking
            raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
        raise DataError(
            f"{path}: the packed file is damaged or cut short ({error}); fetch or pack it again, then repeat the "
            "command."
        ) from None


def read_lines(
    path: Path, faults: Faults | None = None, *, skip: int = 0, meter: Meter | None = None, ends: bool = False
) -> Iterator[tuple[int, str]]:
    """Yield numbered lines, from 1, after the first `skip`; `ends` keeps the line endings.

    A line in another encoding is added to `faults` and skipped; without `faults` it raises.
    """
    with opened(path, meter) as file:
        for number, raw in enumerate(iter(partial(file.readline, MAX_LINE), b""), 1):
            if len(raw) == MAX_LINE and not raw.endswith(b"\n"):
                size = f"a line is longer than {MAX_LINE >> 20} MB"
                remedy = f"break the lines of a text first: fold -s -w 10000 {path.name} > lines.txt"
                raise DataError(f"{path}:{number}: {size}; {remedy}")
            if number == 1:
                _refuse_utf16(path, raw)
            if number <= skip:
                continue
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                if faults is None:
                    raise DataError(f"{path}:{number}: {_wrong_encoding(path, error)}") from None
                faults.add(number, _wrong_encoding(path, error))
                continue
            yield number, text if ends else text.rstrip("\r\n")


def read_names(path: Path) -> dict[str, str | None]:
    """Read a list of entity names, one per line; an id may follow after a tab."""
    names: dict[str, str | None] = {}
    for _, line in read_lines(path):
        name, _, entity_id = line.strip().partition("\t")
        if words := name.split():
            names[" ".join(words)] = entity_id.strip() or None
    if not names:
        raise DataError(f"{path}: no names in it; expected one entity name per line, optionally a tab and an id.")
    return names


def read_start(path: Path, size: int = 4096) -> str:
    """Read the beginning of a file, for format detection; invalid UTF-8 is ignored here."""
    with opened(path) as file:
        raw = file.read(size)
    _refuse_utf16(path, raw)
    start = raw.decode("utf-8-sig", errors="ignore").lstrip()
    if not start:
        raise DataError(f"{path}: the file is empty.")
    return start


class JsonWalk:
    """Decodes a JSON file item by item and tracks the line on which each item begins."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text, self._at = _whole_text(path), 0
        self._counted, self._line = 0, 1
        self._decoder = json.JSONDecoder()
        self._pass(0)
        if not self._text:
            raise DataError(f"{path}: the file is empty; expected JSON.")

    def array(self) -> Iterator[tuple[int, Any]]:
        """Yield the items of the array at the current position, each with its line."""
        for line in self._items("[", "]", "expected an array"):
            yield line, self._value()

    def fields(self) -> Iterator[tuple[int, str]]:
        """Yield the keys of the object at the current position; the caller reads each value before the next key."""
        for line in self._items("{", "}", "expected an object"):
            key = self._value()
            if not isinstance(key, str):
                raise self._wrong("expected a name in double quotes")
            self._expect(":", "expected ':'")
            yield line, key

    def _items(self, opening: str, closing: str, message: str) -> Iterator[int]:
        """Yield the line of each item between brackets; the caller reads the item."""
        self._expect(opening, message)
        more = not self.begins_with(closing)
        while more:
            if self._at >= len(self._text):
                raise self._wrong(f"the file ends before '{closing}'")
            yield self._line_here()
            more = self.begins_with(",")
            self._pass(int(more))
            if more and self.begins_with(closing):
                raise self._wrong(f"a value is missing before '{closing}'")
        self._expect(closing, f"expected ',' or '{closing}'")

    def end(self) -> None:
        """Raise if anything follows."""
        if self._at < len(self._text):
            raise self._wrong("extra data after the end")

    def begins_with(self, char: str) -> bool:
        """Return whether the next character is `char`."""
        return self._text.startswith(char, self._at)

    def _value(self) -> Any:
        try:
            value, end = self._decoder.raw_decode(self._text, self._at)
        except RecursionError:
            raise self._wrong("nested too deeply") from None
        except json.JSONDecodeError as error:
            self._pass(error.pos - self._at)
            raise self._wrong(error.msg) from None
        except ValueError:
            raise self._wrong("a number with too many digits") from None
        if _SURROGATE.search(self._text, self._at, end) and _has_lone_surrogate(value):
            raise self._wrong("unpaired surrogate (\\ud800 to \\udfff)")
        self._pass(end - self._at)
        return value

    def _expect(self, char: str, message: str) -> None:
        if not self.begins_with(char):
            raise self._wrong(message)
        self._pass(1)

    def _pass(self, size: int) -> None:
        """Move on by `size` characters and the white space after them."""
        self._at = cast(re.Match[str], _SPACE.match(self._text, self._at + size)).end()

    def _line_here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def _wrong(self, message: str) -> DataError:
        return DataError(f"{self._path}:{self._line_here()}: not JSON: {message}.")


def _whole_text(path: Path) -> str:
    with opened(path) as file:
        raw = file.read()
    _refuse_utf16(path, raw)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + error.object.count(b"\n", 0, error.start)
        raise DataError(f"{path}:{line}: {_wrong_encoding(path, error)}") from None


def _has_lone_surrogate(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _refuse_utf16(path: Path, start: bytes) -> None:
    if start[:2] == b"\0\0":
        raise DataError(f"{path}: begins with zero bytes; it is not a text file, or it is damaged. Get it again.")
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in start[:2]:
        raise DataError(f"{path}: this is UTF-16; save it as UTF-8, for example: iconv -f utf-16 -t utf-8 {path.name}")


def _wrong_encoding(path: Path, error: UnicodeDecodeError) -> str:
    byte = error.object[error.start]
    return f"not UTF-8 (byte 0x{byte:02x}); save the file as UTF-8, for example: iconv -f latin1 -t utf-8 {path.name}"
