"""Find damaged files of a corpus and make them again from its sources; what is damaged is never read."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from erda.corpus.manifest import Manifest, Part, Segment, SourceRecord, fault_of, sha256_of, write_manifest
from erda.corpus.merge import write_lookup, write_part
from erda.corpus.segments import Job, stage_all
from erda.corpus.sources import Limits
from erda.errors import DataError


def mend(job: Job, manifest: Manifest, sources: Sequence[Path]) -> tuple[Manifest, tuple[str, ...]]:
    """Check every file by its sha256 and make damaged ones again; gives the manifest and the files that were mended.

    A damaged part is sorted anew out of the segment's sources, which are looked for among `sources` and where they
    were at the time; the result must hold exactly the rows that were lost.
    """
    mended: list[str] = []
    for number in range(len(manifest.segments)):
        segment = manifest.segments[number]
        faults = {file.path: fault for file in segment.files() if (fault := fault_of(job.folder, file))}
        if not faults:
            continue
        job.show("damaged: " + "; ".join(faults.values()))
        damaged = [part for part in segment.parts if part.file.path in faults]
        if damaged:
            earlier = [job.folder / part.file.path for before in manifest.segments[:number] for part in before.parts]
            again = _mend_parts(job, segment, damaged, earlier, sources)
            segment = replace(segment, parts=tuple(again.get(part.start, part) for part in segment.parts))
        if any(file.path in faults for file in segment.lookup):
            paths = [job.folder / part.file.path for part in segment.parts]
            with job.engine() as connection:
                segment = replace(segment, lookup=write_lookup(connection, job.folder, paths[0].parent, paths))
        segments = (*manifest.segments[:number], segment, *manifest.segments[number + 1 :])
        manifest = replace(manifest, segments=segments)
        write_manifest(job.folder, manifest)
        mended += faults
    if mended:
        shutil.rmtree(job.work, ignore_errors=True)
    return manifest, tuple(mended)


def _mend_parts(
    job: Job, segment: Segment, damaged: Sequence[Part], earlier: list[Path], sources: Sequence[Path]
) -> dict[int, Part]:
    settings = replace(job.settings, limits=Limits(**segment.plan["limits"]))
    settings = replace(settings, reading=replace(settings.reading, format=segment.plan["format"]))
    job = replace(job, settings=settings)
    job.work.mkdir(exist_ok=True)
    paths = [_find(record, sources, damaged) for record in segment.sources]
    staged = stage_all(job, paths, [record.sha256 for record in segment.sources])
    again: dict[int, Part] = {}
    with job.engine() as connection:
        for part in damaged:
            path = job.folder / part.file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            bound = (part.low, part.high)
            made = write_part(
                connection, job.folder, path, staged=staged, earlier=earlier, bound=bound, start=part.start
            )
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
