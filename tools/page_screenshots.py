"""Take the screenshots of docs/page.md: every view, 1280 and 390 pixels wide, light and dark.

    python tools/page_screenshots.py FOLDER

Needs chromium and the extras `serve` and `dev`. Teaches the example of the page to a new store in a temporary folder.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import uvicorn
from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from erda.app.extractor import Extractor
from erda.serve.application import ServerSettings, build_application
from erda.serve.launch import bound_socket, server_config
from erda.serve.limits import Limits

SIZES = {"wide": (1280, 860), "narrow": (390, 844)}
LESSON = "Sundar Pichai works for Google in California.\nTim Cook is employed at Apple."


def main(folder: Path) -> None:
    """Serve a new store and take every screenshot."""
    folder.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or sys.exit("needs chromium")
    with TemporaryDirectory() as place, sync_playwright() as playwright:
        store = Path(place) / "store"
        app, listening = build_application(ServerSettings(store), Extractor.open(store)), bound_socket("127.0.0.1", 0)
        server = uvicorn.Server(server_config(lambda: app, Limits()))
        thread = Thread(target=server.run, args=([listening],), daemon=True)  # a failing script ends at once
        thread.start()
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for size, (width, height) in SIZES.items():
            for scheme in ("light", "dark"):
                view: dict[str, Any] = {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
                page = browser.new_context(**view).new_page()
                page.goto(f"http://127.0.0.1:{listening.getsockname()[1]}/")
                take_all(page, lambda page, name, end=f"{size}-{scheme}": shoot(page, folder / f"{name}-{end}.png"))
        server.should_exit = True
        thread.join()


def take_all(page: Page, keep: Any) -> None:
    """Walk through the views; what is taught on the way is undone."""
    page.wait_for_selector("text=Load the example")
    keep(page, "start")
    page.get_by_role("button", name="Load the example").first.click()
    page.wait_for_selector("g.arrow")
    keep(page, "read")
    page.locator("g.arrow rect").nth(2).click()  # its name: lines may cross the middle of its box
    page.wait_for_selector(".why .words")
    keep(page, "why")
    page.goto(page.url.split("#")[0] + "#teach")
    page.fill("#relation", "works for")
    page.fill("#sentences", LESSON)
    page.focus("#sentences")
    page.keyboard.press("Enter")
    page.wait_for_selector("#teach-now")
    keep(page, "teach")
    page.keyboard.press("Enter")
    page.wait_for_selector(".changes")
    keep(page, "taught")
    page.goto(page.url.split("#")[0] + "#map")
    page.wait_for_selector(".point")
    page.locator(".point").nth(3).hover()
    keep(page, "map")
    page.goto(page.url.split("#")[0] + "#history")
    page.wait_for_selector("tr.current")
    keep(page, "history")
    page.get_by_role("button", name="Undo the last change").click()
    page.wait_for_selector("text=is current again")
    page.goto(page.url.split("#")[0] + "#relations")
    page.wait_for_selector(".lesson")
    keep(page, "relations")
    page.goto(page.url.split("#")[0] + "#review")
    page.get_by_role("button", name="Use the example text").click()
    for n_judged in (1, 2):
        page.wait_for_selector(".big")
        settled(page)
        page.keyboard.press("y")
        page.wait_for_selector(f"text={n_judged} of {n_judged}")
    keep(page, "review")
    for _ in range(2):
        settled(page)
        page.keyboard.press("u")
    settled(page)


def settled(page: Page) -> None:
    """Wait until no request is in progress."""
    expect(page.locator("main")).to_have_attribute("aria-busy", "false", timeout=30_000)


def shoot(page: Page, path: Path) -> None:
    """Write one screenshot with a palette of 256 colours."""
    settled(page)
    page.screenshot(path=path, full_page=True)
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    print(f"{path.stat().st_size // 1000:4d} kB  {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots"))
