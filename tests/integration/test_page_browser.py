"""The report's page in a real browser, as wide as a desk and as narrow as a telephone."""

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from toy_pages import full_report

WIDTHS = (1280, 390)
# Opens the page in a frame of each width, measures it, sorts a table by a click, and writes what it found as JSON.
WRAPPER = """<!DOCTYPE html><meta charset="utf-8"><body><pre id="found"></pre><script>
const found = {};
function measure(frame, width) {
  const page = frame.contentDocument, root = page.documentElement;
  const table = page.querySelector("#part-0-final table");
  const column = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === "accuracy");
  const values = () => [...table.tBodies[0].rows].map((row) => parseFloat(row.cells[column].dataset.value));
  const before = values();
  table.tHead.rows[0].cells[column].querySelector("button").click();
  const up = values();
  table.tHead.rows[0].cells[column].querySelector("button").click();
  const boxes = [...page.querySelectorAll(".panel img")].map((one) => one.getBoundingClientRect());
  found[width] = {
    inner: frame.contentWindow.innerWidth, scroll: root.scrollWidth, body: page.body.scrollWidth,
    before, up, down: values(),
    figures: boxes.map((box) => [box.width, box.height]),
    text: parseFloat(frame.contentWindow.getComputedStyle(page.querySelector("dd")).fontSize),
    wide: [...page.querySelectorAll("main *")].filter(
      (one) => !one.closest(".scroll") && one.getBoundingClientRect().right > width + 0.5
    ).map((one) => one.tagName + "." + one.className),
  };
  document.getElementById("found").textContent = JSON.stringify(found);
}
for (const width of WIDTHS) {
  const frame = document.createElement("iframe");
  frame.style = `width: ${width}px; height: 3000px; border: 0`;
  frame.onload = () => measure(frame, width);
  frame.src = "report/index.html";
  document.body.append(frame);
}
</script></body>"""


@pytest.fixture(scope="module")
def seen(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What chromium measured, by width."""
    directory = tmp_path_factory.mktemp("browser")
    with pytest.MonkeyPatch.context() as patch:
        full_report(directory, patch)
    wrapper = directory / "wrapper.html"
    wrapper.write_text(WRAPPER.replace("WIDTHS", json.dumps(WIDTHS)), encoding="utf-8")
    return look(chromium, wrapper, tmp_path_factory.mktemp("profile"))


def look(chromium: str, page: Path, profile: Path) -> dict[str, Any]:
    """Open a page without a window and a network, wait for its scripts, and read what they wrote."""
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --allow-file-access-from-files --window-size=1400,3200 "
        "--virtual-time-budget=20000 --dump-dom"
    )
    command = [chromium, *flags.split(), f"--user-data-dir={profile}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    written = re.search(r'<pre id="found">(.+?)</pre>', done.stdout, flags=re.DOTALL)
    assert written, f"the browser measured nothing (exit status {done.returncode}):\n{done.stderr[-2000:]}"
    return json.loads(html.unescape(written.group(1)))


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits_and_sorts(width: int, seen: dict[str, Any]) -> None:
    found = seen[str(width)]
    assert found["inner"] == width
    assert found["scroll"] <= width
    assert found["body"] <= width
    assert found["wide"] == []  # nothing but the boxes that scroll by themselves reaches over the edge
    assert found["text"] >= 14
    assert len(found["figures"]) >= 6
    assert all(width_ >= 280 and height > 80 for width_, height in found["figures"])
    assert found["up"] == sorted(found["before"]) != found["before"]
    assert found["down"] == sorted(found["before"], reverse=True)
