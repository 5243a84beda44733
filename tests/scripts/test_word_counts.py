"""The embedded dataset is hard, but not impossible, for a word-counting classifier."""

import re
from collections import Counter

import pytest

from atlas import main
from erda.data.catalogue import open_stream


def test_word_counts_are_above_chance_and_below_a_good_method(capsys: pytest.CaptureFixture[str]) -> None:
    stream = open_stream("atlas", seed=100)
    assert len(stream) == 8
    assert Counter(e.relation for e in stream[0].examples).most_common()[-1][1] == 100
    assert Counter(e.relation for e in stream[7].examples).most_common(1)[0][1] == 5
    main(["--seeds", "100"])
    found = re.search(r"after the last task: ([\d.]+) % all-seen", capsys.readouterr().out)
    assert found
    assert 5 < float(found.group(1)) < 60
