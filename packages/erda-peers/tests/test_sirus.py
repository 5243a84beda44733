"""SIRUS: clusters of similar relations, and negatives that count more within them."""

import pytest
import torch
from without_learning import instead_of_learning

from erda_peers.sirus import Sirus, first_neighbours
from toy_world import toy_encoder, toy_questions, toy_task


def test_clusters_link_each_relation_to_its_nearest() -> None:
    angles = torch.tensor([0.0, 0.1, 1.5, 1.6, 1.75, 3.0, 3.1])
    found = first_neighbours(torch.stack([angles.cos(), angles.sin()], dim=1)).tolist()
    groups = {tuple(i for i, one in enumerate(found) if one == name) for name in found}
    assert groups == {(0, 1), (2, 3, 4), (5, 6)}
    assert first_neighbours(torch.ones(1, 3)).tolist() == [0]


def test_negatives_of_the_same_cluster_count_more(monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_learning(monkeypatch)
    method = Sirus(toy_encoder(), similar_weight=3.0, temperature=0.5)
    method.clusters = torch.tensor([7, 7, 2])
    rows, columns = torch.tensor([0, 2]), torch.tensor([0, 1, 2])
    logits = method._harder(torch.zeros(2, 3), rows, columns) / 0.5
    torch.testing.assert_close(logits.exp(), torch.tensor([[1.0, 4.0, 1.0], [1.0, 1.0, 1.0]]))
    for index in range(2):
        method.learn(toy_task(index))
    assert len(method.clusters) == 4, "clustered anew with the relations of each task"
    by_prototype, by_description = method._similarities(toy_questions(4)[0])
    found = torch.from_numpy(method.predict(toy_questions(4)[0]).scores)
    torch.testing.assert_close(found, (by_prototype + by_description) / 2)
