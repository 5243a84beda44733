"""EMAR: activation and reconsolidation, step by step."""

import numpy as np
import torch

from erda.encoders.trainable import embed
from erda.learning.losses import cosine_similarity
from erda.methods.emar import Emar
from toy_world import Watch, toy_encoder, toy_questions, toy_task


def test_a_task_is_learned_alone_then_activated_and_reconsolidated_in_turn(watch: Watch) -> None:
    method = Emar(toy_encoder(), new_epochs=4, iterations=2, activation_epochs=3, reconsolidation_epochs=2)
    method.learn(toy_task(0))
    method.learn(toy_task(1))
    assert [epochs for _, epochs in watch.calls] == [4, 3, 2, 3, 2] * 2
    new, both, exemplars, both_again, exemplars_again = (items for items, _ in watch.calls[5:])
    assert new == list(toy_task(1).examples)
    assert [example.relation for example in exemplars] == ["r0", "r1", "r2", "r3"]
    assert exemplars_again == exemplars
    assert both_again == both
    assert {example.id for example in both} == {example.id for example in [*new, *exemplars]}
    assert len(both) == 8 + 2, "an exemplar of the new task is not seen twice"


def test_predictions_are_compared_with_the_mean_of_relation_vector_and_exemplars() -> None:
    method = Emar(toy_encoder(), memory_size=2)
    for index in range(2):
        method.learn(toy_task(index))
    for row, relation in enumerate(method.relations):
        exemplars = embed(method.encoder, [one for one in method.kept if one.relation == relation.id])
        expected = (method.rows["vector"][relation.id] + exemplars.sum(dim=0)) / 3
        torch.testing.assert_close(method.prototypes[row], expected)
    questions, _ = toy_questions(4)
    expected = cosine_similarity(embed(method.encoder, questions), method.prototypes)
    np.testing.assert_allclose(method.predict(questions).scores, expected.numpy(), atol=1e-6)


def test_reconsolidation_moves_the_encoder_and_not_the_relation_vectors() -> None:
    method = Emar(toy_encoder(), new_epochs=0, activation_epochs=0, reconsolidation_epochs=2)
    before = method.encoder.trained_tensors()["lstm.weight_hh_l0"].clone()
    method.learn(toy_task(0))
    vectors = method._stack("vector")
    after = method.encoder.trained_tensors()["lstm.weight_hh_l0"].clone()
    assert not torch.equal(after, before)
    method.learn(toy_task(1))
    assert torch.equal(method._stack("vector")[:2], vectors)
    assert method._stack("vector").shape == (4, method.encoder.dim)
