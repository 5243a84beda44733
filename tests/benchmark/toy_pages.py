"""A report with every view, for the tests of the page."""

from pathlib import Path

import pytest
from toy_runs import toy_record

from erda.benchmark.records import Records
from erda.benchmark.report.report_files import VIEWS, Report, Section, experiment_sections, write_report

HOSTILE = "<img src=x onerror=alert(1)> $\\frac{ \"quoted\" & 'so on'"
LONG = "a_method_with_a_name_that_is_much_longer_than_anybody_would_want_to_read_on_a_telephone"


def full_report(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """Report with every view, two sections, a hostile and a long name, and an unreadable record."""
    for noise in (0.5, 0.1):
        settings = {"method": {"noise": noise}, "encoder": {}, "stream": {}}
        for seed in (1, 2, 3):
            toy_record(directory / str(noise), seed=seed, settings=settings)
    for method in (HOSTILE, LONG):
        for seed in (1, 2):
            toy_record(directory, method=method, seed=seed)
    toy_record(directory / "more", shots=3)
    broken = directory / "broken/1/record.json"
    broken.parent.mkdir(parents=True)
    broken.write_text('{"schema": 1, "<script>alert(2)</script>"')

    def all_views(found: Records) -> tuple[Section, ...]:
        return tuple(
            Section(
                name=f"part-{number}",
                title=f"{section.title} <i>{number}</i>",
                text=f"What is shown & {HOSTILE}",
                experiment=section.experiment,
                reference=section.experiment.lines[0].label if number == 0 else None,
                views=tuple(VIEWS),
                setting="noise",
            )
            for number, section in enumerate(experiment_sections(found))
        )

    return write_report(directory, layout=all_views)
