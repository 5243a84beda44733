"""Make a corpus, go on with one, add to one, repair one: the same call.

    sources -> staging.py (chunks, journal) -> redirects resolved -> merge.py (parts, lookup) -> corpus.json

Everything is written under a temporary name and moved; `corpus.json` comes last. Until then the folder `build/` holds
what is finished, and the next call with the same settings goes on from it. Nothing is written over or removed but what
`corpus.json` or `build/plan.json` prove to be ours.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from erda.corpus.exclude import OVERLAP, Excluded
from erda.corpus.manifest import (
    MANIFEST,
    Manifest,
    Plan,
    StoredFile,
    fault_of,
    read_manifest,
    write_manifest,
)
from erda.corpus.segments import (
    PLAN_FILE,
    BuildSettings,
    EmptyCorpusError,
    Job,
    UnfinishedBuild,
    build_segment,
    repair,
)
from erda.corpus.sql import connect, disk_faults, file_list
from erda.errors import DataError
from erda.files import is_unfinished, locked, read_sealed, remove_unfinished, sha256_of

__all__ = ["BuildReport", "BuildSettings", "build_corpus"]

_WORK = "build"
_WORK_FILE = re.compile(
    r"plan\.json|parts\.json|((repair/)?(spill(/.*)?|[0-9a-f]{64}(/(journal\.jsonl|[a-z]+-\d+\.parquet))?))|repair"
)
_SEGMENT_FILE = re.compile(r"part-\d{5}\.parquet|keys\.npy|rows\.npy|excluded\.npz")


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build did: the manifest as it is now, the number of new rows, the files that were repaired."""

    manifest: Manifest
    n_added: int
    repaired: tuple[str, ...] = ()


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
    """Build the corpus of `sources` in `folder`; `show` hears what is being done.

    Called again after an interruption it goes on; on a finished corpus it checks every file and repairs damaged ones;
    with `add` it appends what is new. `exclude` names files whose sentences must never enter, nor a sentence that
    holds the share `exclude_overlap` of the word 8-grams of one (0: near-duplicates may).
    """
    lock = folder / ".lock"
    if not lock.exists() or lock.stat().st_size:  # ours is empty, and another build may be at work
        _refuse_foreign(folder)  # before so much as a lock is put there
    busy = "another build is at work on this folder; wait for it or name another"
    with locked(folder, busy=busy), disk_faults(folder):
        manifest = _refuse_foreign(folder)
        before = _unfinished(folder / _WORK)
        if before and (not resume or before.segment in {segment.name for segment in manifest.segments}):
            _remove_work(folder, manifest, before)  # given up, or stopped before it was tidied up
            before = None
        excluded = _excluded_before(folder, manifest)
        every = excluded | Excluded.read(exclude, overlap=exclude_overlap)
        job = Job(folder, folder / _WORK, settings or BuildSettings(), every, show)
        plan = _plan(job, sources)
        manifest, repaired = repair(replace(job, excluded=excluded), manifest, sources)
        if any(segment.plan == plan for segment in manifest.segments):
            _tidy(folder, manifest)
            return BuildReport(manifest, 0, repaired)
        if manifest.segments and not add:
            _tidy(folder, manifest)
            raise DataError(
                f"{folder} already holds a corpus of {manifest.n_rows:,} rows made from other sources or settings; "
                "add to it with --add, or name another folder with --out."
            )
        if every.digest != excluded.digest:
            _refuse_contained(job, manifest)
        try:
            segment = build_segment(job, manifest, plan, sources, before)
        except EmptyCorpusError:
            _remove_work(folder, manifest, _unfinished(job.work))
            raise
        manifest = _finish(job, replace(manifest, segments=(*manifest.segments, segment)), exclude)
        return BuildReport(manifest, segment.n_rows, repaired)


def _refuse_foreign(folder: Path) -> Manifest:
    """The manifest of the corpus that is there, if any; a folder that holds what could be the user's is refused."""
    has_corpus = (folder / MANIFEST).exists()
    manifest = read_manifest(folder) if has_corpus else Manifest()
    if not folder.is_dir():
        return manifest
    before = _unfinished(folder / _WORK)
    if before is None:
        known = {segment.name for segment in manifest.segments}
        targets = [path for path in (folder / "segments").glob("*") if path.name not in known]
    else:
        segment = folder / "segments" / before.segment
        targets = [path for path in segment.glob("*") if not _is_ours(path.name, _SEGMENT_FILE)]
    if not has_corpus:
        own = (".lock", _WORK, "segments")
        targets += [path for path in sorted(folder.iterdir()) if not (path.name in own or is_unfinished(path.name))]
    foreign = [path for path in targets if path.exists() and not (path.is_dir() and not any(path.iterdir()))]
    if foreign:
        held = "holds files that are not of its corpus" if has_corpus else "is not empty and holds no corpus"
        name = foreign[0].relative_to(folder)
        raise DataError(f"{folder} {held} ({name}, ...), so nothing was touched; name a new folder with --out.")
    return manifest


