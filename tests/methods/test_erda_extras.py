"""ERDA with extra examples from a corpus, and with the names of future relations."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from erda.corpus.augment import AugmentSettings
from erda.methods.erda import Erda
from erda.text.keys import sentence_key
from erda.types import Example, Task
from toy_world import Watch, toy_encoder, toy_example, toy_relation, toy_task


class Finder:
    """Replaces the augmenter: returns one extra example for each relation of the task."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def find(self, examples: Sequence[Example], **settings: Any) -> SimpleNamespace:
        self.asked.append({"examples": list(examples), **settings})
        found = tuple(
            toy_example(number, 500) for number in sorted({int((one.relation or "")[1:]) for one in examples})
        )
        return SimpleNamespace(examples=found, to_json=lambda: {"examples": [one.id for one in found]})

    def origin(self) -> dict[str, str]:
        return {"name": "toy"}


def learn(method: Erda, n_tasks: int) -> None:
    """Learn a first task with many examples, then few-shot tasks."""
    for index in range(n_tasks):
        method.learn(toy_task(index, shots=4 if index else 60))


def test_few_shot_tasks_learn_from_extra_examples_that_never_enter_the_memory(watch: Watch) -> None:
    finder = Finder()
    chosen = AugmentSettings(match_threshold=0.5, n_neighbours=3, entity_matching=False)
    method = Erda(toy_encoder(), augmenter=finder, augment=chosen)
    learn(method, 3)
    assert len(finder.asked) == 2, "the first task has enough examples of its own"
    asked = finder.asked[1]
    assert asked["settings"] == chosen
    assert [one.relation for one in asked["exemplars"]] == ["r0", "r1", "r2", "r3"]
    extra = [toy_example(4, 500), toy_example(5, 500)]
    for items, _ in watch.calls[6:]:
        assert [(one, False) for one in extra] == [item for item in items if item[0].id.endswith("-500")]
    assert not any(one.id.endswith("-500") for one in method.kept)


def test_earlier_relations_are_rehearsed_from_the_corpus_in_the_second_stage_only(watch: Watch) -> None:
    finder = Finder()
    method = Erda(toy_encoder(), augmenter=finder, n_rehearsed=3, augment=AugmentSettings(n_neighbours=2))
    learn(method, 2)
    new, old = finder.asked
    assert new["settings"].n_neighbours == 2
    assert [one.relation for one in old["examples"]] == ["r0", "r1"], "the exemplars of earlier relations"
    assert old["settings"] == AugmentSettings(n_neighbours=3, max_matches=3, search_matched=True)
    assert {one.relation for one in old["exemplars"]} == {"r2", "r3"}, "the new task, for agreement"
    first, second, third = ([example.id for example, _ in items] for items, _ in watch.calls[3:])
    rehearsed = {"0-500", "1-500"}
    assert rehearsed & {*first} == set()
    assert rehearsed <= {*second}
    assert rehearsed <= {*third}
    assert not any(one.id.endswith("-500") for one in method.kept)
    noted = method.notes()
    assert noted["augmentation"][0]["rehearsed"] == {"examples": ["0-500", "1-500"]}
    assert noted["corpus"] == {"name": "toy"}
    method.learn(toy_task(2))
    assert [one["task"] for one in method.notes()["augmentation"]] == [2], "of the last task alone"


def test_learned_sentences_never_become_extra_examples(tmp_path: Path) -> None:
    finder = Finder()
    method = Erda(toy_encoder(), augmenter=finder, n_rehearsed=1, memory_size=1)
    tasks = [toy_task(index) for index in range(3)]
    for task in tasks[:2]:
        method.learn(task)
    method.save(tmp_path / "erda")
    restored = Erda.load(tmp_path / "erda", encoder=toy_encoder(), augmenter=finder)
    restored.learn(tasks[2])
    learned = {sentence_key(" ".join(one.tokens)) for task in tasks for one in task.examples}
    new, old = finder.asked[-2:]
    assert new["known_keys"] == learned
    extras = {sentence_key(" ".join(one.tokens)) for one in (toy_example(4, 500), toy_example(5, 500))}
    assert old["known_keys"] == learned | extras, "the new extra examples are excluded too"


def test_nothing_is_rehearsed_by_default_or_without_memory() -> None:
    for settings in ({}, {"n_rehearsed": 3, "memory_size": 0}):
        finder = Finder()
        method = Erda(toy_encoder(), augmenter=finder, **settings)
        learn(method, 2)
        assert len(finder.asked) == 1


def test_relations_with_few_examples_are_augmented_in_any_task() -> None:
    finder = Finder()
    method = Erda(toy_encoder(), augmenter=finder, augment_below=6)
    method.learn(toy_task(0, shots=4))
    assert len(finder.asked[0]["examples"]) == 8, "a first teaching may be small"
    many = [toy_example(2, row) for row in range(6)]
    few = [toy_example(3, row) for row in range(5)]
    method.learn(Task(1, (toy_relation(2), toy_relation(3)), (*many, *few)))
    assert finder.asked[1]["examples"] == few
    more = [toy_example(0, row) for row in range(4, 6)]
    method.learn(Task(2, (toy_relation(0),), tuple(more)))
    assert len(finder.asked) == 2, "four examples and two more are six"
    assert method.notes() == {}
