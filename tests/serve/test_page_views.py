"""The page in a real Chromium: one server, one browser and a tiny store for all tests of this file."""

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from toy_page import LABELLED, TABLE, TEXT, VIEWS, act, arrow, n_examples, opened, read, saved
from toy_server import Served

from erda import read_examples

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'erda[dev]'")
pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("chromium")]
expect = sync_api.expect
expect.set_options(timeout=60_000)


def test_read_draws_arrows_that_can_be_filtered_relabelled_rejected_and_explained(page: Any, site: Served) -> None:
    read(page)
    assert page.locator(".entity").all_text_contents() == ["SpaceX", "Elon", "Ada", "London", "Rome", "Italy"]
    page.locator(".entity", has_text="SpaceX").hover()
    expect(arrow(page, "Ada")).to_have_class(re.compile("dim"))
    assert "dim" not in arrow(page, "SpaceX").get_attribute("class")
    arrow(page, "Ada → born in → London").click()
    why = page.get_by_role("region", name="Why this answer")
    expect(why).to_contain_text("Marie was born in Warsaw")  # the closest example
    expect(why.locator(".word", has_text="born")).to_have_attribute("title", re.compile("without it"))
    page.keyboard.press("1")  # relabel
    expect(page.get_by_role("status")).to_contain_text("1 new example")
    assert n_examples(site, "founded by") == 4
    page.keyboard.press("u")
    expect(page.locator(".version")).to_have_text("version 2")
    arrow(page, "Rome → capital of → Italy").click()
    page.keyboard.press("Delete")
    expect(page.get_by_role("status")).to_contain_text("counterexample")
    assert len(site.get("/v1/examples?relation=capital of")["counterexamples"]) == 1
    expect(page.locator(".entity", has_text="Rome")).to_be_focused()  # the keyboard stays at its place
    page.get_by_role("combobox", name="Relation").select_option("born in")
    expect(page.locator("g.arrow")).to_have_count(1)
    page.get_by_role("combobox", name="Relation").select_option("")
    page.get_by_role("slider").fill("0")  # below the thresholds of the extractor as well
    expect(page.locator("g.arrow")).to_have_count(3)


def test_entities_are_corrected_by_mouse_and_keyboard(page: Any) -> None:
    read(page, "SpaceX was founded by Elon in a red shed .")
    page.locator(".entity", has_text="SpaceX").focus()
    page.keyboard.press("Delete")
    expect(page.locator(".entity")).to_have_text(["Elon"])
    page.get_by_label("Add an entity by its name").fill("spacex")
    page.keyboard.press("Enter")
    expect(page.locator(".entity")).to_have_text(["SpaceX", "Elon"])
    expect(arrow(page, "SpaceX → founded by → Elon")).to_be_visible()
    page.locator(".entity", has_text="Elon").focus()
    page.keyboard.press("Shift+ArrowRight")
    expect(page.locator(".entity")).to_have_text(["SpaceX", "Elon in"])
    page.locator(".sentence span", has_text="red shed").dblclick(position={"x": 24, "y": 8})  # selects a word
    expect(page.locator(".entity")).to_have_count(3)


def test_review_asks_each_pair_once_and_shows_quality(page: Any, site: Served) -> None:
    opened(page, "Review")
    page.get_by_label("Unlabelled text").fill(TEXT)
    page.keyboard.press("Control+Enter")
    shown, before = list[str](), site.get("/v1/relations")["version"]
    while page.locator(".empty").count() == 0:
        shown.append(f"{page.locator('.big').text_content()} {page.locator('.question').text_content()}")
        page.keyboard.press("yns"[min(len(shown), 3) - 1])  # yes, no, then skip
        expect(page.locator("main")).to_have_attribute("aria-busy", "false")
    assert len(shown) == len(set(shown)) >= 3
    expect(page.locator(".empty")).to_contain_text("Every likely pair of the text was shown")
    quality = page.get_by_role("region", name="Quality so far")
    expect(quality).to_contain_text("1 of 2 suggestions right (50 %)")
    expect(quality.locator(".curve polyline")).to_have_count(1)
    expect(page.locator(".version")).not_to_have_text(f"version {before}")
    (current,) = [one for one in site.get("/v1/history")["versions"] if one["is_current"]]
    assert current["parent"] == before, "both judgements are one version"
    for _ in shown:
        page.keyboard.press("u")
        expect(page.locator("main")).to_have_attribute("aria-busy", "false")
    page.keyboard.press("u")
    expect(page.get_by_role("status").first).to_contain_text("Nothing to undo")
    assert site.get("/v1/review")["n_judged"] == 0
    page.reload()  # the review goes on where it was
    page.get_by_role("slider").fill("0.05")
    page.get_by_role("button", name="Accept").click()
    expect(page.get_by_role("status").first).to_contain_text("Accepted")
    assert sum(one["n_examples"] for one in site.get("/v1/relations")["relations"]) >= 10


