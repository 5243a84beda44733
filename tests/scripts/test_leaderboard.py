"""The leaderboard shows records beside published rows, marked as such, with the facts that a number needs."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from erda.benchmark.experiments import group_records
from erda.benchmark.records import Record
from erda.benchmark.report.report_files import experiment_section
from leaderboard.leaderboard import to_page_html, to_page_markdown
from leaderboard.rows import FACTS, LeaderboardRow, named_adapter, published_rows, ranked, record_rows


def as_fewrel(template: Record, method: str, encoder: str = "minilm", **settings: object) -> Record:
    return replace(
        template,
        method=method,
        encoder=encoder,
        dataset="fewrel",
        shots=5,
        order_family="erda",
        seed=100,
        encoder_spec={"name": encoder, "settings": {"adapter": "shipped", "trained_layers": 1}, "fingerprint": ""},
        settings={"method": settings, "encoder": {}, "stream": {}},
    )


def rows_of(*records: Record) -> dict[str, LeaderboardRow]:
    return {row.method: row for row in record_rows(map(experiment_section, group_records(records)))}


def test_a_row_says_what_a_method_needs(template: Record) -> None:
    rows = rows_of(
        as_fewrel(template, "posterior", name_weight=1.5),
        as_fewrel(template, "cpl"),
        as_fewrel(template, "seqrun", train_encoder=False),
        as_fewrel(template, "mine"),
    )
    ours, cpl = rows["Posterior"], rows["CPL"]
    assert (ours.training, ours.names, ours.encoder, ours.parameters) == ("frozen", "yes", "MiniLM-L6 + adapter", "22M")
    assert "billion" in ours.pretraining
    assert "vectors" in ours.keeps
    assert (cpl.training, cpl.names) == ("trained", "no")
    assert cpl.remark.startswith("partial")
    assert rows["SeqRun"].training == "frozen"
    assert rows["mine"].names == "not known"
    last = template.after("accuracy", "all-seen", -1)
    assert ours.all_seen == pytest.approx(100 * last)
    assert ours.interval[0] <= 100 * last <= ours.interval[1]
    assert (ours.n_records, ours.setting) == (1, "FewRel, 5 shots, task orders of ERDA")
    assert rows_of(as_fewrel(template, "posterior", name_weight=0.0))["Posterior"].names == "no"
    record = as_fewrel(template, "posterior")
    assert named_adapter(record) == record
    spec = {**record.encoder_spec, "fingerprint": next(iter(FACTS["adapter"]["earlier"]))}
    before = rows_of(named_adapter(replace(record, encoder_spec=spec)))["Posterior"]
    assert before.encoder == "MiniLM-L6 + earlier adapter"
    seen = rows_of(replace(as_fewrel(template, "posterior"), seen=["P17"]))["Posterior"]
    assert seen.setting == f"{ours.setting}, relations seen in the encoder's training"


def test_assumptions_and_further_texts_are_named(template: Record) -> None:
    record = as_fewrel(template, "posterior-transductive", balanced=True)
    record = replace(record, settings={**record.settings, "stream": {"patterns": True}})
    (row,) = rows_of(record).values()
    assert row.remark.endswith("assumes equally frequent relations")
    assert row.setting == "FewRel, 5 shots, task orders of ERDA, five written patterns of each relation"


def test_records_of_validation_data_and_ablations_are_left_out(template: Record) -> None:
    assert not rows_of(replace(as_fewrel(template, "cpl"), evaluate_on="validation"))
    section = experiment_section(group_records([as_fewrel(template, "posterior")])[0])
    (line,) = section.experiment.lines
    ablation = replace(section, experiment=replace(section.experiment, lines=(replace(line, label="w.o. names"),)))
    assert record_rows([ablation]) == []


def test_both_pages_show_every_row_best_first_escape_names_and_offer_every_filter(template: Record) -> None:
    hostile = replace(as_fewrel(template, "<b>mine|x"), dataset="<script>x</script>\n\n# forged")
    own = record_rows(map(experiment_section, group_records([as_fewrel(template, "erda"), hostile])))
    rows = ranked([*own, *published_rows()])
    markdown, html = to_page_markdown(rows), to_page_html(rows)
    body = [line for line in markdown.splitlines() if line.startswith("|")]
    assert all(len(re.split(r"(?<!\\)\|", line)) - 2 <= 7 for line in body)
    assert len([line for line in body if not line.startswith(("| method", "| ---"))]) == len(rows)
    assert html.count("<tr data-") == len(rows)
    assert not re.search("<b>mine|<script>x", html)
    assert not re.search(r"\n# forged|(?<!\\)<script>", markdown)
    for name in ("setting", "shots", "size", "training", "names", "origin"):
        offered = set(re.findall(r"<option>(.*?)</option>", html.split(f'name="{name}"')[1].split("</select>")[0]))
        assert set(re.findall(rf'data-{name}="(.*?)"', html)) <= offered, name
    assert "published, later work" in markdown
    fewrel = [row.all_seen for row in rows if row.setting == rows[0].setting and row.all_seen is not None]
    assert fewrel == sorted(fewrel, reverse=True)
    assert "http" not in re.sub(r"<!DOCTYPE.*?>", "", html), "the page needs no network"


@pytest.mark.browser
def test_filters_hide_rows_and_the_address_keeps_the_choice(tmp_path: Path, template: Record, browser: Any) -> None:
    own = record_rows(map(experiment_section, group_records([as_fewrel(template, "posterior")])))
    rows = ranked([*own, *published_rows()])
    page_file = tmp_path / "leaderboard.html"
    page_file.write_text(to_page_html(rows))
    page = browser.new_page()
    page.goto(page_file.as_uri())
    page.select_option("select[name=training]", "frozen")
    assert page.locator("tbody tr:not(.setting):visible").count() == 1
    page.select_option("select[name=training]", "")
    page.select_option("select[name=protocol]", "all-seen")
    n_rows = len([row for row in rows if row.all_seen is not None])
    assert page.locator("tbody tr:not(.setting):visible").count() == n_rows
    assert page.locator("thead th[data-protocol=candidates]").is_hidden()
    page.reload()
    assert page.input_value("select[name=protocol]") == "all-seen"
