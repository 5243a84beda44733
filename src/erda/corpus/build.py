"""Make a corpus, go on with one, add to one, mend one: the same call.

    sources -> staging.py (chunks, journal) -> redirects resolved -> merge.py (parts, lookup) -> corpus.json

Everything is written under a temporary name, checked and moved; `corpus.json` comes last. Until then the folder
`build/` holds what is finished, and the next call with the same settings goes on from it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from erda.corpus.engine import disk_faults, file_list, locked
from erda.corpus.exclude import OVERLAP, Excluded
from erda.corpus.manifest import MANIFEST, Manifest, fault_of, read_manifest, sha256_of, store_file, write_manifest
from erda.corpus.mend import mend
from erda.corpus.segments import BuildSettings, Job, build_segment, plan_of
from erda.errors import DataError

__all__ = ["BuildReport", "BuildSettings", "build_corpus"]

_OURS = (".lock", "build", "segments", "excluded.npz", "excluded.npz.tmp", f"{MANIFEST}.tmp")


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build did: the manifest as it is now, the number of new rows, the files that were mended."""

    manifest: Manifest
    n_added: int
    mended: tuple[str, ...] = ()


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

    Called again after an interruption it goes on; on a finished corpus it checks every file and mends damaged ones;
    with `add` it appends what is new. `exclude` names files whose sentences must never enter, nor a sentence that
    holds the share `exclude_overlap` of the word 8-grams of one (0: near-duplicates may).
    """
    settings = settings or BuildSettings()
    with (
        locked(folder, busy="another build is at work on this folder; wait for it or name another"),
        disk_faults(folder),
    ):
        work = folder / "build"
        if not resume:
            shutil.rmtree(work, ignore_errors=True)
        manifest = _existing(folder)
        if plan_of(work).get("segment") in {segment.name for segment in manifest.segments}:
            shutil.rmtree(work)  # stopped between the last step and the tidying up
        before = _excluded_before(folder, manifest)
        job = Job(folder, work, settings, before | Excluded.read(exclude, overlap=exclude_overlap), show)
        plan = _plan(job, sources)
        manifest, mended = mend(replace(job, excluded=before), manifest, sources)
        if any(segment.plan == plan for segment in manifest.segments):
            return BuildReport(manifest, 0, mended)
        if manifest.segments and not add:
            raise DataError(
                f"{folder} already holds a corpus of {manifest.n_rows:,} rows made from other sources or settings; "
                "add to it with --add, or name another folder with --out."
            )
        if job.excluded.digest != before.digest:
            _refuse_contained(job, manifest)
        segment = build_segment(job, manifest, {**plan, "segment": f"{len(manifest.segments):03d}"}, sources)
        manifest = _finish(job, replace(manifest, segments=(*manifest.segments, segment)), exclude)
        return BuildReport(manifest, segment.n_rows, mended)


def _existing(folder: Path) -> Manifest:
    if (folder / MANIFEST).exists():
        return read_manifest(folder)
    foreign = sorted(path.name for path in folder.iterdir() if path.name not in _OURS)
    if foreign:
        raise DataError(f"{folder} is not empty and holds no corpus ({foreign[0]}, ...); name a new folder with --out.")
    return Manifest(())


def _excluded_before(folder: Path, manifest: Manifest) -> Excluded:
    """What was excluded when the corpus was built, and stays so."""
    if not manifest.excluded:
        return Excluded()
    if fault := fault_of(folder, manifest.excluded):
        raise DataError(f"{fault}. It lists the excluded sentences; build the corpus again in a new folder.")
    return Excluded.load(folder / manifest.excluded.path)


def _plan(job: Job, sources: Sequence[Path]) -> dict[str, Any]:
    """All that the rows of a segment depend on, the earlier segments apart."""
    if not sources:
        raise DataError("no source given; name at least one file.")
    for path in sources:
        if not path.is_file():
            raise DataError(f"{path}: {'is a folder; name a file in it' if path.is_dir() else 'no such file'}.")
    reading = job.settings.reading
    return {
        "sources": [sha256_of(path) for path in sources],
        "limits": asdict(job.settings.limits),
        "excluded": job.excluded.digest,
        "format": reading.format,
        "names": sha256_of(reading.names) if reading.names and reading.names.is_file() else None,
        "spacy": reading.spacy,
    }


def _refuse_contained(job: Job, manifest: Manifest) -> None:
    """A corpus only grows: newly excluded sentences that it already holds are a fault, not something to overlook."""
    parts = [job.folder / part.file.path for segment in manifest.segments for part in segment.parts]
    if not parts:
        return
    job.show("looking for excluded sentences in what is there")
    held = 0
    with job.engine() as connection:
        found = connection.execute(
            f"SELECT text, sentence, count(*) FROM read_parquet({file_list(parts)}) GROUP BY ALL"
        )
        while rows := found.fetchmany(10_000):
            held += sum(n for text, key, n in rows if job.excluded.reason(text, key))
    if held:
        raise DataError(
            f"{job.folder} already holds {held:,} rows of the sentences given with --exclude or near-duplicates of "
            "them, and rows are never taken out of a corpus; build it again in a new folder with all --exclude files."
        )


def _finish(job: Job, manifest: Manifest, exclude: Sequence[Path]) -> Manifest:
    """Write the excluded keys and the manifest, then tidy up."""
    if job.excluded:
        temporary = job.folder / "excluded.npz.tmp"
        job.excluded.save(temporary)
        names = dict.fromkeys((*manifest.excluded_from, *(path.name for path in exclude)))
        stored = store_file(job.folder, temporary, job.folder / "excluded.npz")
        manifest = replace(manifest, excluded=stored, excluded_from=tuple(names))
    write_manifest(job.folder, manifest)
    shutil.rmtree(job.work)
    return manifest
