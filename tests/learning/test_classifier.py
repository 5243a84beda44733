"""The classifier that grows."""

from __future__ import annotations

import torch
from torch import nn

from erda.learning.classifier import GrowingClassifier


def test_it_starts_without_relations() -> None:
    assert GrowingClassifier(3)(torch.randn(2, 3)).shape == (2, 0)


def test_old_rows_stay_when_it_grows_and_new_ones_are_small_and_drawn_from_the_generator() -> None:
    classifier = GrowingClassifier(4)
    classifier.grow(2, torch.Generator().manual_seed(1))
    old = classifier.weight.detach().clone(), classifier.bias.detach().clone()
    classifier.grow(5, torch.Generator().manual_seed(2))
    assert torch.equal(classifier.weight[:2], old[0])
    assert torch.equal(classifier.bias[:2], old[1])
    new = classifier.weight[2:]
    assert new.shape == (3, 4)
    assert new.abs().max() <= 0.5  # 1 / sqrt(4)
    assert new.abs().min() > 0
    again = GrowingClassifier(4)
    again.grow(3, torch.Generator().manual_seed(2))
    assert torch.equal(again.weight, new)


def test_logits_are_those_of_a_linear_layer() -> None:
    classifier, linear = GrowingClassifier(4), nn.Linear(4, 3)
    classifier.put(linear.weight.detach(), linear.bias.detach())
    vectors = torch.randn(5, 4)
    torch.testing.assert_close(classifier(vectors), linear(vectors))
    classifier(vectors).sum().backward()
    assert classifier.weight.grad is not None
    assert linear.weight.grad is None, "saved rows are taken over as a copy"
