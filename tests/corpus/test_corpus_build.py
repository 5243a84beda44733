from __future__ import annotations

import bz2
import errno
import json
import pydoc
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from toy_corpus import content, erda_corpus, random_rows, row, toy_store, write_rows

from erda.corpus import corpus_build, segments, staging
from erda.corpus.corpus_build import BuildSettings, EmptyCorpusError, build_corpus
from erda.corpus.corpus_store import CorpusStore
from erda.corpus.sources import Limits, SourceSettings
from erda.corpus.sources.jsonl_source import JsonlSource
from erda.errors import DataError, WriteError
from erda.text.keys import EntityPair

ANNA = row("Anna knows Bob .", "Anna", "Bob", source="first")


@pytest.fixture
def small_steps(monkeypatch):
    """Several chunks and parts even for toy data."""
    monkeypatch.setattr(staging, "CHUNK_ROWS", 100)
    monkeypatch.setattr("erda.corpus.sources.jsonl_source.JsonlSource.batch_size", 50)
    monkeypatch.setattr(segments, "PART_ROWS", 150)


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


def test_unusual_characters_are_stored_unchanged(tmp_path):
    odd = row("O'Neil\x00x said 日本 \U0001f600 \" ' ; -- Bob .", "O'Neil\x00x", "Bob", ids=("q:'1", 'q:"2'))
    store = toy_store(tmp_path, [odd])
    (sentences,) = store.sentences_of([EntityPair("o'neil\x00X", "bob")])
    assert list(sentences[0].example.tokens) == odd["tokens"]
    assert store.search("日本")[0] == 1
    assert store.search("' ; --")[0] == 1


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


@pytest.mark.parametrize("text", ["", '{"a": 1}\n', "{broken\n"])
def test_an_exclude_file_without_sentences_raises(tmp_path, text):
    (tmp_path / "e.jsonl").write_text(text)
    with pytest.raises(DataError):
        toy_store(tmp_path, [ANNA], exclude=[tmp_path / "e.jsonl"])


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
    document = {
        "title": "t",
        "sents": [["A", "met", "B", "and", "C", "."]],
        "vertexSet": [[{"name": n, "sent_id": 0, "pos": [p, p + 1]}] for n, p in (("A", 0), ("B", 2), ("C", 4))],
    }
    (tmp_path / "d.json").write_text(json.dumps([document]))
    rows = write_rows(tmp_path / "r.jsonl", [ANNA])
    settings = BuildSettings(limits=Limits(max_pairs=2))
    report = build_corpus([rows, tmp_path / "d.json"], tmp_path / "c", settings=settings)
    assert report.n_added == 3
    assert report.manifest.dropped == {"pair over max_pairs": 4}
    assert [Path(s.path).name for s in report.manifest.segments[0].sources] == ["r.jsonl", "d.json"]


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
    with pytest.raises(EmptyCorpusError, match=said):
        build_corpus([tmp_path / "x.jsonl"], tmp_path / "c")
    assert not (tmp_path / "c/build").exists()


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_missing_files_and_folders_are_rejected(tmp_path, name):
    with pytest.raises(DataError):
        build_corpus([tmp_path / name], tmp_path / "c")


# --- resuming, adding ----------------------------------------------------------------------------------------------


def test_building_a_finished_corpus_changes_nothing(tmp_path):
    store = toy_store(tmp_path, random_rows(20))
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "corpus/segments").rglob("*.*")}
    report = build_corpus([tmp_path / "rows.jsonl"], tmp_path / "corpus")
    assert report.n_added == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "corpus/segments").rglob("*.*")} == files
    with pytest.raises(DataError, match="with --add"):
        build_corpus([write_rows(tmp_path / "y.jsonl", [ANNA])], tmp_path / "corpus")
    assert CorpusStore.open(tmp_path / "corpus").digest == store.digest


@pytest.mark.parametrize("which", ["part-00001.parquet", "keys.npy"])
def test_a_damaged_file_is_named(tmp_path, small_steps, which):
    toy_store(tmp_path, random_rows(600))
    path = tmp_path / "corpus/segments/000" / which
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    for use in (CorpusStore.open, lambda folder: build_corpus([tmp_path / "rows.jsonl"], folder)):
        with pytest.raises(DataError, match=which):
            use(tmp_path / "corpus")


class StopError(Exception):
    """Simulated end of a process."""


STEPS = {
    "staging": ("erda.corpus.staging.Staging._save", 3),  # the fourth chunk is not committed
    "sorting": ("erda.corpus.staging.Staging.resolve_redirects", 0),
    "parts": ("erda.corpus.segments.StoredFile.of", 1),  # between two parts
    "lookup": ("erda.corpus.corpus_build.write_segment_lookup", 0),
    "manifest": ("erda.corpus.corpus_build.write_manifest", 0),
    "tidying": ("erda.corpus.corpus_build._remove_work", 0),
}


