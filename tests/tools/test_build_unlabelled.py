"""The centres of a background, which `tools/build_unlabelled.py` computes."""

import numpy as np
from build_unlabelled import centres_of


def test_centres_are_the_means_of_their_clusters() -> None:
    places = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    vectors = np.concatenate([place + np.random.default_rng(1).normal(size=(30, 2)) for place in places])
    centres = centres_of(vectors, 3, seed=2)
    nearest = np.linalg.norm(vectors[:, None] - centres, axis=2).argmin(axis=1)
    for row, centre in enumerate(centres):
        np.testing.assert_allclose(centre, vectors[nearest == row].mean(axis=0))
    assert len(centres_of(vectors[:2], 3)) == 2
