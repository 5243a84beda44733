"""Hard negatives of the labelled training."""

import numpy as np
from closest_pairs import UNRELATED, closest


def test_labelled_sentences_and_the_closest_pairs_without_a_relation_are_kept():
    relation = np.array([0, UNRELATED, UNRELATED, 1, UNRELATED, UNRELATED, UNRELATED])
    assert closest(relation, np.array([0, 0.9, 0.1, 0, 0.5, 0.2, 0.3]), 0.4).tolist() == [0, 1, 3, 4]
