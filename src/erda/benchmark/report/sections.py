"""What a report is made of: sections, each some lines of one experiment and the ways in which they are shown."""

from __future__ import annotations

from dataclasses import dataclass

from erda.benchmark.report.experiments import Experiment

# every way of showing a section, in the order in which they stand on the page
VIEWS = (
    "accuracy",
    "final",
    "published",
    "comparison",
    "curve",
    "sweep",
    "forgetting",
    "confusion",
    "tsne",
    "cost",
    "runs",
)
DEFAULT_VIEWS = tuple(view for view in VIEWS if view not in ("sweep", "tsne"))


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report. `reference` is the label of the line that the others are tested against."""

    name: str  # anchor on the page and folder of its files
    title: str
    text: str  # what is shown, in a sentence or two
    experiment: Experiment
    reference: str | None = None
    views: tuple[str, ...] = DEFAULT_VIEWS
    setting: str = ""  # the setting along the horizontal axis of view "sweep"


def experiment_section(experiment: Experiment) -> Section:
    """An experiment as it is shown where nobody said how: everything, and the others against ERDA."""
    erda = [line.label for line in experiment.lines if line.method == "erda"]
    labels = erda or [line.label for line in experiment.lines]
    return Section(
        name=experiment.slug,
        title=experiment.title,
        text="",
        experiment=experiment,
        reference=labels[0] if len(experiment.lines) > 1 else None,
    )
