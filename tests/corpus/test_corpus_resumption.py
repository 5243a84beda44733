"""An interrupted build of a corpus resumes: after every step, a kill, a full disk or a changed source."""

import pydoc
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from toy_corpus import content, random_rows, write_rows

from erda.corpus.corpus_build import build_corpus
from erda.corpus.corpus_store import CorpusStore
from erda.corpus.sources import JsonlSource
from erda.errors import DataError


class StopError(Exception):
    """Simulated end of a process."""


STEPS = {
    "reading": ("erda.corpus.staging.write_checked", 3),  # the fourth chunk is not written
    "sorting": ("erda.corpus.staging._resolve_redirects", 0),
    "parts": ("erda.corpus.staging.StoredFile.of", 1),  # between two parts
    "lookup": ("erda.corpus.corpus_build.write_lookup", 0),
    "manifest": ("erda.corpus.corpus_build.write_manifest", 0),
    "tidying": ("erda.corpus.corpus_build._remove_work", 0),
}


def stop_at(monkeypatch: pytest.MonkeyPatch, target: str, after: int) -> None:
    """Make a function raise after `after` calls."""
    owner, _, name = target.rpartition(".")
    function, left = pydoc.locate(target), [after]

    def stopping(*arguments, **named):
        left[0] -= 1
        if left[0] < 0:
            raise StopError
        return function(*arguments, **named)

    monkeypatch.setattr(f"{owner}.{name}", stopping)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    build_corpus([write_rows(folder / "rows.jsonl", random_rows(500))], folder / "c")
    return content(CorpusStore.open(folder / "c"))


@pytest.mark.parametrize("step", STEPS)
def test_a_build_resumes_after_every_step(tmp_path, small_steps, step, whole):
    rows = write_rows(tmp_path / "rows.jsonl", random_rows(500))
    with pytest.MonkeyPatch.context() as patched:
        stop_at(patched, *STEPS[step])
        with pytest.raises(StopError):
            build_corpus([rows], tmp_path / "c")
    if step != "tidying":
        with pytest.raises(DataError, match="not finished"):
            CorpusStore.open(tmp_path / "c")
    build_corpus([rows], tmp_path / "c")
    assert content(CorpusStore.open(tmp_path / "c")) == whole
    assert not (tmp_path / "c/build").exists()


def test_finished_chunks_are_not_read_again(tmp_path, small_steps, monkeypatch):
    rows = write_rows(tmp_path / "rows.jsonl", random_rows(500))
    with pytest.MonkeyPatch.context() as patched:
        stop_at(patched, *STEPS["reading"])
        with pytest.raises(StopError):
            build_corpus([rows], tmp_path / "c")
    read, skipped = JsonlSource.batches, list[int]()
    monkeypatch.setattr(JsonlSource, "batches", lambda self, skip: skipped.append(skip) or read(self, skip))
    manifest = build_corpus([rows], tmp_path / "c")
    assert skipped == [300]
    assert (manifest.n_rows, manifest.sources[0].read) == (500, 500)


@pytest.mark.parametrize("step", ["reading", "lookup"])
def test_a_changed_source_is_read_again(tmp_path, small_steps, step):
    first = write_rows(tmp_path / "first.jsonl", random_rows(500))
    second = write_rows(tmp_path / "second.jsonl", random_rows(100, seed=1))
    with pytest.MonkeyPatch.context() as patched:
        stop_at(patched, *((STEPS[step][0], 5) if step == "reading" else STEPS[step]))
        with pytest.raises(StopError):
            build_corpus([first, second], tmp_path / "c")
    write_rows(second, random_rows(100, seed=2))
    assert build_corpus([first, second], tmp_path / "c").n_rows == 600
    build_corpus([first, second], tmp_path / "whole")
    assert content(CorpusStore.open(tmp_path / "c")) == content(CorpusStore.open(tmp_path / "whole"))


def test_other_settings_start_an_unfinished_build_again(tmp_path, monkeypatch):
    rows = write_rows(tmp_path / "rows.jsonl", random_rows(100))
    exclude = write_rows(tmp_path / "test.jsonl", random_rows(1))
    stop_at(monkeypatch, *STEPS["lookup"])
    with pytest.raises(StopError):
        build_corpus([rows], tmp_path / "c")
    monkeypatch.undo()
    assert build_corpus([rows], tmp_path / "c", exclude=[exclude]).n_rows < 100
    assert CorpusStore.open(tmp_path / "c").manifest.excluded_from == ("test.jsonl",)
    assert not (tmp_path / "c/build").exists()


BUILD = """
    import sys
    from pathlib import Path
    from erda.corpus import sources, staging
    from erda.corpus.corpus_build import build_corpus
    staging.CHUNK_ROWS, staging.PART_ROWS, sources.JsonlSource.batch_size = 100, 150, 50
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
    (tmp_path / "c" / ".part-00000.parquet.0123456789abcdef.tmp").write_bytes(b"half")
    build_corpus([rows], tmp_path / "c")
    assert not [*(tmp_path / "c").glob(".*.tmp")]
    assert content(CorpusStore.open(tmp_path / "c")) == content(CorpusStore.open(tmp_path / "whole"))


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
