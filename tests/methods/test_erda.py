"""Algorithm 1 of the paper, step by step."""

import pytest
import torch

from erda.encoders.trainable import embed
from erda.methods.erda import Erda
from erda.types import Example
from toy_world import Watch, toy_encoder, toy_task


def names(method: Erda) -> torch.Tensor:
    with torch.no_grad():
        return method.encoder.encode_texts([relation.name for relation in method.relations])


def unit(vectors: torch.Tensor) -> torch.Tensor:
    return vectors / vectors.norm(dim=1, keepdim=True)


def test_iter1_epochs_use_new_data_and_iter2_epochs_add_the_memory(watch: Watch) -> None:
    method = Erda(toy_encoder(), new_iterations=3, memory_iterations=2)
    method.learn(toy_task(0))
    method.learn(toy_task(1))
    assert [epochs for _, epochs in watch.calls] == [3, 1, 1] * 2
    new, both, again = (items for items, _ in watch.calls[3:])
    assert new == [(example, False) for example in toy_task(1).examples]
    assert both == again
    exemplars = [example for example, remembered in both if remembered]
    assert [example.relation for example in exemplars] == ["r0", "r1", "r2", "r3"]
    assert len(both) == 8 + 2, "an exemplar of the new task is not seen twice"
    assert {example.id for example, _ in both} >= {example.id for example in toy_task(1).examples}


def test_the_first_task_trains_against_names_and_later_ones_against_prototypes(watch: Watch) -> None:
    method = Erda(toy_encoder())
    seen: list[torch.Tensor] = []
    watch.before_step = lambda: seen.append(method.prototypes.clone())
    method.learn(toy_task(0))
    method.learn(toy_task(1))
    assert torch.allclose(seen[0], unit(names(method)[:2]))
    assert torch.allclose(seen[3][2:], unit(names(method)[2:])), "new relations start as their names"
    assert torch.allclose(seen[3][:2], seen[2]), "old ones keep name and exemplar"
    assert not torch.allclose(seen[4][2:], seen[3][2:]), "with an exemplar a relation is more than its name"


def test_names_of_later_relations_take_part_only_on_request_and_are_never_predicted(watch: Watch) -> None:
    every = (*toy_task(0).relations, *toy_task(1).relations)
    for asked in (True, False):
        method, seen = Erda(toy_encoder(), future=every, future_relations=asked), list[int]()
        watch.before_step = lambda: seen.append(len(method.prototypes))  # noqa: B023 (called in this round)
        method.learn(toy_task(0))
        assert set(seen) == {4 if asked else 2}
        assert method.predict(toy_task(0).examples).scores.shape[1] == 2


def test_a_prototype_is_the_mean_of_name_and_exemplar_under_the_current_encoder() -> None:
    method = Erda(toy_encoder())
    for index in range(2):
        method.learn(toy_task(index))
    for row, relation in enumerate(method.relations):
        (exemplar,) = (one for one in method.kept if one.relation == relation.id)
        both = torch.stack([names(method)[row], embed(method.encoder, [exemplar])[0]])
        torch.testing.assert_close(method.prototypes[row], unit(both).mean(dim=0))
    assert not method.prototypes.requires_grad


@pytest.mark.parametrize(("weight", "memory_size", "any_swapped"), [(0.1, 1, True), (0.0, 1, False), (0.1, 0, False)])
def test_hard_negatives_are_made_only_for_exemplars_and_only_with_their_loss(
    weight: float, memory_size: int, any_swapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = Erda(toy_encoder(), contrastive_weight=weight, memory_size=memory_size, memory_iterations=2)
    encode, seen = method.encoder.encode, list[Example]()
    monkeypatch.setattr(method.encoder, "encode", lambda examples: seen.extend(examples) or encode(examples))
    method.learn(toy_task(0))
    n_swapped = sum("~" in example.id for example in seen)
    assert n_swapped <= 2 * 2 * 2, "two exemplars, two negatives each, two epochs"
    assert bool(n_swapped) == any_swapped


def test_without_memory_a_relation_stays_its_name() -> None:
    method = Erda(toy_encoder(), memory_size=0)
    for index in range(2):
        method.learn(toy_task(index))
    assert method.kept == ()
    torch.testing.assert_close(method.prototypes, unit(names(method)))


def test_the_defaults_are_those_of_the_paper() -> None:
    settings = Erda(toy_encoder()).settings()
    paper = {
        "new_iterations": 1,
        "memory_iterations": 2,
        "cross_entropy_weight": 1.0,
        "multi_margin_weight": 1.0,
        "pairwise_margin_weight": 1.0,
        "contrastive_weight": 0.1,
        "memory_size": 1,
        "multi_margin": 0.2,
        "pairwise_margin": 0.2,
        "contrastive_margin": 0.01,
        "match_threshold": 0.65,
        "n_neighbours": 1,
    }
    assert {name: settings[name] for name in paper} == paper
