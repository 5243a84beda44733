"""What a report on a folder contains: the paper's tables where the folder is one of `erda paper`, then the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, count

from erda.benchmark.paper.sections import paper_sections
from erda.benchmark.records import Records
from erda.benchmark.report.experiments import group_records
from erda.benchmark.report.sections import Section, experiment_section


def sections_of(found: Records) -> tuple[Section, ...]:
    """The sections of all records, each record in one at least."""
    planned, used = paper_sections(found)
    others = [(record, path.parent) for record, path in zip(found.records, found.paths, strict=True)]
    others = [(record, place) for record, place in others if place not in used]
    rest = group_records([record for record, _ in others], [place for _, place in others])
    return tuple(_told_apart([*planned, *map(experiment_section, rest)]))


def _told_apart(sections: Iterable[Section]) -> Iterator[Section]:
    """Sections under names of their own: of those with the same name (files called alike) the later are numbered."""
    taken: set[str] = set()
    for section in sections:
        names = chain([section.name], (f"{section.name}-{number}" for number in count(2)))
        name = next(name for name in names if name not in taken)
        taken.add(name)
        number = name.removeprefix(section.name).removeprefix("-")
        yield replace(section, name=name, title=f"{section.title} ({number})") if number else section
