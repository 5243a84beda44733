"""What the tests of the page type, and how they find its parts."""

import re
from pathlib import Path
from typing import Any

from toy_server import Served

TEXT = "SpaceX was founded by Elon . Ada was born in London . Rome is the capital of Italy ."
VIEWS = ("read", "teach", "review", "relations", "map", "history")
EMPLOYED = (  # sentence, head, tail, keys between finding the entities and teaching
    ("Tim works for Apple .", "Tim", "Apple", ()),
    ("Sundar works for Google .", "Sundar", "Google", ()),
    ("IBM pays Arvind .", "Arvind", "IBM", ("x",)),
    ("Satya works for Microsoft in Redmond .", "Satya", "Microsoft", ()),
    ("IBM lost Lisa to AMD .", "Lisa", "AMD", ("t", "h")),
)
LABELLED = (
    '{"text": "[[Rome]] is the capital of {{Italy}} .", "relation": "capital of"}\n'
    '{"text": "[[Oslo]] is the capital of {{Norway}} .", "relation": "other"}\n'
)
TABLE = "text,relation\r\n" + "".join(
    f'"[[T{n}]] is the capital of {{{{L{n}}}}} .",{"capital of" if n else ""}\r\n' for n in range(30)
)


def opened(page: Any, view: str) -> Any:
    page.get_by_role("navigation", name="Views").get_by_role("link", name=view, exact=True).click()
    return page


def read(page: Any, text: str = TEXT) -> Any:
    page.get_by_label("Paste or drop a text").fill(text)
    page.keyboard.press("Control+Enter")
    page.locator("g.arrow").first.wait_for()
    return page


def arrow(page: Any, name: str) -> Any:
    return page.get_by_role("button", name=re.compile(name)).and_(page.locator("g.arrow"))


def saved(page: Any, name: str, folder: Path) -> str:
    """The text that a button downloads."""
    with page.expect_download() as waiting:
        page.get_by_role("button", name=name).click()
    waiting.value.save_as(folder / waiting.value.suggested_filename)
    return (folder / waiting.value.suggested_filename).read_text("utf-8")


def n_examples(served: Served, relation: str) -> int:
    return next(one["n_examples"] for one in served.get("/v1/relations")["relations"] if one["id"] == relation)


def act(page: Any, name: str, value: str = "") -> None:
    """Open a dialog of a relation, fill in a value, and submit it."""
    page.get_by_role("main").get_by_role("button", name=name, exact=True).click()
    dialog = page.get_by_role("dialog")
    field = dialog.locator("[name=value]")
    if value:
        field.select_option(value) if name == "Merge" else field.fill(value)
    dialog.get_by_role("button", name=name, exact=True).click()
