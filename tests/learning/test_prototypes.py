"""Relation embeddings from names and exemplars."""

import torch

from erda.learning.prototypes import relation_embeddings
from toy_world import toy_relation

RELATIONS = [toy_relation(0), toy_relation(1), toy_relation(2)]
NAMES = torch.tensor([[1.0, 0.0], [0.0, 1.0], [4.0, 4.0]])


def test_mean_of_name_and_exemplars_by_hand() -> None:
    exemplars = {"r2": torch.tensor([[1.0, 0.0], [1.0, 2.0]]), "r0": torch.tensor([[3.0, 2.0]])}
    expected = torch.tensor([[2.0, 1.0], [0.0, 1.0], [2.0, 2.0]])
    torch.testing.assert_close(relation_embeddings(RELATIONS, NAMES, exemplars), expected)
    torch.testing.assert_close(relation_embeddings(RELATIONS, NAMES, {}), NAMES)


def test_unit_gives_name_and_exemplar_equal_weight_by_hand() -> None:
    rows = relation_embeddings(RELATIONS, NAMES * 10, {"r0": torch.tensor([[0.0, 0.5]])}, unit=True)
    half = 0.5**0.5
    torch.testing.assert_close(rows, torch.tensor([[0.5, 0.5], [0.0, 1.0], [half, half]]))
