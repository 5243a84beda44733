"""Kept states come back bit for bit, stay within their bound, and survive other processes and crashes."""

import multiprocessing
from pathlib import Path

import pytest
import torch
from torch import Tensor

from erda.encoders.frozen import HEADER, FrozenCache, FrozenStates
from erda.errors import SettingsError

WIDTH = 4
ROW_BYTES = WIDTH * 4


def key(n: int) -> bytes:
    return n.to_bytes(16, "little")


def states(n: int, count: int = 3) -> Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(n))


def add(store: FrozenStates, *numbers: int, passing: bool = False) -> None:
    parts = [states(n, 1 + n % 5) for n in numbers]
    store.add([key(n) for n in numbers], parts, passing=passing)


def holds(store: FrozenStates, n: int) -> bool:
    """Whether sentence n is kept; what is kept must be right."""
    (found,) = store.find([key(n)])
    if found is None:
        return False
    assert torch.equal(found.float(), states(n, 1 + n % 5).to(found.dtype).float())
    return True


@pytest.fixture(params=["memory", "file"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> FrozenCache:
    return FrozenCache(tmp_path if request.param == "file" else None, max_bytes=100 * ROW_BYTES)


def test_what_is_kept_comes_back(cache: FrozenCache) -> None:
    store = cache.states("a", WIDTH)
    add(store, 1, 2)
    add(store, 3)
    add(store, 2, 4)
    assert [holds(store, n) for n in range(6)] == [False, True, True, True, True, False]
    assert len(store) == 4
    assert cache.states("a", WIDTH) is store
    assert cache.states("b", WIDTH).find([key(1)]) == [None]


def test_the_bound_holds_over_all_stores(cache: FrozenCache) -> None:
    one, two = cache.states("a", WIDTH), cache.states("b", WIDTH)
    for n in range(60):
        add(one if n % 2 else two, n)
    assert 90 * ROW_BYTES < cache.used_bytes() <= 100 * ROW_BYTES
    assert holds(one, 1)
    assert holds(two, 2)
    assert not holds(one, 59)


def test_a_cache_without_room_keeps_nothing(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        store = FrozenCache(folder, max_bytes=ROW_BYTES).states("a", WIDTH)
        add(store, 1)
        assert len(store) == 0
    with pytest.raises(SettingsError, match="-1 bytes"):
        FrozenCache(max_bytes=-1)


def test_passing_sentences_are_kept_when_they_come_back(cache: FrozenCache) -> None:
    store = cache.states("a", WIDTH)
    add(store, 1, 2, passing=True)
    assert not holds(store, 1)
    add(store, 2, 3, passing=True)
    assert [holds(store, n) for n in (1, 2, 3)] == [False, True, False]


def test_half_precision_takes_half_the_room(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        cache = FrozenCache(folder, half=True)
        store = cache.states("a", WIDTH)
        add(store, 4)
        assert holds(store, 4)
        assert cache.used_bytes() == 5 * ROW_BYTES // 2 + (HEADER.size if folder else 0)


# -- files -----------------------------------------------------------------------------------------------------------


def reopened(folder: Path) -> FrozenStates:
    return FrozenCache(folder).states("a", WIDTH)


def test_a_file_outlives_its_process(tmp_path: Path) -> None:
    add(reopened(tmp_path), 1, 2)
    again = reopened(tmp_path)
    assert holds(again, 1)
    add(again, 3)
    assert all(holds(reopened(tmp_path), n) for n in (1, 2, 3))


@pytest.mark.parametrize("cut_bytes", [1, 7, 40, 4 * ROW_BYTES, 4 * ROW_BYTES + 3])
def test_a_truncated_tail_is_ignored_and_written_over(tmp_path: Path, cut_bytes: int) -> None:
    add(reopened(tmp_path), 1, 2, 3)
    (file,) = tmp_path.glob("*.states")
    file.write_bytes(file.read_bytes()[:-cut_bytes])
    store = reopened(tmp_path)
    assert holds(store, 1)
    assert not holds(store, 3)
    add(store, 4, 3)
    again = reopened(tmp_path)
    assert [holds(again, n) for n in (1, 3, 4)] == [True, True, True]


@pytest.mark.parametrize("left", [b"\7" * 33, bytes(200), HEADER.pack(b"k" * 16, 64, 0)])
def test_what_a_crash_left_is_written_over(tmp_path: Path, left: bytes) -> None:
    add(reopened(tmp_path), 1, 2)
    (file,) = tmp_path.glob("*.states")
    size = file.stat().st_size
    file.write_bytes(file.read_bytes() + left)
    add(reopened(tmp_path), 3)
    assert file.stat().st_size == size + HEADER.size + 4 * ROW_BYTES
    assert [holds(reopened(tmp_path), n) for n in (1, 2, 3)] == [True, True, True]


def test_changed_states_are_not_used(tmp_path: Path) -> None:
    add(reopened(tmp_path), 1, 2)
    (file,) = tmp_path.glob("*.states")
    content = bytearray(file.read_bytes())
    content[HEADER.size + ROW_BYTES] ^= 1  # in the states of sentence 1
    file.write_bytes(content)
    store = reopened(tmp_path)
    assert not holds(store, 1)
    assert holds(store, 2)
    add(store, 1)
    assert holds(reopened(tmp_path), 1)


def test_an_emptied_folder_is_noticed(tmp_path: Path) -> None:
    store = reopened(tmp_path)
    add(store, 1, 2)
    for file in tmp_path.glob("*.states"):
        file.unlink()
    add(store, 3)
    assert [holds(store, n) for n in (1, 2, 3)] == [False, False, True]
    assert [holds(reopened(tmp_path), n) for n in (1, 2, 3)] == [False, False, True]


def test_what_another_process_adds_is_found(tmp_path: Path) -> None:
    one, two = reopened(tmp_path), reopened(tmp_path)
    add(one, 1)
    assert holds(two, 1)
    add(two, 2)
    assert holds(one, 2)
    add(one, 2)
    (file,) = tmp_path.glob("*.states")
    assert file.stat().st_size == 2 * HEADER.size + 5 * ROW_BYTES  # each once


def write_many(folder: Path, start: int) -> None:
    store = reopened(folder)
    for n in range(start, start + 40):
        add(store, n, n + 1)


def test_two_processes_share_a_folder(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=write_many, args=(tmp_path, start)) for start in (0, 20)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    store = reopened(tmp_path)
    assert all(holds(store, n) for n in range(61))
    (file,) = tmp_path.glob("*.states")
    assert file.stat().st_size == sum(HEADER.size + (1 + n % 5) * ROW_BYTES for n in range(61))  # each once


def test_a_full_disk_is_said_once_and_work_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from erda.encoders import frozen

    store = reopened(tmp_path)
    add(store, 1)

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(frozen, "_write_at", full)
    with pytest.warns(UserWarning, match="No space left on device"):
        add(store, 2)
    add(store, 3)
    assert [holds(store, n) for n in (1, 2, 3)] == [True, False, False]
    monkeypatch.undo()
    assert holds(reopened(tmp_path), 1)


def test_a_bound_beyond_the_machine_is_no_bound() -> None:
    cache = FrozenCache(max_bytes=10**300)
    store = cache.states("a", WIDTH)
    add(store, 1)
    assert holds(store, 1)
