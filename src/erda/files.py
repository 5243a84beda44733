"""Atomic writes, typed reading, locks, checksums, and the ownership of files and folders.

Every file that `erda` keeps is read by `read_json` or `read_arrays` and written through `whole_file`. A damaged or
foreign file raises one line: path, field, fault, remedy. Files and folders are deleted by `remove_own` alone.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, is_dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, cast

from erda.errors import DataError, ErdaError, SettingsError, WriteError

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LONGEST_FILE_NAME = 255  # bytes; the limit of common file systems
LOCK_SECONDS = 0.2  # long enough for a process that is about to release the lock
POLL_SECONDS = 0.01
LOCK, SEAL = ".lock", "seal"
_UNFINISHED = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")


# -- writing -----------------------------------------------------------------------------------------------------------


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield an empty temporary file beside `path`; on success, sync it to disk and replace `path` in one step.

    On failure, `path` is unchanged. A random name and exclusive creation keep planted links out.
    """
    temporary = temporary_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)
        try:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            remove_own(temporary)
    except OSError as error:
        raise WriteError(cannot_write(path, error)) from error


def remove_unfinished(folder: Path, *, of: str = "") -> None:
    """Remove temporary files of killed processes, all or those `of` one file; the caller holds the folder's lock."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_unfinished(path.name, of=of):
            remove_own(path)


def temporary_name(path: Path) -> Path:
    """A random name beside a path; `is_unfinished` accepts it."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def is_unfinished(name: str, *, of: str = "") -> bool:
    """Whether a file name belongs to a temporary file of `whole_file`: of any file, or `of` one."""
    return (found := _UNFINISHED.fullmatch(name)) is not None and of in ("", found[1])


def cannot_write(path: Path, error: OSError) -> str:
    """The message of a failed write."""
    reason = "the disk is full" if error.errno in FULL else error.strerror or str(error)
    return f"Cannot write {path}: {reason}. The previous content is intact. Fix this and run the same command again."


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: readers see the old content or the new content."""
    with whole_file(path) as temporary:
        temporary.write_bytes(content)


def write_lines(path: Path, lines: Iterable[str], *, end: str = "\n") -> None:
    """Write lines of text, compressed if the name ends in `.gz`. The bytes depend on the text alone."""
    with (
        whole_file(path) as temporary,
        temporary.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=0) if path.suffix == ".gz" else nullcontext(raw) as file,
    ):
        file.writelines(f"{line}{end}".encode() for line in lines)


def write_json(path: Path, value: Any) -> None:
    """Write a value (plain, a dataclass or a model) as JSON. NaN and infinity raise."""
    write_bytes(path, (json.dumps(_plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], *, compress: bool = True) -> None:
    """Write arrays as `.npz`."""
    import numpy as np

    file, save = io.BytesIO(), cast(Callable[..., None], np.savez_compressed if compress else np.savez)
    save(file, **arrays)
    write_bytes(path, file.getvalue())


# -- reading -----------------------------------------------------------------------------------------------------------


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


@cache
def _plain_decoder(kind: Any) -> Any:
    from msgspec.json import Decoder

    return Decoder(kind)


class Decoding(TypedDict, total=False):
    """Options of a decoder: the class of its error, and the last words of the message.

    `plain`: the value is a dataclass of plain types and dataclasses, without ranges. msgspec decodes it. pydantic is
    slow to import, so it then loads only to name a fault.
    """

    error: type[ErdaError]
    remedy: str
    plain: bool


def decode_json(content: bytes | str, kind: type[T], *, place: str = "", **how: Unpack[Decoding]) -> T:
    """Decode JSON to `kind` (a dataclass, a model, a plain type), or raise one line: place, field, fault, remedy."""
    if how.get("plain"):
        with suppress(Exception):  # pydantic reports it below
            return cast(T, _plain_decoder(cast(Any, kind)).decode(content))
    read = partial(_adapter(cast(Any, kind)).validate_json, content, strict=True)
    return cast(T, _decoded(read, place, how.get("error", DataError), how.get("remedy", "")))


def decode(value: Any, kind: type[T], *, place: str = "", error: type[ErdaError] = DataError, remedy: str = "") -> T:
    """Convert parsed JSON to `kind`, whose fields declare their own strictness; raise as `decode_json` does."""
    return cast(T, _decoded(partial(_adapter(cast(Any, kind)).validate_python, value), place, error, remedy))


def _decoded(read: Callable[[], Any], place: str, error: type[ErdaError], remedy: str) -> Any:
    try:
        return read()
    except (ErdaError, ValueError) as fault:  # from pydantic, or from the checks of the value itself
        from pydantic import ValidationError

        from erda.fields import validation_faults

        said = validation_faults(fault) if isinstance(fault, ValidationError) else [str(fault)]
        more = f"(and {len(said) - 1} more faults)" if len(said) > 1 else ""
        raise error(" ".join(filter(None, (place and f"{place}:", said[0], more, remedy)))) from None


def read_json(path: Path, kind: type[T], **how: Unpack[Decoding]) -> T:
    """Read a JSON file as a value of `kind`. `remedy` ends the message about a damaged file."""
    return decode_json(read_bytes(path, error=how.get("error", DataError)), kind, place=str(path), **how)


def read_bytes(path: Path, *, error: type[ErdaError] = DataError) -> bytes:
    """Read a file, or raise with the reason."""
    try:
        return path.read_bytes()
    except OSError as fault:
        raise error(f"{path}: cannot be read ({fault.strerror or fault}).") from None


def read_arrays(path: Path, *, error: type[ErdaError] = DataError, remedy: str = "") -> dict[str, np.ndarray]:
    """Read the arrays of an `.npz` file; pickled objects raise."""
    import numpy as np

    content = io.BytesIO(read_bytes(path, error=error))
    try:
        with np.load(content, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as fault:  # of many kinds: NumPy does not check what it reads
        raise error(f"{path}: is damaged ({first_line(fault)}).{remedy and f' {remedy}'}") from None


def file_state(path: Path) -> tuple[int, ...] | None:
    """Return numbers that change whenever a file is replaced or written; None if there is no such file."""
    with suppress(OSError):
        found = path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size
    return None


def first_line(error: BaseException) -> str:
    """The first line of an error message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def inside(folder: Path, name: str, *, error: type[ErdaError] = DataError) -> Path:
    """Join `name`, which was read from a file, to `folder`; a path outside the folder raises."""
    path = folder / name
    if not name or "\0" in name or not path.resolve().is_relative_to(folder.resolve()) or path == folder:
        raise error(f"{folder}: names a file outside its folder ({name!r}); it was edited, or erda did not write it.")
    return path


