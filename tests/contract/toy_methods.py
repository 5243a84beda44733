"""Methods over a toy encoder, for the contract tests."""

import numpy as np

from erda.encoders.trainable import TrainableEncoder as Encoder
from erda.methods import METHODS
from erda.methods.base import Method
from erda.types import Task
from toy_world import toy_encoder, toy_example, toy_questions, toy_relation, toy_task

KEEPS_EVERYTHING = {"joint"}  # its work grows with all examples, by design


def build(name: str, *, seed: int = 3, encoder: Encoder | None = None) -> Method:
    return METHODS[name](encoder or toy_encoder(seed), seed=seed)


def learned(name: str, n_tasks: int = 2, *, seed: int = 3) -> Method:
    method = build(name, seed=seed)
    for index in range(n_tasks):
        method.learn(toy_task(index))
    return method


def scores(method: Method, n_relations: int = 6) -> np.ndarray:
    return method.predict(toy_questions(n_relations)[0]).scores


def taught(number: int, rows: range, *, index: int = 0) -> Task:
    return Task(index, (toy_relation(number),), tuple(toy_example(number, row) for row in rows))
