"""One segment of a corpus: read its sources, write its parts and its lookup, repair them; each step can be repeated."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from erda.corpus.exclude import Excluded
from erda.corpus.manifest import Manifest, Part, Plan, Segment, SourceRecord, digest_of, fault_of, write_manifest
from erda.corpus.merge import KeyRange, key_ranges, write_part, write_segment_lookup
from erda.corpus.sources import Limits, SourceSettings, open_source
from erda.corpus.sql import connect
from erda.corpus.staging import Staged, forget_others, resolve_redirects, stage
from erda.errors import DataError
from erda.files import sealed, sha256_of, write_json

PLAN_FILE = "plan.json"
REPAIR_FOLDER = "repair"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """How to build: what may enter, how sources are read, and what the machine may be used for."""

    limits: Limits = field(default_factory=Limits)
    reading: SourceSettings = field(default_factory=SourceSettings)
    memory: str = "2GB"


@dataclass(frozen=True, slots=True)
class UnfinishedBuild:
    """`plan.json`: what is being built into which segment, its parts as soon as they are known, and those finished."""

    plan: Plan
    segment: str
    key_ranges: tuple[KeyRange, ...] | None = None
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """One build under way: the corpus folder, the folder of unfinished work, and what must not enter."""

    folder: Path
    work: Path
    settings: BuildSettings
    excluded: Excluded
    show: Callable[[str], None]

    def connection(self) -> Any:
        """DuckDB for the time of a step (`with`); what does not fit in memory spills into the work folder."""
        return connect(memory=self.settings.memory, spill=self.work / "spill")

    def note(self, build: UnfinishedBuild) -> None:
        """Mark the work folder as that of a build."""
        write_json(self.work / PLAN_FILE, sealed(build))


def build_segment(
    job: Job, manifest: Manifest, plan: Plan, sources: Sequence[Path], before: UnfinishedBuild | None
) -> Segment:
    """Build the segment that comes after those of `manifest`, going on where an earlier run (`before`) stopped."""
    build = _begin(job, UnfinishedBuild(plan, f"{len(manifest.segments):03d}"), before)
    staged = stage_all(job, sources, plan.sources)
    _refuse_empty(staged)
    with job.connection() as connection:
        if build.key_ranges is None:
            build = replace(build, key_ranges=key_ranges(connection, staged))
            job.note(build)
        parts = _write_parts(job, connection, manifest, build, staged)
        job.show("writing the lookup of entity pairs")
        lookup = write_segment_lookup(connection, job.folder, [job.folder / part.file.path for part in parts])
    n_rows = sum(part.n_rows for part in parts)
    return Segment(
        name=build.segment,
        start=manifest.n_rows,
        n_rows=n_rows,
        digest=digest_of(part.content for part in parts),
        plan=plan,
        sources=tuple(
            SourceRecord(
                path=str(path.resolve()),
                sha256=digest,
                n_rows=found.n_rows,
                **asdict(found.tally),
            )
            for path, digest, found in zip(sources, plan.sources, staged, strict=True)
        ),
        duplicates=sum(found.n_rows for found in staged) - n_rows,
        parts=tuple(parts),
        lookup=lookup,
    )


def stage_all(job: Job, sources: Sequence[Path], digests: Sequence[str]) -> list[Staged]:
    """Read all sources into chunks in the work folder, redirects resolved."""
    from tqdm import tqdm

    forget_others(job.work, digests)
    staged: list[Staged] = []
    for path, digest in zip(sources, digests, strict=True):
        if any(other.folder.name == digest for other in staged):
            raise DataError(f"{path}: given twice (or two files with the same bytes).")
        source = open_source(path, job.settings.reading)
        with tqdm(total=path.stat().st_size, desc=path.name, unit="B", unit_scale=True, disable=None) as bar:

            def tick(bar: Any = bar, source: Any = source) -> None:
                bar.update(max(0, source.meter.position() - bar.n))

            found = stage(source, job.work / digest, limits=job.settings.limits, excluded=job.excluded, tick=tick)
        job.show(f"{path.name}: {found.tally.read:,} read, {found.n_rows:,} rows")
        staged.append(found)
    resolve_redirects(staged, memory=job.settings.memory)
    return staged


def _begin(job: Job, build: UnfinishedBuild, before: UnfinishedBuild | None) -> UnfinishedBuild:
    """Open or reopen the work folder; an unfinished build with other settings is never overwritten unasked."""
    if before:
        names = [field.name for field in fields(Plan) if field.name != "sources"]
        differing = [name for name in names if getattr(before.plan, name) != getattr(build.plan, name)]
        differing += ["segment"] if before.segment != build.segment else []
        if differing:
            raise DataError(
                f"{job.folder} holds an unfinished build with other settings ({', '.join(differing)}); "
                "finish it with the same settings, or give it up with --no-resume."
            )
        if before.plan == build.plan:
            return before
    job.note(build)  # what was read of files that are still the same is kept
    return build


def _refuse_empty(staged: Sequence[Staged]) -> None:
    if any(found.n_rows for found in staged):
        return
    counts = [f"{n:,} {reason}" for found in staged for reason, n in found.tally.dropped.items()]
    places = [place for found in staged for shown in found.tally.places.values() for place in shown]
    raise EmptyCorpusError(
        "nothing to build a corpus of: no sentence with two entities may enter. "
        f"Dropped: {'; '.join(counts) or 'nothing, the sources are empty'}." + "".join(f"\n{place}" for place in places)
    )


class EmptyCorpusError(DataError):
    """No row of the sources may enter."""


def _write_parts(
    job: Job, connection: Any, manifest: Manifest, build: UnfinishedBuild, staged: Sequence[Staged]
) -> list[Part]:
    """The parts of the segment; those that an earlier run finished are checked and kept."""
    earlier, finished = manifest.part_paths(job.folder), build.parts
    parts: list[Part] = []
    for number, keys in enumerate(build.key_ranges or ()):
        if number < len(finished) and fault_of(job.folder, finished[number].file) is None:
            parts.append(finished[number])
            continue
        job.show(f"sorting part {number + 1} of {len(build.key_ranges or ())}")
        start = parts[-1].start + parts[-1].n_rows if parts else manifest.n_rows
        path = job.folder / "segments" / build.segment / f"part-{number:05d}.parquet"
        parts.append(write_part(connection, job.folder, path, staged=staged, earlier=earlier, keys=keys, start=start))
        finished = ()
        job.note(replace(build, parts=tuple(parts)))
    return parts


def repair(job: Job, manifest: Manifest, sources: Sequence[Path]) -> tuple[Manifest, tuple[str, ...]]:
    """Check every file by its sha256 and make damaged ones again; gives the manifest and the files that were repaired.

    A damaged part is sorted anew out of the segment's sources, which are looked for among `sources` and where they
    were at the time; the result must hold exactly the rows that were lost. What is damaged is never read.
    """
    repaired: list[str] = []
    for number in range(len(manifest.segments)):
        segment = manifest.segments[number]
        faults = {file.path: fault for file in segment.files() if (fault := fault_of(job.folder, file))}
        if not faults:
            continue
        job.show("damaged: " + "; ".join(faults.values()))
        if not (job.work / PLAN_FILE).exists():
            job.note(UnfinishedBuild(segment.plan, segment.name))
        damaged = [part for part in segment.parts if part.file.path in faults]
        if damaged:
            earlier = Manifest(manifest.segments[:number]).part_paths(job.folder)
            again = _remake_parts(job, segment, damaged, earlier, sources)
            segment = replace(segment, parts=tuple(again.get(part.start, part) for part in segment.parts))
        if any(file.path in faults for file in segment.lookup):
            paths = Manifest((segment,)).part_paths(job.folder)
            with job.connection() as connection:
                segment = replace(segment, lookup=write_segment_lookup(connection, job.folder, paths))
        segments = (*manifest.segments[:number], segment, *manifest.segments[number + 1 :])
        manifest = replace(manifest, segments=segments)
        write_manifest(job.folder, manifest)
        repaired += faults
    shutil.rmtree(job.work / REPAIR_FOLDER, ignore_errors=True)
    return manifest, tuple(repaired)


def _remake_parts(
    job: Job, segment: Segment, damaged: Sequence[Part], earlier: Sequence[Path], sources: Sequence[Path]
) -> dict[int, Part]:
    reading = replace(job.settings.reading, format=segment.plan.format)
    job = replace(
        job,
        work=job.work / REPAIR_FOLDER,
        settings=replace(job.settings, limits=segment.plan.limits, reading=reading),
    )
    paths = [_find(record, sources, damaged) for record in segment.sources]
    staged = stage_all(job, paths, [record.sha256 for record in segment.sources])
    again: dict[int, Part] = {}
    with job.connection() as connection:
        for part in damaged:
            path, keys = job.folder / part.file.path, KeyRange(part.low, part.high)
            made = write_part(connection, job.folder, path, staged=staged, earlier=earlier, keys=keys, start=part.start)
            if (made.content, made.n_rows) != (part.content, part.n_rows):
                raise DataError(
                    f"{path}: could not be made again as it was ({made.n_rows:,} rows; expected {part.n_rows:,}); its "
                    "settings (--names, --spacy) or this version of erda differ. Build the corpus in a new folder."
                )
            again[part.start] = made
    return again


def _find(record: SourceRecord, sources: Sequence[Path], damaged: Sequence[Part]) -> Path:
    """The file that a segment was made from."""
    for path in (*sources, Path(record.path)):
        if path.is_file() and sha256_of(path) == record.sha256:
            return path
    names = ", ".join(part.file.path for part in damaged)
    raise DataError(
        f"{names}: damaged, and the file that it was made from is gone or has changed: {record.path} "
        f"(sha256 {record.sha256[:12]}...). Put it back and run the same command, or build the corpus again."
    )