def test_a_review_shows_its_first_pair_while_the_rest_is_searched(page: Any, site: Served) -> None:
    waiting = list[Any]()
    site.post("/v1/review/texts", {"texts": []})  # ends the review of another test
    page.route(
        "**/v1/review/texts",
        lambda route: waiting.append(route) if route.request.post_data_json["job"] else route.continue_(),
    )
    opened(page, "Review")
    page.get_by_label("Unlabelled text").fill(" ".join(f"Bern{n} is the capital of Land{n} ." for n in range(40)))
    page.keyboard.press("Control+Enter")
    expect(page.locator(".big")).to_be_visible()
    left = page.locator(".bar-top .quiet")
    n_first = int(left.inner_text().split()[0])
    page.keyboard.press("y")
    expect(left).not_to_contain_text(f"{n_first} ")
    asked = page.locator(".question").inner_text()
    waiting.pop().continue_()
    expect(page.locator("progress")).to_have_count(0)
    assert int(left.inner_text().split()[0]) > n_first
    expect(page.locator(".question")).to_have_text(asked, use_inner_text=True)  # the same pair until it is decided
    page.keyboard.press("n")
    expect(page.get_by_role("region", name="Quality so far")).to_contain_text("1 of 2 suggestions right")
    expect(page.get_by_role("region", name="Quality so far")).to_contain_text("% of the facts found")
    page.get_by_role("button", name="Another text").click()
    page.get_by_label("Unlabelled text").fill("no name here")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".empty")).to_contain_text("No entity was found")
    page.get_by_role("button", name="Open the text in Read").click()
    expect(page.locator(".annotated")).to_have_text("no name here")


def test_relations_are_renamed_described_merged_taken_back_and_forgotten(page: Any, site: Served) -> None:
    opened(page, "Relations")
    view = page.get_by_role("region", name="founded by")
    expect(view.locator(".lesson")).to_have_count(3)
    view.get_by_role("button", name="Take back: Apple, Steve").click()
    expect(view.locator(".lesson")).to_have_count(2)
    act(page, "Describe", "[[X]] was set up.")
    expect(page.get_by_role("alert")).to_contain_text("no tail is marked")
    expect(page.get_by_label("Description")).to_have_value("[[X]] was set up.")  # nothing typed is lost
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    act(page, "Describe", "<b>who began it</b>\n[[X]] was set up by {{Y}}.")
    expect(view).to_contain_text("<b>who began it</b>")  # text, never markup
    assert view.locator(".lines").inner_text() == "<b>who began it</b>\n[[X]] was set up by {{Y}}."
    act(page, "Rename", "founder <i>")
    expect(page.get_by_role("region", name="founder <i>")).to_be_visible()
    act(page, "Merge", "born in")
    expect(page.get_by_role("region", name="born in").locator(".lesson")).to_have_count(4)
    act(page, "Forget")
    expect(page.get_by_role("status")).to_contain_text("Forgotten")
    assert [one["id"] for one in site.get("/v1/relations")["relations"]] == ["capital of"]