def _unfinished(work: Path) -> UnfinishedBuild | None:
    """The build that was begun in `build/`; whatever else is there is the user's and stops us."""
    try:
        names = [path.relative_to(work).as_posix() for path in work.rglob("*")] if work.exists() else []
    except OSError as error:
        raise DataError(f"{work}: cannot be read ({error.strerror}).") from None
    remedy = "Remove it, or name another folder with --out."
    foreign = [name for name in names if not _is_ours(name, _WORK_FILE)]
    foreign += [name for name in names if PLAN_FILE not in names and not is_unfinished(Path(name).name)]
    if foreign or work.is_file():
        shown = f" ({foreign[0]})" if foreign else ""
        raise DataError(f"{work}: not an unfinished build of erda's{shown}, so it is left as it is. {remedy}")
    return read_sealed(work / PLAN_FILE, UnfinishedBuild, remedy=remedy) if PLAN_FILE in names else None


def _is_ours(name: str, pattern: re.Pattern[str]) -> bool:
    return pattern.fullmatch(name) is not None or is_unfinished(Path(name).name)


def _remove_work(folder: Path, manifest: Manifest, build: UnfinishedBuild | None) -> None:
    """Remove an unfinished build; its plan, which proves that it is ours, goes last."""
    work = folder / _WORK
    if build and build.segment not in {segment.name for segment in manifest.segments}:
        shutil.rmtree(folder / "segments" / build.segment, ignore_errors=True)
        with suppress(OSError):
            (folder / "segments").rmdir()  # where it was the first
    for path in work.iterdir() if work.is_dir() else ():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != PLAN_FILE:
            path.unlink()
    shutil.rmtree(work, ignore_errors=True)


def _tidy(folder: Path, manifest: Manifest) -> None:
    """Remove what interrupted builds left behind; an unfinished build of another segment stays."""
    before = _unfinished(folder / _WORK)
    if before is None or before.segment in {segment.name for segment in manifest.segments}:
        _remove_work(folder, manifest, before)
    for path in (folder, *(folder / "segments").glob("*")):
        remove_unfinished(path)


def _excluded_before(folder: Path, manifest: Manifest) -> Excluded:
    """What was excluded when the corpus was built, and stays so."""
    if not manifest.excluded:
        return Excluded()
    if fault := fault_of(folder, manifest.excluded):
        raise DataError(f"{fault}. It lists the excluded sentences; build the corpus again in a new folder.")
    return Excluded.load(folder / manifest.excluded.path)


def _plan(job: Job, sources: Sequence[Path]) -> Plan:
    """All that the rows of a segment depend on, the earlier segments apart."""
    if not sources:
        raise DataError("no source given; name at least one file.")
    for path in sources:
        if not path.is_file():
            raise DataError(f"{path}: {'is a folder; name a file in it' if path.is_dir() else 'no such file'}.")
    reading = job.settings.reading
    return Plan(
        sources=tuple(sha256_of(path) for path in sources),
        limits=job.settings.limits,
        excluded=job.excluded.digest,
        format=reading.format,
        names=sha256_of(reading.names) if reading.names and reading.names.is_file() else None,
        spacy=reading.spacy,
    )


def _refuse_contained(job: Job, manifest: Manifest) -> None:
    """A corpus only grows: newly excluded sentences that it already holds are a fault, not something to overlook."""
    parts = manifest.part_paths(job.folder)
    if not parts:
        return
    job.show("looking for excluded sentences in what is there")
    held = 0
    connection = connect(memory=job.settings.memory)
    found = connection.execute(f"SELECT text, sentence, count(*) FROM read_parquet({file_list(parts)}) GROUP BY ALL")
    while rows := found.fetchmany(10_000):
        refused = job.excluded.refused({text: key for text, key, _ in rows})
        held += sum(n for text, _, n in rows if text in refused)
    if held:
        raise DataError(
            f"{job.folder} already holds {held:,} rows of the sentences given with --exclude or near-duplicates of "
            "them, and rows are never taken out of a corpus; build it again in a new folder with all --exclude files."
        )


def _finish(job: Job, manifest: Manifest, exclude: Sequence[Path]) -> Manifest:
    """Write the excluded keys and the manifest, then tidy up."""
    if job.excluded:
        path = job.folder / "segments" / manifest.segments[-1].name / "excluded.npz"  # the one before stays until then
        job.excluded.save(path)
        names = dict.fromkeys((*manifest.excluded_from, *(file.name for file in exclude)))
        manifest = replace(manifest, excluded=StoredFile.of(job.folder, path), excluded_from=tuple(names))
    write_manifest(job.folder, manifest)
    _tidy(job.folder, manifest)
    return manifest
