"""Every method keeps the public contract (`erda.testing`); built-in methods also keep promises about PyTorch."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from erda.encoders import build_encoder
from erda.encoders.trainable import TrainableEncoder
from erda.errors import ModelError, SettingsError, StreamError
from erda.methods import METHODS, find_method
from erda.methods.base import Method, method_settings
from erda.testing import CHECKS, Toy, check_method, work_is_bounded
from erda.types import Example, Task
from toy_world import CopiedToy, toy_encoder, toy_example, toy_questions, toy_relation, toy_task, write_vectors

KEEPS_EVERYTHING = {"joint"}  # its work grows with all examples, by design
every_method = pytest.mark.parametrize("name", sorted(METHODS.builtin))


def build(name: str, *, seed: int = 3, encoder: TrainableEncoder | None = None, **settings: Any) -> Method:
    return METHODS[name](encoder or toy_encoder(seed), seed=seed, **settings)


@cache
def _learned(name: str, n_tasks: int, seed: int) -> Method:
    method = build(name, seed=seed)
    for index in range(n_tasks):
        method.learn(toy_task(index))
    return method


def learned(name: str, n_tasks: int = 2, *, seed: int = 3) -> Method:
    return deepcopy(_learned(name, n_tasks, seed))


def scores(method: Method) -> np.ndarray:
    return method.predict(toy_questions(6)[0]).scores


@every_method
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_contract(name: str, check: Callable[[Toy], None]) -> None:
    assert find_method(name).name == name
    if name in KEEPS_EVERYTHING and check is work_is_bounded:
        with pytest.raises(AssertionError, match="sentences encoded"):
            check(CopiedToy(METHODS[name]))
    else:
        check(CopiedToy(METHODS[name]))


class Broken(METHODS["seqrun"]):
    """A method with three faults."""

    score_kind = "negative distance"

    def predict(self, examples: list[Example]) -> object:
        found = super().predict(examples)
        self.n_asked = getattr(self, "n_asked", 0) + 1
        return type(found)(found.relations, np.abs(found.scores) + self.n_asked, "negative distance")

    def forget(self, relation_id: str) -> None:
        super().forget(relation_id)
        self.kept = (toy_example(1, 0),)


def test_check_method_lists_every_broken_promise() -> None:
    with pytest.raises(AssertionError) as caught:
        check_method(Broken, skip=["learns", "learns_more_about_known_relations", "survives_interruptions"])
    first, *faults = str(caught.value).splitlines()
    assert first.startswith("Broken breaks ")
    named = {line.partition(":")[0] for line in faults}
    assert {"scores_all_known_relations", "several_threads_may_predict", "forgets", "saving_is_exact"} <= named
    assert "settings_are_plain_values_with_ranges" not in named
    with pytest.raises(SettingsError, match="Unknown checks: nothing"):
        check_method(Broken, skip=["nothing"])


# -- promises about PyTorch and the built-in methods -------------------------------------------------------------------


@every_method
def test_learning_and_predicting_leave_the_process_state_unchanged(name: str) -> None:
    method = build(name)
    n_threads, state = torch.get_num_threads(), torch.get_rng_state()
    for index in range(2):
        method.learn(toy_task(index))
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module.training for module in method.encoder.modules())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "set_num_threads", lambda n: pytest.fail("the number of threads was changed"))
        patch.setattr(torch, "manual_seed", lambda seed: pytest.fail("the global generator was seeded"))
        found = scores(method)
    assert torch.get_num_threads() == n_threads
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module.training for module in method.encoder.modules())
    assert not np.array_equal(found, scores(learned(name, seed=4))), "another seed"


@every_method
@pytest.mark.parametrize("by_setting", [False, True])
def test_a_frozen_encoder_is_accepted(name: str, by_setting: bool, tmp_path: Path) -> None:
    if by_setting and "train_encoder" not in method_settings(METHODS[name]).model_fields:
        pytest.skip(f"{name} trains nothing")
    encoder = toy_encoder(3).requires_grad_(by_setting)
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    method = build(name, encoder=encoder, **({"train_encoder": False} if by_setting else {}))
    for index in range(3):
        method.learn(toy_task(index, shots=5))
    assert np.isfinite(scores(method)).all()
    assert all(torch.equal(value, before[key]) for key, value in encoder.state_dict().items())
    assert method.checkpoint().weights == {}
    method.save(tmp_path / "saved")
    back = Method.load(tmp_path / "saved", encoder=toy_encoder(3).requires_grad_(False))
    np.testing.assert_array_equal(scores(back), scores(method))


@every_method
def test_nan_stops_learning_and_leaves_the_method_unchanged(name: str) -> None:
    if not METHODS[name].trains:
        pytest.skip(f"{name} has no loss")
    method = learned(name)
    before = scores(method)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(method.encoder, "encode", lambda batch: torch.full((len(batch), method.encoder.dim), torch.nan))
        says = "vectors with NaN" if METHODS[name].reads_names else "the loss .* is nan. Lower"
        with pytest.raises(StreamError, match=says):
            method.learn(toy_task(2))
    np.testing.assert_array_equal(scores(method), before)
    assert len(method.relations) == 4


@every_method
def test_a_saved_method_needs_only_its_folder(name: str, tmp_path: Path) -> None:
    vectors = write_vectors(tmp_path / "toy.txt")
    encoder = build_encoder("bilstm", seed=3, hidden_size=8, vectors=str(vectors))
    method = build(name, encoder=encoder)
    method.learn(toy_task(0))
    method.save(tmp_path / "saved")
    np.testing.assert_array_equal(scores(Method.load(tmp_path / "saved")), scores(method))


@every_method
def test_loading_with_another_class_is_rejected(name: str, tmp_path: Path) -> None:
    learned(name, 1).save(tmp_path / "saved")
    other = next(kind for kind in METHODS.values() if not issubclass(METHODS[name], kind))
    with pytest.raises(ModelError, match=f"holds method '{name}', not '{other.name}'"):
        other.load(tmp_path / "saved", encoder=toy_encoder())


@every_method
def test_memory_size_zero_works(name: str) -> None:
    if "memory_size" not in method_settings(METHODS[name]).model_fields:
        pytest.skip(f"{name} has no setting memory_size")
    method = METHODS[name](toy_encoder(3), seed=3, memory_size=0)
    for index in range(2):
        method.learn(toy_task(index, shots=30))
    questions, answers = toy_questions(4, each=20)
    assert np.isfinite(method.predict(questions).scores).all()
    best = method.predict(questions[40:]).best
    assert np.mean([one == gold for one, gold in zip(best, answers[40:], strict=True)]) > 0.6, "of the last task alone"


@every_method
def test_a_relation_learned_twice_keeps_as_many_exemplars(name: str) -> None:
    method = learned(name)
    method.learn(Task(2, (toy_relation(1),), tuple(toy_example(1, row) for row in range(9, 13))))
    kept = [sum(one.relation == relation for one in method.kept) for relation in ("r0", "r1")]
    assert kept[1] - kept[0] == (4 if name in KEEPS_EVERYTHING else 0)


@every_method
def test_a_checkpoint_holds_only_trained_weights_and_names_its_method(name: str) -> None:
    method = learned(name)
    checkpoint = method.checkpoint()
    assert {*checkpoint.weights} == {*method.encoder.trained_tensors()}
    with pytest.raises(ModelError, match="checkpoint of method 'another'"):
        method.restore(replace(checkpoint, method="another"))
