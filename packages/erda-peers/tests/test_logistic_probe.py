"""The logistic probe equals scikit-learn's classifier over the same vectors; the contract test checks the rest."""

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from erda.encoders.contract import unit_rows
from erda_peers.logistic_probe import LogisticProbe
from toy_world import toy_encoder, toy_questions, toy_task


def test_scores_equal_scikit_learn() -> None:
    encoder, tasks, (questions, _) = toy_encoder(), (toy_task(0, shots=9), toy_task(1)), toy_questions(4)
    probe, every = LogisticProbe(encoder), [one for task in tasks for one in task.examples]
    for task in tasks:
        probe.learn(task)
    scaler = StandardScaler().fit(vectors := unit_rows(encoder.embed(every)))
    slow = LogisticRegression(class_weight="balanced", max_iter=1000)
    slow.fit(scaler.transform(vectors), [example.relation for example in every])
    expected = slow.decision_function(scaler.transform(unit_rows(encoder.embed(questions))))
    np.testing.assert_allclose(probe.predict(questions).scores, expected, atol=1e-2)
