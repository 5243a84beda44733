"""What a command may write: outputs that are neither inputs nor files of the user."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from erda.errors import SettingsError, WriteError
from erda.files import cannot_write, remove_unfinished


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