# -- sealed values -----------------------------------------------------------------------------------------------------


def sealed(value: Any) -> dict[str, Any]:
    """Convert an object to plain JSON with a digest of itself, which reveals a change of any field."""
    text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)
    fields: dict[str, Any] = json.loads(text.encode(errors="replace"))  # a lone surrogate cannot be encoded
    fields.pop(SEAL, None)  # the seal of an earlier version
    return {**fields, SEAL: _seal_of(fields)}


def decode_sealed(content: bytes | str, kind: type[T], *, place: str, **how: Unpack[Decoding]) -> T:
    """Decode JSON as `decode_json` does, and reject a missing or wrong seal: the content has been changed."""
    found = decode_json(content, kind, place=place, **how)
    with suppress(ValueError, RecursionError, KeyError):
        fields = json.loads(content)
        if fields.pop(SEAL) == _seal_of(fields):
            return found
    error, remedy = how.get("error", DataError), how.get("remedy", "")
    raise error(f"{place}: was changed or damaged since it was written.{remedy and f' {remedy}'}")


def read_sealed(path: Path, kind: type[T], **how: Unpack[Decoding]) -> T:
    """Read a file written by `write_json(path, sealed(value))`."""
    return decode_sealed(read_bytes(path, error=how.get("error", DataError)), kind, place=str(path), **how)


def _seal_of(fields: Any) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


# -- sha256 ------------------------------------------------------------------------------------------------------------


def sha256_of(path: Path, *, error: type[ErdaError] = DataError) -> str:
    """The sha256 of a file, cached until its size or modification time changes."""
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
    """Reject a file that is missing or has another sha256."""
    if not path.is_file():
        raise error(f"{path} is missing. {remedy}")
    if (got := sha256_of(path, error=error)) != expected:
        size = path.stat().st_size
        raise error(
            f"{path} is damaged or of another version: expected sha256 {expected}, got {got} ({size:,} bytes). {remedy}"
        )


# -- locks and ownership -----------------------------------------------------------------------------------------------


