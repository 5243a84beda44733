"""Training sentences with common nouns."""

import random

from noun_pairs import NEAR, Phrase, pair_in, rows


def test_a_pair_has_a_common_noun_and_is_near():
    pairs = {pair_in(["NNP", "VBZ", "DT", "JJ", "NN"], random.Random(seed)) for seed in range(50)}
    name, noun, whole = Phrase(0, 1, False), Phrase(4, 5, True), Phrase(3, 5, True)
    assert pairs == {(name, noun), (noun, name), (name, whole), (whole, name)}
    for tags in (["NNP", "VBZ", "NNP"], ["NNP", *["VBZ"] * NEAR, "NN"]):
        assert pair_in(tags, random.Random(0)) is None
    ((row, both),) = rows([("a", "web", "of", "spiders")], [["DT", "NN", "IN", "NNS"]])
    assert {row["head"]["name"], row["tail"]["name"]} == {"web", "spiders"}
    assert both
