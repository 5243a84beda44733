"""The open-text head: its parts against slow or known answers, and what it promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from erda.encoders.contract import Unlabelled, UnlabelledFile, save_unlabelled, unit_rows
from erda.errors import ModelError
from erda.methods.expected import Background, Expected, Fitted, NeverSeen
from erda.methods.open_head import FEATURES, OpenHead, Pairs, leads, type_numbers
from erda.methods.openness import TaughtPairs, _whitening, correction, fit_open_head, fitted_score

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
        mean, axes, variances, sample.vectors, sample.types, sample.starts, TYPES, np.eye(4), sample.vectors[::2]
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
    return head.log_odds(model.scores(pairs.vectors), pairs, in_text=True)


def test_vector_types_and_place_are_evidence(unlabelled: Unlabelled, model: Fitted) -> None:
    """A pair like the examples is likelier in each respect; an unknown type is no evidence."""
    head = fit_open_head(taught(*both()), model, unlabelled)
    like = some_pairs(1, 9, around=0)
    usual = asked(head, model, like)[0, 0]
    assert usual > asked(head, model, like)[0, 1]
    assert asked(head, model, replace(like, starts=np.array([[0, 30]])))[0, 0] < usual
    other, unknown = (asked(head, model, replace(like, types=np.array([[kind, 2]])))[0, 0] for kind in (1, 0))
    assert other < unknown == usual  # a type that no example has is evidence against a relation, nothing else


def test_types_set_by_hand_replace_those_of_the_examples(unlabelled: Unlabelled, model: Fitted) -> None:
    learned = taught(*both())
    by_hand = [replace(learned[0], types_by_hand=(("date",), ())), learned[1]]
    heads = [fit_open_head(one, model, unlabelled) for one in (learned, by_hand)]
    dates, people = (type_numbers([(kind, "GPE")], TYPES) for kind in ("DATE", "PER"))
    odds = [[head.types[0][kinds[0, 0], 0] for kinds in (dates, people)] for head in heads]
    assert odds[0][0] < 0 < odds[0][1]
    assert odds[1][1] < 0 < odds[1][0]


def test_counterexamples_lower_what_is_like_them(
    unlabelled: Unlabelled, model: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They change their own relation alone; sentences without a relation change all."""
    monkeypatch.setitem(fitted_score()["text"], "constant", 0.0)  # so that the pairs below are answers
    wrong = some_pairs(3, 30, around=0, head=1)
    before, after, everywhere = (
        fit_open_head(taught(*both(), against=against), model, unlabelled, unrelated=unrelated)
        for against, unrelated in ((None, None), (wrong, None), (None, wrong))
    )
    new = some_pairs(4, 31, around=0, head=1)
    assert (asked(after, model, new)[:, 0] < asked(before, model, new)[:, 0]).all()
    assert np.array_equal(asked(before, model, new)[:, 1], asked(after, model, new)[:, 1])
    assert not np.array_equal(asked(before, model, new)[:, 1], asked(everywhere, model, new)[:, 1])


