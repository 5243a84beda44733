"""The contract of all methods as a public function, for methods written elsewhere.

    from erda.testing import check_method

    def test_my_method() -> None:
        check_method(MyMethod)

`CHECKS` lists the promises one by one, for `pytest.mark.parametrize`. Each takes a factory of the method and raises
`AssertionError`. `erda.testing.toy_world` provides the data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np

from erda.errors import DataError, ErdaError, SettingsError, StreamError
from erda.fields import flat_values
from erda.methods.base import Method, method_settings
from erda.testing.toy_world import ToyWords, toy_encoder, toy_example, toy_questions, toy_relation, toy_task
from erda.types import Example, Relation, ScoreKind, Task

SEED = 3
SHOTS = 30  # examples of each relation that a method needs to learn it
ENOUGH = 0.6  # accuracy after so many examples of each of three relations; chance is 0.33


def check_method(method: type[Method], *, skip: Sequence[str] = ()) -> None:
    """Check every promise of the contract and raise one AssertionError that lists the broken ones.

    `skip` names checks that cannot hold for this method: `work_is_bounded` if it keeps all examples,
    `scores_do_not_depend_on_the_batch` if it is transductive.
    """
    if unknown := sorted({*skip} - {one.__name__ for one in CHECKS}):
        raise SettingsError(f"Unknown checks: {', '.join(unknown)}. Known: {', '.join(c.__name__ for c in CHECKS)}.")
    faults = []
    for check in CHECKS:
        if check.__name__ not in skip:
            try:
                check(Toy(method))
            except Exception as fault:  # a method's own bugs are broken promises too
                faults.append(f"{check.__name__}: {type(fault).__name__}: {fault}".strip())
    assert not faults, f"{method.__name__} breaks {len(faults)} of {len(CHECKS)} promises:\n" + "\n".join(faults)


@dataclass(frozen=True, slots=True)
class Toy:
    """Builds a method over a toy encoder: a small BiLSTM, or word vectors for a method that trains nothing."""

    method: type[Method]

    def encoder(self, seed: int = SEED) -> Any:
        """A new encoder."""
        return toy_encoder(seed) if self.method.trains else ToyWords()

    def build(self, *, seed: int = SEED, encoder: Any = None, **settings: Any) -> Any:
        """The method before its first task."""
        return self.method(encoder or self.encoder(seed), seed=seed, **settings)

    def learned(self, n_tasks: int = 2, *, seed: int = SEED) -> Any:
        """The method after some tasks of two relations each."""
        method = self.build(seed=seed)
        for index in range(n_tasks):
            method.learn(toy_task(index))
        return method

    def load(self, folder: Path) -> Any:
        """The method saved in a folder, over another encoder of the same shape."""
        return self.method.load(folder, encoder=self.encoder(99))


def _scores(method: Method, n_relations: int = 6) -> np.ndarray:
    return method.predict(toy_questions(n_relations)[0]).scores


def _accuracy(method: Method, n_relations: int, *, last: int | None = None) -> float:
    """Accuracy on 20 unseen examples of each relation, or of the `last` relations alone."""
    questions, answers = toy_questions(n_relations, each=20)
    start = 20 * (n_relations - (last or n_relations))
    found = method.predict(questions[start:]).best
    return float(np.mean([best == gold for best, gold in zip(found, answers[start:], strict=True)]))


def _raises(kind: type[ErdaError], act: Callable[[], object]) -> str:
    """Run `act`, which must raise, and return the message."""
    try:
        act()
    except kind as fault:
        return str(fault)
    raise AssertionError(f"expected {kind.__name__}")


def _same(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    assert np.array_equal(found, expected), f"{what}: scores differ"


# -- what a method is --------------------------------------------------------------------------------------------------


def has_a_name_and_a_description(toy: Toy) -> None:
    """The class has `name`, `score_kind` and a docstring, whose first line `erda list methods` shows."""
    assert toy.method.name, "name is missing"
    assert (toy.method.__doc__ or "").strip(), "the docstring is missing"
    assert toy.method.score_kind in get_args(ScoreKind), f"score_kind must be one of {get_args(ScoreKind)}"


def settings_are_plain_values_with_ranges(toy: Toy) -> None:
    """Settings have defaults, are plain JSON and can be given back; all faults are reported together."""
    settings = toy.build().settings()
    assert json.loads(json.dumps(settings)) == settings
    assert settings == {"seed": SEED, **flat_values(method_settings(toy.method)())}
    assert not {"encoder", "augmenter"} & {*settings}, "parts are not settings"
    assert toy.method.from_settings(toy.encoder(), settings).settings() == settings
    for key, value in settings.items():
        if type(value) in (int, float):
            said = _raises(SettingsError, partial(toy.method.from_settings, toy.encoder(), {key: -9, "flavour": 3}))
            assert len(said.splitlines()) == 2, f"{key} = -9 and an unknown setting: {said}"
    _raises(SettingsError, lambda: toy.method(toy.encoder(), seed=-9))


# -- learning ----------------------------------------------------------------------------------------------------------


def learns(toy: Toy) -> None:
    """It learns three relations, and later ones after earlier ones."""
    method = toy.build()
    method.learn(toy_task(0, n_relations=3, shots=SHOTS))
    assert _accuracy(method, 3) > ENOUGH, f"three relations by {SHOTS} examples each"
    method = toy.build()
    for index in range(2):
        method.learn(toy_task(index, shots=SHOTS))
    assert _accuracy(method, 4, last=2) > ENOUGH, "the second of two tasks"


def learns_from_one_example(toy: Toy) -> None:
    """One relation with one example is a task."""
    method = toy.build()
    method.learn(toy_task(0, n_relations=1, shots=1))
    assert method.predict(toy_questions(1)[0]).best == ["r0"] * 4
    method.learn(toy_task(1, n_relations=1, shots=1))
    assert np.isfinite(_scores(method)).all()


def learns_more_about_known_relations(toy: Toy) -> None:
    """Examples of a known relation may come later, alone or with new relations."""
    method = toy.learned()
    again = Relation("r1", "another name")
    examples = (toy_example(4, 0), *(toy_example(1, row) for row in range(9, 13)))
    method.learn(Task(2, (toy_relation(4), again), examples))
    assert method.predict(toy_questions(1)[0]).relations == ("r0", "r1", "r2", "r3", "r4")
    assert method.relations[1] == again
    method = toy.build()
    method.learn(toy_task(0, n_relations=3, shots=5))
    for number in range(3):
        rows = tuple(toy_example(number, row) for row in range(5, SHOTS))
        method.learn(Task(number + 1, (toy_relation(number),), rows))
    method.learn(Task(4, tuple(map(toy_relation, range(3))), toy_task(0, n_relations=3, shots=SHOTS).examples))
    assert _accuracy(method, 3) > ENOUGH
    assert len(method.relations) == 3


def rejects_relations_without_examples(toy: Toy) -> None:
    """A relation without examples raises, unless the method reads names."""
    method = toy.learned(1)
    task = Task(1, (toy_relation(2), toy_relation(3)), (toy_example(2, 0),))
    if toy.method.reads_names:
        method.learn(task)
        assert np.isfinite(_scores(method)).all()
    else:
        _raises(DataError, lambda: method.learn(task))
    assert len(method.relations) == (4 if toy.method.reads_names else 2)


def survives_interruptions(toy: Toy) -> None:
    """An interruption at any batch leaves the method as it was."""
    encoder = toy.encoder()
    work = _watch(encoder)
    method = toy.build(encoder=encoder)
    for index in range(2):
        method.learn(toy_task(index))
    before, checkpoint, work.n_batches = _scores(method), method.checkpoint(), 0
    method.learn(toy_task(2))
    method.restore(checkpoint)
    last = work.n_batches - 1
    for batches in (0, 1, 3, 5):
        work.left = min(batches, last)
        try:
            method.learn(toy_task(2))
        except KeyboardInterrupt:
            work.left = None
        assert work.left is None, "the interruption was swallowed"
        _same(_scores(method), before, f"interrupted at batch {batches}")
        assert (method.n_tasks, len(method.relations)) == (2, 4)
    method.learn(toy_task(2))
    _same(_scores(method), _scores(toy.learned(3)), "learned after interruptions")


def work_is_bounded(toy: Toy) -> None:
    """A task costs its examples and the memory, not all earlier tasks."""
    encoder = toy.encoder()
    work = _watch(encoder)
    method = toy.build(encoder=encoder)
    sentences = []
    for index in range(6):
        before = work.n_sentences
        method.learn(toy_task(index, shots=6))
        sentences.append(work.n_sentences - before)
    memory = (12 + 12) / (12 + 4)  # 12 sentences of the task, and one exemplar of each of 12 or 4 relations
    assert sentences[5] < 1.5 * memory * sentences[1], f"sentences encoded in each task: {sentences}"


@dataclass(slots=True)
class _Work:
    n_sentences: int = 0
    n_batches: int = 0
    left: int | None = None  # batches until an interruption


def _watch(encoder: Any) -> _Work:
    """Count the sentences and batches of an encoder, and interrupt it after `left` batches."""
    name = "encode" if hasattr(encoder, "encode") else "embed"
    work, encode = _Work(), getattr(encoder, name)

    def counted(examples: Sequence[Example], **how: Any) -> Any:
        if work.left == 0:
            raise KeyboardInterrupt
        if work.left:
            work.left -= 1
        work.n_sentences += len(examples)
        work.n_batches += 1
        return encode(examples, **how)

    setattr(encoder, name, counted)
    return work


# -- predicting --------------------------------------------------------------------------------------------------------


def scores_all_known_relations(toy: Toy) -> None:
    """One finite float32 score for each known relation, in the order of learning, of the kind `score_kind`.

    Before the first task, predicting raises.
    """
    method = toy.build()
    _raises(StreamError, lambda: method.predict(toy_questions(1)[0]))
    for index in (1, 0, 2):
        method.learn(toy_task(index))
    questions, _ = toy_questions(6)
    found = method.predict(questions)
    assert found.relations == ("r2", "r3", "r0", "r1", "r4", "r5")
    assert (found.scores.shape, found.scores.dtype) == ((len(questions), 6), np.float32)
    assert np.isfinite(found.scores).all()
    assert found.kind == toy.method.score_kind
    assert found.kind != "cosine" or np.abs(found.scores).max() <= 1 + 1e-5
    assert found.kind != "negative distance" or found.scores.max() <= 0
    assert method.n_tasks == 3
    assert method.predict([]).scores.shape == (0, 6)


def predicting_changes_nothing(toy: Toy) -> None:
    """Two methods with the same seed have the same scores, whether or not they predict between tasks."""
    method, watched = toy.build(), toy.build()
    for index in range(2):
        method.learn(toy_task(index))
        watched.learn(toy_task(index))
        _scores(watched)
    _same(_scores(watched), _scores(method), "after questions between the tasks")


def scores_do_not_depend_on_the_batch(toy: Toy) -> None:
    """An example has the same scores alone and among others."""
    method, (questions, _) = toy.learned(), toy_questions(4)
    alone = np.concatenate([method.predict([question]).scores for question in questions])
    assert np.allclose(method.predict(questions).scores, alone, rtol=1e-4, atol=1e-5)


def several_threads_may_predict(toy: Toy) -> None:
    """Predictions of four threads at once equal those of one."""
    method, (questions, _) = toy.learned(), toy_questions(4, each=10)
    alone = method.predict(questions).scores
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: method.predict(questions).scores, range(8)):
            _same(found, alone, "four threads")


# -- forgetting, checkpoints, saving -----------------------------------------------------------------------------------


def forgets(toy: Toy) -> None:
    """A forgotten relation leaves nothing behind and can be learned again; unknown ones raise."""
    method = toy.learned()
    method.forget("r1")
    assert method.predict(toy_questions(1)[0]).relations == ("r0", "r2", "r3")
    assert not [one for one in method.kept if one.relation == "r1"]
    assert all({*rows} == {"r0", "r2", "r3"} for rows in method.rows.values())
    _raises(StreamError, lambda: method.forget("r7"))
    method.learn(Task(2, (toy_relation(1),), tuple(toy_example(1, row) for row in range(4))))
    assert method.predict(toy_questions(1)[0]).relations == ("r0", "r2", "r3", "r1")
    for relation in ("r0", "r1", "r2", "r3"):
        method.forget(relation)
    _raises(StreamError, lambda: _scores(method))
    method.learn(toy_task(1))
    assert method.predict(toy_questions(1)[0]).relations == ("r2", "r3")


def checkpoints_are_exact(toy: Toy) -> None:
    """`restore` brings back a checkpoint bit for bit, and learning continues as if nothing had happened."""
    method, other = toy.learned(), toy.learned()
    checkpoint, before = method.checkpoint(), _scores(method)
    for _ in range(2):
        method.learn(toy_task(2))
        method.forget("r0")
        assert not np.array_equal(_scores(method)[:, 0], before[:, 0])
        method.restore(checkpoint)
        _same(_scores(method), before, "restored")
    method.learn(toy_task(2))
    other.learn(toy_task(2))
    _same(_scores(method), _scores(other), "learned after a restore")


def saving_is_exact(toy: Toy) -> None:
    """A saved method predicts and learns on exactly as the original, also before its first task."""
    with TemporaryDirectory() as folder:
        method = toy.learned()
        method.save(Path(folder) / "learned")
        back = toy.load(Path(folder) / "learned")
        assert (type(back), back.settings()) == (toy.method, method.settings())
        assert (back.relations, back.index, back.n_tasks) == (method.relations, method.index, method.n_tasks)
        _same(_scores(back), _scores(method), "loaded")
        for one in (method, back):
            one.forget("r1")
            one.learn(toy_task(2))
        _same(_scores(back), _scores(method), "learned after loading")
        toy.build().save(Path(folder) / "new")
        empty = toy.load(Path(folder) / "new")
        empty.learn(toy_task(0))
        assert np.isfinite(_scores(empty)).all()


CHECKS: tuple[Callable[[Toy], None], ...] = (
    has_a_name_and_a_description,
    settings_are_plain_values_with_ranges,
    learns,
    learns_from_one_example,
    learns_more_about_known_relations,
    rejects_relations_without_examples,
    survives_interruptions,
    work_is_bounded,
    scores_all_known_relations,
    predicting_changes_nothing,
    scores_do_not_depend_on_the_batch,
    several_threads_may_predict,
    forgets,
    checkpoints_are_exact,
    saving_is_exact,
)