def test_a_relation_is_declared_measured_on_files_and_tuned(page: Any, site: Served, tmp_path: Path) -> None:
    opened(page, "Relations")
    page.get_by_role("navigation", name="Relations").get_by_text("capital of").click()
    page.get_by_role("button", name="Declare").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Types of the head").fill("CITY, TOWN")
    dialog.get_by_role("button", name="Declare").click()
    expect(page.get_by_role("region", name="capital of")).to_contain_text("CITY, TOWN → any (declared)")
    (known,) = [one for one in site.get("/v1/relations")["relations"] if one["id"] == "capital of"]
    assert known["head_types"] == ["CITY", "TOWN"]
    quality = page.get_by_role("region", name="Quality", exact=True)
    for name, content in (("q.jsonl", LABELLED), ("q.csv", TABLE)):
        quality.locator("input[type=file]").set_input_files(
            files=[{"name": name, "mimeType": "text/plain", "buffer": content.encode()}]
        )
        expect(quality.get_by_role("row", name=name)).to_be_visible()
    expect(quality.get_by_role("row", name="q.jsonl")).to_contain_text("2")
    expect(quality.get_by_role("row", name="q.csv").get_by_role("cell").nth(1)).to_have_text("30")
    expect(quality.get_by_role("table").last).to_contain_text("no relation")  # a confusion: Oslo, other
    page.get_by_role("button", name="Tune thresholds").click()
    dialog.get_by_label("Labelled file").select_option("q.csv")
    dialog.get_by_label("Share of answers").fill("60")
    dialog.get_by_role("button", name="Tune").click()
    expect(quality).to_contain_text("Tuned on 30 questions of q.csv for 60 % precision")
    expect(page.get_by_role("region", name="capital of")).to_contain_text("answers need")
    saved(page, "Download all examples", tmp_path)
    assert len(read_examples(tmp_path / "examples.jsonl").examples) == 7  # `erda teach` reads it


def test_map_shows_sentences(page: Any) -> None:
    opened(page, "Map")
    expect(page.locator(".point")).to_have_count(7)
    expect(page.locator(".point.new")).to_have_count(4)  # of the second teaching
    page.get_by_role("button", name="founded by: Tesla, Martin").focus()
    expect(page.locator("p.shown")).to_contain_text("Tesla was founded by Martin")
    page.get_by_label("before the last teaching").check()
    expect(page.locator(".point")).to_have_count(3)


def test_the_graph_has_a_node_per_name_and_no_two_boxes_meet(page: Any, tmp_path: Path) -> None:
    founders = [
        f"{firm}{n} was founded by {who}{n % 3} ." for n in range(9) for firm, who in (("Firm", "Ann"), ("Shop", "Bo"))
    ]
    read(
        page,
        " ".join([*founders, *(f"{who}{n} was born in Town{n} ." for n in range(3) for who in ("Ann", "Bo", "Cy"))]),
    )
    page.get_by_role("button", name="Graph").click()
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        expect(page.locator(".graph .name")).to_have_count(27)
        assert page.locator(".graph .node text", has_text=re.compile("^Ann0$")).count() == 1
        boxes = [one.bounding_box() for one in page.locator(".graph rect").all()]
        apart = [
            max(
                abs(a["x"] + a["width"] / 2 - b["x"] - b["width"] / 2) - (a["width"] + b["width"]) / 2,
                abs(a["y"] - b["y"] + (a["height"] - b["height"]) / 2) - (a["height"] + b["height"]) / 2,
            )
            for a, b in combinations(boxes, 2)
        ]
        assert min(apart) > 5
        assert all(one["x"] >= 0 and one["x"] + one["width"] <= width for one in boxes)
    table = saved(page, "Download", tmp_path)
    assert table.startswith('"head","relation","tail","confidence","sentence"')
    assert '"Firm5","founded by","Ann2",' in table
    page.get_by_role("button", name="Text", exact=True).click()
    page.locator(".entity", has_text="Firm5").focus()  # a corrected text is sent with its entities
    page.keyboard.press("Delete")
    for format in ("graphml", "ttl", "cypher", "jsonl"):
        page.get_by_label("Format").select_option(format)
        graph = saved(page, "Download", tmp_path)
        assert "Firm4" in graph
        assert "Firm5" not in graph


