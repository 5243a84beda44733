"""Relation embeddings from names and exemplars."""

from __future__ import annotations

import torch

from erda.learning.prototypes import relation_embeddings
from toy_world import toy_relation

RELATIONS = [toy_relation(0), toy_relation(1), toy_relation(2)]
NAMES = torch.tensor([[1.0, 0.0], [0.0, 1.0], [4.0, 4.0]])


def test_without_exemplars_a_relation_is_its_name() -> None:
    torch.testing.assert_close(relation_embeddings(RELATIONS, NAMES, {}), NAMES)


def test_with_exemplars_it_is_the_mean_of_name_and_exemplars_by_hand() -> None:
    exemplars = {"r0": torch.tensor([[3.0, 2.0]]), "r2": torch.tensor([[1.0, 0.0], [1.0, 2.0]])}
    expected = torch.tensor([[2.0, 1.0], [0.0, 1.0], [2.0, 2.0]])
    torch.testing.assert_close(relation_embeddings(RELATIONS, NAMES, exemplars), expected)


def test_rows_follow_the_relations_whatever_the_order_of_the_exemplars() -> None:
    exemplars = {"r2": torch.ones(1, 2), "r0": torch.zeros(1, 2)}
    rows = relation_embeddings(RELATIONS, NAMES, exemplars)
    again = relation_embeddings(RELATIONS, NAMES, dict(reversed(exemplars.items())))
    torch.testing.assert_close(rows, again)


def test_with_unit_lengths_name_and_exemplar_weigh_the_same_by_hand() -> None:
    rows = relation_embeddings(RELATIONS, NAMES * 10, {"r0": torch.tensor([[0.0, 0.5]])}, unit=True)
    half = 0.5**0.5
    torch.testing.assert_close(rows, torch.tensor([[0.5, 0.5], [0.0, 1.0], [half, half]]))
