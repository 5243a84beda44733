from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from erda.corpus.lookup import PairLookup

KEYS = st.integers(0, 2**64 - 1)


def stored(folder, keys):
    keys = np.sort(np.array(keys, np.uint64))
    np.save(folder / "keys.npy", keys)
    np.save(folder / "rows.npy", np.arange(len(keys), dtype=np.int64) * 10)
    return keys, PairLookup(folder / "keys.npy", folder / "rows.npy")


def check(keys, lookup, asked):
    found = lookup.find(np.array(asked, np.uint64))
    for key, rows in zip(asked, found, strict=True):
        assert rows.tolist() == (10 * np.flatnonzero(keys == np.uint64(key))).tolist()


@settings(max_examples=50)
@given(keys=st.lists(KEYS, max_size=60), asked=st.lists(KEYS, max_size=5), data=st.data())
def test_agrees_with_a_plain_scan(tmp_path_factory, keys, asked, data):
    if keys:
        asked = [*asked, *data.draw(st.lists(st.sampled_from(keys)))]
    check(*stored(tmp_path_factory.mktemp("l"), keys), asked)


@pytest.mark.parametrize("kind", ["even", "lopsided", "repeated"])
def test_many_keys(tmp_path, kind):
    """Guesses are good for even keys and must be mended for others; a common pair stands there thousands of times."""
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 2**64, 50_000, np.uint64)
    if kind == "lopsided":
        keys = keys >> np.uint64(30)
    if kind == "repeated":
        keys[:20_000] = keys[0]
    keys, lookup = stored(tmp_path, keys)
    check(keys, lookup, [*keys[[0, 1, 777, 25_000, -1]].tolist(), 0, 2**64 - 1, 12345])