def test_history_undoes_and_downloads(page: Any, site: Served) -> None:
    opened(page, "History")
    page.get_by_role("button", name="Undo the last change").click()
    expect(page.locator("tr.current")).to_contain_text("taught founded by")
    assert [one["id"] for one in site.get("/v1/relations")["relations"]] == ["founded by"]
    expect(page.locator("tr.current")).to_contain_text("Tesla was founded by Martin. founded by")
    page.get_by_role("button", name="Return to version 2", exact=True).click()
    expect(page.locator(".version")).to_have_text("version 2")
    expect(page.get_by_role("link", name="Download the current version")).to_have_attribute("href", "/v1/export")


def test_a_newcomer_loads_the_example_with_one_click(page: Any, site: Served) -> None:
    site.post("/v1/undo", {"to": 0})
    page.reload()
    for view in ("Teach", "Review", "Relations", "Map"):
        opened(page, view)
        expect(page.get_by_role("main").locator(".empty").first).to_be_visible()  # says what to do first
    opened(page, "Read").get_by_role("button", name="Load the example").click()
    expect(page.locator("g.arrow").first).to_be_visible()
    assert len(site.get("/v1/relations")["relations"]) == 3


def test_names_and_sentences_are_never_markup(page: Any, site: Served) -> None:
    evil = "<img src=x onerror=alert(1)>"
    site.post("/v1/teach", {"relation": evil, "examples": [f"[[{evil}]] met {{{{Bob}}}} ."]})
    page.reload()
    read(page, f"SpaceX was founded by Elon {evil} .")
    for view in VIEWS:
        opened(page, view.capitalize())
        expect(page.get_by_role("main").locator(".panel").first).to_be_visible()
        assert page.locator("main img").count() == 0
    opened(page, "Relations")
    page.get_by_role("navigation", name="Relations").get_by_text(evil).click()
    expect(page.locator(".lesson").first).to_contain_text("onerror = alert (1) > met Bob.")


def test_failures_are_said_and_nothing_is_lost(page: Any, site: Served) -> None:
    said, draft = page.locator(".message"), page.locator("#draft")
    draft.focus()
    page.keyboard.press("Control+Enter")
    expect(said).to_contain_text("Paste a text first")
    draft.fill("Ada " * 25_001)
    page.keyboard.press("Control+Enter")
    expect(said).to_contain_text("The text has 100,004 characters; Read shows at most 100,000")
    draft.fill(TEXT)
    page.context.set_offline(True)
    page.keyboard.press("Control+Enter")
    expect(said).to_contain_text("The server does not answer")
    expect(draft).to_have_value(TEXT)
    page.context.set_offline(False)
    page.keyboard.press("Control+Enter")
    expect(page.locator("g.arrow").first).to_be_visible()
    page.route("**/v1/relations", lambda route: route.abort())
    page.reload()
    expect(page.get_by_role("main")).to_contain_text("No connection")
    page.unroute("**/v1/relations")
    page.get_by_role("button", name="Try again").click()
    expect(draft).to_be_visible()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_axe_finds_nothing_serious_and_nothing_overflows(
    site: Served, browser: Any, page: Any, width: int, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)

    def check(where: str) -> None:
        expect(page.locator("main")).to_have_attribute("aria-busy", "false")
        found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width, where

    site.post(
        "/v1/review/texts",
        {"texts": [f"Lima is the capital of Peru{width} . Quito is the capital of Ecuador{width} ."]},
    )
    read(page)
    page.get_by_role("button", name="Graph").click()
    check("graph")
    page.get_by_role("button", name="Text", exact=True).click()
    arrow(page, "Ada").click()
    expect(page.locator(".words")).to_be_visible()
    for view in VIEWS:
        opened(page, view.capitalize())
        expect(page.get_by_role("main").locator(".panel").first).to_be_visible()
        if view == "review":
            expect(page.locator(".big")).to_be_visible()
        if view == "relations":
            page.locator("input[type=file]").set_input_files(
                files=[{"name": "held-out.jsonl", "mimeType": "text/plain", "buffer": LABELLED.encode()}]
            )
            expect(page.get_by_role("row", name="held-out.jsonl")).to_be_visible()
        check(view)
    opened(page, "Relations").get_by_role("button", name="Declare").click()
    check("dialog")
