"""A Wikipedia dump as downloaded (`*-pages-articles*.xml.bz2`), streamed page by page.

Links are entity mentions, and their targets are the ids. The page's own title in the text is a mention too. Templates,
tables, references, galleries, headings, comments and links to files or categories are dropped and counted. Worker
processes parse the wikitext, which takes most of the time. Pages keep their order.
"""

from __future__ import annotations

import multiprocessing
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing.pool import AsyncResult
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from erda.corpus.corpus_store import CorpusRow
from erda.corpus.sources import BuildSettings, Source, SourceBatch, Tally, pair_rows
from erda.errors import DataError
from erda.text.keys import TaggedSentence
from erda.text.reading import Meter, opened
from erda.text.sentences import split_sentences, token_span, tokens_of
from erda.types import Entity, Span

BATCH_PAGES = 16
_OTHER_PREFIXES = ("image", "wikt", "wiktionary", "commons", "meta", "wikisource", "wikiquote", "simple", "mw", "doi")
MIN_TOKENS = 4
MAX_PAGE = 1 << 22  # characters; MediaWiki allows half as many
MAX_WORK = 3e7  # characters that the parser may scan again: about five seconds
_LEFT_OUT_TAG = re.compile(
    r"ref|references|table|gallery|math|chem|code|pre|source|syntaxhighlight|timeline|score|imagemap|nowiki|hiero|graph"
    r"|mapframe|maplink|templatestyles|style|script|noinclude|includeonly|th|td|tr|caption"
)
_LINE_TAG = re.compile(r"li|dt|dd|br|hr|p|div|blockquote|ul|ol|dl|center")
_FOOT = re.compile(  # sections with lists of titles, not sentences
    r"^==+\s*(?:references|external links|see also|further reading|notes|footnotes|bibliography|sources|citations)"
    r"\s*==+\s*$.*",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_OPENING_OR_CLOSING = re.compile(
    r"<!--|-->|\{\{|\}\}|\[\[|\]\]|\{\||\|\}|\[(?=\w+:|//)|\]|<(?P<end>/?)(?P<tag>[a-z]\w*)(?:[^<>]*?(?P<empty>/?)>)?",
    re.IGNORECASE,
)
_CLOSES = {"-->": "<!--", "}}": "{{", "]]": "[[", "|}": "{|", "]": "["}
_NEVER_CLOSED = frozenset({"br", "hr", "li", "dt", "dd", "td", "th", "tr", "wbr", "img"})
# Bold and italic quotes; stray commas, and brackets without words ("( , ; )"), that removed templates leave.
_LEFTOVERS = re.compile(r"'{2,5}|(?<=[.!?\n])\s,|(?<=[.!?\n]),(?=\s)|\([^\w()\n]*\)")
_BRACKETS = re.compile(r"\s*\([^()]*\)\s*$")


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

    def batches(self, skip: int) -> Iterator[SourceBatch]:
        """Yield batches of pages after the first `skip`."""
        events = _events(self.path, self.meter)
        wiki, pages = _read_wiki(events, self.path), _read_pages(events)
        left = (page for page in pages if page.number > skip)
        groups = iter(lambda: tuple(islice(left, BATCH_PAGES)), ())
        parse = partial(parse_pages, wiki=wiki, settings=self.settings)
        n_workers = self.settings.workers
        yield from _in_workers(parse, groups, n_workers) if n_workers > 1 else map(parse, groups)


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


def parse_pages(pages: tuple[Page, ...], *, wiki: Wiki, settings: BuildSettings) -> SourceBatch:
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
        elif len(page.text) > MAX_PAGE or n_unclosed(page.text) * len(page.text) > MAX_WORK:  # the parser takes long
            tally.drop("page too long, or with too much unclosed markup", page.title)
        else:
            source = wiki.entity_id(page.title)
            try:
                for sentence in page_sentences(page.title, page.text, wiki, tally):
                    rows += pair_rows(sentence, source=source, settings=settings, tally=tally)
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


# -- wikitext ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wiki:
    """Properties of a wiki. `namespaces` are link prefixes that do not lead to articles."""

    name: str = "wiki"
    namespaces: frozenset[str] = frozenset()
    first_letter: bool = True  # whether "paris" and "Paris" are the same title

    def title(self, target: str) -> str | None:
        """Title of a link's target; None for a file, a category, another wiki, or a section of the same page."""
        title = " ".join(target.partition("#")[0].replace("_", " ").split()).lstrip(":").strip()
        prefix, colon, rest = title.partition(":")
        interwiki = prefix.isalpha() and prefix.islower() and len(prefix) <= 3
        if not title or (colon and rest and (prefix.strip().lower() in self.namespaces or interwiki)):
            return None
        return title[0].upper() + title[1:] if self.first_letter else title

    def entity_id(self, title: str) -> str:
        """Id of the entity that a page describes."""
        return f"{self.name}:{title}"


class _Text:
    """Plain text of a page, collected node by node, with its links."""

    def __init__(self, wiki: Wiki, tally: Tally) -> None:
        self.wiki, self.tally = wiki, tally
        self.pieces: list[str] = []
        self.length = 0
        self.links: list[tuple[int, int, str]] = []  # start, end, title

    def add(self, piece: str) -> None:
        self.pieces.append(piece)
        self.length += len(piece)

    def walk(self, code: Any) -> None:
        from mwparserfromhell import nodes

        for node in code.nodes if code is not None else ():
            if isinstance(node, nodes.Text):
                self.add(str(node.value))
            elif isinstance(node, nodes.Wikilink):
                self._link(node)
            elif isinstance(node, nodes.Tag):
                self._tag(node)
            elif isinstance(node, nodes.HTMLEntity):
                self.add(node.normalize() or " ")
            elif isinstance(node, nodes.ExternalLink):
                self.walk(node.title)
            elif isinstance(node, nodes.Heading):
                self.add("\n")
            else:
                self.tally.drop(f"markup: {type(node).__name__.lower()}")

    def _link(self, node: Any) -> None:
        if (title := self.wiki.title(str(node.title))) is None:
            self.tally.drop("link outside the articles")
            return
        start = self.length
        if node.text is None:
            self.add(str(node.title).lstrip(":").replace("_", " "))
        else:
            self.walk(node.text)
        if self.length > start:
            self.links.append((start, self.length, title))

    def _tag(self, node: Any) -> None:
        name = str(node.tag).strip().lower()
        if _LEFT_OUT_TAG.fullmatch(name):
            self.tally.drop(f"markup: {name}")
            return
        if _LINE_TAG.fullmatch(name):
            self.add("\n")
        self.walk(node.contents)


def page_sentences(title: str, wikitext: str, wiki: Wiki, tally: Tally) -> Iterator[TaggedSentence]:
    """Yield the sentences of one page with their linked entities."""
    import mwparserfromhell

    body = _FOOT.sub("", wikitext)
    parsed = _Text(wiki, tally)
    parsed.walk(mwparserfromhell.parse(body, skip_style_tags=True))
    text = _LEFTOVERS.sub(lambda found: " " * len(found.group()), "".join(parsed.pieces))  # offsets stay valid
    bare = _BRACKETS.sub("", title) or title
    own = [bare[left:right] for left, right in tokens_of(bare)]
    links, starts = parsed.links, [left for left, _, _ in parsed.links]
    for start, end in split_sentences(text, [(left, right) for left, right, _ in links]):
        offsets = tokens_of(text, start, end)
        mentions: list[Entity] = []
        for left, right, target in links[bisect_left(starts, start) : bisect_left(starts, end)]:
            if span := token_span(offsets, left, right):
                name = " ".join(text[a:b] for a, b in offsets[span.start : span.end])
                mentions.append(Entity(name, span, wiki.entity_id(target)))
        tokens = [text[left:right] for left, right in offsets]
        mentions += _own_mentions(tokens, own, wiki.entity_id(title), mentions)
        tally.read += 1
        if len(tokens) < MIN_TOKENS:
            tally.drop("sentence of fewer than four tokens")
        else:
            yield TaggedSentence(tuple(tokens), tuple(mentions))


def n_unclosed(wikitext: str) -> int:
    """Count unclosed tags, links, templates, tables and comments: for each, the parser scans the rest of the page."""
    depth: dict[str, int] = {}
    for found in _OPENING_OR_CLOSING.finditer(wikitext):
        tag = found["tag"]
        mark = f"<{tag.lower()}" if tag else found.group()
        if found["end"] or mark in _CLOSES:
            opening = _CLOSES.get(mark, mark)
            depth[opening] = max(0, depth.get(opening, 0) - 1)
        elif not (tag and (found["empty"] or tag.lower() in _NEVER_CLOSED)):
            depth[mark] = depth.get(mark, 0) + 1
    return sum(depth.values())


def _own_mentions(tokens: list[str], own: list[str], entity_id: str, linked: list[Entity]) -> Iterator[Entity]:
    """Yield the first mention of the page's own title outside every link."""
    taken = {at for mention in linked for at in range(mention.span.start, mention.span.end)}
    for at in range(len(tokens) - len(own) + 1 if own else 0):
        if tokens[at : at + len(own)] == own and taken.isdisjoint(range(at, at + len(own))):
            yield Entity(" ".join(own), Span(at, at + len(own)), entity_id)
            return
