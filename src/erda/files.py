"""Files that can be trusted: written whole or not at all, decoded into typed values, locked, checked by sha256.

Every file that `erda` keeps is read by `read_json` or `read_arrays` and written by `whole_file` or what stands on it.
A damaged or foreign file is one line with its path, the field, what is wrong with it and what to do.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, is_dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from erda.errors import DataError, ErdaError, WriteError

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
UNREADABLE = (  # what NumPy raises over a damaged file
    *(OSError, ValueError, EOFError, KeyError, TypeError, AttributeError, SyntaxError),
    *(MemoryError, NotImplementedError, zipfile.BadZipFile, zlib.error),
)
LOCK_SECONDS = 0.2  # to wait for whoever is just leaving
SEAL = "seal"
_UNFINISHED = re.compile(r"\..+\.\d+\.tmp")


# -- writing -----------------------------------------------------------------------------------------------------------


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; afterwards it takes its place, on the disk and in one step.

    Whatever goes wrong, `path` is what it was before and the temporary file is gone.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise WriteError(cannot_write(path, error)) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_unfinished(folder: Path, *, of: str = "") -> None:
    """Remove what `whole_file` left in a folder when its process was killed, all or that `of` one file.

    The lock of what is removed must be held.
    """
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_unfinished(path.name) and path.name.startswith(f".{of}." if of else "."):
            with suppress(OSError):
                path.unlink(missing_ok=True)


def is_unfinished(name: str) -> bool:
    """Whether this is the name of a file that `whole_file` was writing."""
    return _UNFINISHED.fullmatch(name) is not None


def cannot_write(path: Path, error: OSError) -> str:
    """What did not work, and that nothing is lost."""
    reason = "the disk is full" if error.errno in FULL else error.strerror or str(error)
    return f"Cannot write {path}: {reason}. What was there before is intact; mend this and give the same command again."


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old one or the new one, never half of it."""
    with whole_file(path) as temporary:
        temporary.write_bytes(content)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines of text, gzip where the name ends so; the bytes depend on the text alone."""
    with (
        whole_file(path) as temporary,
        temporary.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=0) if path.suffix == ".gz" else nullcontext(raw) as file,
    ):
        file.writelines(f"{line}\n".encode() for line in lines)


def write_json(path: Path, value: Any) -> None:
    """Write a value (plain, a dataclass or a model) as JSON; numbers that are no numbers are refused."""
    write_bytes(path, (json.dumps(_plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], *, compress: bool = True) -> None:
    """Write arrays as `.npz`."""
    import numpy as np

    file = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(file, **arrays)  # type: ignore[arg-type]  # names are free
    write_bytes(path, file.getvalue())


# -- reading -----------------------------------------------------------------------------------------------------------


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def decode_json(
    content: bytes | str, kind: type[T], *, place: str = "", error: type[ErdaError] = DataError, remedy: str = ""
) -> T:
    """JSON as a value of `kind` (a dataclass, a model, a plain type); else one line: place, field, fault, remedy."""
    read = partial(_adapter(cast(Any, kind)).validate_json, content, strict=True)
    return cast(T, _decoded(read, place, error, remedy))


def decode(value: Any, kind: type[T], *, place: str = "", error: type[ErdaError] = DataError, remedy: str = "") -> T:
    """What JSON gave as a value of `kind`, whose fields say themselves how strict they are; else the same one line."""
    return cast(T, _decoded(partial(_adapter(cast(Any, kind)).validate_python, value), place, error, remedy))


def _decoded(read: Callable[[], Any], place: str, error: type[ErdaError], remedy: str) -> Any:
    try:
        return read()
    except (ErdaError, ValueError) as fault:  # of pydantic, or what a value's own checks say
        from pydantic import ValidationError

        from erda.fields import faults_of

        said = faults_of(fault) if isinstance(fault, ValidationError) else [str(fault)]
        more = f"(and {len(said) - 1} more faults)" if len(said) > 1 else ""
        raise error(" ".join(filter(None, (place and f"{place}:", said[0], more, remedy)))) from None


def read_json(path: Path, kind: type[T], *, error: type[ErdaError] = DataError, remedy: str = "") -> T:
    """A JSON file as a value of `kind`. `remedy` is what to do about a damaged one: "Run the same command again."."""
    return decode_json(read_bytes(path, error=error), kind, place=str(path), error=error, remedy=remedy)


def read_bytes(path: Path, *, error: type[ErdaError] = DataError) -> bytes:
    """The content of a file, or why it cannot be had: not there is not damaged."""
    try:
        return path.read_bytes()
    except OSError as fault:
        raise error(f"{path}: cannot be read ({fault.strerror or fault}).") from None


def read_arrays(path: Path, *, error: type[ErdaError] = DataError, remedy: str = "") -> dict[str, np.ndarray]:
    """Arrays of an `.npz` file; pickled objects are refused."""
    import numpy as np

    content = io.BytesIO(read_bytes(path, error=error))
    try:
        with np.load(content, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except UNREADABLE as fault:
        raise error(f"{path}: is damaged ({first_line(fault)}).{remedy and f' {remedy}'}") from None


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def inside(folder: Path, name: str, *, error: type[ErdaError] = DataError) -> Path:
    """The path `name`, read from a file, in `folder`; one that leads out of it is refused."""
    path = folder / name
    if not name or "\0" in name or not path.resolve().is_relative_to(folder.resolve()) or path == folder:
        raise error(f"{folder}: names a file outside of itself ({name!r}); it was changed by hand or is not erda's.")
    return path


# -- sealed values and journals of them --------------------------------------------------------------------------------


def sealed(value: Any) -> dict[str, Any]:
    """An object as plain JSON with a digest of itself, so that a change of any field is noticed."""
    text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)
    fields: dict[str, Any] = json.loads(text.encode(errors="replace"))  # half a surrogate pair cannot be stored
    fields.pop(SEAL, None)  # of what it was before
    return {**fields, SEAL: _seal_of(fields)}


def decode_sealed(
    content: bytes | str, kind: type[T], *, place: str, error: type[ErdaError] = DataError, remedy: str = ""
) -> T:
    """As `decode_json`, but what was changed since it was sealed is refused; what has no seal is taken as it is."""
    found = decode_json(content, kind, place=place, error=error, remedy=remedy)
    with suppress(ValueError, RecursionError):
        fields = json.loads(content)
        if SEAL not in fields or fields.pop(SEAL) == _seal_of(fields):
            return found
    raise error(f"{place}: was changed or damaged since it was written.{remedy and f' {remedy}'}")


def read_sealed(path: Path, kind: type[T], *, error: type[ErdaError] = DataError, remedy: str = "") -> T:
    """A file that `write_json(path, sealed(value))` wrote."""
    return decode_sealed(read_bytes(path, error=error), kind, place=str(path), error=error, remedy=remedy)


def add_to_journal(path: Path, value: Any) -> None:
    """Add a sealed value to a journal; it is on the disk when this returns."""
    try:
        with path.open("ab+") as journal:
            if journal.tell() and not _ends_a_line(journal):
                journal.write(b"\n")  # what an interruption left of a line stays by itself
            journal.write(json.dumps(sealed(value), ensure_ascii=False).encode() + b"\n")
            journal.flush()
            os.fsync(journal.fileno())
    except OSError as error:
        raise WriteError(cannot_write(path, error)) from error


def journal_values(path: Path, kind: type[T], *, error: type[ErdaError] = DataError) -> list[T | None]:
    """The values of a journal, if there is one; None for a line that is damaged or was cut short."""
    found: list[T | None] = []
    for line in read_bytes(path, error=error).splitlines() if path.exists() else ():
        try:
            found.append(decode_sealed(line, kind, place=str(path)))
        except DataError:
            found.append(None)
    return found


def _seal_of(fields: Any) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _ends_a_line(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")


# -- sha256 ------------------------------------------------------------------------------------------------------------


def sha256_of(path: Path, *, error: type[ErdaError] = DataError) -> str:
    """The sha256 of a file, computed once per process as long as its size and time of change stay."""
    try:
        stat = path.stat()
        return _sha256(path.resolve(), stat.st_size, stat.st_mtime_ns)
    except OSError as fault:
        raise error(f"{path}: cannot be read ({fault.strerror or fault}).") from None


@lru_cache(maxsize=1024)
def _sha256(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify_sha256(
    path: Path, expected: str, *, error: type[ErdaError] = DataError, remedy: str = "Delete it and get it again."
) -> None:
    """Refuse a file that is not there or has another sha256."""
    if not path.is_file():
        raise error(f"{path} is missing. {remedy}")
    got = sha256_of(path, error=error)
    if got != expected:
        size = path.stat().st_size
        raise error(
            f"{path} is damaged or of another version: expected sha256 {expected}, got {got} ({size:,} bytes). {remedy}"
        )


# -- locks and folders -------------------------------------------------------------------------------------------------


@contextmanager
def locked(
    folder: Path, *, busy: str, error: type[ErdaError] = DataError, wait: float = LOCK_SECONDS
) -> Iterator[None]:
    """Make the folder and keep other processes out of it; where one stays for `wait` seconds, a fault says `busy`.

    The lock ends with the process, however that ends; its file goes with it.
    """
    import filelock

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / ".lock")
        lock.acquire(timeout=wait)
    except filelock.Timeout:
        raise error(f"{folder}: {busy}.") from None
    except OSError as fault:
        raise WriteError(cannot_write(folder, fault)) from fault
    try:
        yield
    finally:
        with suppress(OSError):
            (folder / ".lock").unlink(missing_ok=True)  # whoever opened it before sees that it has no name any more
        lock.release()


def user_path(name: str | Path) -> Path:
    """A path as a user writes it: `~` is the home folder, where there is one."""
    try:
        return Path(name).expanduser()
    except RuntimeError:  # nobody of that name
        return Path(name)


def cache_folder() -> Path:
    """Where `erda` keeps what it can make again: $ERDA_CACHE, else the user's cache folder."""
    chosen = os.environ.get("ERDA_CACHE")
    if chosen:
        return user_path(chosen)
    import platformdirs

    return platformdirs.user_cache_path("erda")


def data_folder() -> Path:
    """Where datasets are: $ERDA_DATA, else `data` in the user's cache folder."""
    named = os.environ.get("ERDA_DATA")
    return user_path(named) if named else cache_folder() / "data"
