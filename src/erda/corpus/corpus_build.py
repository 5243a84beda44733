"""Build a corpus, resume a build, or add to a corpus.

    sources -> staging.py (a DuckDB file) -> segments.py (sorted Parquet parts, lookup) -> corpus.json

Every file is written atomically, `corpus.json` last. Until then the folder `build/` contains the unfinished build, and
the same call resumes it. A build overwrites or removes only files that `corpus.json` or `build/plan.json` prove to be
its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from erda.corpus.exclude import OVERLAP, Excluded
from erda.corpus.manifest import (
    DAMAGED,
    MANIFEST,
    Manifest,
    Plan,
    Segment,
    SourceRecord,
    StoredFile,
    digest_of,
    fault_of,
    read_manifest,
    write_manifest,
)
from erda.corpus.segments import sort_rows, write_parts, write_segment_lookup
from erda.corpus.sources import Limits, SourceSettings, open_source
from erda.corpus.sql import check_folder, connect, disk_faults, file_list
from erda.corpus.staging import Staging
from erda.errors import DataError, one_line
from erda.files import is_unfinished, locked, read_sealed, remove_own, remove_unfinished, sealed, sha256_of, write_json

PLAN_FILE = "plan.json"
_WORK = "build"
_WORK_FILE = re.compile(r"plan\.json|staging\.duckdb[.\w]*|spill(/.*)?")
_SEGMENT_FILE = re.compile(r"part-\d{5}\.parquet|keys\.npy|rows\.npy|excluded\.npz")
_RETRY = "Run the same command again; if it fails again, start over with --no-resume."
_BUSY = "another build is running on this folder; wait for it, or use another folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """Limits of rows, settings of sources, and the memory for sorting."""

    limits: Limits = field(default_factory=Limits)
    reading: SourceSettings = field(default_factory=SourceSettings)
    memory: str = "2GB"


@dataclass(frozen=True, slots=True)
class BuildReport:
    """The manifest after a build, and the number of added rows."""

    manifest: Manifest
    n_added: int


@dataclass(frozen=True, slots=True)
class UnfinishedBuild:
    """The content of `plan.json`: the plan and the segment of an unfinished build."""

    plan: Plan
    segment: str


class EmptyCorpusError(DataError):
    """The sources contain no valid row."""


def build_corpus(
    sources: Sequence[Path],
    folder: Path,
    *,
    exclude: Sequence[Path] = (),
    exclude_overlap: float = OVERLAP,
    settings: BuildSettings | None = None,
    add: bool = False,
    resume: bool = True,
    show: Callable[[str], None] = lambda message: None,
) -> BuildReport:
    """Build the corpus of `sources` in `folder`; `show` receives progress messages.

    The same call resumes an interrupted build, and verifies the files of a finished one. `add` appends to a finished
    corpus. Sentences of the files `exclude` are rejected, and so are near-duplicates: sentences that contain at least
    the share `exclude_overlap` of the word 8-grams of an excluded sentence (0: accept near-duplicates).
    """
    check_folder(folder)
    lock = folder / ".lock"
    if not lock.exists() or lock.stat().st_size:  # an empty lock is erda's, and another build may hold it
        _check_ownership(folder)  # before writing anything, even the lock
    with locked(folder, busy=_BUSY), disk_faults(folder, remedy=_RETRY):
        manifest = _check_ownership(folder)
        before = _unfinished(folder / _WORK)
        if before and (not resume or before.segment in manifest.segment_names):
            _remove_work(folder, manifest, before)  # discarded, or finished but not tidied up
            before = None
        faults = [fault for file in manifest.files() if (fault := fault_of(folder, file))]
        if faults:
            raise DataError("\n".join((*(f"{fault}." for fault in faults), DAMAGED)))
        known = Excluded.load(folder / manifest.excluded.path) if manifest.excluded else Excluded()
        excluded = known | Excluded.read(exclude, overlap=exclude_overlap)
        build = _Build(folder, sources, settings or BuildSettings(), excluded, show)
        plan = build.plan()
        if any(segment.plan == plan for segment in manifest.segments):
            _tidy(folder, manifest)
            return BuildReport(manifest, 0)
        if manifest.segments and not add:
            _tidy(folder, manifest)
            raise DataError(
                f"{folder}: a corpus of {manifest.n_rows:,} rows from other sources or settings is already here; add "
                "to it with --add, or use another folder for --out."
            )
        if excluded.digest != known.digest:
            build.reject_contained(manifest)
        try:
            segment = build.segment(manifest, plan, before)
        except EmptyCorpusError:
            _remove_work(folder, manifest, _unfinished(build.work))
            raise
        manifest = build.finish(replace(manifest, segments=(*manifest.segments, segment)), exclude)
        return BuildReport(manifest, segment.n_rows)


@dataclass(frozen=True, slots=True)
class _Build:
    """One build in progress."""

    folder: Path
    sources: Sequence[Path]
    settings: BuildSettings
    excluded: Excluded
    show: Callable[[str], None]

    @property
    def work(self) -> Path:
        return self.folder / _WORK

    def plan(self) -> Plan:
        """Describe everything that determines the rows of the new segment, apart from earlier segments."""
        if not self.sources:
            raise DataError("no sources given; name at least one file.")
        for path in self.sources:
            if not path.is_file():
                raise DataError(f"{path}: {'a folder; name a file in it' if path.is_dir() else 'no such file'}.")
        reading = self.settings.reading
        return Plan(
            sources=tuple(sha256_of(path) for path in self.sources),
            limits=self.settings.limits,
            excluded=self.excluded.digest,
            format=reading.format,
            names=sha256_of(reading.names) if reading.names and reading.names.is_file() else None,
            spacy=reading.spacy,
        )

    def reject_contained(self, manifest: Manifest) -> None:
        """Reject new excluded sentences that the corpus already contains: rows are never removed."""
        parts = manifest.part_paths(self.folder)
        if not parts:
            return
        self.show("searching the corpus for excluded sentences")
        query = f"SELECT text, sentence, count(*) FROM read_parquet({file_list(parts)}) GROUP BY ALL"
        found = connect(memory=self.settings.memory).execute(query)
        n_contained = 0
        while rows := found.fetchmany(10_000):
            rejected = self.excluded.rejected({text: key for text, key, _ in rows})
            n_contained += sum(n for text, _, n in rows if text in rejected)
        if n_contained:
            raise DataError(
                f"{self.folder}: the corpus already contains {n_contained:,} rows of --exclude sentences or their "
                "near-duplicates, and rows are never removed; build it again in a new folder with all --exclude files."
            )

    def segment(self, manifest: Manifest, plan: Plan, before: UnfinishedBuild | None) -> Segment:
        """Build the segment after those of `manifest`, resuming the unfinished build `before`."""
        name, start = f"{len(manifest.segments):03d}", manifest.n_rows
        self._begin(UnfinishedBuild(plan, name), before)
        folder, files = self.folder / "segments" / name, plan.sources
        with Staging(self.work, memory=self.settings.memory) as staging:
            staging.keep_only(files)
            self._read_sources(staging, files)
            self.show("sorting")
            n_rows = sort_rows(staging, files, manifest.part_paths(self.folder))
            records = [
                SourceRecord(str(path.resolve()), file, staging.n_rows(file), **asdict(staging.progress(file).tally))
                for path, file in zip(self.sources, files, strict=True)
            ]
            self.show("writing the rows and the lookup of entity pairs")
            parts = write_parts(staging.connection, self.folder, folder, start=start, n_rows=n_rows)
            lookup = write_segment_lookup(staging.connection, self.folder, folder, start=start)
        return Segment(
            name=name,
            start=start,
            n_rows=n_rows,
            digest=digest_of(part.content for part in parts),
            plan=plan,
            sources=tuple(records),
            duplicates=sum(record.n_rows for record in records) - n_rows,
            parts=parts,
            lookup=lookup,
        )

    def _begin(self, build: UnfinishedBuild, before: UnfinishedBuild | None) -> None:
        """Write `plan.json`; reject an unfinished build with other settings."""
        if before:
            names = [field.name for field in fields(Plan) if field.name != "sources"]
            differing = [name for name in names if getattr(before.plan, name) != getattr(build.plan, name)]
            differing += ["segment"] if before.segment != build.segment else []
            if differing:
                raise DataError(
                    f"{self.folder}: an unfinished build with other settings ({', '.join(differing)}); "
                    "finish it with the same settings, or discard it with --no-resume."
                )
        if before != build:
            write_json(self.work / PLAN_FILE, sealed(build))

    def _read_sources(self, staging: Staging, files: Sequence[str]) -> None:
        from tqdm import tqdm

        for number, (path, file) in enumerate(zip(self.sources, files, strict=True)):
            if file in files[:number]:
                raise DataError(f"{path}: given twice, or identical to another source.")
            source = open_source(path, self.settings.reading)
            with tqdm(
                total=path.stat().st_size, desc=one_line(path.name), unit="B", unit_scale=True, disable=None
            ) as bar:

                def tick(bar: Any = bar, source: Any = source) -> None:
                    bar.update(max(0, source.meter.position() - bar.n))

                limits = self.settings.limits
                state = staging.read(source, file, limits=limits, excluded=self.excluded, tick=tick)
            self.show(f"{path.name}: {state.tally.read:,} read, {staging.n_rows(file):,} rows")
        if not any(staging.n_rows(file) for file in files):
            tallies = [staging.progress(file).tally for file in files]
            counts = [f"{n:,} {reason}" for tally in tallies for reason, n in tally.dropped.items()]
            places = [place for tally in tallies for shown in tally.places.values() for place in shown]
            dropped = "; ".join(counts) or "nothing, the sources are empty"
            raise EmptyCorpusError(
                f"the sources contain no valid sentence with two entities. Dropped: {dropped}."
                + "".join(f"\n{place}" for place in places)
            )

    def finish(self, manifest: Manifest, exclude: Sequence[Path]) -> Manifest:
        """Write the excluded sentences and the manifest, then tidy up."""
        if self.excluded:
            path = self.folder / "segments" / manifest.segments[-1].name / "excluded.npz"
            self.excluded.save(path)
            names = dict.fromkeys((*manifest.excluded_from, *(file.name for file in exclude)))
            manifest = replace(manifest, excluded=StoredFile.of(self.folder, path), excluded_from=tuple(names))
        write_manifest(self.folder, manifest)
        _tidy(self.folder, manifest)
        return manifest


# -- ownership: files of the user are never touched --------------------------------------------------------------------


def _check_ownership(folder: Path) -> Manifest:
    """Return the manifest of the corpus in `folder`; reject a folder with other files where a build would write."""
    has_corpus = (folder / MANIFEST).exists()
    manifest = read_manifest(folder) if has_corpus else Manifest()
    if not folder.is_dir():
        return manifest
    before = _unfinished(folder / _WORK)
    if before is None:
        targets = [path for path in (folder / "segments").glob("*") if path.name not in manifest.segment_names]
    else:
        segment = folder / "segments" / before.segment
        targets = [path for path in segment.glob("*") if not _is_ours(path.name, _SEGMENT_FILE)]
    if not has_corpus:
        own = (".lock", _WORK, "segments")
        targets += [path for path in sorted(folder.iterdir()) if not (path.name in own or is_unfinished(path.name))]
    foreign = [path for path in targets if path.exists() and not (path.is_dir() and not any(path.iterdir()))]
    if foreign:
        reason = "contains files that do not belong to its corpus" if has_corpus else "is not empty, but not a corpus"
        name = foreign[0].relative_to(folder)
        raise DataError(f"{folder} {reason} ({name}, ...); use a new folder for --out.")
    return manifest


def _unfinished(work: Path) -> UnfinishedBuild | None:
    """Read the plan of an unfinished build; reject a `build/` with other files."""
    try:
        names = [path.relative_to(work).as_posix() for path in work.rglob("*")] if work.exists() else []
    except OSError as error:
        raise DataError(f"{work}: cannot be read ({error.strerror}).") from None
    remedy = "Remove it, or use another folder for --out."
    foreign = [name for name in names if not _is_ours(name, _WORK_FILE)]
    foreign += [name for name in names if PLAN_FILE not in names and not is_unfinished(Path(name).name)]
    if foreign or work.is_file():
        shown = f" ({foreign[0]})" if foreign else ""
        raise DataError(f"{work}: not an unfinished build of erda{shown}. {remedy}")
    return read_sealed(work / PLAN_FILE, UnfinishedBuild, remedy=remedy) if PLAN_FILE in names else None


def _is_ours(name: str, pattern: re.Pattern[str]) -> bool:
    return pattern.fullmatch(name) is not None or is_unfinished(Path(name).name)


def _remove_work(folder: Path, manifest: Manifest, build: UnfinishedBuild | None) -> None:
    """Remove an unfinished build; its plan, which proves ownership, goes last."""
    if build and build.segment not in manifest.segment_names:
        remove_own(folder / "segments" / build.segment, lambda name: _is_ours(name, _SEGMENT_FILE))
        with suppress(OSError):
            (folder / "segments").rmdir()  # only if empty
    remove_own(folder / _WORK, lambda name: name != PLAN_FILE and _is_ours(name, _WORK_FILE))
    remove_own(folder / _WORK, lambda name: name == PLAN_FILE)


def _tidy(folder: Path, manifest: Manifest) -> None:
    """Remove leftovers of interrupted builds; an unfinished build of another segment stays."""
    before = _unfinished(folder / _WORK)
    if before is None or before.segment in manifest.segment_names:
        _remove_work(folder, manifest, before)
    for path in (folder, *(folder / "segments").glob("*")):
        remove_unfinished(path)
