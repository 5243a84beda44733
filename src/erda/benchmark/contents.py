"""What a report on a folder contains: the paper's tables where the folder is one of `erda paper`, then the rest."""

from __future__ import annotations

from erda.benchmark.experiments import group_records
from erda.benchmark.paper.sections import paper_sections
from erda.benchmark.records import Records
from erda.benchmark.sections import Section, experiment_section


def sections_of(found: Records) -> tuple[Section, ...]:
    """The sections of all records, each record in one at least."""
    planned, used = paper_sections(found)
    others = [(record, path.parent) for record, path in zip(found.records, found.paths, strict=True)]
    others = [(record, place) for record, place in others if place not in used]
    rest = group_records([record for record, _ in others], [place for _, place in others])
    return (*planned, *map(experiment_section, rest))
