"""Selection and order of exemplars."""

import numpy as np

from erda.learning.memory import nearest_of_each
from toy_world import toy_example


def test_nearest_to_the_mean_of_each_relation_by_hand() -> None:
    # mean (2, 1); squared distances 5, 1, 2, 10
    examples, vectors = [toy_example(0, row) for row in range(4)], np.array([[0.0, 0], [2, 2], [1, 2], [5, 0]])
    assert nearest_of_each(examples, vectors, n=10) == [examples[row] for row in (1, 2, 0, 3)]
    assert nearest_of_each(examples, vectors, centres={"r0": np.array([5.0, 1])}) == [examples[3]]
    assert nearest_of_each(examples[:2], np.array([[1.0], [-1.0]])) == [examples[0]], "the first of a tie"
    mixed = [toy_example(number, row) for row in range(3) for number in (2, 0)]
    vectors = np.array([[0.0], [10.0], [1.0], [11.0], [5.0], [30.0]])
    assert nearest_of_each(mixed, vectors, n=2) == [mixed[row] for row in (2, 0, 3, 1)], "in order of appearance"
    assert nearest_of_each([], np.zeros((0, 1))) == []
