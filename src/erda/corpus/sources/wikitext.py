"""Convert the wikitext of a page to sentences with linked entities.

Links are entity mentions, and their targets are the ids. The page's own title in the text is a mention too. Templates,
tables, references, galleries, headings, comments and links to files or categories are dropped and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from erda.corpus.sources.source import CorpusRow, Limits, Tally, pair_rows
from erda.text.keys import TaggedSentence
from erda.text.sentences import split_sentences, token_span, tokens_of
from erda.types import Entity, Span

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
# Bold and italic quotes, and stray commas of removed templates.
_LEFTOVERS = re.compile(r"'{2,5}|(?<=[.!?\n])\s,|(?<=[.!?\n]),(?=\s)")
_BRACKETS = re.compile(r"\s*\([^()]*\)\s*$")


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
        title = self.wiki.title(str(node.title))
        if title is None:
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


def page_rows(title: str, wikitext: str, wiki: Wiki, limits: Limits, tally: Tally) -> list[CorpusRow]:
    """Rows of one page; a page that would take the parser very long is dropped."""
    rows: list[CorpusRow] = []
    if len(wikitext) > MAX_PAGE or n_unclosed(wikitext) * len(wikitext) > MAX_WORK:
        tally.drop("page too long, or with too much unclosed markup", title)
        return rows
    for sentence in page_sentences(title, wikitext, wiki, tally):
        rows += pair_rows(sentence, source=wiki.entity_id(title), limits=limits, tally=tally)
    return rows


def page_sentences(title: str, wikitext: str, wiki: Wiki, tally: Tally) -> Iterator[TaggedSentence]:
    """Yield the sentences of one page with their linked entities."""
    import mwparserfromhell

    body = _FOOT.sub("", wikitext)
    parsed = _Text(wiki, tally)
    parsed.walk(mwparserfromhell.parse(body, skip_style_tags=True))
    text = _LEFTOVERS.sub(lambda found: " " * len(found.group()), "".join(parsed.pieces))  # offsets stay valid
    bare = _BRACKETS.sub("", title) or title
    own = [bare[left:right] for left, right in tokens_of(bare)]
    links, k = parsed.links, 0
    for start, end in split_sentences(text, [(left, right) for left, right, _ in links]):
        offsets = tokens_of(text, start, end)
        while k < len(links) and links[k][1] <= start:
            k += 1
        here = k
        mentions: list[Entity] = []
        while here < len(links) and links[here][0] < end:
            left, right, target = links[here]
            if span := token_span(offsets, left, right):
                name = " ".join(text[a:b] for a, b in offsets[span.start : span.end])
                mentions.append(Entity(name, span, wiki.entity_id(target)))
            here += 1
        tokens = [text[left:right] for left, right in offsets]
        mentions += _own_mentions(tokens, own, wiki.entity_id(title), mentions)
        tokens, mentions = _without_empty_brackets(tokens, mentions)
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


def _without_empty_brackets(tokens: list[str], mentions: list[Entity]) -> tuple[list[str], list[Entity]]:
    """Remove brackets without words, such as "( , ; )", that removed templates leave; adjust the spans."""
    gone: set[int] = set()
    for at, token in enumerate(tokens):
        if token == "(":
            end = at + 1
            while end < len(tokens) and not tokens[end][0].isalnum() and tokens[end] not in "()":
                end += 1
            if end < len(tokens) and tokens[end] == ")":
                gone.update(range(at, end + 1))
    gone -= {at for mention in mentions for at in range(mention.span.start, mention.span.end)}
    if not gone:
        return tokens, mentions
    kept = [at for at in range(len(tokens)) if at not in gone]
    place = {old: new for new, old in enumerate(kept)}
    moved = [Entity(m.name, Span(place[m.span.start], place[m.span.end - 1] + 1), m.id) for m in mentions]
    return [tokens[at] for at in kept], moved
