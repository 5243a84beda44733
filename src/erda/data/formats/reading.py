"""What all readers share: opening a file, numbering its lines, collecting faults, finding duplicates."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from erda.errors import SHOWN_FAULTS, DataError, join_faults
from erda.types import Example

NO_RELATION = "no_relation"
_GZIP_MAGIC = b"\x1f\x8b"
_JSON_SPACE = " \t\n\r"


@dataclass(frozen=True, slots=True)
class Reading:
    """What one file held.

    `unrelated` are the rows whose relation is null or `no_relation`; they are kept apart from `examples`.
    `candidates[i]` are the relations listed with example `i`, gold left out (published splits only).
    `duplicates` are pairs (line, line of the first occurrence). `left_out` counts rows by reason.
    """

    path: Path
    format: str
    examples: tuple[Example, ...] = field(repr=False)
    unrelated: tuple[Example, ...] = field(default=(), repr=False)
    candidates: tuple[tuple[str, ...], ...] | None = field(default=None, repr=False)
    duplicates: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Number of examples of each relation, the commonest first."""
        counts: dict[str, int] = {}
        for example in self.examples:
            counts[str(example.relation)] = counts.get(str(example.relation), 0) + 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


class Faults:
    """Faults of one file: the first twenty are kept, all are counted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.total = 0
        self._shown: list[str] = []

    def add(self, line: int, message: str) -> None:
        """Note a fault of one line."""
        self.total += 1
        if len(self._shown) < SHOWN_FAULTS:
            self._shown.append(f"{self.path}:{line}: {message}")

    def raise_if_any(self) -> None:
        """End the reading when anything was wrong."""
        if self.total:
            raise DataError(join_faults(self._shown, total=self.total))


class Duplicates:
    """Finds examples that say the same: same tokens, same spans, same relation."""

    def __init__(self) -> None:
        self._first: dict[tuple[object, ...], int] = {}
        self.found: list[tuple[int, int]] = []

    def seen(self, example: Example, line: int) -> bool:
        """Whether an earlier line held this example; notes both lines if so."""
        key = (example.tokens, example.head.span, example.tail.span, example.relation)
        first = self._first.setdefault(key, line)
        if first != line:
            self.found.append((line, first))
        return first != line


def is_unrelated(relation: object) -> bool:
    """Whether a row says that there is no relation, or that none is known."""
    return relation is None or relation == NO_RELATION


def read_lines(path: Path, faults: Faults) -> Iterator[tuple[int, str]]:
    """Lines of a UTF-8 file, plain or gzip, numbered from 1; a line in another encoding becomes a fault."""
    try:
        with _opened(path) as file:
            for number, raw in enumerate(file, 1):
                try:
                    text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    faults.add(number, _wrong_encoding(error))
                    continue
                yield number, text.rstrip("\r\n")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, error) from None


def read_text(path: Path) -> str:
    """A whole UTF-8 file, plain or gzip."""
    try:
        with _opened(path) as file:
            raw = file.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, error) from None
    try:
        text: str = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}:{line}: {_wrong_encoding(error)}") from None
    if not text.strip():
        raise DataError(f"{path}: the file is empty; expected JSON.")
    return text


def read_start(path: Path, size: int = 4096) -> str:
    """The beginning of a file, plain or gzip, to see what it looks like; other encodings are not noticed here."""
    try:
        with _opened(path) as file:
            start: str = file.read(size).decode("utf-8-sig", errors="ignore").lstrip()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, error) from None
    if not start:
        raise DataError(f"{path}: the file is empty.")
    return start


def read_json(path: Path) -> Any:
    """The value of a small JSON file."""
    text = read_text(path)
    try:
        return json.loads(text)
    except ValueError as error:
        raise wrong_json(path, error) from None


def wrong_json(path: Path, error: ValueError) -> DataError:
    """The error that says where a file stops being JSON."""
    if isinstance(error, json.JSONDecodeError):
        return DataError(f"{path}:{error.lineno}: not JSON: {error.msg} (column {error.colno}).")
    return DataError(f"{path}: not JSON: {error}.")


class JsonWalk:
    """Walks the items of a big JSON file one by one and knows the line on which each begins."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._text = text
        self._at = self._skip(0)
        self._counted, self._line = 0, 1
        self._decoder = json.JSONDecoder()

    def array(self) -> Iterator[tuple[int, Any]]:
        """Items of the array that begins here, each with its line."""
        self._expect("[", "expected an array")
        while self._more("]"):
            line = self._line_at(self._at)
            yield line, self._value()
            self._next("]")
        self._at = self._skip(self._at + 1)

    def fields(self) -> Iterator[tuple[int, str]]:
        """Keys of the object that begins here; the caller reads the value of each before the next."""
        self._expect("{", "expected an object")
        while self._more("}"):
            line = self._line_at(self._at)
            key = self._value()
            if not isinstance(key, str):
                raise self._wrong("expected a name in double quotes")
            self._expect(":", "expected ':'")
            yield line, key
            self._next("}")
        self._at = self._skip(self._at + 1)

    def end(self) -> None:
        """Nothing may follow."""
        if self._at < len(self._text):
            raise self._wrong("extra data after the end")

    def begins_with(self, char: str) -> bool:
        """Whether the value that begins here starts with this character."""
        return self._text.startswith(char, self._at)

    def _value(self) -> Any:
        try:
            value, end = self._decoder.raw_decode(self._text, self._at)
        except ValueError as error:
            raise wrong_json(self._path, error) from None
        except RecursionError:
            raise self._wrong("nested too deeply") from None
        self._at = self._skip(end)
        return value

    def _more(self, closing: str) -> bool:
        if self._at >= len(self._text):
            raise self._wrong(f"the file ends before '{closing}'")
        return not self.begins_with(closing)

    def _next(self, closing: str) -> None:
        if self.begins_with(closing):
            return
        self._expect(",", f"expected ',' or '{closing}'")
        if self.begins_with(closing):
            raise self._wrong(f"a value is missing before '{closing}'")

    def _expect(self, char: str, message: str) -> None:
        if not self.begins_with(char):
            raise self._wrong(message)
        self._at = self._skip(self._at + 1)

    def _skip(self, at: int) -> int:
        while at < len(self._text) and self._text[at] in _JSON_SPACE:
            at += 1
        return at

    def _line_at(self, at: int) -> int:
        self._line += self._text.count("\n", self._counted, at)
        self._counted = at
        return self._line

    def _wrong(self, message: str) -> DataError:
        return DataError(f"{self._path}:{self._line_at(self._at)}: not JSON: {message}.")


def _opened(path: Path) -> Any:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file.") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder; name a file in it.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    magic = file.read(2)
    file.seek(0)
    return gzip.open(file) if magic == _GZIP_MAGIC else file


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: the gzip file is damaged or cut short ({error}); fetch or pack it again.")


def _wrong_encoding(error: UnicodeDecodeError) -> str:
    return f"not UTF-8 (byte 0x{error.object[error.start]:02x}); save the file as UTF-8."