@contextmanager
def locked(
    folder: Path, *, busy: str, error: type[ErdaError] = DataError, wait: float = LOCK_SECONDS
) -> Iterator[None]:
    """Create the folder and keep other processes out of it; after `wait` seconds of waiting, raise `busy`.

    The lock ends with the process, even if it is killed. A release removes the lock file.
    """
    import filelock

    place = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if place.is_symlink() or (place.exists() and (not place.is_file() or place.stat().st_size)):
            raise error(f"{place}: was not written by erda; move it away.")
        lock = filelock.FileLock(place)
        lock.acquire(timeout=wait, poll_interval=POLL_SECONDS)
    except filelock.Timeout:
        raise error(f"{folder}: {busy}.") from None
    except OSError as fault:
        raise WriteError(cannot_write(folder, fault)) from fault
    try:
        yield
    finally:
        with suppress(OSError):
            place.unlink(missing_ok=True)  # a process that opened it earlier notices that it is unlinked
        lock.release()


def remove_left_lock(folder: Path) -> None:
    """Remove the lock file that a killed process left in a folder; the lock of a running process stays."""
    with suppress(OSError, ErdaError):  # read-only, or in use
        if (folder / LOCK).exists():
            with locked(folder, busy="in use", wait=0):
                pass


def remove_own(path: Path, is_own: Callable[[str], bool] = lambda name: False) -> list[Path]:
    """Delete a file, or the files of a folder that `is_own` accepts by their relative paths; then the emptied folders.

    The caller proves that it wrote `path`; `is_own` is the grammar of what erda writes there, besides locks and
    temporary files. Everything else stays, and so does every symbolic link. Returns what stays.
    """
    if path.is_symlink() or not path.is_dir():
        return [] if not path.is_symlink() and _removed(path.unlink) else [path]
    stays: list[Path] = []
    for top, folders, files in os.walk(path, topdown=False):
        for one in (Path(top, name) for name in sorted(files)):
            ours = one.name == LOCK or is_unfinished(one.name) or is_own(one.relative_to(path).as_posix())
            if one.is_symlink() or not ours or not _removed(one.unlink):
                stays.append(one)
        stays += [one for one in (Path(top, name) for name in folders) if one.is_symlink()]
        if not any(one.is_relative_to(top) for one in stays) and not _removed(Path(top).rmdir):
            stays.append(Path(top))
    return stays


def _removed(remove: Callable[[], object]) -> bool:
    try:
        remove()
    except OSError as fault:
        return isinstance(fault, FileNotFoundError)
    return True


def refuse_existing(out: Path, *, overwrite: bool) -> None:
    """Reject an output file that exists, unless the user agreed to replace it."""
    if not overwrite and (out.exists() or out.is_symlink()):
        raise SettingsError(f"{out} exists. Use --overwrite, or another name.")


def check_output(out: Path, *inputs: Path | int | None, overwrite: bool) -> None:
    """Reject an output that is an input or exists, unless the user agreed; remove what a killed command left of it.

    An input is a path or an open descriptor. Links are resolved.
    """
    for one in inputs:
        with suppress(OSError):  # a file that does not exist cannot be overwritten
            if one is not None and os.path.samestat(out.stat(), os.fstat(one) if isinstance(one, int) else one.stat()):
                name = "standard input" if isinstance(one, int) else f"the input {one}"
                raise SettingsError(f"{out}: is {name}, which would be overwritten. Choose another output file.")
    refuse_existing(out, overwrite=overwrite)
    remove_unfinished(out.parent, of=out.name)


def user_path(name: str | Path) -> Path:
    """A path as a user writes it: `~` is the home folder, where there is one. Names no file can have raise."""
    try:
        parts = [os.fsencode(part) for part in Path(name).parts]
    except UnicodeEncodeError:
        raise DataError(f"{name}: not a file name: it holds half of a surrogate pair.") from None
    if any(b"\0" in part or len(part) > LONGEST_FILE_NAME for part in parts):
        said = f"it holds a NUL byte, or a part of it has more than {LONGEST_FILE_NAME} bytes"
        raise DataError(f"{str(name)[:60]}: not a file name: {said}.")
    with suppress(RuntimeError):  # nobody of that name
        return Path(name).expanduser()
    return Path(name)


def cache_folder() -> Path:
    """The folder for files that `erda` can build or fetch again: $ERDA_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("ERDA_CACHE"):
        return user_path(chosen)
    import platformdirs

    return platformdirs.user_cache_path("erda")


def data_folder() -> Path:
    """The folder of datasets: $ERDA_DATA, else `data` in the user's cache folder."""
    named = os.environ.get("ERDA_DATA")
    return user_path(named) if named else cache_folder() / "data"
