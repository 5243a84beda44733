import bz2
import json

import pytest
from toy_corpus import row, write_rows

from erda.corpus.corpus_store import CorpusRow
from erda.corpus.sources import BuildSettings, Tally, open_source
from erda.corpus.wikipedia import Page, Wiki, n_unclosed, page_sentences, parse_pages
from erda.errors import DataError, SettingsError
from erda.text.names import NameTagger
from erda.text.reading import read_names
from erda.types import Entity, Span


def read(path, *, skip=0, **settings) -> tuple[list[CorpusRow], Tally]:
    rows, tally = [], Tally()
    for batch in open_source(path, BuildSettings(**settings)).batches(skip):
        rows += batch.rows
        tally.add(batch.tally)
    return rows, tally


def check_spans(rows):
    for found in rows:
        tokens = found.text.split(" ")
        assert all(token.split() == [token] for token in tokens)
        head, tail = range(found.head_start, found.head_end), range(found.tail_start, found.tail_end)
        assert len(head) > 0
        assert len(tail) > 0
        assert not set(head) & set(tail)
        assert max(*head, *tail) < len(tokens)


# --- pairs ------------------------------------------------------------------------------------------------------------


# --- JSONL ------------------------------------------------------------------------------------------------------------

GOOD = row("Anna knows Bob .", "Anna", "Bob", ids=("q:1", None), source="s", relation="knows")


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
def test_jsonl_rows(tmp_path, name):
    long = row("Anna knows Bob " + "very " * 300 + ".", "Anna", "Bob")
    path = write_rows(tmp_path / name, [GOOD, GOOD, long])
    rows, tally = read(path)
    assert rows == [CorpusRow("Anna knows Bob .", "Anna", "q:1", 0, 1, "Bob", None, 2, 3, "knows", "s")] * 2
    assert (tally.read, tally.dropped) == (3, {"sentence longer than max_tokens": 1})
    assert tally.places == {"sentence longer than max_tokens": [f"{name}:3"]}
    rows, tally = read(path, skip=1)
    assert (len(rows), tally.read) == (1, 2)


def test_jsonl_rows_equal_those_of_the_shared_reader(tmp_path):
    from erda.data.formats.jsonl_examples import read_jsonl

    unnamed = {**row("Anna saw Bob .", "Anna", "Bob"), "head": {"span": [0, 1]}}
    values = [GOOD, unnamed, {**GOOD, "tokens": ["Anna", "knows", "Bob", "x\u00a0y"]}]
    text = {"text": "Anna knows Bob.", "head": {"span": [0, 4]}, "tail": {"span": [11, 14]}}
    path = write_rows(tmp_path / "x.jsonl", [*values, text])
    rows, _ = read(path)
    reading = read_jsonl(path)
    examples = {e.id: e for e in (*reading.examples, *reading.unrelated)}
    assert len(rows) == 4
    for number, found in enumerate(rows, 1):
        example = examples[f"x:{number}"]
        assert (found.head_name, found.tail_name) == (example.head.name, example.tail.name)
        assert found.text.split(" ") == " ".join(example.tokens).split()
        assert (found.head_start, found.tail_end) == (0, 3)
    check_spans(rows)


def test_invalid_jsonl_rows_are_counted_with_their_lines(tmp_path):
    path = tmp_path / "x.jsonl"
    bad = [
        "{not json",
        "[]",
        json.dumps({**GOOD, "tail": {"name": "Bob", "span": [2, 9]}}),
        json.dumps({**GOOD, "tail": {"name": "Bob", "span": [0, 1]}}),
        json.dumps({**GOOD, "tokens": [1, 2, 3]}),
        json.dumps({**GOOD, "head": {"name": "Anna"}}),
        json.dumps({**GOOD, "head": {"name": "Anna", "span": [True, 1]}}),
        json.dumps({**GOOD, "source": 7}),
    ]
    path.write_text("\n".join([*bad, "", json.dumps(GOOD)]) + "\n")
    rows, tally = read(path)
    assert len(rows) == 1
    assert tally.dropped == {"invalid JSON": 1, "invalid row": 7}
    assert tally.read == 9
    assert tally.places["invalid row"][1].startswith("x.jsonl:3: tail span (2, 9) ")