def stop_at(monkeypatch: pytest.MonkeyPatch, target: str, after: int, error: BaseException | None = None) -> None:
    """Make a function raise after `after` calls."""
    owner, _, name = target.rpartition(".")
    function, left = pydoc.locate(target), [after]

    def stopping(*arguments, **named):
        left[0] -= 1
        if left[0] < 0:
            raise error or StopError
        return function(*arguments, **named)

    monkeypatch.setattr(f"{owner}.{name}", stopping)


@pytest.mark.parametrize("step", STEPS)
def test_a_build_resumes_after_every_step(tmp_path, small_steps, step):
    rows = write_rows(tmp_path / "rows.jsonl", random_rows(500))
    build_corpus([rows], tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patched:
        stop_at(patched, *STEPS[step])
        with pytest.raises(StopError):
            build_corpus([rows], tmp_path / "c")
    if step != "tidying":
        with pytest.raises(DataError, match="not finished"):
            CorpusStore.open(tmp_path / "c")
    build_corpus([rows], tmp_path / "c")
    assert content(CorpusStore.open(tmp_path / "c")) == content(CorpusStore.open(tmp_path / "whole"))
    assert not (tmp_path / "c/build").exists()


def test_committed_chunks_are_not_read_again(tmp_path, small_steps, monkeypatch):
    rows = write_rows(tmp_path / "rows.jsonl", random_rows(500))
    with pytest.MonkeyPatch.context() as patched:
        stop_at(patched, *STEPS["staging"])
        with pytest.raises(StopError):
            build_corpus([rows], tmp_path / "c")
    read, skipped = JsonlSource.batches, list[int]()
    monkeypatch.setattr(
        JsonlSource, "batches", lambda self, skip, limits: skipped.append(skip) or read(self, skip, limits)
    )
    report = build_corpus([rows], tmp_path / "c")
    assert skipped == [300]
    assert report.n_added == 500
    assert report.manifest.segments[0].sources[0].read == 500


@pytest.mark.parametrize("step", ["staging", "lookup"])
def test_a_changed_source_is_read_again(tmp_path, small_steps, step):
    """Before sorting, the other sources are kept; after sorting, everything is read again."""
    first = write_rows(tmp_path / "first.jsonl", random_rows(500))
    second = write_rows(tmp_path / "second.jsonl", random_rows(100, seed=1))
    with pytest.MonkeyPatch.context() as patched:
        stop_at(patched, *(("erda.corpus.staging.Staging._save", 6) if step == "staging" else STEPS[step]))
        with pytest.raises(StopError):
            build_corpus([first, second], tmp_path / "c")
    write_rows(second, random_rows(100, seed=2))
    report = build_corpus([first, second], tmp_path / "c")
    assert report.n_added == 600
    build_corpus([first, second], tmp_path / "whole")
    assert content(CorpusStore.open(tmp_path / "c")) == content(CorpusStore.open(tmp_path / "whole"))


def test_an_unfinished_build_with_other_settings_is_rejected(tmp_path, small_steps, monkeypatch):
    rows = write_rows(tmp_path / "rows.jsonl", random_rows(100))
    monkeypatch.setattr(corpus_build, "sort_rows", lambda *_: (_ for _ in ()).throw(StopError))
    with pytest.raises(StopError):
        build_corpus([rows], tmp_path / "c")
    monkeypatch.undo()
    other = BuildSettings(limits=Limits(max_tokens=20))
    with pytest.raises(DataError, match=r"unfinished build with other settings \(limits\)"):
        build_corpus([rows], tmp_path / "c", settings=other)
    assert build_corpus([rows], tmp_path / "c", settings=other, resume=False).n_added == 100


BUILD = """
    import sys
    from pathlib import Path
    from erda.corpus import segments, staging
    from erda.corpus.corpus_build import build_corpus
    from erda.corpus.sources import jsonl_source
    staging.CHUNK_ROWS, segments.PART_ROWS, jsonl_source.JsonlSource.batch_size = 100, 150, 50
    {before}
    build_corpus([Path(sys.argv[1])], Path(sys.argv[2]))
    print("done")
"""


def python(code: str, *arguments: object) -> subprocess.Popen:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("n_kills", [1, pytest.param(30, marks=pytest.mark.long)])
def test_kill_at_random_moments(tmp_path, small_steps, n_kills):
    """After any number of SIGKILLs, the next call finishes the build."""
    rows = write_rows(tmp_path / "rows.jsonl", random_rows(2000))
    build_corpus([rows], tmp_path / "whole")
    rng, pause = random.Random(0), 0.3
    for _ in range(n_kills):
        process = python(BUILD.format(before=""), rows, tmp_path / "c")
        while not (tmp_path / "c" / ".lock").exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, pause))
        process.send_signal(signal.SIGKILL)
        out, error = process.communicate()
        assert "Error" not in error
        if "done" in out:
            break
        pause *= 1.2
    build_corpus([rows], tmp_path / "c")
    assert content(CorpusStore.open(tmp_path / "c")) == content(CorpusStore.open(tmp_path / "whole"))