def test_counterexamples_do_not_score_the_sample_again(
    unlabelled: Unlabelled, model: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scores of the sample depend on the model alone."""
    n_scored, score = list[int](), Fitted.scores
    monkeypatch.setattr(Fitted, "scores", lambda self, *given: n_scored.append(len(given[0])) or score(self, *given))
    for against in (None, some_pairs(3, 30)):
        fit_open_head(taught(*both(), against=against), model, unlabelled)
    assert n_scored.count(len(unlabelled.vectors)) == 1


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
        return float(
            (np.logaddexp(0, logits) - holds * logits).sum() + fitted_score()["judged"]["l2"] / 2 * weights @ weights
        )

    slow = optimize.minimize(loss, np.zeros(6), tol=1e-10).x
    assert correction(rows, offsets, holds) == pytest.approx(slow, abs=1e-3)


def test_taught_examples_say_nothing_about_how_often_a_relation_holds(unlabelled: Unlabelled, model: Fitted) -> None:
    """By the slow computation: a regression over rows of a whitened vector and a bias, which is 0 if taught."""
    (first, second), scale = taught(*both(), against=some_pairs(3, 30)), fitted_score()["judged"]["bias"] ** 0.5
    pairs, holds, found = Pairs.joined([first.examples, first.counterexamples]), np.arange(8) < 5, list[float]()
    white = (pairs.vectors - unlabelled.mean) @ _whitening(unlabelled)
    before = asked(fit_open_head(taught(*both()), model, unlabelled), model, pairs)[:, 0]
    for judged in ((), (1, 4), range(5)):
        head = fit_open_head([replace(first, judged=judged), second], model, unlabelled)
        rows = np.array([[*one, scale * (i > 4 or i in judged)] for i, one in enumerate(white)])
        slow = correction(rows, np.where(holds, np.maximum(before, 0), before), holds.astype(float))
        assert asked(head, model, pairs)[:, 0] - before == pytest.approx(white @ slow[:-1] + scale * slow[-1], abs=1e-3)
        found.append(slow[-1])
    assert found == sorted(found)


def test_types_are_compared_with_those_of_unlabelled_pairs(unlabelled: Unlabelled, model: Fitted) -> None:
    head = fit_open_head(taught(*both()), model, unlabelled)
    shares = np.bincount(unlabelled.types[:, 0], minlength=4)[1:] + 1.0
    shares /= shares.sum()
    odds = np.log((np.array([0, 0, 5]) + 0.5 * shares) / 5.5 / shares)
    assert head.types[0, 1:, 0] == pytest.approx(odds, rel=1e-4)


def test_scores_are_compared_with_unlabelled_pairs_and_taught_examples(unlabelled: Unlabelled, model: Fitted) -> None:
    """By the slow computation, over the sample and, for the two-covariance score, over the examples."""
    head, new, own = fit_open_head(taught(*both()), model, unlabelled), some_pairs(3, 9, around=0), both()
    centre, white = unlabelled.mean, _whitening(unlabelled)
    mean = (own[0].vectors - centre).mean(axis=0) @ white

    def cosines(vectors: np.ndarray) -> np.ndarray:
        apart = (vectors - centre) @ white
        return apart @ mean / np.linalg.norm(apart, axis=1) / np.linalg.norm(mean)

    usual, level = cosines(unlabelled.vectors), model.scores(unlabelled.vectors).mean()
    reached = np.mean([model.scores(one.vectors)[:, i].mean() for i, one in enumerate(own)])
    scores = model.scores(new.vectors)
    found = dict(zip(FEATURES, head.features(scores, new)[:, 0].T, strict=True))
    assert found["score"] == pytest.approx((scores[:, 0] - level) / (reached - level), rel=1e-3)
    assert found["cosine"] == pytest.approx((cosines(new.vectors) - usual.mean()) / usual.std(), rel=1e-3)
    for name in ("score", "own", "own contrast"):
        assert found[f"few {name}"] == pytest.approx(found[name] / 6)
    none = [replace(one, examples=some_pairs(0, 0), name=np.eye(DIM)[0]) for one in taught(*both())]
    assert fit_open_head(none, model, unlabelled).own[0].tolist() == [0, 0]  # taught by name alone
    alike, apart = (fit_open_head(taught(some_pairs(5, 2, around=n), both()[1]), model, unlabelled) for n in (0, None))
    assert alike.own[0, 0] > apart.own[0, 0]


def test_contrasts_are_seen_from_the_mean_of_the_taught_relations(unlabelled: Unlabelled, model: Fitted) -> None:
    """By the slow computation; a single relation is seen from the mean of unlabelled pairs, and has no rivals."""
    white, new = _whitening(unlabelled), some_pairs(3, 9, around=0)
    first, second, asked_rows = ((one.vectors - unlabelled.mean) @ white for one in (*both(), new))
    seen_from = (first.mean(axis=0) + second.mean(axis=0)) / 2 / 1.5
    usual = np.linalg.norm(np.cov((unlabelled.vectors @ white).T, bias=True))

    def contrast(rows: np.ndarray, examples: np.ndarray) -> np.ndarray:
        return unit_rows(rows - seen_from) @ unit_rows((examples - seen_from).mean(axis=0, keepdims=True))[0] / usual

    head = fit_open_head(taught(*both()), model, unlabelled)
    found = dict(zip(FEATURES, head.features(model.scores(new.vectors), new)[:, 0].T, strict=True))
    own = [contrast(first[[i]], np.delete(first, i, axis=0)) for i in range(len(first))]
    assert found["contrast"] == pytest.approx(contrast(asked_rows, first), rel=1e-3)
    assert found["own contrast"] == pytest.approx(np.mean(own), rel=1e-3)
    assert found["rivals"] == pytest.approx(np.mean([contrast(first, second), contrast(second, first)]), rel=1e-3)
    alone = fit_open_head(taught(both()[0]), model, unlabelled)
    assert not alone.shift.any()
    assert not alone.rivals.any()


def test_packaged_weights_are_those_of_the_documented_features() -> None:
    seen_from_relations = {"contrast", "own contrast", "rivals", "few own contrast"}
    found = {kind: {name for name in FEATURES if name in fitted_score()[kind]} for kind in ("marked", "text")}
    assert found["marked"] == seen_from_relations | {"score", "few score", "constant"}
    assert found["text"] == set(FEATURES) - seen_from_relations


def test_relations_of_a_marked_pair_share_one_probability(unlabelled: Unlabelled, model: Fitted) -> None:
    head, like = fit_open_head(taught(*both()), model, unlabelled), some_pairs(1, 9, around=0)
    found = head.marked_confidences(model.scores(like.vectors), like)
    assert found.shape == (1, 2)
    assert found[0, 0] > found[0, 1] > 0
    assert found.sum() < 1
    gap = model.scores(unlabelled.vectors).std(axis=1).mean()  # shares do not change with the unit of the scores
    odds = (model.scores(like.vectors) @ [1, -1])[0] / gap * fitted_score()["marked"]["share"]
    assert np.log(found[0, 0] / found[0, 1]) == pytest.approx(odds, rel=1e-3)
    assert head.marked_confidences(np.zeros((0, 2)), like[:0]).shape == (0, 2)


def test_leads_are_those_of_the_best_pair_of_a_group() -> None:
    log_odds = np.array([[1.0], [3.0], [5.0], [2.0]])
    assert leads(log_odds, np.array([7, 7, 9, 7])).ravel().tolist() == [2, 0, 0, 1]
    assert leads(log_odds[:0], np.zeros(0, dtype=int)).shape == (0, 1)


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
    assert found.centres == pytest.approx(unlabelled.centres, abs=0.001)
    assert UnlabelledFile(tmp_path, "other").read() is None
    arrays = {name: array for name, array in np.load(path).items() if name != "centres"}
    cut = path.read_bytes()[:1000]
    np.savez(path, **arrays)
    for expected in ("has no valid statistics", "is damaged"):
        with pytest.raises(ModelError, match=rf"{expected}.*Reinstall"):
            UnlabelledFile(tmp_path, "mine").read()
        path.write_bytes(cut)