@pytest.mark.parametrize("name", ["x.pdf", "x", "x.gz"])
def test_unknown_formats_raise(tmp_path, name):
    with pytest.raises(SettingsError, match="--set format="):
        read(tmp_path / name)


# --- plain text -------------------------------------------------------------------------------------------------------


def test_names_by_longest_match(tmp_path):
    (tmp_path / "names.txt").write_text("York\nNew York\tQ60\nAnna  Lee\n\n")
    (tmp_path / "x.txt").write_text("Anna Lee left New York. York is old.\nNothing here.\nYork, Anna Lee said.")
    rows, tally = read(tmp_path / "x.txt", names=str(tmp_path / "names.txt"))
    assert [(r.head_name, r.tail_name, r.tail_id, r.source) for r in rows] == [
        ("Anna Lee", "New York", "Q60", "x.txt:1"),
        ("New York", "Anna Lee", None, "x.txt:1"),
        ("York", "Anna Lee", None, "x.txt:3"),
        ("Anna Lee", "York", None, "x.txt:3"),
    ]
    check_spans(rows)
    assert tally.dropped == {"sentence with fewer than two entities": 2}
    assert tally.read == 4


def test_plain_text_needs_names_or_spacy(tmp_path, monkeypatch):
    with pytest.raises(SettingsError, match="--names FILE"):
        read(tmp_path / "x.txt")
    (tmp_path / "names.txt").write_text("\n")
    with pytest.raises(DataError):
        read_names(tmp_path / "names.txt")
    tagger = NameTagger({"York": None, "Ann": "Q1"})
    monkeypatch.setattr("erda.corpus.sources.model_folder", lambda: tmp_path)
    monkeypatch.setattr("erda.corpus.sources.spacy_tagger", {tmp_path: tagger}.get)
    (tmp_path / "x.txt").write_text("Ann left York.")
    rows, _ = read(tmp_path / "x.txt", spacy="entities")
    assert [(row.head_name, row.head_id) for row in rows] == [("Ann", "Q1"), ("York", None)]


# --- Wikipedia --------------------------------------------------------------------------------------------------------

WIKI = Wiki("enwiki", frozenset({"file", "category", "image", "talk"}))


@pytest.mark.parametrize(
    ("target", "title"),
    [
        ("paris", "Paris"),
        ("New_York#History", "New York"),
        ("#History", None),
        ("File:X.png", None),
        ("category: Y", None),
        ("fr:Paris", None),
        (":Paris", "Paris"),
        ("2001: A Space Odyssey", "2001: A Space Odyssey"),
        ("Mission: Impossible", "Mission: Impossible"),
        ("", None),
    ],
)
def test_link_targets(target, title):
    assert WIKI.title(target) == title


def page(text, title="Oslo", tally=None):
    return list(page_sentences(title, text, WIKI, tally or Tally()))


def test_links_are_entities_and_markup_is_removed():
    tally = Tally()
    wikitext = (
        "{{Infobox|a=[[X]]}}\n'''Oslo''' ({{lang|no|Oslo}}; ) is the [[capital city|capital]] of [[norway]].<ref>a. B"
        "</ref> {{as of|2001}}, Oslo had [[File:Map.png|thumb|A [[map]]. Yes]] 500&nbsp;000 ''people''.\n"
        "{| class=x\n| [[cell]]\n|}\n== See also ==\n* [[Other]] page. More text here."
    )
    sentences = page(wikitext, tally=tally)
    assert [" ".join(sentence.tokens) for sentence in sentences] == [
        "Oslo is the capital of norway .",
        "Oslo had 500 000 people .",
    ]
    assert list(sentences[0].entities) == [
        Entity("capital", Span(3, 4), "enwiki:Capital city"),
        Entity("norway", Span(5, 6), "enwiki:Norway"),
        Entity("Oslo", Span(0, 1), "enwiki:Oslo"),
    ]
    assert tally.dropped["markup: template"] == 3
    assert tally.dropped["markup: ref"] == 1
    assert tally.dropped["markup: table"] == 1
    assert tally.dropped["link outside the articles"] == 1


