"""Teaching a stream through the extractor is learning it (FewRel: benchmarks/teaching.py fewrel)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from toy_extractor import Words

from erda.app.extractor import Extractor
from erda.benchmark.metrics import ALL_SEEN, Answers, mark, measure
from erda.data.catalogue import open_stream
from erda.data.streams import TaskStream
from erda.encoders.base import Encoder
from erda.methods import METHODS


def check_stream(stream: TaskStream, encoder: Encoder, name: str, seed: int, folder: Path) -> None:
    method = METHODS[name].from_settings(encoder, {"seed": seed})
    settings = {"seed": seed}
    for task in stream:
        Extractor.open(folder, method=name, method_settings=settings, encoder=encoder).teach(task)  # opened each time
        method.learn(task)
    extractor = Extractor.open(folder, encoder=encoder)
    marks, questions = [], []
    for index in range(len(stream)):
        test = stream.test(index)
        predictions = method.predict(test.examples)
        np.testing.assert_array_equal(extractor.version.method.predict(test.examples).scores, predictions.scores)
        marks.append(mark(predictions, Answers.of(test)))
        questions += [replace(one, relation=gold) for one, gold in zip(test.examples, test.gold, strict=True)]
    assert extractor.evaluate(questions).accuracy_of_known == measure(marks).accuracy[ALL_SEEN]


def test_the_embedded_dataset(tmp_path: Path) -> None:
    check_stream(
        open_stream("atlas", shots=5, seed=100, n_tasks=3, test_per_relation=5), Words(), "posterior", 100, tmp_path
    )
