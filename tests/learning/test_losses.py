"""ERDA's loss against its equations, one example at a time; relation embeddings."""

import pytest
import torch
from torch.nn import functional as F

from erda.learning.losses import cosine_similarity, relation_embeddings
from erda.methods.erda import Erda
from toy_world import toy_encoder, toy_relation


def test_cosine_similarity_by_hand() -> None:
    vectors = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    prototypes = torch.tensor([[1.0, 0.0], [-6.0, -8.0], [0.0, 9.0]])
    expected = torch.tensor([[0.6, -1.0, 0.8], [0.0, -0.8, 1.0]])
    torch.testing.assert_close(cosine_similarity(vectors, prototypes), expected)
    assert cosine_similarity(torch.zeros(1, 3), torch.ones(2, 3)).tolist() == [[0.0, 0.0]]


PAPERS = {
    "temperature": 0.2,
    "cross_entropy_weight": 1.0,
    "multi_margin_weight": 2.0,
    "pairwise_margin_weight": 3.0,
    "contrastive_weight": 0.5,
    "multi_margin": 0.2,
    "pairwise_margin": 0.3,
    "contrastive_margin": 0.1,
    "average_multi_margin": True,
}


def by_hand(o: Erda, vectors, prototypes, targets, exemplars) -> float:
    """Eq. 4 and 7 as loops over examples."""
    scores = [[F.cosine_similarity(v, p, dim=0).item() for p in prototypes] for v in vectors]
    loss, n = 0.0, len(targets)
    for row, true in zip(scores, targets.tolist(), strict=False):
        wrong = [score for column, score in enumerate(row) if column != true]
        loss -= o.cross_entropy_weight / n * torch.log_softmax(torch.tensor(row) / o.temperature, 0)[true].item()
        hinges = sum(max(0.0, o.multi_margin - row[true] + score) for score in wrong)
        loss += o.multi_margin_weight / n * hinges / (max(len(wrong), 1) if o.average_multi_margin else 1)
        if wrong:
            loss += o.pairwise_margin_weight / n * max(0.0, o.pairwise_margin - row[true] + max(wrong))
    for number, row in enumerate(exemplars):
        true = targets[row].item()
        negatives = sum(scores[n + 2 * number + which][true] for which in (0, 1))
        hinge = max(0.0, o.contrastive_margin - scores[row][true] + negatives)
        loss += o.contrastive_weight / len(exemplars) * hinge
    return loss


@pytest.mark.parametrize("changed", [{}, {"multi_margin_weight": 0.0}, {"average_multi_margin": False}])
@pytest.mark.parametrize(("n_relations", "exemplars"), [(5, [3, 0]), (5, []), (1, [1])])
def test_value_is_the_weighted_sum_of_the_losses(changed: dict, n_relations: int, exemplars: list[int]) -> None:
    method, generator = Erda(toy_encoder(), **PAPERS | changed), torch.Generator().manual_seed(0)
    vectors = torch.randn(4 + 2 * len(exemplars), 6, generator=generator, requires_grad=True)
    prototypes = torch.randn(n_relations, 6, generator=generator)
    targets = torch.randint(n_relations, (4,), generator=generator)
    loss = method.objective(vectors, prototypes, targets, exemplars)
    assert loss.item() == pytest.approx(by_hand(method, vectors, prototypes, targets, exemplars), rel=1e-4)
    assert torch.autograd.grad(loss, vectors)[0].isfinite().all()


def test_relation_embeddings_are_means_of_unit_names_and_exemplars() -> None:
    relations, names = [toy_relation(number) for number in range(3)], torch.tensor([[9.0, 0.0], [0.0, 9.0], [4.0, 4.0]])
    rows = relation_embeddings(relations, names, {"r0": torch.tensor([[0.0, 0.5]])})
    torch.testing.assert_close(rows, torch.tensor([[0.5, 0.5], [0.0, 1.0], [0.5**0.5, 0.5**0.5]]))
