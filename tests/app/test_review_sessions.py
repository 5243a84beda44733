"""Reviewing one's own text: order, judgements, undo, resumption after a kill; suggestions from plain texts."""

from collections import Counter
from pathlib import Path
from threading import Event

import pytest
from toy_extractor import FOUNDED, ROWS, open_toy

from erda.app.candidates import CandidatePool
from erda.app.extractor import Extractor
from erda.app.review import ENOUGH, LATER, PER_VERSION, Review, ReviewView, SharedReview, judgement_of, open_review
from erda.app.review_journal import FOLDER, PENDING, SHOWN, ReviewJournal
from erda.app.texts import TextRow
from erda.errors import BusyError, DataError
from erda.text.marks import example_from_marks
from erda.types import pair_key

pytestmark = pytest.mark.usefixtures("no_tagger")


def shown(view: ReviewView) -> str:
    return view.current.key


def keys_left(review: Review) -> list[str]:
    with review._shared._open(review.version) as journal:
        return [one.key for one in review._shared._left(review.version, None, journal)]


def test_judgements_of_a_review_are_one_version(extractor: Extractor) -> None:
    before = extractor.version.number
    keys = []
    with open_review(extractor, ROWS) as review:
        for holds in (True, False, True):
            keys.append(shown(review.view))
            review.judge(holds=holds)
        assert extractor.version.number == before, "nothing is written to the store yet"
        keys.append(shown(review.view))
        review.judge(holds=None)
        assert shown(review.view) not in keys
        found = review.view
        assert (found.n_judged, found.right, sum(found.n_yes.values())) == (3, (True, False, True), 2)
    assert extractor.version.number == before + 1
    assert extractor.history()[-1].what == "judged 3 sentences: 2 right, 1 wrong"
    assert sum(len(one.counterexamples) for one in extractor.version.state.known) == 1
    with open_review(extractor, ROWS) as review:
        assert extractor.version.number == before + 1
        assert review.view.n_judged == 3
        while review.view.current:
            assert shown(review.view) not in keys
            keys.append(shown(review.view))
            review.judge(holds=None)
        assert review.view.reason.startswith("Every likely pair of the text was shown")
    assert len(set(keys)) == len(keys)


