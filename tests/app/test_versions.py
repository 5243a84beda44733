"""The store: versions whole or not there, whatever happens to the process, the disk or the folder."""

import errno
import json
import multiprocessing
import os
import random
import shutil
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from toy_extractor import FOUNDED, QUESTIONS, open_toy, scores, some_relation, taught, teach_until_killed

from erda.app.extractor import Extractor
from erda.app.store import Store
from erda.errors import DataError, ErdaError, ModelError, WriteError
from erda.files import is_unfinished

FORKS = multiprocessing.get_context("forkserver")  # a fork of this process would lack the threads of PyTorch
FORKS.set_forkserver_preload(["erda.app.extractor"])  # not a module of the tests: Python 3.11 hands on no path


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# -- versions ----------------------------------------------------------------------------------------------------------


def test_history_says_what_was_done(tmp_path: Path) -> None:
    extractor = taught(tmp_path)
    extractor.take_back(FOUNDED[0])
    extractor.undo()
    extractor.forget("born in")
    lines = [(one.number, one.parent, one.what, one.n_relations, one.n_examples) for one in extractor.history()]
    assert lines == [
        (0, None, "begun", 0, 0),
        (1, 0, "taught founded by", 1, 3),
        (2, 1, "taught born in, capital of", 3, 7),
        (3, 2, "took back an example of founded by", 3, 6),
        (4, 2, "forgot born in", 2, 5),
    ]
    assert [one.number for one in extractor.history() if one.is_current] == [4]
    assert {(one.method, one.encoder) for one in extractor.history()} == {("posterior", "words")}


def test_undo_goes_back_step_by_step_and_no_further(tmp_path: Path) -> None:
    extractor = taught(tmp_path)
    assert extractor.undo() == 1
    assert [one.id for one in extractor.relations] == ["founded by"]
    assert extractor.undo() == 0
    with pytest.raises(DataError, match="nothing to undo"):
        extractor.undo()
    assert open_toy(tmp_path).relations == ()
    extractor.rollback(2)
    np.testing.assert_array_equal(scores(extractor), scores(taught(tmp_path / "other")))
    with pytest.raises(DataError, match="has no version 9; there are: 0, 1, 2"):
        extractor.rollback(9)


def test_what_two_versions_share_is_written_once(tmp_path: Path) -> None:
    extractor = taught(tmp_path)
    before = files(tmp_path)
    extractor.teach("born in", ["[[Ada]] , born in {{London}}"])
    new = files(tmp_path) - before
    assert {Path(name).suffix for name in new} == {".json", ".safetensors"}, "nothing is pickled"
    assert len(new) == 3, "the version, the examples and the rows of one relation"
    extractor.undo()
    extractor.teach("born in", ["[[Ada]] , born in {{London}}"])
    assert {Path(name).parts[0] for name in files(tmp_path) - before - new} == {"versions"}


def test_pruning_keeps_the_current_version_and_the_last_ones(tmp_path: Path) -> None:
    extractor = taught(tmp_path)
    for number in range(4):
        extractor.teach_many(some_relation(number))
    extractor.rollback(2)
    expected, before = scores(extractor), len(files(tmp_path))
    assert extractor.prune(keep=9) == 0
    assert extractor.prune(keep=2) == 4
    assert [one.number for one in extractor.history()] == [2, 5, 6]
    assert len(files(tmp_path)) < before
    np.testing.assert_array_equal(scores(open_toy(tmp_path)), expected)
    with pytest.raises(DataError, match="version 1 was removed"):
        extractor.undo()
    extractor.rollback(6)
    assert len(open_toy(tmp_path).relations) == 7
    assert extractor.teach_many(some_relation(9)).version == 7, "a number is never used twice"
    extractor.prune(keep=0)
    assert [one.number for one in extractor.history()] == [7]
    with pytest.raises(DataError, match="keep: must be at least 0"):
        extractor.prune(keep=-1)


# -- two at once -------------------------------------------------------------------------------------------------------


def test_one_process_teaches_and_the_other_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("erda.app.store.WAIT", 0.05)
    first, second = taught(tmp_path), open_toy(tmp_path)
    with Store(tmp_path).writing():
        for change in (first.undo, lambda: second.teach_many(some_relation(1)), second.prune):
            with pytest.raises(DataError, match="another process has been teaching this extractor for"):
                change()
        assert len(second.predict(QUESTIONS)) == 3, "reading needs no lock"
        assert len(open_toy(tmp_path).relations) == 3
    second.teach_many(some_relation(1))
    assert len(first.relations) == 3
    assert first.refresh() == 3
    assert len(first.relations) == 4
    first.teach_many(some_relation(2))
    second.teach_many(some_relation(3))
    assert [one.id for one in second.relations][3:] == ["relation 1", "relation 2", "relation 3"], "nothing is lost"


def test_two_begin_the_same_store_with_something_else(tmp_path: Path) -> None:
    first, second = open_toy(tmp_path), open_toy(tmp_path, method="idlvq-c")
    first.teach_many(some_relation(1))
    for _ in range(2):
        with pytest.raises(ModelError, match=r"was taught to method 'posterior' .* not to 'idlvq-c'"):
            second.teach_many(some_relation(2))
    assert [one.id for one in open_toy(tmp_path).relations] == ["relation 1"]


# -- damage ------------------------------------------------------------------------------------------------------------


