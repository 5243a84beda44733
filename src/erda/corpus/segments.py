"""One segment of a corpus: read its sources, write its parts and its lookup; each step can be repeated."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from erda.corpus.engine import connect
from erda.corpus.exclude import Excluded
from erda.corpus.manifest import Manifest, Part, Segment, SourceRecord, fault_of, write_json
from erda.corpus.merge import part_bounds, write_lookup, write_part
from erda.corpus.sources import Limits, SourceSettings, open_source
from erda.corpus.staging import Staged, forget_others, resolve_redirects, stage
from erda.errors import DataError

_PARTS = "parts.json"
_PLAN = "plan.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """How to build: what may enter, how sources are read, and what the machine may be used for."""

    limits: Limits = field(default_factory=Limits)
    reading: SourceSettings = field(default_factory=SourceSettings)
    memory: str = "2GB"
    n_threads: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One build under way: the corpus folder, the folder of unfinished work, and what must not enter."""

    folder: Path
    work: Path
    settings: BuildSettings
    excluded: Excluded
    show: Callable[[str], None]

    @contextmanager
    def engine(self) -> Iterator[Any]:
        """DuckDB for the time of a step; what does not fit in memory spills into the work folder."""
        self.work.mkdir(exist_ok=True)
        connection = connect(memory=self.settings.memory, n_threads=self.settings.n_threads, spill=self.work / "spill")
        try:
            yield connection
        finally:
            connection.close()


def plan_of(work: Path) -> dict[str, Any]:
    """The plan of an unfinished build; empty where there is none."""
    try:
        plan = json.loads((work / _PLAN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return plan if isinstance(plan, dict) else {}


def build_segment(job: Job, manifest: Manifest, plan: dict[str, Any], sources: Sequence[Path]) -> Segment:
    """Build the segment that comes after those of `manifest`, going on where an earlier run stopped."""
    plan = _begin(job, plan)
    staged = stage_all(job, sources, plan["sources"])
    _refuse_empty(job, staged)
    with job.engine() as connection:
        if "bounds" not in plan:
            plan["bounds"] = part_bounds(connection, staged)
            write_json(job.work / _PLAN, plan)
        parts = _write_parts(job, connection, manifest, plan, staged)
        job.show("writing the lookup of entity pairs")
        paths = [job.folder / part.file.path for part in parts]
        lookup = write_lookup(connection, job.folder, paths[0].parent, paths)
    n_rows = sum(part.n_rows for part in parts)
    return Segment(
        name=plan["segment"],
        start=manifest.n_rows,
        n_rows=n_rows,
        digest=hashlib.sha256("\n".join(part.content for part in parts).encode()).hexdigest(),
        plan={name: value for name, value in plan.items() if name not in ("segment", "bounds")},
        sources=tuple(
            SourceRecord(
                path=str(path.resolve()),
                sha256=digest,
                n_rows=found.n_rows,
                read=found.tally.read,
                dropped=found.tally.dropped,
                places=found.tally.places,
            )
            for path, digest, found in zip(sources, plan["sources"], staged, strict=True)
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


def _begin(job: Job, plan: dict[str, Any]) -> dict[str, Any]:
    """Open or reopen the work folder; an unfinished build with other settings is never overwritten unasked."""
    before = plan_of(job.work)
    differing = [name for name in plan if name != "sources" and before and before.get(name) != plan[name]]
    if differing:
        raise DataError(
            f"{job.folder} holds an unfinished build with other settings ({', '.join(differing)}); "
            "finish it with the same settings, or give it up with --no-resume."
        )
    job.work.mkdir(exist_ok=True)
    if before.get("sources") != plan["sources"]:  # what was read of files that are still the same is kept
        (job.work / _PARTS).unlink(missing_ok=True)
        before = {}
    plan = {**before, **plan}
    write_json(job.work / _PLAN, plan)
    return plan


def _refuse_empty(job: Job, staged: Sequence[Staged]) -> None:
    if any(found.n_rows for found in staged):
        return
    counts = [f"{n:,} {reason}" for found in staged for reason, n in found.tally.dropped.items()]
    places = [place for found in staged for shown in found.tally.places.values() for place in shown]
    shutil.rmtree(job.work)
    raise DataError(
        "nothing to build a corpus of: no sentence with two entities may enter. "
        f"Dropped: {'; '.join(counts) or 'nothing, the sources are empty'}." + "".join(f"\n{place}" for place in places)
    )


def _write_parts(
    job: Job, connection: Any, manifest: Manifest, plan: dict[str, Any], staged: Sequence[Staged]
) -> list[Part]:
    """The parts of the segment; those that an earlier run finished are checked and kept."""
    folder = job.folder / "segments" / plan["segment"]
    folder.mkdir(parents=True, exist_ok=True)
    journal = job.work / _PARTS
    finished = [Part.from_json(part) for part in json.loads(journal.read_text())] if journal.exists() else []
    parts: list[Part] = []
    earlier = [job.folder / part.file.path for segment in manifest.segments for part in segment.parts]
    for number, (low, high) in enumerate(plan["bounds"]):
        if number < len(finished) and fault_of(job.folder, finished[number].file) is None:
            parts.append(finished[number])
            continue
        job.show(f"sorting part {number + 1} of {len(plan['bounds'])}")
        start = parts[-1].start + parts[-1].n_rows if parts else manifest.n_rows
        path = folder / f"part-{number:05d}.parquet"
        part = write_part(connection, job.folder, path, staged=staged, earlier=earlier, bound=(low, high), start=start)
        parts.append(part)
        finished = parts
        write_json(journal, [asdict(part) for part in parts])
    return parts
