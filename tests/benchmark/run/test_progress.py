import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from toy_runs import ToyMethod, toy_parts, toy_record, toy_run

from erda.benchmark.experiments import reject_mixing
from erda.benchmark.run.loop import run
from erda.benchmark.run.planned_runs import CacheSettings, shared_cache
from erda.benchmark.run.progress import is_own
from erda.corpus.corpus_build import build_corpus
from erda.corpus.manifest import read_manifest
from erda.errors import SettingsError
from erda.files import remove_own
from erda.settings.runs import Run

WORDS = "Ada met Bob in town today"


def corpus(folder: Path, *sentences: str) -> Path:
    rows = [
        {
            "tokens": sentence.split(),
            "head": {"name": "Ada", "span": [0, 1]},
            "tail": {"name": "Bob", "span": [2, 3]},
            "relation": None,
        }
        for sentence in sentences
    ]
    source = folder.with_suffix(".jsonl")
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    build_corpus([source], folder)
    return folder


def asked(corpus: str, **changes: object) -> Run:
    return toy_run(corpus=corpus, **changes)


def test_runs_with_and_without_a_corpus_are_not_mixed(tmp_path: Path) -> None:
    here = corpus(tmp_path / "wiki", WORDS)
    with pytest.raises(SettingsError, match=r"corpus: none there, wiki now"):
        reject_mixing(tmp_path, then=asked(""), now=asked(str(here)))
    with pytest.raises(SettingsError, match=r"corpus: wiki there, none now"):
        reject_mixing(tmp_path, then=asked(str(here)), now=asked(""))


def test_corpora_are_compared_by_content_not_by_path(tmp_path: Path) -> None:
    first, moved = corpus(tmp_path / "a", WORDS), corpus(tmp_path / "b", WORDS)
    other = corpus(tmp_path / "c", WORDS, WORDS + " again")
    then = toy_record(tmp_path / "runs", corpus=str(first))
    then = replace(then, notes={"corpus": {"digest": read_manifest(first).digest}})
    reject_mixing(tmp_path, then=then, now=asked(str(moved)))
    with pytest.raises(SettingsError, match=r"corpus: a \(\w{12}\) there, c \(\w{12}\) now"):
        reject_mixing(tmp_path, then=then, now=asked(str(other)))


def test_corpora_without_a_digest_are_compared_by_folder_name(tmp_path: Path) -> None:
    reject_mixing(tmp_path, then=asked("/elsewhere/wiki"), now=asked("corpora/wiki"))
    with pytest.raises(SettingsError, match="corpus: wiki there, news now"):
        reject_mixing(tmp_path, then=asked("/elsewhere/wiki"), now=asked("corpora/news"))


def test_a_setting_newer_than_a_record_has_its_default(tmp_path: Path) -> None:
    def erda(**settings: object) -> Run:
        return asked("", method="erda", settings={"method": settings, "encoder": {}, "stream": {}})

    reject_mixing(tmp_path, then=erda(batch_size=5), now=erda(batch_size=5, future_relations=False))
    with pytest.raises(SettingsError, match=r"method\.future_relations: False there, True now"):
        reject_mixing(tmp_path, then=erda(batch_size=5), now=erda(batch_size=5, future_relations=True))


# -- damage ------------------------------------------------------------------------------------------------------------


def begun(out: Path) -> Path:
    """Interrupt a run after two of its three tasks; return the folder of its progress."""
    with pytest.raises(KeyboardInterrupt):
        run(toy_run(), toy_parts(toy_run(), interrupt_at=2), out=out, bar=None)
    return out / "toy/1/progress"


def flip_a_digit(path: Path) -> None:
    text = path.read_text()
    place = text.index('"accuracy"')
    digit = re.search(r"0\.(\d)", text[place:])
    assert digit is not None
    at = place + digit.start(1)
    path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("progress.json", flip_a_digit),
        ("progress.json", cut),
        ("task-1.npz", flip_a_bit),
        ("task-2.npz", Path.unlink),
        ("method-2/toy.json", flip_a_bit),
        ("method-2/toy.json", Path.unlink),
        ("progress.json", lambda path: path.write_text('{"schema": 1}')),
        ("progress.json", lambda path: path.write_text("[" * 5000)),
    ],
)
def test_a_run_with_damaged_progress_starts_over_with_a_warning(
    name: str, damage: Callable[[Path], object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = toy_record(tmp_path / "whole")
    folder = begun(tmp_path / "parts")
    damage(folder / name)
    built = []

    def build() -> ToyMethod:
        built.append(ToyMethod(1))
        return built[-1]

    again = run(toy_run(), replace(toy_parts(toy_run()), build=build), out=tmp_path / "parts", bar=None)
    assert len(built) == 1
    said = capsys.readouterr().err
    assert str(folder / name) in said
    assert "The run starts over." in said
    assert len(said.splitlines()) == 1
    left_out = {"seconds": None, "peak_memory_mb": None}
    assert {**asdict(again), **left_out} == {**asdict(whole), **left_out}


def test_a_run_with_intact_progress_resumes_without_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun(tmp_path)
    never = replace(toy_parts(toy_run()), build=lambda: pytest.fail("started over"))
    assert run(toy_run(), never, out=tmp_path, bar=None).n_tasks == 3
    assert capsys.readouterr().err == ""
    assert not list((tmp_path / "toy/1").glob(".*"))


def test_without_a_terminal_each_task_prints_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(toy_run(), toy_parts(toy_run()), out=tmp_path)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" in ")[0] for line in lines] == [f"toy 1: task {k} of 3" for k in (1, 2, 3)]
    assert re.search(r"in \d+\.\d s, all-seen \d+\.\d%, candidates \d+\.\d%$", lines[0])


def test_files_of_the_user_in_the_progress_folder_stay(tmp_path: Path) -> None:
    folder = tmp_path / "progress"
    (folder / "method-1").mkdir(parents=True)
    ours = [folder / "progress.json", folder / "task-1.npz", folder / "method-1" / "method.json"]
    theirs = [folder / "notes.txt", folder / "method-1" / "my-weights.safetensors"]
    for path in (*ours, *theirs):
        path.write_text("x")
    remove_own(folder, is_own)
    assert not any(path.exists() for path in ours)
    assert all(path.exists() for path in theirs)


def test_a_kill_while_progress_is_discarded_leaves_nothing_after_the_next_run(tmp_path: Path) -> None:
    record = run(toy_run(), toy_parts(toy_run()), out=tmp_path, bar=None)
    folder = tmp_path / "toy/1/progress"
    folder.mkdir()
    (folder / "task-1.npz").write_bytes(b"x")
    assert run(toy_run(), toy_parts(toy_run()), out=tmp_path, bar=None) == record
    assert not folder.exists()


def test_a_shared_cache_never_takes_a_folder_of_the_user(tmp_path: Path) -> None:
    (tmp_path / ".frozen").mkdir()
    (tmp_path / ".frozen" / "mine.txt").write_text("x")
    with shared_cache(CacheSettings(), lambda: tmp_path, needed=True) as cache:
        (Path(cache.folder) / "states").write_text("x")
    assert [path.name for path in tmp_path.iterdir()] == [".frozen"]
    assert (tmp_path / ".frozen" / "mine.txt").exists()