def test_every_damaged_file_is_one_line_and_other_versions_still_open(tmp_path: Path) -> None:
    taught(tmp_path / "whole")
    for name in sorted(files(tmp_path / "whole")):
        if name == "versions/0.json":
            continue
        for number, content in enumerate((b"", b"{}", b"\xff\xfe", None)):
            here = tmp_path / f"{number}"
            shutil.copytree(tmp_path / "whole", here)
            if content is None:
                (here / name).unlink()
            else:
                (here / name).write_bytes(content)
            if name == "versions/1.json":
                assert len(open_toy(here).relations) == 3, "it is not needed"
            else:
                with pytest.raises(ErdaError) as caught:
                    open_toy(here)
                assert len(str(caught.value).splitlines()) == 1
                assert str(here) in str(caught.value)
                if name in ("extractor.json", "versions/2.json"):
                    assert "open it at another version" in str(caught.value) or content is None
                    mended = open_toy(here, version=1)
                    assert [one.id for one in mended.relations] == ["founded by"]
                    assert mended.teach_many(some_relation(1)).version == 3
            shutil.rmtree(here)


def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    extractor = taught(tmp_path)
    head = tmp_path / "extractor.json"
    head.write_text(json.dumps({**json.loads(head.read_text()), "format": 3, "shape": "other"}))
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    for change in (lambda: open_toy(tmp_path), extractor.undo, lambda: extractor.teach_many(some_relation(1))):
        with pytest.raises(DataError, match=r"format 3, this version of erda reads 2.* pip install -U erda"):
            change()
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match=r"holds other files than an extractor \(notes.txt\)"):
        open_toy(tmp_path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DataError, match="is a file; an extractor is a folder"):
        open_toy(tmp_path / "file")
    with pytest.raises(DataError, match="No folder can be called"):
        open_toy("a\0b")


def test_a_store_that_is_deleted_still_answers_and_can_be_saved(tmp_path: Path) -> None:
    extractor = taught(tmp_path / "mine")
    expected = scores(extractor)
    shutil.rmtree(tmp_path / "mine")
    np.testing.assert_array_equal(scores(extractor), expected)
    for change in (extractor.undo, lambda: extractor.teach_many(some_relation(1)), extractor.prune):
        with pytest.raises(ModelError, match=r"is gone: the store was deleted or moved.*to another folder"):
            change()
    assert not (tmp_path / "mine").exists()
    extractor.save(tmp_path / "saved")
    again = open_toy(tmp_path / "saved")
    np.testing.assert_array_equal(scores(again), expected)
    again.teach_many(some_relation(1))
    with pytest.raises(DataError, match="holds an extractor already"):
        extractor.save(tmp_path / "saved")
    taught(tmp_path / "mine").forget("born in")
    assert extractor.refresh() == 3, "another store in its place is another store"
    assert len(extractor.relations) == 2


def test_a_full_disk_at_any_moment_leaves_the_last_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extractor = taught(tmp_path)
    expected = scores(extractor)
    real, calls = os.fsync, [0]
    for moment in range(5):

        def full(descriptor: int, last: int = moment) -> None:
            calls[0] += 1
            if calls[0] > last:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(descriptor)

        calls[0] = 0
        with monkeypatch.context() as patch:
            patch.setattr("erda.files.os.fsync", full)
            if moment == 4:  # examples, rows, version and head are written
                extractor.teach_many(some_relation(moment))
                break
            with pytest.raises(WriteError, match=r"the disk is full"):
                extractor.teach_many(some_relation(moment))
        np.testing.assert_array_equal(scores(extractor), expected)
        np.testing.assert_array_equal(scores(open_toy(tmp_path)), expected)
        assert not any(is_unfinished(Path(name).name) for name in files(tmp_path))
    assert len(open_toy(tmp_path).relations) == 4


def kill_while_teaching(folder: Path, n_teachings: int, seconds: float) -> int:
    """A process that is killed a while after so many teachings; how many relations it said were taught."""
    reading, writing = FORKS.Pipe(duplex=False)
    child = FORKS.Process(target=teach_until_killed, args=(folder, writing))
    child.start()
    writing.close()
    said = [reading.recv() for _ in range(1 + n_teachings)][-1]  # once when it begins
    time.sleep(seconds)
    child.kill()
    child.join()
    with suppress(EOFError):
        while True:
            said = reading.recv()
    return said


@pytest.mark.parametrize("n_kills", [1, pytest.param(20, marks=pytest.mark.long)])
def test_kills_lose_nothing(tmp_path: Path, n_kills: int) -> None:
    folder, rng, least = tmp_path / "x", random.Random(20), 0
    for _ in range(n_kills):
        least = max(least, kill_while_teaching(folder, rng.randrange(1, 3), rng.uniform(0, 0.1)))
        if not (folder / "extractor.json").exists():
            assert least == 0
            continue
        extractor: Extractor = open_toy(folder)
        known = len(extractor.relations)
        assert known >= least - 1, "what was said to be taught is there (but for one that is just being undone)"
        least = min(least, known)
        if known:
            assert [one.id for one in extractor.relations] == [f"relation {number}" for number in range(known)]
            assert np.isfinite(scores(extractor)).all()
        for one in extractor.history()[-4:]:
            assert len(extractor._log.store.read(one.number).relations) == one.n_relations
    extractor = open_toy(folder)
    extractor.teach("one more", ["[[a]] b {{c}}"])
    extractor.prune(keep=0)
    (only,) = extractor.history()
    assert len(files(folder)) == 3 + 2 * only.n_relations, "nothing that no version needs is left"
    assert least > 0, "it was killed while it taught, not before"
