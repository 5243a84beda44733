"""What every source of sentences shares: its rows, its counts of what was dropped, pairing, opening files."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, NamedTuple, Protocol, cast

from erda.errors import DataError, SettingsError
from erda.text.keys import entity_key
from erda.types import Entity

SHOWN_PLACES = 3
MAX_LINE = 1 << 26


class Row(NamedTuple):
    """One sentence with one ordered entity pair. Spans count the tokens of `text`, which are separated by one space."""

    text: str
    head_name: str
    head_id: str | None
    head_start: int
    head_end: int
    tail_name: str
    tail_id: str | None
    tail_start: int
    tail_end: int
    relation: str | None
    source: str | None


@dataclass
class Tally:
    """What a source gave and what was dropped, by reason, with the first places of each."""

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)

    def drop(self, reason: str, place: str = "", n: int = 1) -> None:
        """Count something that does not enter the corpus."""
        if n:
            self.dropped[reason] = self.dropped.get(reason, 0) + n
        if place and n and len(shown := self.places.setdefault(reason, [])) < SHOWN_PLACES:
            shown.append(place)

    def add(self, other: Tally) -> None:
        """Count what another tally counted too."""
        self.read += other.read
        for reason, n in other.dropped.items():
            self.drop(reason, n=n)
        for reason, places in other.places.items():
            shown = self.places.setdefault(reason, [])
            shown += places[: SHOWN_PLACES - len(shown)]

    def to_json(self) -> dict[str, object]:
        """As JSON; `Tally(**json)` gives it back."""
        return {"read": self.read, "dropped": self.dropped, "places": self.places}


class Batch(NamedTuple):
    """Rows and counts of the units (lines, pages, documents) up to `position`; reading can go on from there."""

    position: int
    rows: list[Row]
    tally: Tally
    redirects: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What may enter: the ordered pairs that one sentence gives, and the tokens of a sentence."""

    max_pairs: int = 12
    max_tokens: int = 250

    def __post_init__(self) -> None:
        for name, value in (("max_pairs", self.max_pairs), ("max_tokens", self.max_tokens)):
            if value < 1:
                raise SettingsError(f"{name} must be at least 1, got {value}.")


class Meter:
    """How many bytes of a file, as it lies on disk, have been read."""

    def __init__(self) -> None:
        self.raw: BinaryIO | None = None

    def position(self) -> int:
        """Bytes read so far; 0 before the file is opened and after it is closed."""
        return 0 if self.raw is None or self.raw.closed else self.raw.tell()


class Source(Protocol):
    """A file that gives sentences with entity pairs."""

    path: Path
    unit: str
    meter: Meter

    def batches(self, skip: int, limits: Limits) -> Iterator[Batch]:
        """Batches in the order of the file, after the first `skip` units."""


def ordered_pairs(
    tokens: Sequence[str], mentions: Sequence[Entity], *, source: str | None, limits: Limits, tally: Tally
) -> list[Row]:
    """The ordered pairs of the entities of a sentence, those that stand closest first, at most `limits.max_pairs`.

    An entity that is named twice counts once, by its first mention; overlapping mentions make no pair.
    """
    if len(tokens) > limits.max_tokens:
        tally.drop("sentence longer than max_tokens", source or "")
        return []
    first: dict[str, Entity] = {}
    for mention in sorted(mentions, key=lambda mention: (mention.span.start, -mention.span.end)):
        first.setdefault(entity_key(mention.name, mention.id), mention)
    entities = list(first.values())
    if len(entities) < 2:
        tally.drop("sentence with fewer than two entities")
        return []
    pairs = []
    for i, left in enumerate(entities):
        for j, right in enumerate(entities):
            if i != j and (left.span.end <= right.span.start or right.span.end <= left.span.start):
                gap = max(left.span.start, right.span.start) - min(left.span.end, right.span.end)
                pairs.append((gap, min(i, j), max(i, j), i > j, left, right))
    pairs.sort(key=lambda pair: pair[:4])
    tally.drop("pair over max_pairs", source or "", n=max(0, len(pairs) - limits.max_pairs))
    text = " ".join(tokens)
    return [Row(text, *_columns(head), *_columns(tail), None, source) for *_, head, tail in pairs[: limits.max_pairs]]


def split_spaced(tokens: Sequence[str]) -> tuple[list[str], list[int]]:
    """Words of tokens some of which hold spaces or nothing, and where each token (and the end) falls among them."""
    words: list[str] = []
    places = [0]
    for token in tokens:
        words += token.split()
        places.append(len(words))
    return words, places


def _columns(entity: Entity) -> tuple[str, str | None, int, int]:
    return entity.name, entity.id, entity.span.start, entity.span.end


@contextmanager
def opened(path: Path, meter: Meter | None = None) -> Iterator[BinaryIO]:
    """A file's bytes, unpacked by its first bytes (gzip, bzip2); damage and absence become a `DataError`."""
    try:
        with path.open("rb") as raw:
            if meter is not None:
                meter.raw = raw
            magic = raw.read(3)
            raw.seek(0)
            if magic[:2] == b"\x1f\x8b":
                with gzip.open(raw) as unpacked:
                    yield cast(BinaryIO, unpacked)
            elif magic == b"BZh":
                with bz2.open(raw) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield raw
    except FileNotFoundError:
        raise DataError(f"{path}: no such file.") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder; name a file in it.") from None
    except PermissionError:
        raise DataError(f"{path}: cannot be read (permission denied).") from None
    except (EOFError, zlib.error, gzip.BadGzipFile, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(
            f"{path}: the packed file is damaged or cut short ({error}); fetch it again and run the same command: "
            "what was read of other files is kept."
        ) from None


def numbered_lines(path: Path, skip: int = 0, meter: Meter | None = None) -> Iterator[tuple[int, str]]:
    """Lines of a UTF-8 file, numbered from 1, after the first `skip`; another encoding is a `DataError`."""
    with opened(path, meter) as file:
        for number, raw in enumerate(iter(partial(file.readline, MAX_LINE), b""), 1):
            if len(raw) == MAX_LINE and not raw.endswith(b"\n"):
                raise DataError(f"{path}:{number}: a line longer than {MAX_LINE >> 20} MB; is this a text file?")
            if number <= skip:
                continue
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}:{number}: not UTF-8 (byte 0x{raw[error.start]:02x}); "
                    f"convert it first, for example: iconv -f latin1 -t utf-8 {path.name}"
                ) from None
            yield number, text
