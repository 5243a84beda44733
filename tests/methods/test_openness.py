"""The open-text head: its parts against slow or known answers, and what it promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from erda.encoders.contract import Unlabelled, UnlabelledFile, save_unlabelled
from erda.errors import ModelError
from erda.methods.expected import Background, Expected, Fitted, NeverSeen
from erda.methods.open_head import OpenHead, Pairs, compete, type_numbers
from erda.methods.openness import (
    CORRECTION_L2,
    JUDGED_LINE,
    LINE,
    LINE_SPREAD,
    TaughtPairs,
    correction,
    distinctness,
    fit_open_head,
    fitted_line,
    left_out_logits,
)

DIM, TYPES = 8, ("DATE", "GPE", "PERSON")


def some_pairs(n: int, seed: int, *, head: int = 3, gap: int = 3, around: int | None = None) -> Pairs:
    """Pairs of a head and a place; near one axis of the space if `around` is given."""
    vectors = np.random.default_rng(seed).normal(size=(n, DIM))
    if around is not None:
        vectors[:, around] += 4
    types = np.tile([head, 2], (n, 1))
    return Pairs(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), types, np.tile([0, gap], (n, 1)))


@pytest.fixture
def unlabelled() -> Unlabelled:
    sample = Pairs.joined([some_pairs(100, 0), some_pairs(100, 1, head=1, gap=12)])
    mean = sample.vectors.mean(axis=0)
    variances, axes = np.linalg.eigh(np.cov(sample.vectors.T, bias=True))
    return Unlabelled(
        mean, axes, variances, sample.vectors, sample.types, sample.starts, TYPES, np.eye(4), np.zeros((0, DIM))
    )


@pytest.fixture
def model() -> Fitted:
    means = np.stack([some_pairs(5, 2, around=0).vectors.mean(axis=0), some_pairs(5, 3, around=1).vectors.mean(axis=0)])
    spread = np.full(DIM, 0.5)
    never = NeverSeen.of(Background(np.zeros((0, DIM))), np.zeros(DIM), np.eye(DIM), spread)
    return Fitted(np.zeros(DIM), np.eye(DIM), Expected.given(np.array([5.0, 5.0]), means, spread), never)


def taught(*examples: Pairs, against: Pairs | None = None) -> list[TaughtPairs]:
    none = some_pairs(0, 0)
    return [TaughtPairs(one, np.zeros(DIM), against or none if not i else none) for i, one in enumerate(examples)]


def both() -> tuple[Pairs, Pairs]:
    return some_pairs(5, 2, around=0), some_pairs(5, 3, around=1, head=1, gap=12)


def asked(head: OpenHead, model: Fitted, pairs: Pairs) -> np.ndarray:
    return head.log_odds(model.scores(pairs.vectors), head.best_rivals(model, pairs.vectors), pairs)


def test_vector_types_and_place_are_evidence(unlabelled: Unlabelled, model: Fitted) -> None:
    """A pair like the examples is likelier in each respect; an unknown type is no evidence."""
    head = fit_open_head(taught(*both()), model, unlabelled)
    like = some_pairs(1, 9, around=0)
    usual = asked(head, model, like)[0, 0]
    assert usual > asked(head, model, like)[0, 1]
    assert asked(head, model, replace(like, starts=np.array([[0, 30]])))[0, 0] < usual
    other, unknown = (asked(head, model, replace(like, types=np.array([[kind, 2]])))[0, 0] for kind in (1, 0))
    assert other < unknown < usual


def test_types_set_by_hand_replace_those_of_the_examples(unlabelled: Unlabelled, model: Fitted) -> None:
    learned = taught(*both())
    by_hand = [replace(learned[0], types_by_hand=(("date",), ())), learned[1]]
    heads = [fit_open_head(one, model, unlabelled) for one in (learned, by_hand)]
    dates, people = (type_numbers([(kind, "GPE")], TYPES) for kind in ("DATE", "PER"))
    odds = [[head.types[0][kinds[0, 0], 0] for kinds in (dates, people)] for head in heads]
    assert odds[0][0] < 0 < odds[0][1]
    assert odds[1][1] < 0 < odds[1][0]


def test_counterexamples_lower_what_is_like_them(unlabelled: Unlabelled, model: Fitted) -> None:
    """They change their own relation alone; sentences without a relation change all."""
    wrong = some_pairs(3, 30, around=0, head=1)
    before, after, everywhere = (
        fit_open_head(taught(*both(), against=against), model, unlabelled, unrelated=unrelated)
        for against, unrelated in ((None, None), (wrong, None), (None, wrong))
    )
    new = some_pairs(4, 31, around=0, head=1)
    right = some_pairs(4, 32, around=0)
    gaps = [
        (asked(head, model, right)[:, 0].mean() - asked(head, model, new)[:, 0].mean()) / head.likelihood[0]
        for head in (before, after)
    ]
    assert gaps[1] > gaps[0]
    assert np.array_equal(asked(before, model, new)[:, 1], asked(after, model, new)[:, 1])
    assert (everywhere.against == 3).all()
    assert not np.array_equal(asked(before, model, new)[:, 1], asked(everywhere, model, new)[:, 1])


def test_counterexamples_do_not_score_the_sample_again(
    unlabelled: Unlabelled, model: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scores of the sample depend on the model alone, and the best rival on the names of relations as well."""
    names = np.eye(DIM)
    rivals, wrong, n_scored = replace(unlabelled, rivals=names), some_pairs(3, 30), list[int]()
    named = [replace(one, name=names[0] - names.mean(axis=0)) for one in taught(*both(), against=wrong)]
    score = Fitted.scores_of
    monkeypatch.setattr(Fitted, "scores_of", lambda self, *given: n_scored.append(len(given[0])) or score(self, *given))
    heads = [fit_open_head(own, model, rivals) for own in (taught(*both()), taught(*both(), against=wrong), named)]
    assert n_scored.count(len(unlabelled.vectors)) == 1
    assert [len(head.rivals) for head in heads] == [DIM, DIM, DIM - 1]
    fresh = fit_open_head(named, replace(model), rivals)
    assert all(np.array_equal(one, fresh.arrays()[name]) for name, one in heads[-1].arrays().items())


