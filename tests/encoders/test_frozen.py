"""The cache of frozen states: bit-exact, bounded, shared by encoders."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from erda.encoders.frozen import FILE, PAGE_SIZE, FrozenCache, FrozenStates

WIDTH = 4


def key(n: int) -> bytes:
    return n.to_bytes(16, "little")


def states(n: int, count: int = 3) -> np.ndarray:
    return np.random.default_rng(n).normal(size=(count, WIDTH)).astype(np.float32)


def add(store: FrozenStates, *numbers: int, passing: bool = False) -> None:
    parts = [states(n, 1 + n % 5) for n in numbers]
    store.add([key(n) for n in numbers], parts, passing=passing)


def holds(store: FrozenStates, n: int) -> bool:
    """Whether sentence n is cached; checks its content."""
    (found,) = store.find([key(n)])
    if found is None:
        return False
    assert np.array_equal(found, states(n, 1 + n % 5))
    return True


@pytest.fixture(params=["memory", "file"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> FrozenCache:
    return FrozenCache(tmp_path if request.param == "file" else None, max_bytes=10 * PAGE_SIZE)


def test_cached_states_are_found(cache: FrozenCache) -> None:
    store = cache.states("a", WIDTH)
    add(store, 1, 2)
    add(store, 3)
    add(store, 2, 4)
    assert [holds(store, n) for n in range(6)] == [False, True, True, True, True, False]
    assert len(store) == 4
    assert cache.states("a", WIDTH) is store
    assert cache.states("b", WIDTH).find([key(1)]) == [None]


def test_max_bytes_limits_all_stores_together(cache: FrozenCache, recwarn: pytest.WarningsRecorder) -> None:
    stores, large = [cache.states(name, WIDTH) for name in "ab"], np.ones((3000, WIDTH), np.float32)  # 48 kB each
    for n in range(30):
        stores[n % 2].add([key(n)], [large])
    assert 5 <= sum(map(len, stores)) <= 10
    assert stores[0].find([key(0)])[0] is not None, "a full cache keeps its entries"
    assert stores[1].find([key(29)]) == [None]
    assert not recwarn


def test_a_huge_bound(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        store = FrozenCache(folder, max_bytes=10**300).states("a", WIDTH)
        add(store, 1)
        assert holds(store, 1)


# -- files -----------------------------------------------------------------------------------------------------------


def reopened(folder: Path) -> FrozenStates:
    return FrozenCache(folder).states("a", WIDTH)


def test_stores_share_a_file(tmp_path: Path) -> None:
    add(reopened(tmp_path), 1, 2)
    one, two = reopened(tmp_path), reopened(tmp_path)
    add(one, 3)
    assert all(holds(two, n) for n in (1, 2, 3))
    add(two, 3)
    assert len(one) == 3


def test_a_wrong_checksum_is_a_miss(tmp_path: Path) -> None:
    add(reopened(tmp_path), 1, 2)
    with sqlite3.connect(tmp_path / FILE) as file:
        (content,) = file.execute("select content from states where key = ?", [key(1)]).fetchone()
        changed = content[:-1] + bytes([content[-1] ^ 1])
        file.execute("update states set content = ? where key = ?", [changed, key(1)])
    store = reopened(tmp_path)
    assert not holds(store, 1)
    assert holds(store, 2)
    add(store, 1)
    assert holds(reopened(tmp_path), 1)


def test_an_invalid_database_file_is_a_warning_and_stays_untouched(tmp_path: Path) -> None:
    content = b"no database" * 100
    (tmp_path / FILE).write_bytes(content)
    store = reopened(tmp_path)
    with pytest.warns(UserWarning, match="delete it"):
        add(store, 1)
    with pytest.warns(UserWarning, match="delete it"):
        assert not holds(store, 1)
    assert (tmp_path / FILE).read_bytes() == content


def test_a_write_error_is_one_warning_and_reading_continues(tmp_path: Path) -> None:
    store = reopened(tmp_path)
    add(store, 1)
    store.cache.connected().execute("pragma query_only = 1")
    with pytest.warns(UserWarning, match="Cannot write the cache of frozen layers"):
        add(store, 2)
    add(store, 3)
    assert [holds(store, n) for n in (1, 2, 3)] == [True, False, False]
