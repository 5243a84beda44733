import bz2
import json
from pathlib import Path

import pytest
from toy_corpus import content, erda_corpus, random_rows, row, toy_store, write_rows

from erda.corpus.corpus_build import build_corpus
from erda.corpus.corpus_store import CorpusStore
from erda.corpus.sources import BuildSettings
from erda.errors import DataError, SettingsError
from erda.text.keys import EntityPair

ANNA = row("Anna knows Bob .", "Anna", "Bob", source="first")


# --- valid rows -------------------------------------------------------------------------------------------------------


def test_the_first_of_duplicates_is_kept(tmp_path):
    again = {**row("ANNA knows Bob.", "ANNA", "Bob."), "source": "second"}
    other_pair = row("Anna knows Bob .", "Bob", "Anna")
    store = toy_store(tmp_path, [ANNA, {**ANNA, "source": "second"}, other_pair])
    assert [r[4] for r in content(store)] == ["first", None]
    assert store.manifest.dropped == {"duplicate (same sentence, same pair)": 1}
    assert len(toy_store(tmp_path / "b", [ANNA, again])) == 2  # "Bob." is a different name


def test_head_and_tail_must_differ(tmp_path):
    rows = [ANNA, row("Bob is Anna .", "Bob", "Anna", ids=("q:1", "q:1"))]
    assert toy_store(tmp_path, rows).manifest.dropped == {"head and tail are the same entity": 1}


@pytest.mark.parametrize("change", [{"source": "\ud800"}, {"tokens": ["Anna", "knows", "Bob", "\udfff"]}])
def test_lone_surrogates_are_dropped(tmp_path, change):
    store = toy_store(tmp_path, [{**ANNA, **change}, *random_rows(2)])
    assert store.manifest.dropped == {"invalid JSON": 1}
    assert len(store) == 2


def test_a_folder_that_duckdb_cannot_open_is_rejected(tmp_path):
    source, folder = write_rows(tmp_path / "rows.jsonl", [ANNA]), tmp_path / "a\udcff"
    with pytest.raises(DataError, match="not valid UTF-8"):
        build_corpus([source], folder)
    assert not folder.exists()
    build_corpus([source], tmp_path / "a")
    (tmp_path / "a").rename(folder)
    with pytest.raises(DataError, match="not valid UTF-8"):
        CorpusStore.open(folder)


def test_unusual_characters_are_stored_unchanged(tmp_path):
    odd = row("O'Neil\x00x said 日本 \U0001f600 \" ' ; -- Bob .", "O'Neil\x00x", "Bob", ids=("q:'1", 'q:"2'))
    store = toy_store(tmp_path, [odd])
    (sentences,) = store.sentences_of([EntityPair("o'neil\x00X", "bob")])
    assert list(sentences[0].example.tokens) == odd["tokens"]


def exclusion_files(folder: Path) -> dict[str, Path]:
    tokens = ["anna", "KNOWS", "bob", "."]
    files = {
        "jsonl": write_rows(folder / "e.jsonl", [{**ANNA, "tokens": tokens}]),
        "packed": write_rows(folder / "e.jsonl.gz", [{**ANNA, "tokens": tokens}]),
        "text": folder / "e.txt",
        "cfrl": folder / "test_0.txt",
        "docred": folder / "d.json",
        "fewrel": folder / "f.json",
        "tacred": folder / "t.json",
    }
    files["text"].write_text("anna  knows bob.\n")
    files["cfrl"].write_text("1\t2 3\tanna knows bob .\tanna\t0\tbob\t2\tQ1\tQ2\n")
    files["docred"].write_text(json.dumps([{"sents": [["x"], tokens], "vertexSet": []}]))
    files["fewrel"].write_text(json.dumps({"P1": [{"tokens": tokens, "h": [], "t": []}]}))
    files["tacred"].write_text(json.dumps([{"token": tokens, "relation": "x"}]))
    return files


@pytest.mark.parametrize("kind", ["jsonl", "packed", "text", "cfrl", "docred", "fewrel", "tacred"])
def test_excluded_sentences_are_dropped(tmp_path, kind):
    store = toy_store(tmp_path, [ANNA, *random_rows(3)], exclude=[exclusion_files(tmp_path)[kind]])
    assert len(store) == 3
    assert store.manifest.dropped == {"sentence given with --exclude": 1}
    assert store.sentences_of([EntityPair("Anna", "Bob")]) == [()]


