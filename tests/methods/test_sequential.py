"""SeqRun keeps nothing, Joint everything, EMR one exemplar a relation."""

import numpy as np
import pytest
import torch

from erda.encoders.trainable import embed
from erda.learning.memory import nearest_of_each
from erda.methods.sequential import Emr, Joint, SeqRun
from toy_world import Watch, toy_encoder, toy_questions, toy_task

KINDS = [SeqRun, Joint, Emr]


def test_training_examples_of_each_task(watch: Watch) -> None:
    everything = [example for index in range(3) for example in toy_task(index).examples]
    memory = {}
    for kind in KINDS:
        watch.calls.clear()
        method = kind(toy_encoder())
        for index in range(3):
            method.learn(toy_task(index))
        own = [everything[:8], everything[8:16], everything[16:]]
        if kind is Joint:
            assert watch.items == [everything[:8], everything[:16], everything]
        else:
            assert [examples[:8] for examples in watch.items] == own
        memory[kind] = [[example.relation for example in examples[8:]] for examples in watch.items]
    assert memory[SeqRun] == [[], [], []]
    assert memory[Emr] == [[], ["r0", "r1"], ["r0", "r1", "r2", "r3"]]


def test_the_exemplars_of_emr_are_nearest_to_the_centroid_after_learning() -> None:
    method = Emr(toy_encoder(), memory_size=2)
    task = toy_task(0, shots=6)
    method.learn(task)
    own = [example for example in task.examples if example.relation == "r1"]
    nearest = nearest_of_each(own, embed(method.encoder, own).numpy(), n=2)
    assert [example for example in method.kept if example.relation == "r1"] == nearest


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_the_logits_of_the_classifier(kind: type[SeqRun]) -> None:
    method = kind(toy_encoder())
    method.learn(toy_task(0))
    questions, _ = toy_questions(2)
    vectors = embed(method.encoder, questions)
    expected = vectors @ method.weight.t() + method.bias
    np.testing.assert_allclose(method.predict(questions).scores, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_new_rows_are_initialised_like_linear_layers_and_old_rows_stay(watch: Watch) -> None:
    method = SeqRun(toy_encoder())
    method.learn(toy_task(0, n_relations=5))
    first = method.weight.clone()
    bound = 1 / method.encoder.dim**0.5
    assert 0.5 * bound < first.abs().max() <= bound
    assert 0 < method.bias.abs().max() <= bound
    method.learn(toy_task(1, n_relations=5))
    assert torch.equal(method.weight[:5], first)
    assert method.weight.shape == (10, method.encoder.dim)


def test_replay_keeps_what_fine_tuning_forgets() -> None:
    """After three tasks, SeqRun has forgotten the first; Joint and EMR still know it."""
    kept = {}
    for kind in KINDS:
        method = kind(toy_encoder(1), seed=1, epochs=12, **({"memory_size": 6} if kind is Emr else {}))
        for index in range(3):
            method.learn(toy_task(index, shots=12))
        questions, answers = toy_questions(6, each=10)
        best = method.predict(questions).best
        kept[kind.name] = np.mean([one == gold for one, gold in zip(best[:20], answers[:20], strict=True)])
    assert kept["seqrun"] < 0.1 < kept["emr"], kept
    assert kept["joint"] > 0.5, kept
