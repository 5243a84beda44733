"""The report's page in a real browser, as wide as a desk and as narrow as a telephone."""

from pathlib import Path
from typing import Any

import pytest
from toy_pages import full_report

# Measures the page and sorts a table by two clicks.
MEASURE = """() => {
  const table = document.querySelector("#part-0-final table");
  const column = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === "accuracy");
  const values = () => [...table.tBodies[0].rows].map((row) => parseFloat(row.cells[column].dataset.value));
  const sorted = () => { table.tHead.rows[0].cells[column].querySelector("button").click(); return values(); };
  return {
    values: [values(), sorted(), sorted()],
    scroll: Math.max(document.documentElement.scrollWidth, document.body.scrollWidth),
    figures: [...document.querySelectorAll(".panel img")].map((one) => [one.clientWidth, one.clientHeight]),
    text: parseFloat(getComputedStyle(document.querySelector("dd")).fontSize),
    wide: [...document.querySelectorAll("main *")].filter(
      (one) => !one.closest(".scroll") && one.getBoundingClientRect().right > innerWidth + 0.5
    ).map((one) => one.tagName + "." + one.className),
  };
}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("browser")
    with pytest.MonkeyPatch.context() as patch:
        full_report(directory, patch)
    return directory / "report" / "index.html"


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_and_sorts(width: int, report: Path, browser: Any) -> None:
    with browser.new_context(viewport={"width": width, "height": 3000}) as context:
        page = context.new_page()
        page.goto(report.as_uri())
        found = page.evaluate(MEASURE)
    assert found["scroll"] <= width
    assert found["wide"] == []  # nothing but the boxes that scroll by themselves reaches over the edge
    assert found["text"] >= 14
    assert len(found["figures"]) >= 6
    assert all(width_ >= 280 and height > 80 for width_, height in found["figures"])
    before, up, down = found["values"]
    assert up == sorted(before) != before
    assert down == sorted(before, reverse=True)
