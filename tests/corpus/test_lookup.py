import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from erda.corpus.lookup import PairLookup

KEYS = st.integers(0, 2**64 - 1) | st.integers(0, 3)  # keys repeat


def stored(folder, keys):
    keys = np.sort(np.array(keys, np.uint64))
    np.save(folder / "keys.npy", keys)
    np.save(folder / "rows.npy", np.arange(len(keys), dtype=np.int64) * 10)
    return keys, PairLookup(folder / "keys.npy", folder / "rows.npy")


def assert_found(keys, lookup, asked):
    found = lookup.find(np.array(asked, np.uint64))
    for key, rows in zip(asked, found, strict=True):
        assert rows.tolist() == (10 * np.flatnonzero(keys == np.uint64(key))).tolist()


@settings(max_examples=50)
@given(keys=st.lists(KEYS, max_size=60), asked=st.lists(KEYS, max_size=5), data=st.data())
def test_find_equals_a_scan(tmp_path_factory, keys, asked, data):
    if keys:
        asked = [*asked, *data.draw(st.lists(st.sampled_from(keys)))]
    assert_found(*stored(tmp_path_factory.mktemp("l"), keys), asked)