def test_redirects_are_resolved_in_any_order_of_pages(tmp_path):
    def page(title, text, redirect=""):
        redirect = f'<redirect title="{redirect}" />' if redirect else ""
        return f"<page><title>{title}</title><ns>0</ns>{redirect}<revision><text>{text}</text></revision></page>"

    pages = [
        page("Town", "Town lies in [[Norge]] and [[Norway]] near [[Oslo]] ."),
        page("Norge", "#REDIRECT", "Kingdom of Norway"),
        page("Kingdom of Norway", "#REDIRECT", "Norway"),  # a redirect to a redirect
        page("City", "[[Kingdom of Norway]] has a city , City ."),
    ]
    dump = f"<mediawiki><siteinfo><dbname>enwiki</dbname></siteinfo>{''.join(pages)}</mediawiki>"
    (tmp_path / "x.xml.bz2").write_bytes(bz2.compress(dump.encode()))
    build_corpus([tmp_path / "x.xml.bz2"], tmp_path / "c")
    store = CorpusStore.open(tmp_path / "c")
    entities = {entity.id for r in content(store) for entity in r[2:4]}
    assert entities == {"enwiki:Town", "enwiki:Norway", "enwiki:Oslo", "enwiki:City"}
    assert store.manifest.dropped["head and tail are the same entity"] == 2  # Norge - Norway, both ways
    for name in ("Norge", "Norway", "Kingdom of Norway"):
        (sentences,) = store.sentences_of([EntityPair(name, "City")])
        assert len(sentences) == (name != "Norge")  # found by the name in the text and by the page title


def test_several_sources_and_settings(tmp_path):
    (tmp_path / "names.txt").write_text("A\nB\nC\n")
    (tmp_path / "d.txt").write_text("A met B and C .\n")
    rows = write_rows(tmp_path / "r.jsonl", [ANNA])
    settings = BuildSettings(max_pairs=2, names=str(tmp_path / "names.txt"))
    manifest = build_corpus([rows, tmp_path / "d.txt"], tmp_path / "c", settings=settings)
    assert (manifest.n_rows, manifest.dropped) == (3, {"pair over max_pairs": 4})
    assert [Path(source.path).name for source in manifest.sources] == ["r.jsonl", "d.txt"]
    (tmp_path / "names.txt").write_text("A\nB\n")
    with pytest.raises(DataError, match="other sources or settings"):
        build_corpus([rows, tmp_path / "d.txt"], tmp_path / "c", settings=settings)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", "the sources are empty"),
        ("\n\n", "the sources are empty"),
        ("{}\n{}\n", "2 invalid row"),
        (json.dumps(row("Bob is Anna .", "Bob", "Anna", ids=("q:1", "q:1"))), "1 head and tail are the same entity"),
    ],
)
def test_an_empty_corpus_raises_with_the_reasons(tmp_path, lines, said):
    (tmp_path / "x.jsonl").write_text(lines)
    with pytest.raises(DataError, match=said):
        build_corpus([tmp_path / "x.jsonl"], tmp_path / "c")
    assert not [*(tmp_path / "c").iterdir()]


def test_missing_and_repeated_files_and_folders_are_rejected(tmp_path):
    rows = write_rows(tmp_path / "r.jsonl", [ANNA])
    for sources in ([], [tmp_path / "missing.jsonl"], [tmp_path], [rows, rows]):
        with pytest.raises(DataError):
            build_corpus(sources, tmp_path / "c")


# --- finished builds -----------------------------------------------------------------------------------------------


def test_building_a_finished_corpus_changes_nothing(tmp_path):
    store = toy_store(tmp_path, random_rows(20))
    files = {path: path.stat().st_mtime_ns for path in store.folder.iterdir()}
    assert build_corpus([tmp_path / "rows.jsonl"], store.folder) == store.manifest
    with pytest.raises(DataError, match="other sources or settings"):
        build_corpus([write_rows(tmp_path / "y.jsonl", [ANNA])], store.folder)
    assert {path: path.stat().st_mtime_ns for path in store.folder.iterdir()} == files


def test_the_commands_print_counts(tmp_path, capsys):
    rows = write_rows(tmp_path / "r.jsonl", [ANNA, {"tokens": 3}])
    erda_corpus("build", rows, "--out", tmp_path / "c", "--set", "max_tokens=9")
    out = capsys.readouterr().out
    assert "1 rows, version" in out
    assert "1  invalid row  (first: r.jsonl:2:" in out
    erda_corpus("build", "--out", tmp_path / "c")
    out = capsys.readouterr().out
    assert "rows            1\n" in out
    assert "1  r.jsonl" in out
    assert "1  invalid row" in out
    with pytest.raises(SettingsError) as caught:
        erda_corpus("build", rows, "--out", tmp_path / "d", "--set", "max_pairs=0", "--set", "formt=x")
    assert all(name in str(caught.value) for name in ("max_pairs", "Did you mean 'format'"))
    assert not (tmp_path / "d").exists()