def test_the_order_of_teaching_does_not_matter(unlabelled: Unlabelled, model: Fitted) -> None:
    wrong, new = some_pairs(6, 30), some_pairs(9, 31, around=0)

    def odds(order: Sequence[int]) -> np.ndarray:
        first, second = both()
        own = taught(first[np.array(order)], second, against=wrong[np.array([*order, 5])])
        return asked(fit_open_head(own, model, unlabelled), model, new)

    assert odds([0, 1, 2, 3, 4]) == pytest.approx(odds([3, 1, 4, 0, 2]), abs=1e-3)


def test_the_correction_is_a_logistic_regression() -> None:
    """Newton steps on the dual end where a general optimiser ends on the primal."""
    optimize = pytest.importorskip("scipy.optimize")
    draw = np.random.default_rng(0)
    rows, offsets = draw.normal(size=(30, 6)), draw.normal(size=30)
    holds = (rows[:, 0] + draw.normal(size=30) > 0).astype(float)

    def loss(weights: np.ndarray) -> float:
        logits = offsets + rows @ weights
        return float((np.logaddexp(0, logits) - holds * logits).sum() + CORRECTION_L2 / 2 * weights @ weights)

    slow = optimize.minimize(loss, np.zeros(6), tol=1e-10).x
    assert correction(rows, offsets, holds) == pytest.approx(slow, abs=1e-3)


def test_left_out_logits_are_those_of_a_correction_without_the_pair() -> None:
    draw = np.random.default_rng(1)
    rows, offsets = 0.3 * draw.normal(size=(40, 6)), draw.normal(size=40)
    holds = (rows[:, 0] + 0.3 * draw.normal(size=40) > 0).astype(float)
    found = left_out_logits(rows, correction(rows, offsets, holds), offsets, holds)
    others = [np.delete(np.arange(40), i) for i in range(40)]
    slow = [offsets[i] + rows[i] @ correction(rows[o], offsets[o], holds[o]) for i, o in enumerate(others)]
    assert np.abs(found - slow).mean() < 0.2 * np.abs(offsets + rows @ correction(rows, offsets, holds) - slow).mean()


def test_judgements_decide_what_evidence_is_worth() -> None:
    """Many right ones make the same evidence likelier, many wrong ones less likely; without any, the prior holds."""
    evidence, prior = np.linspace(-1, 1, 20), fitted_line(np.zeros(0), np.zeros(0))
    mostly_right, mostly_wrong = (fitted_line(evidence, np.full(20, share)) for share in (0.95, 0.01))
    assert mostly_right[1] > prior[1] > mostly_wrong[1]
    assert 1 / (1 + np.exp(-fitted_line(evidence, (evidence > 0).astype(float))[1])) == pytest.approx(0.5, abs=0.2)


def test_the_line_of_judged_pairs_is_the_best_one() -> None:
    """Newton steps without a line search ended elsewhere for 6 of these 2,000 draws."""
    drawn = np.random.default_rng(0)
    for _ in range(2_000):
        n = int(drawn.integers(3, 60))
        evidence = drawn.normal(drawn.normal(0, 4), drawn.uniform(0.2, 6), n)
        holds = (drawn.random(n) < 1 / (1 + np.exp(-drawn.normal(0.5, 2) * evidence))).astype(float)
        slope, intercept = line = fitted_line(evidence, holds)
        error = 1 / (1 + np.exp(-slope * evidence - intercept)) - holds
        gradient = np.array([error @ evidence, error.sum()]) + (line - JUDGED_LINE) / np.square(LINE_SPREAD)
        assert np.abs(gradient).max() < 1e-4


