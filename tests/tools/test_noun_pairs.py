"""Training sentences whose entities are common nouns."""

import random

from noun_pairs import pair_in


def test_a_pair_has_a_common_noun():
    pairs = {pair_in(["NNP", "VBZ", "DT", "JJ", "NN"], random.Random(seed)) for seed in range(50)}
    assert {frozenset(pair) for pair in pairs} == {frozenset({(0, 1), (3, 5)}), frozenset({(0, 1), (4, 5)})}
    assert pair_in(["NNP", "VBZ", "NNP"], random.Random(0)) is None
