"""Which examples are kept, and in which order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from erda.learning.memory import Memory, nearest_to_centroid
from toy_world import toy_example


def test_the_exemplar_is_the_nearest_to_the_mean_by_hand() -> None:
    # mean (2, 1); squared distances 5, 1, 2, 10
    vectors = torch.tensor([[0.0, 0.0], [2.0, 2.0], [1.0, 2.0], [5.0, 0.0]])
    assert nearest_to_centroid(vectors) == [1]
    assert nearest_to_centroid(vectors, 3) == [1, 2, 0]


def test_of_two_as_near_the_first_is_kept() -> None:
    assert nearest_to_centroid(torch.tensor([[1.0], [-1.0]])) == [0]


def test_more_exemplars_than_examples_are_all_examples() -> None:
    assert sorted(nearest_to_centroid(torch.randn(3, 2), 10)) == [0, 1, 2]


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 8), seed=st.integers(0, 1000))
def test_nearest_equals_a_loop(n: int, seed: int) -> None:
    rows = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    mean = [sum(row[d].item() for row in rows) / n for d in range(3)]
    distances = [sum((row[d].item() - mean[d]) ** 2 for d in range(3)) for row in rows]
    assert distances[nearest_to_centroid(rows)[0]] == pytest.approx(min(distances))


def test_a_memory_holds_exemplars_by_relation_in_the_order_of_learning() -> None:
    memory = Memory()
    first = [toy_example(1, row) for row in range(3)]
    second = [toy_example(0, row) for row in range(3)]
    memory.select("r1", first, torch.tensor([[0.0], [1.0], [5.0]]))
    memory.select("r0", second, torch.tensor([[0.0], [1.0], [2.0]]), n=2)
    assert list(memory) == [first[1], second[1], second[0]]
    assert len(memory) == 3
    assert list(memory.exemplars) == ["r1", "r0"]


def test_select_all_takes_each_relation_among_its_own() -> None:
    examples = [toy_example(number, row) for row in range(3) for number in (2, 0)]
    vectors = torch.tensor([[0.0], [10.0], [1.0], [11.0], [5.0], [30.0]])
    memory = Memory()
    memory.select_all(examples, vectors)
    assert memory.exemplars == {"r2": (examples[2],), "r0": (examples[3],)}


def test_selecting_again_replaces_what_was_kept() -> None:
    memory = Memory()
    memory.select("r0", [toy_example(0, 0)], torch.zeros(1, 2))
    memory.select("r0", [toy_example(0, 1)], torch.zeros(1, 2))
    assert list(memory) == [toy_example(0, 1)]
