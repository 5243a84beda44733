"""What a command may write: outputs that are neither inputs nor files of the user, and folders of unfinished work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from erda.errors import DataError, SettingsError, WriteError
from erda.files import (
    LOCK,
    OWNER,
    cannot_write,
    is_unfinished,
    locked,
    read_json,
    remove_own,
    remove_unfinished,
    temporary_name,
    write_json,
)


def refuse_overwriting_input(out: Path, *inputs: Path | int | None) -> None:
    """Reject an output that is the same file as an input (path or open descriptor), links resolved."""
    for one in inputs:
        with suppress(OSError):  # a file that does not exist cannot be overwritten
            if one is not None and os.path.samestat(out.stat(), os.fstat(one) if isinstance(one, int) else one.stat()):
                name = "standard input" if isinstance(one, int) else f"the input {one}"
                raise SettingsError(f"{out}: is {name}, which would be overwritten. Choose another output file.")


def refuse_existing(out: Path, *, overwrite: bool) -> None:
    """Reject an output file that exists, unless the user agreed to replace it."""
    if not overwrite and (out.exists() or out.is_symlink()):
        raise SettingsError(f"{out} exists. Use --overwrite (overwrite=True) to replace it, or choose another name.")


def check_output(out: Path, *inputs: Path | int | None, overwrite: bool) -> None:
    """Reject an output that is an input or exists, unless the user agreed; remove what a killed command left of it."""
    refuse_overwriting_input(out, *inputs)
    refuse_existing(out, overwrite=overwrite)
    remove_unfinished(out.parent, of=out.name)


def append_lines(path: Path, content: bytes) -> None:
    """Append whole lines to a file and sync it to disk; a line that a kill cut short is ended first."""
    try:
        with path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise WriteError(cannot_write(path, error)) from error


@dataclass(frozen=True, slots=True)
class FolderOwner:
    """`.erda.json`: the proof that erda created a folder, and for what."""

    purpose: str


@contextmanager
def work_folder(folder: Path, *, purpose: str, busy: str) -> Iterator[None]:
    """Lock a folder for unfinished work. It survives a kill; `remove_work` removes it once the work is done.

    A folder of that name that erda did not create for this `purpose` is rejected and left alone.
    """
    _refuse_foreign(folder, purpose)
    _make(folder, purpose)
    with locked(folder, busy=busy):
        if not (folder / OWNER).exists():  # another process has just removed it
            _refuse_foreign(folder, purpose)
            write_json(folder / OWNER, FolderOwner(purpose))
        yield


def _make(folder: Path, purpose: str) -> None:
    """Create a folder with its mark of ownership in one step, so that an empty folder is never erda's."""
    if folder.exists():
        return
    temporary = temporary_name(folder)
    try:
        write_json(temporary / OWNER, FolderOwner(purpose))
        temporary.rename(folder)
    except (OSError, WriteError) as fault:
        with suppress(OSError):  # a name that is too long
            remove_own(temporary)
        if not folder.exists():  # else another process has created it
            raise WriteError(cannot_write(folder, fault)) if isinstance(fault, OSError) else fault from None


def remove_work(folder: Path, is_own: Callable[[str], bool]) -> None:
    """Remove a folder of finished work, which the caller has locked; files that `is_own` rejects stay.

    The folder gets a temporary name first: a kill leaves nothing under the name that `work_folder` looks at.
    """
    temporary = temporary_name(folder)
    try:
        folder.rename(temporary)
    except OSError:  # Windows: a file in it is open
        remove_own(folder, is_own)
        return
    if remove_own(temporary, is_own):
        with suppress(OSError):
            temporary.rename(folder)


def remove_left_work(folder: Path, is_own: Callable[[str], bool]) -> None:
    """Remove what a process that was killed inside `work_folder` or `remove_work` left beside a folder."""
    for path in folder.parent.glob(".*.tmp") if folder.parent.is_dir() else ():
        if is_unfinished(path.name, of=folder.name) and path.is_dir():
            remove_own(path, is_own)


def _refuse_foreign(folder: Path, purpose: str) -> None:
    with suppress(OSError):  # a file in its place
        if not folder.is_symlink() and (not folder.exists() or _is_own_work(folder, purpose)):
            return
    raise DataError(f"{folder} exists and was not written by this command. Move it away, or name another output.")


def _is_own_work(folder: Path, purpose: str) -> bool:
    found = list(folder.iterdir())
    if found and all(path.name == LOCK or is_unfinished(path.name) for path in found):
        return True  # the process was killed before it wrote the owner file
    with suppress(DataError):
        return not any(map(Path.is_symlink, found)) and read_json(folder / OWNER, FolderOwner).purpose == purpose
    return False
