"""Teaching a stream through the extractor is learning it (FewRel: benchmarks/teaching.py fewrel)."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from toy_extractor import Words

from erda.app.extractor import Extractor
from erda.benchmark.measures import ALL_SEEN, TestAnswers, mark
from erda.data.catalogue import open_stream
from erda.methods import METHODS


def test_a_stream_taught_through_the_extractor_is_the_benchmarks(tmp_path: Path) -> None:
    stream = open_stream("atlas", shots=5, seed=100, n_tasks=3, test_per_relation=5)
    encoder, name, settings = Words(), "posterior", {"seed": 100}
    method = METHODS[name].from_settings(encoder, settings)
    for task in stream:  # opened each time
        Extractor.open(tmp_path, method=name, method_settings=settings, encoder=encoder).teach_many(task)
        method.learn(task)
    extractor = Extractor.open(tmp_path, encoder=encoder)
    right, questions = [], []
    for index in range(len(stream)):
        test = stream.test(index)
        predictions = method.predict(test.examples)
        np.testing.assert_array_equal(extractor.version.method.predict(test.examples).scores, predictions.scores)
        right += mark(predictions, TestAnswers.of(test)).right[ALL_SEEN].tolist()
        questions += [replace(one, relation=gold) for one, gold in zip(test.examples, test.gold, strict=True)]
    assert extractor.evaluate(questions).accuracy_of_known == np.mean(right)