def test_a_second_build_on_the_same_folder_is_rejected(tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", random_rows(10))
    slow = (
        "import time; from erda.corpus import corpus_build; "
        "corpus_build._Build.plan = lambda *a: (print('in', flush=True), time.sleep(60))"
    )
    process = python(BUILD.format(before=slow), rows, tmp_path / "c")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        with pytest.raises(DataError, match="another build is running"):
            build_corpus([rows], tmp_path / "c")
    finally:
        process.kill()
        process.communicate()
    assert build_corpus([rows], tmp_path / "c").n_added == 10  # the lock ends with its process


@pytest.mark.parametrize(
    "size", [2_000, pytest.param(20_000, marks=pytest.mark.long), pytest.param(60_000, marks=pytest.mark.long)]
)
def test_a_build_resumes_after_a_full_disk(tmp_path, size):
    """A limit on file sizes simulates a full disk while writing a chunk, a part or the lookup."""
    rows = write_rows(tmp_path / "rows.jsonl", random_rows(4000))
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))"
    process = python(BUILD.format(before=limit), rows, tmp_path / "c")
    _, error = process.communicate()
    assert process.returncode != 0
    assert "the disk is full" in error.splitlines()[-1]
    build_corpus([rows], tmp_path / "c")
    assert len(CorpusStore.open(tmp_path / "c")) == 4000


def test_a_full_disk_keeps_committed_chunks(tmp_path, small_steps):
    rows = write_rows(tmp_path / "rows.jsonl", random_rows(300))
    with pytest.MonkeyPatch.context() as patched:
        full = OSError(errno.ENOSPC, "No space left on device")
        stop_at(patched, "erda.corpus.staging.Staging._insert", 2, full)
        with pytest.raises(WriteError):
            build_corpus([rows], tmp_path / "c")
    with staging.Staging(tmp_path / "c/build", memory="1GB") as kept:
        assert kept.connection.execute("SELECT count(*) FROM staged").fetchall() == [(200,)]
    assert build_corpus([rows], tmp_path / "c").n_added == 300


def test_a_truncated_source_keeps_the_others(tmp_path, small_steps):
    good = write_rows(tmp_path / "good.jsonl", random_rows(200))
    bad = write_rows(tmp_path / "bad.jsonl.gz", random_rows(300, seed=1))
    whole = bad.read_bytes()
    bad.write_bytes(whole[:-500])
    with pytest.raises(DataError, match="bad"):
        build_corpus([good, bad], tmp_path / "c")
    with staging.Staging(tmp_path / "c/build", memory="1GB") as kept:
        assert kept.connection.execute("SELECT count(*) FROM staged").fetchall()[0][0] >= 200
    bad.write_bytes(whole)
    assert build_corpus([good, bad], tmp_path / "c").n_added == 500


def test_the_list_of_names_is_part_of_the_plan(tmp_path):
    (tmp_path / "x.txt").write_text("Anna saw Bob. Carl saw Bob.")
    (tmp_path / "n.txt").write_text("Anna\nBob\n")
    settings = BuildSettings(reading=SourceSettings(names=tmp_path / "n.txt"))
    assert build_corpus([tmp_path / "x.txt"], tmp_path / "c", settings=settings).n_added == 2
    (tmp_path / "n.txt").write_text("Anna\nBob\nCarl\n")
    report = build_corpus([tmp_path / "x.txt"], tmp_path / "c", settings=settings, add=True)
    assert (report.n_added, report.manifest.n_rows) == (2, 4)


def test_the_command_prints_counts(tmp_path, capsys):
    rows = write_rows(tmp_path / "r.jsonl", [ANNA, {"tokens": 3}])
    assert erda_corpus("build", rows, "--out", tmp_path / "c") == 0
    out = capsys.readouterr().out
    assert "1 rows, 1 of them new" in out
    assert "1  invalid row  (first: r.jsonl:2:" in out
    erda_corpus("build", rows, "--out", tmp_path / "c")
    assert "complete, nothing to do" in capsys.readouterr().out
    more = write_rows(tmp_path / "m.jsonl", random_rows(3))
    erda_corpus("build", more, "--out", tmp_path / "c", "--add")
    assert "4 rows, 3 of them new" in capsys.readouterr().out


def test_a_moved_corpus_still_opens(tmp_path):
    digest = toy_store(tmp_path, random_rows(20)).digest
    shutil.move(tmp_path / "corpus", tmp_path / "elsewhere")
    assert CorpusStore.open(tmp_path / "elsewhere").digest == digest
