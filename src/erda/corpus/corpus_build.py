"""Build a corpus, or resume a build.

    sources -> chunks in `build/<settings>/` -> sorted Parquet parts and lookup -> corpus.json

Every file is written atomically, `corpus.json` last. Until then the folder `build/` holds the unfinished build, and the
same call resumes it; a digest of the settings names the chunks' folder, so other settings start again. A build writes
only to an empty folder or to one that holds nothing but files of an unfinished build.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from erda.corpus.corpus_store import (
    CHECKSUM,
    MANIFEST,
    Manifest,
    Plan,
    SourceRecord,
    check_folder,
    connect,
    disk_faults,
    read_manifest,
    write_manifest,
)
from erda.corpus.exclude import Excluded
from erda.corpus.sources import BuildSettings, open_source
from erda.corpus.staging import StagedSource, sort_rows, write_lookup, write_parts
from erda.errors import DataError
from erda.files import LOCK, is_unfinished, locked, remove_own, remove_unfinished, sha256_of

_WORK = "build"
_SORTING = "sorting.duckdb"
_WORK_FOLDER = re.compile(rf"{_WORK}/{CHECKSUM}")
_WORK_FILE = re.compile(
    rf"{CHECKSUM}/(?:rows-{CHECKSUM}-\d{{6}}\.{CHECKSUM}\.parquet|sorting\.duckdb[.\w]*|spill(?:/.*)?)"
)
_CORPUS_FILE = re.compile(r"part-\d{5}\.parquet|keys\.npy|rows\.npy")
_BUSY = "another build is running on this folder; wait for it, or use another folder"


def build_corpus(
    sources: Sequence[Path], folder: Path, *, exclude: Sequence[Path] = (), settings: BuildSettings | None = None
) -> Manifest:
    """Build the corpus of `sources` in `folder`.

    The same call resumes an interrupted build, and verifies the files of a finished one. Sentences of the files
    `exclude` are rejected, and so are near-duplicates (`exclude_overlap`).
    """
    check_folder(folder)
    settings = settings or BuildSettings()
    _reject_foreign(folder)  # before writing anything, even the lock
    with locked(folder, busy=_BUSY), disk_faults(folder):
        excluded = Excluded.read(exclude, overlap=settings.exclude_overlap)
        plan = _plan(sources, settings, excluded)
        remove_unfinished(folder)
        if (folder / MANIFEST).exists():
            manifest = read_manifest(folder)
            manifest.verify(folder)
            if manifest.plan != plan:
                raise DataError(
                    f"{folder}: a corpus of {manifest.n_rows:,} rows from other sources or settings is already here; "
                    "use another folder for --out."
                )
        else:
            _reject_foreign(folder)
            manifest = _build(sources, folder, plan, settings=settings, excluded=excluded)
            manifest = replace(manifest, excluded_from=tuple(dict.fromkeys(file.name for file in exclude)))
            write_manifest(folder, manifest)
        _remove_work(folder)
    return manifest


def _plan(sources: Sequence[Path], settings: BuildSettings, excluded: Excluded) -> Plan:
    """Describe everything that determines the rows."""
    if not sources:
        raise DataError("no sources given; name at least one file.")
    for path in sources:
        if not path.is_file():
            raise DataError(f"{path}: {'a folder; name a file in it' if path.is_dir() else 'no such file'}.")
    files = tuple(sha256_of(path) for path in sources)
    for path, file in zip(sources, files, strict=True):
        if files.count(file) > 1:
            raise DataError(f"{path}: given twice, or identical to another source.")
    values = settings.model_dump(exclude={"exclude_overlap", "workers", "memory"})
    if settings.names:
        values["names"] = sha256_of(Path(settings.names))
    return Plan(files, excluded.digest, values)


def _build(
    sources: Sequence[Path], folder: Path, plan: Plan, *, settings: BuildSettings, excluded: Excluded
) -> Manifest:
    """Read the sources, sort the rows and write the files of the corpus."""
    made_with = json.dumps([plan.excluded, plan.settings], sort_keys=True)
    work = folder / _WORK / hashlib.sha256(made_with.encode()).hexdigest()[:16]
    staged = [StagedSource(file, work) for file in plan.sources]
    for path, one in zip(sources, staged, strict=True):
        one.read(open_source(path, settings), excluded)
    for path in (*work.glob(f"{_SORTING}*"), *folder.glob("part-*.parquet")):  # of an interrupted build
        remove_own(path)
    with connect(work / _SORTING, memory=settings.memory, spill=work / "spill") as connection:
        if n_rows := sort_rows(connection, staged):
            parts, lookup = write_parts(connection, folder), write_lookup(connection, folder)
    if not n_rows:
        _remove_work(folder)
        dropped = "; ".join(f"{n:,} {reason}" for one in staged for reason, n in one.tally.dropped.items())
        places = [place for one in staged for shown in one.tally.places.values() for place in shown]
        first = f"no valid sentence with two entities. Dropped: {dropped or 'nothing, the sources are empty'}."
        raise DataError("\n".join((first, *places)))
    records = tuple(
        SourceRecord(str(path.resolve()), one.file, n_rows.get(one.file, 0), **asdict(one.tally))
        for path, one in zip(sources, staged, strict=True)
    )
    duplicates = sum(n_rows.values()) - sum(part.n_rows for part in parts)
    return Manifest(plan, records, duplicates, parts, lookup)


# -- ownership: files of the user are never touched --------------------------------------------------------------------


def _reject_foreign(folder: Path) -> None:
    """Reject a folder with other files where a build would write."""
    if (folder / MANIFEST).exists() or not folder.exists():
        return
    try:
        names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror}).") from None
    has_work = any(map(_WORK_FOLDER.fullmatch, names))
    foreign = [name for name in names if not _is_ours(name, has_work=has_work)]
    if foreign or not folder.is_dir():
        shown = f" ({foreign[0]}, ...)" if foreign else ""
        raise DataError(f"{folder} is not empty, but not a corpus{shown}; use a new folder for --out.")


def _is_ours(name: str, *, has_work: bool) -> bool:
    """Whether a file of an unfinished build has this name."""
    if name in (LOCK, _WORK) or is_unfinished(Path(name).name) or _WORK_FOLDER.fullmatch(name):
        return True
    return _is_work(name.removeprefix(f"{_WORK}/")) or (has_work and _CORPUS_FILE.fullmatch(name) is not None)


def _is_work(name: str) -> bool:
    return _WORK_FILE.fullmatch(name) is not None


def _remove_work(folder: Path) -> None:
    """Remove the files of a finished or empty build."""
    remove_own(folder / _WORK, _is_work)
