"""Take the six screenshots of docs/page.md and the README.

    python tools/page_screenshots.py docs

Needs chromium and the extras `serve` and `dev`. Every size and theme starts with a new store in a temporary folder.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from PIL import Image
from playwright.sync_api import FilePayload, Page, expect, sync_playwright

from erda.app.extractor import Extractor
from erda.serve.application import bound_socket, build_application, web_server
from erda.serve.service import ServerSettings

SIZES: dict[str, dict[str, Any]] = {
    "wide": {"viewport": {"width": 1280, "height": 860}},
    "narrow": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}
PICTURES = {  # size and theme -> view -> file
    ("wide", "light"): {
        "read": "page-read.png",
        "teach": "page/teach.png",
        "review": "page/review.png",
        "relations": "page/relations.png",
    },
    ("wide", "dark"): {"map": "page/map-dark.png"},
    ("narrow", "dark"): {"why": "page/why-narrow-dark.png"},
}
LESSON = "Sundar Pichai works for Google in California.\nTim Cook is employed at Apple."
LABELLED = [
    ("[[Lima]] is the capital of {{Peru}}.", "capital of"),
    ("[[Ghana]] has its seat of government in {{Accra}}.", "other"),
    ("[[Frida Kahlo]] was born in {{Coyoacan}}.", "born in"),
    ("[[Amazon]] was started by {{Jeff Bezos}}.", "founded by"),
    ("[[Cairo]] is the largest city of {{Egypt}}.", "other"),
]


def main(folder: Path) -> None:
    """Take every screenshot; each size and theme has a new store."""
    (folder / "page").mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or sys.exit("needs chromium")
    with TemporaryDirectory() as place, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for (size, scheme), files in PICTURES.items():
            with served(Path(place) / f"{size}-{scheme}") as address:
                page = browser.new_context(**SIZES[size], color_scheme=scheme).new_page()
                page.set_default_timeout(120_000)  # the machine may be busy
                page.goto(address)
                take_all(page, {view: folder / name for view, name in files.items()})
                page.context.close()


@contextmanager
def served(store: Path) -> Iterator[str]:
    """Serve a new store in a thread."""
    app, listening = build_application(ServerSettings(store), Extractor.open(store)), bound_socket("127.0.0.1", 0)
    server = web_server(app)
    thread = Thread(target=server.run, args=([listening],), daemon=True)  # a failing script ends at once
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(30)


def take_all(page: Page, files: dict[str, Path]) -> None:
    """Walk through the views as a newcomer does, and take the pictures of some of them."""

    def keep(view: str) -> None:
        if view in files:
            shoot(page, files[view])

    page.wait_for_selector("text=Load the example")
    page.get_by_role("button", name="Load the example").first.click()
    page.wait_for_selector("g.arrow")
    keep("read")
    page.locator("g.arrow rect").nth(2).click()  # its name: lines may cross the middle of its box
    page.wait_for_selector(".why .words")
    keep("why")
    show(page, "teach")
    page.fill("#relation", "works for")
    page.fill("#sentences", LESSON)
    page.focus("#sentences")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#teach-now")
    keep("teach")
    page.keyboard.press("Enter")
    page.wait_for_selector(".changes")
    show(page, "map")
    page.wait_for_selector(".point")
    page.locator(".point").nth(3).hover()
    keep("map")
    show(page, "relations")
    page.wait_for_selector(".lesson")
    page.get_by_role("navigation", name="Relations").get_by_text("capital of").click()
    rows = "".join(json.dumps({"text": text, "relation": relation}) + "\n" for text, relation in LABELLED)
    file: FilePayload = {"name": "held-out.jsonl", "mimeType": "text/plain", "buffer": rows.encode()}
    page.get_by_role("region", name="Quality", exact=True).locator("input[type=file]").set_input_files(files=[file])
    page.wait_for_selector("caption")
    keep("relations")
    show(page, "review")
    page.get_by_role("button", name="Use the example text").click()
    for key in ("y", "y", "n", "y"):
        page.wait_for_selector(".big")
        settled(page)
        page.keyboard.press(key)
    keep("review")


def show(page: Page, view: str) -> None:
    """Open a view."""
    page.goto(page.url.split("#")[0] + f"#{view}")


def settled(page: Page) -> None:
    """Wait until no request is in progress."""
    expect(page.locator("main")).to_have_attribute("aria-busy", "false", timeout=30_000)


def shoot(page: Page, path: Path) -> None:
    """Write one screenshot with a palette of 256 colours; a message at the bottom is left out."""
    settled(page)
    is_sheet = page.locator(".sheet").count() > 0 and "narrow" in path.name  # covers the lower half of a phone
    if not is_sheet:
        page.evaluate("scrollTo(0, 0)")
    page.evaluate("document.querySelector('.message').style.display = 'none'")
    if not page.locator(".point.shown").count():
        page.mouse.move(0, 0)  # no entity is pointed at
    page.wait_for_timeout(100)
    page.screenshot(path=path, full_page=not is_sheet)
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    print(f"{path.stat().st_size // 1000:4d} kB  {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots"))
