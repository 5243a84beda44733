"""Selection and order of exemplars."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from erda.learning.memory import nearest_of_each, nearest_to_centroid
from toy_world import toy_example


def test_nearest_to_centroid_by_hand() -> None:
    # mean (2, 1); squared distances 5, 1, 2, 10
    vectors = torch.tensor([[0.0, 0.0], [2.0, 2.0], [1.0, 2.0], [5.0, 0.0]])
    assert nearest_to_centroid(vectors) == [1]
    assert nearest_to_centroid(vectors, 10) == [1, 2, 0, 3]
    assert nearest_to_centroid(torch.tensor([[1.0], [-1.0]])) == [0], "the first of a tie"


@settings(max_examples=40)
@given(n=st.integers(1, 8), seed=st.integers(0, 1000))
def test_nearest_to_centroid_equals_a_slow_loop(n: int, seed: int) -> None:
    rows = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    mean = [sum(row[d].item() for row in rows) / n for d in range(3)]
    distances = [sum((row[d].item() - mean[d]) ** 2 for d in range(3)) for row in rows]
    assert distances[nearest_to_centroid(rows)[0]] == pytest.approx(min(distances))


def test_nearest_of_each_selects_within_relations_in_order_of_appearance() -> None:
    examples = [toy_example(number, row) for row in range(3) for number in (2, 0)]
    vectors = torch.tensor([[0.0], [10.0], [1.0], [11.0], [5.0], [30.0]])
    assert nearest_of_each(examples, vectors) == [examples[2], examples[3]]
    assert nearest_of_each(examples, vectors, n=2) == [examples[2], examples[0], examples[3], examples[1]]
    assert nearest_of_each([], torch.zeros(0, 1)) == []
