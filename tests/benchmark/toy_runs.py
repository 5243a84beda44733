"""A tiny stream and a tiny method for the tests of the benchmark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from erda.benchmark.measures import ALL_SEEN, CANDIDATES
from erda.benchmark.records import Record
from erda.benchmark.run.loop import run
from erda.data.streams import Pool, StreamManifest, TaskStream, build_stream
from erda.methods import METHODS
from erda.settings.runs import Run, default_settings
from erda.types import Entity, Example, Predictions, Relation, Span, Task

N_TASKS = 3


def example(relation: str, number: int, pool: str) -> Example:
    tokens = ("Ada", relation, "Bob", str(number))
    return Example(
        tokens, Entity("Ada", Span(0, 1)), Entity("Bob", Span(2, 3)), relation, f"{pool}-{relation}-{number}"
    )


def toy_stream(seed: int = 1, *, n_tasks: int = N_TASKS, listed: bool = True, n_test: int = 8) -> TaskStream:
    """Tasks of two relations; if `listed`, each test example lists every relation of the stream."""
    relations = [Relation(f"r{i}", f"relation {i}") for i in range(2 * n_tasks)]
    names = tuple(relation.id for relation in relations)

    def pool(name: str, size: int) -> Pool:
        examples = [example(relation, number, name) for relation in names for number in range(size)]
        return Pool(examples, [names] * len(examples) if listed and name != "train" else None)

    about = StreamManifest("toy", "0" * 64, "drawn", seed=seed, shots=2, first_shots=2)
    groups = [relations[2 * k : 2 * k + 2] for k in range(n_tasks)]
    return build_stream(
        "toy", about, groups, train=pool("train", 2), validation=pool("validation", 3), test=pool("test", n_test)
    )


@dataclass
class ToyMethod:
    """Reads the gold relation from a token and adds noise that grows with every learned task."""

    seed: int
    noise: float = 0.5
    known: list[str] = field(default_factory=list)
    n_tasks: int = 0
    n_predicted: list[int] = field(default_factory=list)
    interrupt_at: int | None = None  # raise KeyboardInterrupt while learning this task
    encoder = SimpleNamespace(
        n_threads=None,
        pooled_layers=1,
        trained_on=(),
        spec=SimpleNamespace(name="toy", settings={"size": 1}, fingerprint="f00d"),
    )

    def notes(self) -> dict[str, int | list[int]]:
        return {"n_tasks": self.n_tasks, "of_each": [self.n_tasks]}

    def learn(self, task: Task) -> None:
        if self.n_tasks == self.interrupt_at:
            raise KeyboardInterrupt
        self.known += [relation.id for relation in task.relations]
        self.n_tasks += 1

    def predict(self, examples: Sequence[Example]) -> Predictions:
        assert all(one.relation is None for one in examples)
        self.n_predicted.append(len(examples))
        rng = np.random.default_rng([self.seed, self.n_tasks])
        scores = rng.normal(scale=self.noise * self.n_tasks, size=(len(examples), len(self.known)))
        for row, one in enumerate(examples):
            scores[row, self.known.index(one.tokens[1])] += 1
        return Predictions(tuple(self.known), scores.astype(np.float32))

    def save(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        (directory / "toy.json").write_text(json.dumps([self.seed, self.noise, self.known, self.n_tasks]))

    @classmethod
    def load(cls, directory: Path) -> ToyMethod:
        return cls(*json.loads((directory / "toy.json").read_text()))


def toy_run(**changes: object) -> Run:
    values: dict[str, object] = {
        "method": "toy",
        "encoder": "toy",
        "dataset": "toy",
        "shots": 2,
        "order_family": "drawn",
        "seed": 1,
        "settings": {"method": {"noise": 0.5}, "encoder": {}, "stream": {}},
    }
    return Run(**{**values, **changes})


def toy_record(out: Path, *, stream: TaskStream | None = None, learner: Any = None, **changes: Any) -> Record:
    """Run the toy method on a toy stream; `changes` are those of the run, `learner` replaces the method."""
    asked = toy_run(**changes)
    noise = asked.settings["method"]["noise"]
    return run(
        asked,
        open_stream=lambda: stream or toy_stream(asked.seed),
        build=lambda: learner or ToyMethod(asked.seed, noise),
        out=out,
        bar=False,
    )


def fewrel_record(template: Record, method: str = "erda", seed: int = 100, last: float = 0.5, **changes: Any) -> Record:
    """Record of FewRel 5-shot with a BiLSTM, the method's defaults, three tasks and final accuracy `last`."""
    values: dict[str, Any] = {
        **{"dataset": "fewrel", "shots": 5, "encoder": "bilstm", "order_family": "erda"},
        "corpus": "corpora/wiki" if method == "erda" else "",
        "settings": {"method": default_settings(METHODS[method]), "encoder": {}, "stream": {}},
        "manifest": {**template.manifest, "digest": f"stream-{seed}"},
        "accuracy": {ALL_SEEN: [0.9, 0.5, last / 2], CANDIDATES: [0.9, 0.5, last]},
        **changes,
    }
    return replace(template, method=method, seed=seed, **values)


def with_noise(noise: float) -> dict[str, dict[str, float]]:
    """Settings of a run whose method has this noise."""
    return {"method": {"noise": noise}, "encoder": {}, "stream": {}}