def test_nobody_waits_for_the_ranking_by_a_new_version(extractor: Extractor, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_review(extractor, ROWS) as review:
        pool, go, keys = review._shared.pool, Event(), list[str]()
        rank = pool.ranked
        monkeypatch.setattr(pool, "ranked", lambda *given, **asked: rank(*given, **asked) if go.wait(10) else [])
        for _ in range(PER_VERSION):
            keys.append(shown(review.view))
            review.judge(holds=True)
        keys.append(shown(review.view))
        assert not go.is_set(), "the next pair is there before the ranking"
        assert review.view.progress == LATER, "the ranking is that of an earlier version"
        go.set()
        assert review.undo()
        assert shown(review.view) == keys[PER_VERSION - 1]
        while review.view.current:
            keys.append(shown(review.view))
            review.judge(holds=None)
        assert {key for key, n in Counter(keys).items() if n > 1} <= {*keys[PER_VERSION - 1 : PER_VERSION + 1]}


def test_a_review_stops_when_more_judgements_would_change_little(
    extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CandidatePool, "expected", lambda *_: ("Fine.", True))
    with open_review(extractor, ROWS) as review:
        for _ in range(PER_VERSION):
            last = shown(review.view)
            review.judge(holds=True)
        assert (review.view.current, review.view.reason, review.view.progress) == (None, ENOUGH, "Fine.")
        assert review.view.n_left > 0
        assert review.undo()
        assert shown(review.view) == last
    with open_review(extractor, ROWS) as review:
        assert shown(review.view), "the next review goes on"


def test_undo_takes_decisions_back_in_reverse_order(extractor: Extractor) -> None:
    before = extractor.version.number
    with open_review(extractor, ROWS) as review:
        first = shown(review.view)
        review.judge(holds=False)
        second = shown(review.view)
        review.judge(holds=None)
        review.judge(holds=True, relation="capital of")
        assert review.view.n_yes == {"capital of": 1}
        assert review.undo()
        assert review.undo()
        assert shown(review.view) == second
        assert review.undo()
        assert shown(review.view) == first
        assert not review.undo()
        assert review.view.n_judged == 0
    assert extractor.version.number == before
    assert ReviewJournal(extractor.folder / FOLDER).shown == set()


def test_pairs_of_an_undone_version_are_shown_again(extractor: Extractor) -> None:
    other = open_toy(extractor.folder)
    with open_review(extractor, ROWS) as review:
        review.judge(holds=None)
        wrong = shown(review.view)
        review.judge(holds=False)
    with open_review(other, ROWS) as review:
        assert review.view.n_judged == 1, "an extractor that was opened before loads the version first"
    judged = extractor.version.number
    extractor.undo()
    texts = [row.text for row in ROWS]
    suggested = {pair_key(one.example) for own in extractor.relations for one in extractor.suggest(own.id, texts, n=99)}
    assert wrong in suggested
    with open_review(extractor, ROWS) as review:
        assert review.view.n_judged == 0
        assert wrong in keys_left(review)
    extractor.rollback(judged)
    with open_review(extractor, ROWS) as review:
        assert review.view.n_judged == 1, "the decisions of a version come back with it"
        assert wrong not in keys_left(review)


def test_a_killed_review_loses_nothing(extractor: Extractor) -> None:
    journal = ReviewJournal(extractor.folder / FOLDER)
    journal.folder.mkdir()
    pool = CandidatePool(extractor.version, ROWS, extractor.folder)
    killed = Review(extractor, SharedReview(extractor.folder, pool))
    key = shown(killed.view)
    killed.judge(holds=False)
    with (journal.folder / SHOWN).open("ab") as file:
        file.write(b'["torn')
    before = extractor.version.number
    with open_review(extractor, ROWS) as review:
        assert extractor.version.number == before + 1, "what was pending is a version now"
        assert review.view.n_judged == 1
        assert shown(review.view) != key
        review.judge(holds=None)
    assert extractor.version.number == before + 1
    assert len(ReviewJournal(journal.folder).shown) == 2, "the torn line is dropped"
    assert b"[]" in (journal.folder / PENDING).read_bytes()


def test_an_undo_that_is_cut_short_keeps_the_judgement_and_shows_its_pair_again(
    extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(self: ReviewJournal, judgements: object) -> None:
        raise KeyboardInterrupt

    shared = SharedReview(extractor.folder)
    shared.begin(extractor.version, [one.text for one in ROWS])
    key = shown(shared.view(extractor.version))
    shared.judge(extractor.version, key, holds=True)
    monkeypatch.setattr(ReviewJournal, "write_pending", killed)
    with pytest.raises(KeyboardInterrupt):
        shared.undo(extractor, [key])
    journal = ReviewJournal(extractor.folder / FOLDER)
    assert not journal.shown
    assert [pair_key(one.example) for one in journal.pending] == [key]


def save(extractor: Extractor) -> str:
    extractor.refresh()
    review = SharedReview(extractor.folder)
    review.begin(extractor.version, ["Nothing here."])
    review.save(extractor)
    return review.view(extractor.version).unplaced


def waiting(extractor: Extractor) -> ReviewJournal:
    """A journal with a judgement against each relation that is not part of a version."""
    journal = ReviewJournal(extractor.folder / FOLDER)
    journal.folder.mkdir()
    texts = {"born in": "[[a]] is {{b}}", "founded by": "[[c]] is {{d}}", "capital of": "[[e]] is {{f}}"}
    rows = [judgement_of(extractor.version, example_from_marks(one), name, holds=False) for name, one in texts.items()]
    journal.write_pending(rows)
    return journal


def test_pending_judgements_follow_their_relation(extractor: Extractor) -> None:
    """A relation is renamed twice, merged or forgotten before its judgements are part of a version."""
    journal = waiting(extractor)
    other = open_toy(extractor.folder)  # another process
    other.rename("born in", "from")
    other.rename("from", "birthplace")
    other.teach("place", ["[[x]] lies in {{y}}", "[[z]] lies in {{y}}"])
    other.merge("capital of", "place")
    other.forget("founded by")
    said = "1 judgement of 'founded by' kept, but the relation is unknown. Teach it to add them."
    assert save(extractor).endswith(said)
    (moved,), (merged,) = extractor.counterexamples("birthplace"), extractor.counterexamples("place")
    assert (moved.example.tokens[0], merged.example.tokens[0]) == ("a", "e")
    assert [one.relation for one in ReviewJournal(journal.folder).pending] == ["founded by"]
    extractor.teach("founded by", FOUNDED)
    assert "kept" not in save(extractor)
    assert [one.example.tokens[0] for one in extractor.counterexamples("founded by")] == ["c"]
    assert ReviewJournal(journal.folder).pending == ()


def test_pending_judgements_go_to_the_relation_and_not_to_its_former_name(extractor: Extractor) -> None:
    waiting(extractor)
    other = open_toy(extractor.folder)
    other.rename("born in", "from")
    other.teach("born in", ["[[x]] lies in {{y}}", "[[z]] lies in {{y}}"])  # another meaning
    for old, new in (("founded by", "aside"), ("capital of", "founded by"), ("aside", "capital of")):
        other.rename(old, new)
    other.prune(keep=0)
    assert not save(extractor).endswith("add them.")
    found = {one.id: [own.example.tokens[0] for own in one.counterexamples] for one in extractor.version.state.known}
    assert found == {"from": ["a"], "born in": [], "capital of": ["c"], "founded by": ["e"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing here.", "No entity was found in the text. Entities were guessed by capital letters."),
        ("Oslo is old.", "No sentence of the text has two entities."),
    ],
)
def test_an_empty_review_says_why(extractor: Extractor, text: str, said: str) -> None:
    with open_review(extractor, [TextRow(text)]) as review:
        assert review.view.current is None
        assert review.view.reason.startswith(said)
        with pytest.raises(DataError, match=said):
            review.judge(holds=True)
    with open_review(extractor, []) as review:
        assert review.view.reason == "The text is empty."


def test_purging_keeps_judgements_that_wait_and_no_former_name(extractor: Extractor) -> None:
    journal = waiting(extractor)
    extractor.rename("born in", "from")
    extractor.merge("capital of", "from")
    extractor.forget("founded by")
    extractor.prune(purge=True)
    kept = [path for path in extractor.folder.rglob("*") if path.is_file()]
    for former in (b"born in", b"capital of", b"founded by"):
        assert not [path for path in kept if former in path.read_bytes()]
    assert [one.relation for one in ReviewJournal(journal.folder).pending] == ["from", "from"]
    assert not save(extractor)
    assert [one.example.tokens[0] for one in extractor.counterexamples("from")] == ["a", "e"]


@pytest.mark.parametrize("linked", ["", "shown.jsonl"])
def test_a_journal_is_not_written_through_a_link(linked: str, tmp_path: Path) -> None:
    """Otherwise decisions would end up in a file of the user's."""
    target = tmp_path / "target"
    target.write_text("notes\n") if linked else target.mkdir()
    place = tmp_path / "reviews" / linked
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(target)
    with pytest.raises(DataError, match="symbolic link"):
        ReviewJournal(tmp_path / "reviews")


def test_an_open_review_keeps_other_reviews_and_a_purge_out(extractor: Extractor) -> None:
    before = extractor.history()
    with open_review(extractor, ROWS):
        with pytest.raises(DataError, match="another review of this extractor is open"), open_review(extractor, ROWS):
            pass
        with pytest.raises(BusyError, match="a review of this extractor is open"):
            open_toy(extractor.folder).prune(purge=True)
    assert extractor.history() == before
