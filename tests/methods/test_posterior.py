"""Posterior scores, compared with the formulas written out."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
import scipy.linalg

from erda.encoders.contract import Encoder
from erda.errors import DataError, StreamError
from erda.methods.posterior import COMMON_NAMES, Posterior, grown_factor, sentences_of
from erda.types import EncoderSpec, Example, Relation, Task
from toy_world import toy_example, toy_relation

DIM = 6


class Cloud(Encoder):
    """Relation `i` is a cloud around its own point; an example's vector depends only on its id."""

    spec, dim = EncoderSpec("cloud", {}, "cloud"), DIM

    def embed(self, examples: Sequence[Example], *, blanked: bool = False, batch_size: int | None = None) -> np.ndarray:
        rows = [self.named(" ".join(one.tokens)) if blanked else self.vector(one.id) for one in examples]
        return np.array(rows, dtype=np.float32).reshape(-1, DIM)

    def vector(self, name: str) -> np.ndarray:
        number, row = (int(part) for part in name.split("-"))
        centre = np.random.default_rng(number).normal(size=DIM)
        found = centre + np.random.default_rng([number, row, 1]).normal(size=DIM) * [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
        return np.asarray(found / np.linalg.norm(found))

    def named(self, text: str) -> np.ndarray:
        found = np.random.default_rng(list(text.encode())).normal(size=DIM)
        return np.asarray(found / np.linalg.norm(found))


def task(sizes: dict[int, range]) -> Task:
    examples = tuple(toy_example(number, row) for number, rows in sizes.items() for row in rows)
    return Task(0, tuple(toy_relation(number) for number in sizes), examples)


SIZES = {0: range(20), 1: range(2), 2: range(5), 3: range(1), 4: range(5)}
QUESTIONS = [toy_example(number, row, labelled=False) for number in SIZES for row in range(100, 104)]


def taught(
    sizes: dict[int, range] = SIZES,
    score: Literal["two-covariance", "lda", "mean"] = "two-covariance",
    name_weight: float = 0.0,
) -> Posterior:
    method = Posterior(Cloud(), score=score, name_weight=name_weight)
    method.learn(task(sizes))
    return method


def scores(method: Posterior) -> np.ndarray:
    return method.predict(QUESTIONS).scores.astype(np.float64)


def written_out(score: str, name_weight: float = 0.0) -> np.ndarray:
    """Compute the formulas for one question and one relation at a time."""
    cloud = Cloud()
    relations = [toy_relation(number) for number in SIZES] + [Relation(name, name) for name in COMMON_NAMES]
    read = [[cloud.named(" ".join(one.tokens)) for one in sentences_of(relation)] for relation in relations]
    names = np.mean(read, axis=1) - np.mean(read, axis=(0, 1))
    clouds = [np.stack([cloud.vector(f"{number}-{row}") for row in rows]) for number, rows in SIZES.items()]
    n, means = np.array([len(one) for one in clouds]), np.stack([one.mean(axis=0) for one in clouds])
    within = np.mean([np.cov(one.T) for one in clouds if len(one) > 1], axis=0)
    shrunk = 0.3 * within + 0.7 * np.trace(within) / DIM * np.eye(DIM)
    inverse = np.linalg.inv(shrunk)
    between = np.cov(means.T)
    t = np.trace(between) - np.trace(within) * np.mean(1 / n)
    assert t > 0.1 * np.trace(within), "the floor must not apply here"
    between = 0.5 * (0.4 * between * t / np.trace(between) + 0.6 * t / DIM * np.eye(DIM))
    e, basis = scipy.linalg.eigh(between, shrunk)  # basis.T @ shrunk @ basis = 1, basis.T @ between @ basis = diag(e)
    found = np.zeros((len(QUESTIONS), len(n)))
    for i, question in enumerate(QUESTIONS):
        x = cloud.vector(question.id)
        for c, mean in enumerate(means):
            if score == "mean":
                found[i, c] = -np.sum((x - mean) ** 2) / 2 + np.trace(within) / 2
            elif score == "lda":
                found[i, c] = -(x - mean) @ inverse @ (x - mean) / 2 + np.trace(inverse @ within) / n[c] / 2
                found[i, c] += np.trace(inverse @ within) / 2
            else:
                weight = n[c] + name_weight
                told = (n[c] * (mean - means.mean(axis=0)) + name_weight * names[c]) / weight
                z, mu = basis.T @ (x - means.mean(axis=0)), basis.T @ told
                k, v = weight * e / (weight * e + 1), 1 + e / (weight * e + 1)
                found[i, c] = -np.sum((z - k * mu) ** 2 / v) / 2
                found[i, c] -= -0.9 * np.sum(z**2 / (1 + e)) / 2 - 0.1 * DIM / 2  # an unseen relation
    return found / np.sqrt(DIM / 3)


@pytest.mark.parametrize(
    ("score", "name_weight"), [("two-covariance", 0.0), ("two-covariance", 3.0), ("lda", 0.0), ("mean", 0.0)]
)
def test_scores_are_the_formulas_of_the_docs(
    score: Literal["two-covariance", "lda", "mean"], name_weight: float
) -> None:
    found = scores(taught(score=score, name_weight=name_weight))
    np.testing.assert_allclose(found, written_out(score, name_weight), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("score", ["two-covariance", "lda", "mean"])
def test_the_order_of_teaching_does_not_matter(score: Literal["two-covariance", "lda", "mean"]) -> None:
    whole = taught(score=score, name_weight=3.0)
    pieces = Posterior(Cloud(), score=score)
    pieces.learn(task({4: range(3), 0: range(7, 20)}))
    pieces.learn(task({2: range(5), 3: range(1), 0: range(6)}))
    pieces.learn(task({1: range(2), 4: range(3, 5), 0: range(6, 7)}))
    columns = [pieces.index[relation.id] for relation in whole.relations]
    np.testing.assert_allclose(scores(pieces)[:, columns], scores(whole), rtol=1e-4, atol=1e-3)


def test_forgetting_equals_never_learning() -> None:
    method = taught()
    method.forget("r0")
    rest = {number: rows for number, rows in SIZES.items() if number}
    np.testing.assert_array_equal(scores(method), scores(taught(rest)))


@pytest.mark.parametrize("n", [1, 2, DIM, DIM + 1, 40])
def test_the_factor_reproduces_the_scatter_and_stays_small(n: int) -> None:
    vectors = np.random.default_rng(n).normal(size=(n, DIM)) + 3
    factor, mean = np.zeros((0, DIM)), np.zeros(DIM)
    for start in range(0, n, 7):
        factor = grown_factor(factor, start, mean, vectors[start : start + 7])
        mean = vectors[: start + 7].mean(axis=0)
    centred = vectors - vectors.mean(axis=0)
    np.testing.assert_allclose(factor.T @ factor, centred.T @ centred, atol=1e-9)
    assert len(factor) == min(n - 1, DIM)


@pytest.mark.parametrize("score", ["two-covariance", "lda", "mean"])
@pytest.mark.parametrize(
    "sizes", [{0: range(1)}, {0: range(9)}, {0: range(1), 1: range(1)}, {number: range(1) for number in range(6)}]
)
def test_one_relation_or_one_example_each_is_enough(
    sizes: dict[int, range], score: Literal["two-covariance", "lda", "mean"]
) -> None:
    method = taught(sizes, score)
    assert np.isfinite(scores(method)).all()
    own = [toy_example(number, 0, labelled=False) for number in sizes]
    assert method.predict(own).best == [f"r{number}" for number in sizes], "an example is nearest to itself"


def test_nan_vectors_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    method = taught()
    before = scores(method)
    with monkeypatch.context() as patch:
        patch.setattr(Cloud, "vector", lambda self, name: np.full(DIM, np.nan))
        with pytest.raises(StreamError, match="NaN"):
            method.learn(task({7: range(2)}))
    np.testing.assert_array_equal(scores(method), before)


# -- names -------------------------------------------------------------------------------------------------------------


def test_name_and_description_become_sentences_with_two_blanks() -> None:
    read = sentences_of(Relation("r", "founded by", "who HEAD started it"))
    assert " ".join(read[0].tokens) == "something has founded by something . ( who HEAD started it )"
    assert " ".join(read[2].tokens) == "the founded by of something is something . ( who HEAD started it )"
    assert " ".join(read[4].tokens) == "something founded by something ."
    for one in read:
        assert (one.tokens[one.head.span.start], one.tokens[one.tail.span.start]) == ("something", "something")
        assert one.head.span < one.tail.span
    assert " ".join(sentences_of(Relation("r", "x"))[0].tokens) == "something has x something ."


def test_patterns_become_sentences_with_two_blanks() -> None:
    description = "who started it\n{{Some Person}} and others set up [[the firm]].\n[[X]] began with {{Y}}"
    relation = Relation("r", "founded by", description)
    templates, patterns = sentences_of(relation)[:6], sentences_of(relation)[6:]
    assert templates == sentences_of(Relation("r", "founded by", "who started it"))
    assert [" ".join(one.tokens) for one in patterns] == [
        "something and others set up something .",
        "something began with something",
    ]
    assert (patterns[0].head.span.start, patterns[0].tail.span.start) == (5, 0)


def test_every_pattern_counts_as_one_sentence() -> None:
    name, patterns = Relation("r", "sign"), ["[[X]] one {{Y}}", "[[X]] two {{Y}}"]
    method = Posterior(Cloud())
    method.learn(Task(0, (Relation("r", "sign", "\n".join(patterns)), Relation("s", "other")), ()))
    assert method.name_weights().tolist() == [5.0, 3.0]
    vectors = method.encoder.embed(sentences_of(name), blanked=True).mean(axis=0)
    told = method.encoder.embed(sentences_of(Relation("r", "sign", "\n".join(patterns)))[6:], blanked=True)
    np.testing.assert_allclose(method.rows["name"]["r"], (3 * vectors + told.sum(axis=0)) / 5, rtol=1e-5)


class Signs(Cloud):
    """A blanked sentence points to the cloud of relation `i` if it contains the name `ri`."""

    def named(self, text: str) -> np.ndarray:
        number = next((int(word[1:]) for word in text.split() if word[0] == "r" and word[1:].isdigit()), None)
        return super().named(text) if number is None else np.random.default_rng(number).normal(size=DIM)


@pytest.mark.parametrize("shots", [0, 5])
def test_a_relation_can_be_learned_from_its_name_alone(shots: int) -> None:
    method = Posterior(Signs())
    told, shown = [Relation(f"r{number}", f"r{number}") for number in (0, 1, 2)], [3, 4, 5, 6] if shots else []
    examples = tuple(toy_example(number, row) for number in shown for row in range(shots))
    relations = (*told, *(Relation(f"r{number}", f"r{number}") for number in shown))
    method.learn(Task(0, relations, examples))
    questions = [toy_example(number, row, labelled=False) for number in (0, 1, 2) for row in range(10)]
    right = [
        best == f"r{number}"
        for best, number in zip(method.predict(questions).best, np.repeat(range(3), 10), strict=True)
    ]
    assert np.mean(right) > 0.7
    assert not method.kept or {one.relation for one in method.kept} == {"r3", "r4", "r5", "r6"}


def test_the_exemplar_is_nearest_to_the_mean_of_all_examples() -> None:
    class Long(Cloud):
        """Vectors a hundred times as long as the normalised ones."""

        def vector(self, name: str) -> np.ndarray:
            return 100 * super().vector(name)

    vectors = {row: Cloud().vector(f"0-{row}") for row in range(12)}
    mean = np.mean(list(vectors.values()), axis=0)
    rows = sorted(vectors, key=lambda row: float(np.linalg.norm(vectors[row] - mean)))
    method = Posterior(Long())
    kept = []
    for taught in (rows[:-2], rows[-2:]):  # the furthest come last
        method.learn(Task(0, (toy_relation(0),), tuple(toy_example(0, row) for row in taught)))
        kept.append(method.kept)
    assert kept[0] == kept[1]


def test_without_its_name_a_relation_needs_an_example() -> None:
    with pytest.raises(DataError, match="no example of: r0"):
        Posterior(Cloud(), name_weight=0.0).learn(Task(0, (toy_relation(0),), ()))