def test_a_rival_that_scores_higher_counts_against_a_relation(unlabelled: Unlabelled, model: Fitted) -> None:
    """A rival with the relation's own name is none; without rivals there is no lead."""
    other, own = np.eye(DIM)[4], np.eye(DIM)[0]
    learned = [replace(one, name=own) for one in taught(*both())]
    with_rivals = replace(unlabelled, rivals=np.stack([other, own, -own - other]))
    head = fit_open_head(learned, model, with_rivals)
    assert len(head.rivals) == 2
    like = some_pairs(1, 9, around=0)
    towards = replace(like, vectors=like.vectors + other)
    alone, rivals = model.scores(towards.vectors), head.best_rivals(model, towards.vectors)
    assert rivals > head.best_rivals(model, like.vectors)
    assert (head.log_odds(alone, rivals + 1, towards) < head.log_odds(alone, rivals, towards)).all()
    bare = fit_open_head(learned, model, unlabelled)
    assert np.isfinite(bare.log_odds(alone, bare.best_rivals(model, towards.vectors), towards)).all()


def test_half_of_the_lead_of_the_best_pair_counts_against_the_others() -> None:
    scores, starts = np.array([[1.0], [3.0], [5.0], [2.0]]), np.tile([4, 0], (4, 1))
    assert compete(scores, starts, np.array([7, 7, 9, 7])).ravel().tolist() == [0, 3, 5, 1.5]


def test_the_first_entity_of_a_sentence_is_the_likelier_head() -> None:
    starts = np.array([[0, 5], [5, 0], [5, 9]])
    first, second, third = compete(np.ones((3, 1)), starts, np.zeros(3, dtype=int)).ravel()
    assert first == pytest.approx(1.4)
    assert second == third == pytest.approx(0.8)
    assert compete(np.ones((1, 1)), starts[2:], np.zeros(1, dtype=int)).item() == first


def test_types_that_no_example_has_count_more_than_those_they_have(unlabelled: Unlabelled, model: Fitted) -> None:
    """Log odds below 0 count in full, those above 0 by TYPE_WEIGHT."""
    head = fit_open_head(taught(*both()), model, unlabelled)
    shares = np.bincount(unlabelled.types[:, 0], minlength=4)[1:] + 1.0
    shares /= shares.sum()
    odds = np.log((np.array([0, 0, 5]) + 0.5 * shares) / 5.5 / shares)
    assert head.types[0, 1:, 0] == pytest.approx(LINE[0] * np.where(odds > 0, 0.4 * odds, odds), rel=1e-4)


def test_a_relation_like_unlabelled_pairs_is_taken_to_be_frequent(unlabelled: Unlabelled) -> None:
    """Examples by the slow computation: a ridge head of the others, in deviations of unlabelled pairs."""
    mixed = Pairs.joined([some_pairs(3, 40), some_pairs(3, 42, head=1)])
    usual, special = taught(mixed, some_pairs(5, 41, around=0, head=1))
    found = distinctness([usual, special], unlabelled)
    assert (found[1] > found[0]).all()
    centred = special.examples.vectors - unlabelled.mean
    covariance = unlabelled.axes * unlabelled.variances @ unlabelled.axes.T
    scores = []
    for i, vector in enumerate(centred):
        mean = np.delete(centred, i, axis=0).sum(axis=0) / 5
        weights = np.linalg.solve(covariance + 0.1 * unlabelled.variances.mean() * np.eye(DIM), mean)
        scores.append(vector @ weights / np.sqrt(weights @ covariance @ weights))
    assert found[1, 1] == pytest.approx(np.mean(scores), rel=1e-6)
    assert distinctness(taught(some_pairs(0, 0)), unlabelled)[0, 1] == 0


def test_a_head_is_restored_from_its_arrays(unlabelled: Unlabelled, model: Fitted) -> None:
    head, new = fit_open_head(taught(*both()), model, unlabelled), some_pairs(3, 9)
    restored = OpenHead.from_arrays(head.arrays())
    assert np.array_equal(asked(head, model, new), asked(restored, model, new))
    assert restored.type_names == TYPES


def test_statistics_are_read_for_their_own_weights_only(unlabelled: Unlabelled, tmp_path: Path) -> None:
    assert UnlabelledFile(tmp_path, "mine").read() is None
    path = save_unlabelled(tmp_path, unlabelled, "mine")
    found = UnlabelledFile(tmp_path, "mine").read()
    assert found is not None
    assert found.vectors == pytest.approx(unlabelled.vectors, abs=0.01)
    assert np.array_equal(found.types, unlabelled.types)
    assert UnlabelledFile(tmp_path, "other").read() is None
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelError, match="Reinstall"):
        UnlabelledFile(tmp_path, "mine").read()
