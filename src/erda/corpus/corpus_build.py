"""Build a corpus, or resume a build.

    sources -> chunks in `build/` -> sorted Parquet parts and lookup -> corpus.json

Every file is written atomically, `corpus.json` last. Until then the folder `build/` holds the unfinished build, and the
same call resumes it. A build writes only to an empty folder or to a folder that `build/plan.json` proves to be its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from erda.corpus.corpus_store import check_folder, connect, disk_faults
from erda.corpus.exclude import Excluded
from erda.corpus.manifest import CHECKSUM, MANIFEST, Manifest, Plan, SourceRecord, read_manifest, write_manifest
from erda.corpus.sources import BuildSettings, Tally, open_source
from erda.corpus.staging import StagedSource, sort_rows, write_lookup, write_parts
from erda.errors import DataError, one_line
from erda.files import (
    LOCK,
    is_unfinished,
    locked,
    read_sealed,
    remove_own,
    remove_unfinished,
    sealed,
    sha256_of,
    write_json,
)

PLAN_FILE = "plan.json"
_WORK = "build"
_SORTING = "sorting.duckdb"
_WORK_FILE = re.compile(rf"plan\.json|rows-{CHECKSUM}-\d{{6}}\.{CHECKSUM}\.parquet|sorting\.duckdb[.\w]*|spill(/.*)?")
_CORPUS_FILE = re.compile(r"part-\d{5}\.parquet|keys\.npy|rows\.npy")
_RETRY = "Run the same command again; if it fails again, delete the folder and start over."
_BUSY = "another build is running on this folder; wait for it, or use another folder"


class EmptyCorpusError(DataError):
    """The sources contain no valid row."""


def build_corpus(
    sources: Sequence[Path],
    folder: Path,
    *,
    exclude: Sequence[Path] = (),
    settings: BuildSettings | None = None,
    show: Callable[[str], None] = lambda message: None,
) -> Manifest:
    """Build the corpus of `sources` in `folder`; `show` receives progress messages.

    The same call resumes an interrupted build, and verifies the files of a finished one. Sentences of the files
    `exclude` are rejected, and so are near-duplicates (`exclude_overlap`).
    """
    check_folder(folder)
    settings = settings or BuildSettings()
    _unfinished_plan(folder)  # before writing anything, even the lock
    with locked(folder, busy=_BUSY), disk_faults(folder, remedy=_RETRY):
        before = _unfinished_plan(folder)
        excluded = Excluded.read(exclude, overlap=settings.exclude_overlap)
        build = _Build(sources, folder, settings, excluded, show)
        plan = build.plan()
        if (folder / MANIFEST).exists():
            manifest = _verified(folder, plan)
            show(f"{folder}: complete, nothing to do (all files verified)")
            return manifest
        if before and replace(before, sources=plan.sources) != plan:
            raise DataError(
                f"{folder}: an unfinished build with other settings; finish it with the same settings, or delete the "
                "folder."
            )
        if before != plan:
            write_json(folder / _WORK / PLAN_FILE, sealed(plan))
        try:
            manifest = build.run(plan)
        except EmptyCorpusError:
            _remove_work(folder)
            raise
        manifest = replace(manifest, excluded_from=tuple(dict.fromkeys(file.name for file in exclude)))
        write_manifest(folder, manifest)
        _remove_work(folder)
    return manifest


@dataclass(frozen=True, slots=True)
class _Build:
    """One build in progress."""

    sources: Sequence[Path]
    folder: Path
    settings: BuildSettings
    excluded: Excluded
    show: Callable[[str], None]

    def plan(self) -> Plan:
        """Describe everything that determines the rows."""
        if not self.sources:
            raise DataError("no sources given; name at least one file.")
        for path in self.sources:
            if not path.is_file():
                raise DataError(f"{path}: {'a folder; name a file in it' if path.is_dir() else 'no such file'}.")
        files = tuple(sha256_of(path) for path in self.sources)
        for path, file in zip(self.sources, files, strict=True):
            if files.count(file) > 1:
                raise DataError(f"{path}: given twice, or identical to another source.")
        settings = self.settings.model_dump(exclude={"exclude_overlap", "workers", "memory"})
        if self.settings.names:
            settings["names"] = sha256_of(Path(self.settings.names))
        return Plan(files, self.excluded.digest, settings)

    def run(self, plan: Plan) -> Manifest:
        """Read the sources, sort the rows and write the files of the corpus."""
        work = self.folder / _WORK
        staged = [
            self._read(path, StagedSource(file, work)) for path, file in zip(self.sources, plan.sources, strict=True)
        ]
        self.show("sorting")
        for path in work.glob(f"{_SORTING}*"):
            remove_own(path)
        with connect(work / _SORTING, memory=self.settings.memory, spill=work / "spill") as connection:
            n_rows = sort_rows(connection, staged)
            if not n_rows:
                raise _empty([source.tally for source in staged])
            self.show("writing the rows and the lookup of entity pairs")
            parts, lookup = write_parts(connection, self.folder), write_lookup(connection, self.folder)
        records = tuple(
            SourceRecord(str(path.resolve()), source.file, n_rows.get(source.file, 0), **asdict(source.tally))
            for path, source in zip(self.sources, staged, strict=True)
        )
        duplicates = sum(n_rows.values()) - sum(part.n_rows for part in parts)
        return Manifest(plan, records, duplicates, parts, lookup)

    def _read(self, path: Path, staged: StagedSource) -> StagedSource:
        from tqdm import tqdm

        source = open_source(path, self.settings)
        size = path.stat().st_size
        with tqdm(total=size, desc=one_line(path.name), unit="B", unit_scale=True, disable=None) as bar:
            staged.read(source, self.excluded, lambda: bar.update(max(0, source.meter.position() - bar.n)))
        self.show(f"{path.name}: {staged.tally.read:,} read, {staged.n_rows:,} rows")
        return staged


def _empty(tallies: Sequence[Tally]) -> EmptyCorpusError:
    counts = [f"{n:,} {reason}" for tally in tallies for reason, n in tally.dropped.items()]
    places = [place for tally in tallies for shown in tally.places.values() for place in shown]
    dropped = "; ".join(counts) or "nothing, the sources are empty"
    first = f"the sources contain no valid sentence with two entities. Dropped: {dropped}."
    return EmptyCorpusError("\n".join((first, *places)))


def _verified(folder: Path, plan: Plan) -> Manifest:
    """Verify a finished corpus, reject another one, and remove leftovers of its build."""
    manifest = read_manifest(folder)
    manifest.verify(folder)
    if manifest.plan != plan:
        raise DataError(
            f"{folder}: a corpus of {manifest.n_rows:,} rows from other sources or settings is already here; use "
            "another folder for --out."
        )
    _remove_work(folder)
    remove_unfinished(folder)
    return manifest


# -- ownership: files of the user are never touched --------------------------------------------------------------------


def _unfinished_plan(folder: Path) -> Plan | None:
    """Read the plan of an unfinished build; reject a folder with other files where a build would write."""
    if (folder / MANIFEST).exists() or not folder.exists():
        return None
    try:
        names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror}).") from None
    has_plan = f"{_WORK}/{PLAN_FILE}" in names
    foreign = [name for name in names if not _is_ours(name, has_plan=has_plan)]
    if foreign or not folder.is_dir():
        shown = f" ({foreign[0]}, ...)" if foreign else ""
        raise DataError(f"{folder} is not empty, but not a corpus{shown}; use a new folder for --out.")
    return (
        read_sealed(folder / _WORK / PLAN_FILE, Plan, remedy=f"Delete {folder}, or use another folder for --out.")
        if has_plan
        else None
    )


def _is_ours(name: str, *, has_plan: bool) -> bool:
    """Whether a file of an unfinished build has this name; before its plan, a build writes only temporary files."""
    work = name.removeprefix(f"{_WORK}/")
    written = _WORK_FILE.fullmatch(work) if work != name else _CORPUS_FILE.fullmatch(name)
    return name in (LOCK, _WORK) or is_unfinished(Path(name).name) or (has_plan and written is not None)


def _remove_work(folder: Path) -> None:
    """Remove the files of a finished or empty build; the plan, which proves ownership, goes last."""
    work = folder / _WORK
    if (work / PLAN_FILE).is_file():
        read_sealed(work / PLAN_FILE, Plan)
        remove_own(work, lambda name: name != PLAN_FILE and _WORK_FILE.fullmatch(name) is not None)
        remove_own(work, lambda name: name == PLAN_FILE)
