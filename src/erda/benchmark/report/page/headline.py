"""What stands on top of the page: who reached what after the last task, with the paper's number and p."""

from __future__ import annotations

from dataclasses import dataclass

from erda.benchmark.metrics import CANDIDATES
from erda.benchmark.report.comparison import compare_all, p_value
from erda.benchmark.report.layout import Section
from erda.benchmark.report.published import Published, published_of
from erda.benchmark.statistics import Summary
from erda.errors import RecordError


@dataclass(frozen=True, slots=True)
class Tile:
    """One large number: the reference by one protocol."""

    protocol: str
    accuracy: Summary
    chance: float  # per cent
    paper: Published | None


@dataclass(frozen=True, slots=True)
class Score:
    """Accuracy of a line by one protocol, and p of the reference against it ("" where there is none)."""

    accuracy: Summary | None
    p: str


@dataclass(frozen=True, slots=True)
class HeadlineRow:
    """One method of the headline."""

    label: str
    is_reference: bool
    scores: tuple[Score, ...]  # by protocol
    paper: Published | None  # by candidates


@dataclass(frozen=True, slots=True)
class Headline:
    """The first section in a few numbers."""

    title: str
    reference: str
    n_tasks: int
    n_streams: int
    protocols: tuple[str, ...]
    tiles: tuple[Tile, ...]
    rows: tuple[HeadlineRow, ...]

    @property
    def has_paper(self) -> bool:
        """Whether the paper has a number for any row."""
        return any(row.paper for row in self.rows)

    @property
    def has_p(self) -> bool:
        """Whether any pair was tested."""
        return any(score.p for row in self.rows for score in row.scores)


def make_headline(section: Section) -> Headline:
    """The headline of a section; lines that must not be compared have no p."""
    experiment, reference = section.experiment, section.reference_line
    tiles = []
    for protocol in experiment.protocols:
        accuracy, chance = reference.accuracy(protocol, -1), reference.after("chance", protocol, -1)
        if accuracy and chance:
            paper = published_of(reference) if protocol == CANDIDATES else None
            tiles.append(Tile(protocol, accuracy, chance.mean, paper))
    ps = [_ps(section, protocol) for protocol in experiment.protocols]
    rows = tuple(
        HeadlineRow(
            label=line.label,
            is_reference=line is reference and len(experiment.lines) > 1,
            scores=tuple(
                Score(line.accuracy(protocol, -1), p.get(line.label, ""))
                for protocol, p in zip(experiment.protocols, ps, strict=True)
            ),
            paper=published_of(line),
        )
        for line in experiment.lines
    )
    return Headline(
        title=section.title,
        reference=reference.label,
        n_tasks=experiment.n_tasks,
        n_streams=len(reference.records),
        protocols=experiment.protocols,
        tiles=tuple(tiles),
        rows=rows,
    )


def _ps(section: Section, protocol: str) -> dict[str, str]:
    """Corrected p of the reference against each line, by its label, where there is one."""
    if section.reference is None or len(section.experiment.lines) < 2:
        return {}
    try:
        family = compare_all(section.experiment, section.reference, protocol)
    except RecordError:  # said in the notes of the section
        return {}
    return {one.second: p_value(one.p_t_corrected) or "" for one in family.comparisons}
