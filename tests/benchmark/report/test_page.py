"""The page is standalone and complete, its links work, it escapes untrusted text, and it fits desks and telephones."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from toy_pages import HOSTILE, LONG, full_report
from toy_runs import toy_record

from erda.benchmark.report.report_files import write_report

ROOT = Path(__file__).parents[3]
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
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """Elements of a page; fails if a tag is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []  # element, text
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and data.strip():
            self.texts.append((self.open[-1], data.strip()))

    def values(self, name: str) -> list[str]:
        return [value for _, attributes in self.elements if (value := attributes.get(name)) is not None]

    def text_of(self, tag: str) -> list[str]:
        return [text for element, text in self.texts if element == tag]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        full_report(directory, patch)
    return directory / "report"


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page((folder / "index.html").read_text(encoding="utf-8"))


def test_the_page_loads_nothing_from_a_network(folder: Path, page: Page) -> None:
    addresses = [*page.values("href"), *page.values("src")]
    assert not [one for one in addresses if re.match(r"(https?:)?//", one)]
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"url\(\s*['\"]?(?!#)|@import", text)
    assert not re.search(r"https?://", text)


def test_links_lead_to_existing_files_and_anchors(folder: Path, page: Page) -> None:
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    links = [attributes["href"] or "" for tag, attributes in page.elements if tag == "a"]
    anchors = [link[1:] for link in links if link.startswith("#")]
    assert {"headline", "reading", "part-0", "part-1"} <= set(anchors) <= set(ids)
    files = [folder / unquote(link) for link in links if not link.startswith("#")]
    assert len(files) > 20
    assert not [path for path in files if not path.is_file()]
    assert {path.parent.name for path in files} == {"part-0", "part-1"}


def test_hostile_names_are_escaped(page: Page) -> None:
    assert not [attributes for tag, attributes in page.elements if tag == "img" and attributes.get("src") == "x"]
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert "i" not in [tag for tag, attributes in page.elements if "style" not in attributes]
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert HOSTILE in page.text_of("span")
    assert LONG in page.text_of("span")


def test_faults_and_skipped_views_are_shown(page: Page) -> None:
    (fault,) = [text for tag, text in page.texts if tag == "li" and "broken/1/record.json" in text]
    assert "not valid JSON" in fault
    assert "Not shown: Setting 'noise' does not have two values among these records" in " ".join(page.text_of("p"))


def test_figures_have_descriptions_and_tables_have_headers(page: Page) -> None:
    figures = [attributes for _, attributes in page.elements if attributes.get("role") == "img"]
    # both in the first section, one in the second, which has one line
    assert len(figures) == 3
    assert all(len(attributes["aria-label"] or "") > 30 for attributes in figures)
    n_tables = [tag for tag, _ in page.elements].count("table")
    assert n_tables == [tag for tag, _ in page.elements].count("thead") > 10
    assert page.text_of("title")


def test_the_headline_shows_the_accuracies_of_the_records(tmp_path: Path) -> None:
    records = {}
    for name, noise in (("erda", 0.2), ("other", 0.7)):
        settings = {"method": {"noise": noise}, "encoder": {}, "stream": {}}
        records[name] = [toy_record(tmp_path, method=name, seed=seed, settings=settings) for seed in (1, 2, 3)]
    write_report(tmp_path, figures=False)
    text = (tmp_path / "report/index.html").read_text(encoding="utf-8")
    head = text[text.index('<header id="headline"') : text.index("</header>")]
    for protocol in ("all-seen", "candidates"):
        for own in records.values():
            assert f"{100 / 3 * sum(record.accuracy[protocol][-1] for record in own):.1f}" in head
    assert "<img" not in head


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_and_sorts(width: int, folder: Path, browser: Any) -> None:
    with browser.new_context(viewport={"width": width, "height": 3000}) as context:
        page = context.new_page()
        page.goto((folder / "index.html").as_uri())
        found = page.evaluate(MEASURE)
    assert found["scroll"] <= width
    assert found["wide"] == []  # nothing but the boxes that scroll by themselves reaches over the edge
    assert found["text"] >= 14
    assert len(found["figures"]) >= 6
    assert all(width_ >= 280 and height > 80 for width_, height in found["figures"])
    before, up, down = found["values"]
    assert up == sorted(before) != before
    assert down == sorted(before, reverse=True)
