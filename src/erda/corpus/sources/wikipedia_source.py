"""A Wikipedia dump as downloaded (`*-pages-articles*.xml.bz2`), streamed page by page.

Worker processes parse the wikitext, which takes most of the time. Pages keep their order.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from multiprocessing.pool import AsyncResult
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from erda.corpus.sources.source import CorpusRow, Limits, Source, SourceBatch, Tally
from erda.corpus.sources.wikitext import Wiki, page_rows
from erda.errors import DataError
from erda.text.reading import Meter, opened

BATCH_PAGES = 16
_OTHER_PREFIXES = ("image", "wikt", "wiktionary", "commons", "meta", "wikisource", "wikiquote", "simple", "mw", "doi")


class Page(NamedTuple):
    """One page of a dump."""

    number: int
    namespace: str
    title: str
    redirect: str | None
    model: str
    text: str


class WikipediaSource(Source):
    """Articles of a dump. Batches carry redirects, which the build resolves after reading all pages."""

    def __init__(self, path: Path, *, n_workers: int = 1) -> None:
        super().__init__(path)
        self._n_workers = n_workers

    def batches(self, skip: int, limits: Limits) -> Iterator[SourceBatch]:
        """Yield batches of pages after the first `skip`."""
        events = _events(self.path, self.meter)
        wiki, pages = _read_wiki(events, self.path), _read_pages(events)
        left = (page for page in pages if page.number > skip)
        groups = iter(lambda: tuple(islice(left, BATCH_PAGES)), ())
        parse = partial(_parse_pages, wiki=wiki, limits=limits)
        found = _in_workers(parse, groups, self._n_workers) if self._n_workers > 1 else map(parse, groups)
        position = skip
        for batch in found:
            position = batch.position
            yield batch
        if not position:
            raise DataError(f"{self.path}: no <page>; expected a Wikipedia dump (pages-articles).")


def _events(path: Path, meter: Meter) -> Iterator[ElementTree.Element]:
    """Yield complete elements, with the XML namespace removed; free the memory of each page after it."""
    with opened(path, meter) as file:
        try:
            root = None
            for event, element in ElementTree.iterparse(file, events=("start", "end")):
                element.tag = element.tag.rpartition("}")[2]
                if root is None:
                    root = element
                if event == "end":
                    yield element
                    if element.tag in ("page", "siteinfo"):
                        root.clear()
        except ElementTree.ParseError as error:
            raise DataError(
                f"{path}: invalid or truncated XML at line {error.position[0]} ({error}); download it again and run "
                "the same command. Finished sources are kept."
            ) from None


def _read_wiki(events: Iterator[ElementTree.Element], path: Path) -> Wiki:
    first = next((element for element in events if element.tag in ("siteinfo", "page")), None)
    if first is None or first.tag == "page":
        raise DataError(f"{path}: no <siteinfo> before the first page; expected a Wikipedia dump (pages-articles).")
    return Wiki(
        name=first.findtext(".//dbname") or "wiki",
        namespaces=frozenset(_OTHER_PREFIXES).union(one.text.lower() for one in first.iter("namespace") if one.text),
        first_letter=first.findtext(".//case") != "case-sensitive",
    )


def _read_pages(events: Iterator[ElementTree.Element]) -> Iterator[Page]:
    pages = (element for element in events if element.tag == "page")
    for number, page in enumerate(pages, 1):
        redirect = page.find("redirect")
        yield Page(
            number,
            page.findtext(".//ns") or "0",
            page.findtext(".//title") or "",
            None if redirect is None else redirect.get("title"),
            page.findtext(".//model") or "wikitext",
            page.findtext(".//text") or "",
        )


def _parse_pages(pages: tuple[Page, ...], *, wiki: Wiki, limits: Limits) -> SourceBatch:
    """Parse a few pages; runs in a worker process."""
    rows: list[CorpusRow] = []
    tally = Tally()
    redirects: dict[str, str] = {}
    for page in pages:
        target = wiki.title(page.redirect) if page.redirect else None
        if page.namespace != "0":
            tally.drop("page outside the articles")
        elif page.redirect:
            tally.drop("redirect page")
            if target:
                redirects[wiki.entity_id(page.title)] = wiki.entity_id(target)
        elif page.model != "wikitext" or not page.text or not page.title:
            tally.drop("page without wikitext", page.title)
        else:
            try:
                rows += page_rows(page.title, page.text, wiki, limits, tally)
            except RecursionError:
                tally.drop("page nested too deeply", page.title)
    return SourceBatch(pages[-1].number, rows, tally, redirects)


def _in_workers(
    parse: Callable[[tuple[Page, ...]], SourceBatch], groups: Iterator[tuple[Page, ...]], n_workers: int
) -> Iterator[SourceBatch]:
    """Yield batches in order, with few groups in flight, so memory does not grow with the dump."""
    with multiprocessing.get_context("spawn").Pool(n_workers) as pool:
        waiting: deque[AsyncResult[SourceBatch]] = deque()
        for group in groups:
            waiting.append(pool.apply_async(parse, (group,)))
            if len(waiting) >= 4 * n_workers:
                yield waiting.popleft().get()
        while waiting:
            yield waiting.popleft().get()