def test_the_page_title_is_a_mention_outside_links():
    (sentence,) = page("Paris went to [[Paris|Paris]] with Helen .", title="Paris (mythology)")
    assert [(m.id, m.span.start) for m in sentence.entities] == [("enwiki:Paris", 3), ("enwiki:Paris (mythology)", 0)]


def parsed(title, text):
    return parse_pages((Page(1, "0", title, None, "wikitext", text),), wiki=WIKI, settings=BuildSettings())


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "markup", ["<div>", "<ref ", '<div a="', "[[a|", "{{{a|", "{|\n", "[http://a ", "<!--", "<nowiki>"]
)
def test_a_page_that_would_take_the_parser_hours_is_dropped(markup):
    found = parsed("Odd", markup * 20_000)
    assert not found.rows
    assert found.tally.places == {"page too long, or with too much unclosed markup": ["Odd"]}


@pytest.mark.parametrize("markup", ["[[A]] ", "<div>x</div> ", "a<ref name=x/> ", "{{a|b=c}} ", "<br>x ", "* a\n"])
def test_a_page_with_much_closed_markup_is_read(markup):
    text = f"{markup * 2_000}\n[[Anna]] met [[Bob]] in Oslo."
    assert n_unclosed(text) == 0
    assert len(parsed("Long", text).rows) == 2


def dump(*pages, end="</mediawiki>"):
    head = (
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/"><siteinfo><dbname>enwiki</dbname>'
        '<case>first-letter</case><namespaces><namespace key="6">File</namespace></namespaces></siteinfo>'
    )
    return (head + "".join(pages) + end).encode()


def xml_page(title, text, ns=0, redirect=""):
    redirect = f'<redirect title="{redirect}" />' if redirect else ""
    return (
        f"<page><title>{title}</title><ns>{ns}</ns>{redirect}<revision><model>wikitext</model>"
        f"<text>{text}</text></revision></page>"
    )


PAGES = [
    xml_page("Norge", "#REDIRECT [[Norway]]", redirect="Norway"),
    xml_page("Talk:Oslo", "[[A]] and [[B]] talk here .", ns=1),
    *(xml_page(f"Town {i}", f"Town {i} lies in [[Norge]] near [[Oslo]] .") for i in range(20)),
]


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_dump(tmp_path, n_workers):
    path = tmp_path / "x-pages-articles.xml.bz2"
    raw = dump(*PAGES[:11])
    path.write_bytes(bz2.compress(raw[:1500]) + bz2.compress(raw[1500:]))  # several streams, as in a real dump
    rows, tally = read(path, workers=n_workers)
    assert len(rows) == 9 * 6
    check_spans(rows)
    assert rows[0].source == "enwiki:Town 0"
    assert tally.dropped == {"redirect page": 1, "page outside the articles": 1}
    batches = list(open_source(path, BuildSettings()).batches(0))
    assert batches[0].redirects == {"enwiki:Norge": "enwiki:Norway"}
    assert [r.source for r in read(path, skip=10)[0]] == ["enwiki:Town 8"] * 6


@pytest.mark.parametrize(
    "packed",
    [
        bz2.compress(dump(*PAGES))[:-40],
        bz2.compress(dump(*PAGES, end="")),
        bz2.compress(dump(*PAGES, "<page>&nbsp;")),
        bz2.compress(b"<html><body>not a dump</body></html>"),
    ],
)
def test_broken_and_truncated_dumps_raise(tmp_path, packed):
    path = tmp_path / "x.xml.bz2"
    path.write_bytes(packed)
    with pytest.raises(DataError, match=r"x\.xml\.bz2: "):
        read(path)
