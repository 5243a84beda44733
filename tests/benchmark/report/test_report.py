"""Records on disk -> experiments, tables and files."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from toy_runs import toy_record, with_noise

from erda.benchmark.experiments import group_records
from erda.benchmark.measures import ALL_SEEN, CANDIDATES
from erda.benchmark.records import Records, write_record
from erda.benchmark.report import report_files as module
from erda.benchmark.report.report_files import Section, experiment_sections, write_report
from erda.benchmark.report.result_tables import accuracy_table, cost_table, final_table, runs_table
from erda.benchmark.statistics import Summary
from erda.errors import RecordError, WriteError


def test_tables_show_the_values_of_the_records(tmp_path: Path) -> None:
    records = [toy_record(tmp_path, seed=seed) for seed in (1, 2, 3)]
    (experiment,) = group_records(records)
    table = accuracy_table(experiment, ALL_SEEN)
    assert ALL_SEEN in table.title
    label, n, *after = table.rows[0]
    assert (label, n) == ("toy", 3)
    for k, cell in enumerate(after):
        expected = Summary.of(100 * record.accuracy[ALL_SEEN][k] for record in records)
        assert isinstance(cell, Summary)
        assert (cell.mean, cell.deviation, cell.n) == pytest.approx((expected.mean, expected.deviation, 3))
    assert table.rows[-1] == ("chance", None, "50.00", "25.00", "16.67")
    final = final_table(experiment)
    assert [row[:3] for row in final.rows] == [("toy", ALL_SEEN, 3), ("toy", CANDIDATES, 3)]
    low, high = final.rows[0][4].split(" to ")
    assert 0 <= float(low) <= final.rows[0][3].mean <= float(high) <= 100
    assert final.rows[0][6].mean == pytest.approx(sum(100 * record.forgetting[ALL_SEEN] for record in records) / 3)
    assert cost_table(experiment).rows[0][2].mean == pytest.approx(
        sum(sum(record.seconds["learn"]) for record in records) / 3
    )
    assert [row[1] for row in runs_table(experiment).rows] == [1, 2, 3]


def test_labels_name_the_settings_that_differ_between_variants(tmp_path: Path) -> None:
    records = [toy_record(tmp_path / str(noise), settings=with_noise(noise)) for noise in (0.1, 0.5)]
    (experiment,) = group_records(records)
    assert [line.label for line in experiment.lines] == ["toy (noise=0.1)", "toy (noise=0.5)"]


def test_datasets_shots_and_encoders_separate_experiments(tmp_path: Path) -> None:
    records = [
        toy_record(tmp_path / "a"),
        toy_record(tmp_path / "b", shots=3),
        toy_record(tmp_path / "c", encoder="larger"),
        toy_record(tmp_path / "d", evaluate_on="validation"),
    ]
    experiments = group_records(records)
    assert len(experiments) == 4
    assert len({experiment.slug for experiment in experiments}) == 4
    assert "measured on validation data" in experiments[3].title


def test_different_seeds_are_noted(tmp_path: Path) -> None:
    records = [toy_record(tmp_path, seed=1), toy_record(tmp_path, seed=2), toy_record(tmp_path, method="other", seed=1)]
    (experiment,) = group_records(records)
    assert "Not the same seeds in every line" in experiment.notes[0]


def test_a_repeated_run_counts_once(tmp_path: Path) -> None:
    records = [toy_record(tmp_path / "a"), toy_record(tmp_path / "b")]
    (experiment,) = group_records(records)
    assert len(experiment.records) == 1
    assert "found twice" in experiment.notes[0]


def test_a_report_writes_all_tables_figures_and_the_page(tmp_path: Path) -> None:
    for method in ("toy", "other"):
        for seed in (1, 2):
            toy_record(tmp_path, method=method, seed=seed)
    found = write_report(tmp_path)
    names = {path.name for path in found.files}
    assert all(map(module._WRITTEN.fullmatch, names)), "the next report recognises the files"
    tables = ("accuracy-all-seen", "accuracy-candidates", "final", "cost", "runs")
    tables += ("comparison-all-seen", "comparison-candidates")
    assert names == {f"{table}.{end}" for table in tables for end in ("md", "csv")} | {
        "curve.png",
        "curve.svg",
        "report.md",
        "index.html",
    }
    assert found.page == tmp_path / "report/index.html"
    assert not found.faults
    assert not found.notes
    assert all(path.parent == tmp_path / "report" for path in found.files)
    with (tmp_path / "report/final.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 4
    assert "![Accuracy after each task](curve.png)" in (tmp_path / "report/report.md").read_text()


@pytest.mark.usefixtures("unpainted")
def test_the_same_records_give_the_same_files(tmp_path: Path) -> None:
    toy_record(tmp_path)
    first = {path: path.read_bytes() for path in write_report(tmp_path).files}
    assert {path: path.read_bytes() for path in write_report(tmp_path).files} == first


def test_several_experiments_have_one_folder_each(tmp_path: Path) -> None:
    toy_record(tmp_path / "a")
    toy_record(tmp_path / "b", shots=3)
    found = write_report(tmp_path, figures=False)
    assert {path.parent for path in found.files if path != found.page} == {
        tmp_path / "report" / section.name for section in found.sections
    }
    assert found.page == tmp_path / "report/index.html"
    text = found.page.read_text()
    glance = text[text.index("Every section") : text.index('id="reading"')]
    assert [section.title in glance for section in found.sections] == [True, True]
    assert [section.title for section in found.sections] == ["toy, 2 shots, toy", "toy, 3 shots, toy"]


def test_datasets_with_the_same_file_name_do_not_share_a_folder(tmp_path: Path) -> None:
    for folder in ("a", "b", "c"):
        toy_record(tmp_path / folder, dataset=f"{folder}/train.jsonl", seed=ord(folder))
    found = write_report(tmp_path, figures=False)
    names = [section.name for section in found.sections]
    assert names == [names[0], f"{names[0]}-2", f"{names[0]}-3"]
    assert len({section.title for section in found.sections}) == 3
    assert len(found.files) == len(set(found.files))
    shown = [csv.DictReader((tmp_path / "report" / name / "runs.csv").read_text().splitlines()) for name in names]
    assert [row["seed"] for rows in shown for row in rows] == [str(ord(one)) for one in "abc"]


@pytest.mark.usefixtures("unpainted")
def test_files_of_an_earlier_report_are_removed_and_no_others(tmp_path: Path) -> None:
    toy_record(tmp_path / "a")
    folder = tmp_path / "report"
    before = set(write_report(tmp_path).files)
    own = [folder / "notes.md", folder / "photo.png", folder / "mine" / "curve.png", folder / "final.txt"]
    for path in own:
        path.parent.mkdir(exist_ok=True)
        path.write_text("a person's own")
    (folder / "accuracy-all-seen.md").unlink()
    (folder / "accuracy-all-seen.md").symlink_to(own[0])
    toy_record(tmp_path / "b", shots=3)
    several = write_report(tmp_path, figures=False)
    left = {path for path in folder.rglob("*") if path.is_file()}
    assert left == {*several.files, *own, folder / "accuracy-all-seen.md"}
    assert len(before - left) > 10
    for path in (tmp_path / "b").rglob("record.json"):
        path.unlink()
    (folder / "accuracy-all-seen.md").unlink()
    single = write_report(tmp_path, figures=False)
    assert {path for path in folder.rglob("*") if path.is_file()} == {*single.files, *own}
    assert not any((folder / section.name).exists() for section in several.sections)


@pytest.mark.usefixtures("unpainted")
def test_an_unsupported_view_is_noted_and_the_others_are_written(tmp_path: Path) -> None:
    write_record(tmp_path / "toy/1", toy_record(tmp_path, seed=1))

    def layout(found: Records) -> tuple[Section, ...]:
        (section,) = experiment_sections(found)
        return (replace(section, views=("curve", "sweep"), setting="noise"),)

    found = write_report(tmp_path, layout=layout)
    (note,) = found.notes
    assert "nothing is swept" in note
    assert not found.faults
    assert (tmp_path / "report/curve.svg").exists()
    assert not (tmp_path / "report/sweep.svg").exists()
    assert "nothing is swept" in (tmp_path / "report/report.md").read_text()


def test_missing_records_and_an_unwritable_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(RecordError):
        write_report(tmp_path)
    assert not (tmp_path / "report").exists()
    toy_record(tmp_path)
    (tmp_path / "report").write_text("a file where the folder should be")
    with pytest.raises(WriteError):
        write_report(tmp_path, figures=False)


def test_a_record_in_a_folder_whose_name_is_not_utf8_is_a_fault_on_the_page(tmp_path: Path) -> None:
    toy_record(tmp_path)
    (tmp_path / "a\udcff").mkdir()
    (tmp_path / "a\udcff/record.json").write_text("{}")
    assert r"a\udcff/record.json" in write_report(tmp_path, figures=False).page.read_text()


def test_another_reference_is_tested_against_and_an_unknown_one_is_rejected(tmp_path: Path) -> None:
    for noise in (0.1, 0.5):
        for seed in (1, 2):
            toy_record(tmp_path / str(noise), seed=seed, settings=with_noise(noise))
    for label in ("toy (noise=0.5)", "toy (noise=0.1)"):
        report = write_report(tmp_path, figures=False, reference=label)
        assert [section.reference for section in report.sections] == [label]
        titles = [table.title for table in report.tables if table.name.startswith("comparison")]
        assert titles
        assert all(title.startswith(f"{label} minus each") for title in titles)
    assert write_report(tmp_path, figures=False, reference="toy").sections[0].reference == "toy (noise=0.1)"
    with pytest.raises(RecordError, match="--reference"):
        write_report(tmp_path, figures=False, reference="mine")
