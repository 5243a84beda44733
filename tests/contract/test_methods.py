"""What every method promises. One suite over the table: a new line in METHODS is tested from that moment on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from toy_methods import KEEPS_EVERYTHING, build, learned, scores

from erda.encoders import build_encoder
from erda.encoders.base import Encoder
from erda.encoders.settings import EncoderSpec
from erda.errors import DataError, ModelError, SettingsError, StreamError
from erda.fields import flat_values
from erda.methods import METHODS, find_method
from erda.methods.base import Method, method_settings
from erda.types import Example, ScoreKind, Task
from toy_world import toy_encoder, toy_example, toy_questions, toy_relation, toy_task, write_vectors

pytestmark = pytest.mark.parametrize("name", sorted(METHODS))


def test_the_table_names_the_method_as_it_names_itself(name: str) -> None:
    assert find_method(name).name == name
    assert METHODS[name].__doc__, "the first line of its docstring is what `erda list methods` shows"


def test_every_setting_is_a_plain_value_with_a_default_and_comes_back(name: str) -> None:
    settings = build(name).settings()
    assert json.loads(json.dumps(settings)) == settings
    assert settings == {"seed": 3, **flat_values(method_settings(METHODS[name])())}
    assert not {"encoder", "augmenter"} & {*settings}
    assert METHODS[name].from_settings(toy_encoder(), settings).settings() == settings


def test_every_setting_out_of_its_range_is_named_at_once(name: str) -> None:
    for key, value in build(name).settings().items():
        if type(value) in (int, float):
            with pytest.raises(SettingsError) as caught:
                METHODS[name].from_settings(toy_encoder(), {key: -9, "flavour": 3})
            fault, unknown = str(caught.value).splitlines()
            assert fault.startswith(f"{key}: must be ")
            assert unknown.startswith("Unknown setting 'flavour'.")
    with pytest.raises(SettingsError, match="seed: must be at least 0, got -9"):
        METHODS[name](toy_encoder(), seed=-9)


def test_nothing_is_predicted_before_something_is_learned(name: str) -> None:
    with pytest.raises(StreamError, match="Nothing was learned yet"):
        build(name).predict(toy_questions(1)[0])


def test_scores_cover_all_known_relations_in_the_order_of_learning(name: str) -> None:
    method = build(name)
    for index in (1, 0, 2):
        method.learn(toy_task(index))
    questions, _ = toy_questions(6)
    predictions = method.predict(questions)
    assert predictions.relations == ("r2", "r3", "r0", "r1", "r4", "r5")
    assert predictions.scores.shape == (len(questions), 6)
    assert predictions.scores.dtype == np.float32
    assert np.isfinite(predictions.scores).all()
    assert [one.best for one in predictions] == predictions.best
    assert [relation.id for relation in method.relations] == list(predictions.relations)
    assert method.n_tasks == 3


def test_it_learns(name: str) -> None:
    method = build(name)
    method.learn(toy_task(0, n_relations=3, shots=60))
    questions, answers = toy_questions(3, each=20)
    right = np.mean([best == gold for best, gold in zip(method.predict(questions).best, answers, strict=True)])
    assert right > 0.6, f"{right:.0%} of three relations after 60 examples each; chance is 33 %"


def test_new_relations_are_learned_after_old_ones(name: str) -> None:
    method = build(name)
    for index in range(2):
        method.learn(toy_task(index, shots=60))
    questions, answers = toy_questions(4, each=20)
    best = method.predict(questions[40:]).best
    assert np.mean([one == gold for one, gold in zip(best, answers[40:], strict=True)]) > 0.6


def test_one_relation_with_one_example_is_a_task(name: str) -> None:
    method = build(name)
    method.learn(toy_task(0, n_relations=1, shots=1))
    assert method.predict(toy_questions(1)[0]).best == ["r0"] * 4
    method.learn(toy_task(1, n_relations=1, shots=1))
    assert np.isfinite(scores(method)).all()


def test_the_same_seed_gives_the_same_scores_whatever_happened_outside(name: str) -> None:
    first = scores(learned(name))
    method = build(name)
    torch.manual_seed(123)
    state = torch.get_rng_state()
    for index in range(2):
        method.learn(toy_task(index))
    second = scores(method)
    assert torch.equal(torch.get_rng_state(), state), "global random state must be left alone"
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, scores(learned(name, seed=4)))


def test_predicting_changes_nothing(name: str) -> None:
    method, watched = build(name), build(name)
    for index in range(2):
        method.learn(toy_task(index))
        watched.learn(toy_task(index))
        scores(watched)
    np.testing.assert_array_equal(scores(method), scores(watched))
    np.testing.assert_array_equal(scores(watched), scores(watched))


def test_scores_do_not_depend_on_the_company_of_an_example(name: str) -> None:
    method = learned(name)
    questions, _ = toy_questions(4)
    together = method.predict(questions).scores
    alone = np.concatenate([method.predict([question]).scores for question in questions])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)
    assert method.predict([]).scores.shape == (0, 4)


class Failing(Encoder):
    """An encoder that gives up at its n-th batch, as Ctrl-C or a full memory would make it."""

    def __init__(self, inner: Encoder) -> None:
        super().__init__()
        self.inner = inner
        self.spec: EncoderSpec = inner.spec
        self.dim, self.learning_rate = inner.dim, inner.learning_rate
        self.left: int | None = None
        self.n_sentences = self.n_batches = 0

    def encode(self, examples: Sequence[Example]) -> torch.Tensor:
        if self.left == 0:
            raise KeyboardInterrupt
        if self.left:
            self.left -= 1
        self.n_sentences += len(examples)
        self.n_batches += 1
        return self.inner.encode(examples)

    def encode_texts(self, texts: Sequence[str]) -> torch.Tensor:
        return self.inner.encode_texts(texts)


@pytest.mark.parametrize("batches", [0, 1, 3, 5])
def test_an_interrupted_task_leaves_the_method_as_it_was(name: str, batches: int) -> None:
    encoder = Failing(toy_encoder(3))
    method = build(name, encoder=encoder)
    method.learn(toy_task(0))
    method.learn(toy_task(1))
    before = scores(method)
    checkpoint, encoder.n_batches = method.checkpoint(), 0
    method.learn(toy_task(2))
    method.restore(checkpoint)
    encoder.left = min(batches, encoder.n_batches - 1)
    with pytest.raises(KeyboardInterrupt):
        method.learn(toy_task(2))
    encoder.left = None
    np.testing.assert_array_equal(scores(method), before)
    assert (method.n_tasks, len(method.relations)) == (2, 4)
    method.learn(toy_task(2))
    np.testing.assert_array_equal(scores(method), scores(learned(name, 3)))


# -- predicting --------------------------------------------------------------------------------------------------------


def test_scores_are_of_the_kind_that_the_method_names(name: str) -> None:
    method = learned(name)
    found = method.predict(toy_questions(4)[0])
    assert found.kind == found[1:].kind == METHODS[name].score_kind
    assert found.kind in get_args(ScoreKind)
    if found.kind == "cosine":
        assert np.abs(found.scores).max() <= 1 + 1e-5
    if found.kind == "negative distance":
        assert found.scores.max() <= 0


def test_predicting_leaves_the_process_as_it_was(name: str) -> None:
    method = learned(name)
    assert not any(module.training for module in method.encoder.modules())
    n_threads, state = torch.get_num_threads(), torch.get_rng_state()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "set_num_threads", lambda n: pytest.fail("threads are the process's own"))
        patch.setattr(torch, "manual_seed", lambda seed: pytest.fail("nobody seeds globally"))
        scores(method)
    assert torch.get_num_threads() == n_threads
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module.training for module in method.encoder.modules())


def test_several_threads_may_ask_at_once(name: str) -> None:
    method = learned(name)
    questions, _ = toy_questions(4, each=10)
    alone = method.predict(questions).scores
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: method.predict(questions).scores, range(24)):
            np.testing.assert_array_equal(found, alone)


# -- encoders of other kinds -------------------------------------------------------------------------------------------


def test_an_encoder_without_trained_parameters_is_fine(name: str, tmp_path: Path) -> None:
    encoder = toy_encoder(3)
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    method = build(name, encoder=encoder.requires_grad_(False))
    for index in range(3):
        method.learn(toy_task(index, shots=20))
    assert np.isfinite(scores(method)).all()
    assert all(torch.equal(value, before[key]) for key, value in encoder.state_dict().items())
    assert method.checkpoint().weights == {}
    method.save(tmp_path / "saved")
    back = Method.load(tmp_path / "saved", encoder=toy_encoder(3).requires_grad_(False))
    np.testing.assert_array_equal(scores(back), scores(method))


def test_the_encoder_can_be_left_as_it_is(name: str) -> None:
    if "train_encoder" not in method_settings(METHODS[name]).model_fields:
        pytest.skip(f"{name} trains nothing")
    encoder = toy_encoder(3)
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    method = METHODS[name](encoder, seed=3, train_encoder=False)
    for index in range(2):
        method.learn(toy_task(index))
    assert np.isfinite(scores(method)).all()
    assert all(torch.equal(value, before[key]) for key, value in encoder.state_dict().items())


def test_what_is_no_number_stops_learning_and_nothing_is_lost(name: str) -> None:
    if not METHODS[name].trains:
        pytest.skip(f"{name} has no loss")
    method = learned(name)
    before = scores(method)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(method.encoder, "encode", lambda batch: torch.full((len(batch), method.encoder.dim), torch.nan))
        says = "vectors that are no numbers" if METHODS[name].reads_names else "the loss .* is nan. Lower"
        with pytest.raises(StreamError, match=says):
            method.learn(toy_task(2))
    np.testing.assert_array_equal(scores(method), before)
    assert len(method.relations) == 4


# -- keeping -----------------------------------------------------------------------------------------------------------


def test_a_saved_method_predicts_the_same_and_learns_on_the_same(name: str, tmp_path: Path) -> None:
    method = learned(name)
    method.save(tmp_path / "saved")
    back = METHODS[name].load(tmp_path / "saved", encoder=toy_encoder(99))
    assert type(back) is METHODS[name]
    assert back.settings() == method.settings()
    assert (back.relations, back.index, back.n_tasks) == (method.relations, method.index, method.n_tasks)
    np.testing.assert_array_equal(scores(back), scores(method))
    method.learn(toy_task(2))
    back.learn(toy_task(2))
    np.testing.assert_array_equal(scores(back), scores(method))


def test_a_saved_method_needs_nothing_but_its_folder(name: str, tmp_path: Path) -> None:
    vectors = write_vectors(tmp_path / "toy.txt")
    encoder = build_encoder("bilstm", seed=3, hidden_size=8, vectors=str(vectors))
    method = build(name, encoder=encoder)
    method.learn(toy_task(0))
    method.save(tmp_path / "saved")
    names = sorted(path.name.partition("-")[0] for path in (tmp_path / "saved").iterdir())
    assert names == ["method.json", "weights"]
    np.testing.assert_array_equal(scores(Method.load(tmp_path / "saved")), scores(method))


def test_a_method_that_learned_nothing_can_be_saved(name: str, tmp_path: Path) -> None:
    build(name).save(tmp_path / "saved")
    back = Method.load(tmp_path / "saved", encoder=toy_encoder())
    for index in range(2):
        back.learn(toy_task(index))
    assert np.isfinite(scores(back)).all()


def test_another_kind_of_method_is_refused_at_load(name: str, tmp_path: Path) -> None:
    learned(name, 1).save(tmp_path / "saved")
    other = next(kind for kind in METHODS.values() if not issubclass(METHODS[name], kind))
    with pytest.raises(ModelError, match=f"holds method '{name}', not '{other.name}'"):
        other.load(tmp_path / "saved", encoder=toy_encoder())


def test_a_task_costs_no_more_than_its_examples_and_the_memory(name: str) -> None:
    encoder = Failing(toy_encoder(3))
    method = build(name, encoder=encoder)
    work = []
    for index in range(6):
        before = encoder.n_sentences
        method.learn(toy_task(index, shots=6))
        work.append(encoder.n_sentences - before)
    growth = work[5] / work[1]
    memory = (12 + 12) / (12 + 4)  # sentences: 12 of the task and one exemplar for each of 12 or 4 relations
    if name in KEEPS_EVERYTHING:
        assert growth > memory
    else:
        assert growth < 1.5 * memory, f"sentences encoded in each task: {work}"


def test_a_memory_of_no_exemplars_is_a_memory(name: str, tmp_path: Path) -> None:
    if "memory_size" not in method_settings(METHODS[name]).model_fields:
        pytest.skip(f"{name} has no memory whose size could be set")
    method = METHODS[name](toy_encoder(3), seed=3, memory_size=0)
    for index in range(3):
        method.learn(toy_task(index, shots=60))
    questions, answers = toy_questions(6, each=20)
    assert np.isfinite(method.predict(questions).scores).all()
    best = method.predict(questions[80:]).best
    assert np.mean([one == gold for one, gold in zip(best, answers[80:], strict=True)]) > 0.6, "of the last task alone"
    method.save(tmp_path / "saved")
    back = METHODS[name].load(tmp_path / "saved", encoder=toy_encoder(99))
    method.learn(toy_task(3))
    back.learn(toy_task(3))
    np.testing.assert_array_equal(scores(back), scores(method))


def test_a_relation_without_an_example_is_refused_or_read_by_its_name(name: str) -> None:
    method = learned(name, 1)
    if METHODS[name].reads_names:
        method.learn(Task(1, (toy_relation(2), toy_relation(3)), (toy_example(2, 0),)))
        assert len(method.relations) == 4
        assert np.isfinite(scores(method)).all()
        return
    with pytest.raises(DataError, match="no example of: r3"):
        method.learn(Task(1, (toy_relation(2), toy_relation(3)), (toy_example(2, 0),)))
    assert len(method.relations) == 2
