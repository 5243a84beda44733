"""Teaching on the page, in a real Chromium: statements, warnings, what changed, keyboard and touch."""

import re
import time
from typing import Any

import pytest
from toy_page import EMPLOYED, arrow, n_examples, opened, read
from toy_server import Served

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'erda[dev]'")
pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("chromium")]
expect = sync_api.expect
expect.set_options(timeout=60_000)


def test_a_relation_is_taught_by_keyboard_alone_within_a_minute(page: Any, site: Served) -> None:
    """Five sentences, each with at most six keys besides its text; two need their head and tail corrected."""
    opened(page, "Teach")
    n_keys, began = 0, time.monotonic()

    def press(*keys: str) -> None:
        nonlocal n_keys
        for key in keys:
            page.keyboard.press(key)
            n_keys += 1

    page.get_by_label("Relation").first.focus()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("works for")
    press("Tab")
    page.keyboard.insert_text("the employer of a person")
    press("Tab")
    most, taught = 0, list[tuple[str, str]]()
    for sentence, head, tail, keys in EMPLOYED:
        expect(page.get_by_label("Sentences")).to_be_focused()
        n_keys = 0
        page.keyboard.insert_text(sentence)
        press("Control+Enter")
        expect(page.get_by_role("button", name="Teach 1 sentence")).to_be_focused()
        press(*keys, "Enter")
        most, taught = max(most, n_keys), [*taught, (head, tail)]
        expect(page.locator("label[for=relation]")).to_contain_text(f"{len(taught)} example")
    assert most <= 6
    assert time.monotonic() - began < 60
    (known,) = [one for one in site.get("/v1/relations")["relations"] if one["id"] == "works for"]
    assert (known["n_examples"], known["description"]) == (5, "the employer of a person")
    rows = site.get("/v1/examples?relation=works for")["examples"]
    assert [(one["head"], one["tail"]) for one in rows] == taught
    expect(page.get_by_label("Relation").first).to_have_value("works for")  # the last relation stays chosen


def test_a_teaching_is_stated_first_warned_about_and_swapped(
    page: Any, site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words of the toy encoder have no direction: the scores are given, the warning is the server's."""
    scores = lambda examples, encoder: [-9.0 * (one.head.name == "YouTube") for one in examples]  # noqa: E731
    monkeypatch.setattr("erda.app.teach.direction_scores", scores)
    opened(page, "Teach")
    page.get_by_label("Relation").first.fill("founded by")
    page.get_by_label("Sentences").fill("Google acquired YouTube .\nIBM was begun by Flint .")
    page.keyboard.press("Control+Enter")
    statement = page.locator(".teach-row .statement")
    expect(statement).to_have_text(["Google → founded by → YouTube?", "IBM → founded by → Flint?"])
    expect(page.get_by_role("button", name="Teach 2 sentences")).to_be_focused()
    page.keyboard.press("x")
    expect(statement.first).to_have_text("YouTube → founded by → Google?")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("'YouTube -> founded by -> Google' looks like the reverse")
    page.get_by_role("button", name="Swap").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_role("region", name="Taught").locator("mark.head")).to_have_text(["Google", "IBM"])
    taught = site.get("/v1/examples?relation=founded by")["examples"]
    assert [(one["head"], one["tail"]) for one in taught[3:]] == [("Google", "YouTube"), ("IBM", "Flint")]
    opened(page, "History")
    expect(page.locator("tr.current")).to_contain_text("Google acquired YouTube. founded by")
    read(opened(page, "Read"))
    page.locator(".entity", has_text="London").click()
    page.locator(".entity", has_text="Ada").click()
    page.keyboard.press("2")
    expect(page.locator(".sheet .statement")).to_have_text("London → born in → Ada?")
    expect(page.locator(".sheet :focus")).to_have_count(1)
    page.keyboard.press("x")
    expect(page.locator(".sheet .statement")).to_have_text("Ada → born in → London?")
    expect(page.locator(".sheet :focus")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("1 new example")
    expect(page.locator(".sheet")).to_have_count(0)
    taught = site.get("/v1/examples?relation=born in")["examples"]
    assert [(one["head"], one["tail"]) for one in taught[2:]] == [("Ada", "London")]


def test_what_changed_lists_the_arrows_that_vanish_turn_or_move(page: Any) -> None:
    def other(route: Any) -> None:
        answer = route.fetch()
        rows = [{**one, "relation": None, "confidence": 0.01} for one in answer.json()["answers"]]
        for one in rows:
            if one["head"] in ("London", "Rome"):
                one |= {"relation": one["ranked"][0]["relation"], "confidence": 0.91}
                one["ranked"][0]["confidence"] = 0.91
        route.fulfill(response=answer, json={**answer.json(), "answers": rows})

    read(page)
    page.route("**/v1/extract", other)
    arrow(page, "Rome → capital of → Italy").click()
    page.keyboard.press("y")
    rows = page.get_by_role("region", name="What changed").locator("li")
    expect(rows).to_have_count(3)
    said = [one.replace("\xa0", " ") for one in rows.all_inner_texts()]
    assert any(re.search(r"SpaceX → founded by → Elon \d+ %\s+now no relation", one) for one in said)
    assert any(re.search(r"Ada → born in → London \d+ %\s+now London → .+ → Ada 91 %", one) for one in said)
    assert any(re.search(r"Rome → capital of → Italy \d+ %\s+now Rome → capital of → Italy 91 %", one) for one in said)


def test_what_is_typed_or_picked_during_a_teaching_stays(page: Any, site: Served) -> None:
    waiting = list[Any]()
    page.route("**/v1/teach", lambda route: waiting.append(route))  # noqa: PLW0108  # playwright marks the function
    opened(page, "Teach")
    page.get_by_label("Relation").first.fill("born in")
    sentences = page.get_by_label("Sentences")
    sentences.fill("the lady saw a town .")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".teach-row")).to_contain_text("No entity was found")
    expect(page.locator("#teach-now")).to_be_focused()  # else the field gets the keys
    for key in "hht":
        page.keyboard.press(key)
    expect(page.locator(".teach-row .entity")).to_have_text(["saw", "town"])
    expect(page.locator(".teach-row .entity[data-role=head]")).to_have_count(1)  # a chosen head stays in sight
    page.keyboard.press("Enter")
    sentences.press("End")
    page.keyboard.press("Enter")  # one per line
    page.keyboard.insert_text("Ada was born in London .")
    page.wait_for_timeout(50)
    waiting.pop().continue_()
    expect(sentences).to_have_value("Ada was born in London .")
    expect(sentences).to_be_focused()
    opened(opened(page, "History"), "Teach")
    expect(sentences).to_have_value("Ada was born in London .")
    assert n_examples(site, "born in") == 3


def test_a_tap_chooses_head_and_tail(site: Served, browser: Any) -> None:
    with browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True) as context:
        page = context.new_page()
        page.goto(f"{site.url}/#teach")
        page.get_by_label("Sentences").fill("Old jane adored the Big Apple .")
        page.get_by_role("button", name="Find the entities").tap()
        words = page.locator(".teach-row [data-start]", has_text="adored")
        expect(words).to_be_visible()
        page.locator(".teach-row .entity").first.tap()
        place = words.bounding_box()
        page.touchscreen.tap(place["x"] + 15, place["y"] + place["height"] / 2)
        expect(page.locator(".teach-row .statement")).to_have_text("Old → founded by → jane?")
