"""A damaged corpus gives the same answers as before, or raises one clear message."""

import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_corpus import ToySimilarity, content, random_rows, toy_store, write_rows

from erda.corpus import staging
from erda.corpus.corpus_build import build_corpus
from erda.corpus.corpus_store import CorpusStore
from erda.corpus.vector_index import VectorIndex, build_index
from erda.corpus.vector_shards import embed_corpus
from erda.errors import DataError, ErdaError
from erda.text.keys import EntityPair

SEED, N_CASES = 20240, 60
MODEL = ToySimilarity()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of two parts with an index of two shards."""
    folder = tmp_path_factory.mktemp("damage")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("erda.corpus.staging.PART_ROWS", 40)
        patch.setattr("erda.corpus.vector_index.EXACT_ROWS", 30)
        store = toy_store(folder, random_rows(60, n_entities=8))
        embed_corpus(store, MODEL, shard_rows=40)
        patch.setitem(embed_corpus.__kwdefaults__, "shard_rows", 40)
        build_index(store, MODEL)
    return store.folder


def answers(folder: Path) -> list[Any]:
    """Rows, rows by entity pair, and neighbours with scores."""
    store = CorpusStore.open(folder)
    pairs = [EntityPair(f"Entity{i}", f"Entity{j}") for i in range(4) for j in range(4)]
    found = VectorIndex.open(store, MODEL).search(MODEL.encode(store.rows(range(0, 60, 9))), 5)
    near = [found.rows.tolist(), np.round(found.scores, 4).tolist()]
    return [content(store), [rows.tolist() for rows in store.find(pairs)], near]


def damaged_bytes(raw: bytes, rng: random.Random) -> bytes:
    place, kind = rng.randrange(len(raw)), rng.randrange(5)
    if kind == 0:
        return raw[:place]
    if kind == 1:
        return raw[:place] + raw[place + rng.randint(1, 9) :]
    if kind == 2:
        return raw[:place] + bytes(rng.randrange(256) for _ in range(rng.randint(1, 9))) + raw[place:]
    if kind == 3:
        return raw.decode("latin1").encode("utf-16")
    return raw[:place] + bytes([raw[place] ^ 1 << rng.randrange(8)]) + raw[place + 1 :]


def tried(corpus: Path, path: Path, rng: random.Random) -> list | None:
    """Answers of a corpus with one damaged file; None if it is rejected with an error of erda."""
    raw = path.read_bytes()
    broken = damaged_bytes(raw, rng)
    path.write_bytes(broken)
    os.utime(path, ns=(rng.randrange(1 << 60), rng.randrange(1 << 60)))
    try:
        return answers(corpus)
    except ErdaError:
        return None
    except BaseException as error:
        raise AssertionError(f"{path.name}: {type(error).__name__}: {error}\n{broken[:3000]!r}") from error
    finally:
        path.write_bytes(raw)


def files_of(corpus: Path, *endings: str) -> list[Path]:
    return sorted(path for path in corpus.rglob("*") if path.is_file() and path.name.endswith(endings))


def test_damage_is_rejected_or_harmless(corpus: Path) -> None:
    expected, rng, n_rejected = answers(corpus), random.Random(SEED), 0
    files = files_of(corpus, ".json", ".npy", ".parquet", ".faiss")
    for _ in range(N_CASES):
        path = rng.choice(files)
        found = tried(corpus, path, rng)
        assert found in (None, expected), path
        n_rejected += found is None
    assert n_rejected > N_CASES // 8
    assert answers(corpus) == expected


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build interrupted before writing its lookup, and a finished one."""
    folder = tmp_path_factory.mktemp("stopped")
    rows = write_rows(folder / "rows.jsonl", random_rows(60))
    build_corpus([rows], folder / "whole")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(staging, "CHUNK_ROWS", 20)
        patched.setattr("erda.corpus.sources.JsonlSource.batch_size", 10)
        patched.setattr("erda.corpus.corpus_build.write_lookup", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build_corpus([rows], folder / "stopped")
    assert len(files_of(folder / "stopped/build", ".parquet")) == 4
    return folder


def test_a_damaged_unfinished_build_is_finished(stopped: Path, tmp_path: Path) -> None:
    expected, rng = content(CorpusStore.open(stopped / "whole")), random.Random(SEED)
    for number in range(12):
        folder = shutil.copytree(stopped / "stopped", tmp_path / str(number))
        path = rng.choice(files_of(folder, ".json", ".duckdb", ".parquet"))
        path.write_bytes(damaged_bytes(path.read_bytes(), rng))
        build_corpus([stopped / "rows.jsonl"], folder)
        assert content(CorpusStore.open(folder)) == expected, path
        assert not (folder / "build").exists()


# --- ownership --------------------------------------------------------------------------------------------------------


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")
    }


NAMES = ["build/main.o", "build/nested/main.o", "build/rows-1.parquet", "thesis.tex", ".lock"]


@pytest.mark.parametrize(
    ("name", "unfinished"),
    [("part-00000.parquet", False), *((name, unfinished) for name in NAMES for unfinished in (False, True))],
)
def test_files_of_the_user_are_never_touched(stopped: Path, tmp_path: Path, name: str, unfinished: bool) -> None:
    folder = tmp_path / "corpus"
    if unfinished:
        shutil.copytree(stopped / "stopped", folder)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    before = tree(folder)
    with pytest.raises(DataError):
        build_corpus([stopped / "rows.jsonl"], folder)
    assert tree(folder) == before


def test_other_files_in_a_corpus_stay(tmp_path: Path) -> None:
    store = toy_store(tmp_path, random_rows(10))
    vectors = build_index(store, MODEL).shards.folder
    mine = [store.folder / "build/main.o", store.folder / "notes.txt", vectors / "notes.txt", vectors / "shard-1.npy"]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    build_corpus([tmp_path / "rows.jsonl"], store.folder)
    for shard in vectors.glob("shard-0*.npy"):
        shard.write_bytes(b"damaged")
    build_index(store, MODEL)
    assert [path.read_text() for path in mine] == ["mine"] * 4


def test_leftovers_of_a_kill_are_removed(tmp_path: Path) -> None:
    store = toy_store(tmp_path, random_rows(10))
    vectors = build_index(store, MODEL).shards.folder
    left = [
        store.folder / ".corpus.json.0123456789abcdef.tmp",
        store.folder / ".keys.npy.0123456789abcdef.tmp",
        vectors / ".a.0123456789abcdef.tmp",
    ]
    for path in left:
        path.write_bytes(b"half")
    (store.folder / ".lock").touch()
    build_corpus([tmp_path / "rows.jsonl"], store.folder)
    build_index(store, MODEL)
    assert not any(path.exists() for path in left)
    assert not list(store.folder.rglob(".lock"))
    assert not (store.folder / "build").exists()
