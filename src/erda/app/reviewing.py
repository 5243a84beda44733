"""Review one's own text: pairs of entities are shown one after another, and a person says whether a relation holds.

A judgement is on disk before the next pair is shown (`review_journal.py`). Ten judgements, or the end of a review, make
one version. After a kill, the next review adds what is pending; a judgement that is part of a version already changes
nothing. The pairs are ranked by a new version while the person decides about one more pair, so that nobody waits. A
judgement follows its relation when that is renamed or merged, and is kept while the relation is unknown. The
terminal (`erda review`) shows this object; so can a page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from threading import Thread

from erda.app.answers import Progress
from erda.app.candidates import Candidate, CandidatePool, held_keys
from erda.app.extractor import Extractor
from erda.app.lessons import Judgement, present_id
from erda.app.review_journal import FOLDER, Decision, ReviewJournal, Said, pair_key, vectors_path
from erda.app.texts import TextRow
from erda.app.version import NO_ENTITY, NOTHING_TAUGHT, Version
from erda.errors import DataError, ErdaError, counted
from erda.files import locked
from erda.types import Example

PER_VERSION = 10  # judgements
RECENT = 20  # judgements whose share of accepted ones is displayed


@dataclass(frozen=True, slots=True)
class ReviewProgress:
    """Counts of a review: those of `n_yes` and `n_no` are judgements of each relation in all reviews of the store."""

    n_judged: int
    n_left: int  # candidates that are likely enough
    accepted: float | None  # share of the last 20 proposals that were right; None before the first
    n_yes: dict[str, int] = field(default_factory=dict)
    n_no: dict[str, int] = field(default_factory=dict)
    right: tuple[bool, ...] = ()  # for each proposal that was judged, whether it was right


def judgement_of(version: Version, example: Example, relation: str, *, holds: bool) -> Judgement:
    """A judgement about a relation of a version, which follows the relation when that is renamed or merged."""
    return Judgement(replace(example, relation=relation), relation, holds, version.known(relation).identity)


def review_progress(journal: ReviewJournal, n_left: int) -> ReviewProgress:
    """Count the decisions of a journal."""
    rows = [one for one in journal.decisions if one.said != "skip"]
    right = tuple(one.said == "yes" for one in rows if one.said != "accepted")
    yes = Counter(one.relation for one in rows if one.said != "no")
    no = Counter(one.relation for one in rows if one.said == "no")
    recent = right[-RECENT:]
    share = sum(recent) / len(recent) if recent else None
    return ReviewProgress(len(rows), n_left, share, dict(yes), dict(no), right)


def add_pending(extractor: Extractor, pending: Sequence[Judgement]) -> list[Judgement]:
    """Make one version of judgements, by the present names of their relations; return those of unknown relations."""
    if not pending:
        return []
    extractor.refresh()
    names = [present_id(one.relation, one.identity, extractor.version.state.known) for one in pending]
    if placed := [replace(one, relation=name) for one, name in zip(pending, names, strict=True) if name]:
        extractor.judge_many(placed)
    return [one for one, name in zip(pending, names, strict=True) if name is None]


def unplaced(journal: ReviewJournal, version: Version) -> list[Judgement]:
    """The pending judgements of relations that are not known."""
    known = version.state.known
    return [one for one in journal.pending if present_id(one.relation, one.identity, known) is None]


def why_unplaced(judgements: Sequence[Judgement]) -> str:
    """A line about pending judgements of unknown relations; empty if there is none."""
    if not judgements:
        return ""
    names = ", ".join(f"'{name}'" for name in dict.fromkeys(one.relation for one in judgements))
    return (
        f"{counted(len(judgements), 'judgement')} of {names} kept, but the relation is unknown. Teach it to add them."
    )


def why_nothing(pool: CandidatePool, journal: ReviewJournal, relation: str | None) -> str:
    """The reason why no pair is shown."""
    if not pool.n_texts:
        return "The text is empty."
    if not pool.n_entities:
        return f"{NO_ENTITY} {pool.hint}".strip()
    if not pool.n_pairs:
        return f"No sentence of the text has two entities. {pool.hint}".strip()
    if journal.shown:
        return "Every likely pair of the text was shown. Review another text, or teach more examples."
    named = f"'{relation}'" if relation else "a known relation"
    return f"No pair of entities is likely to have {named}. Teach more examples, or review another text."


class Review:
    """A review of some texts: `current` is the pair to decide about; None if there is none left."""

    def __init__(
        self,
        extractor: Extractor,
        pool: CandidatePool,
        journal: ReviewJournal,
        *,
        relation: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.extractor, self.pool = extractor, pool
        self.version = extractor.version  # that proposes; `extractor` may have a newer one
        self._only = self.version.known(relation) if relation else None
        self._journal, self._progress = journal, progress
        self._done: list[tuple[Candidate, Judgement | None]] = []  # decisions of this session
        self._queue: list[Candidate] = []
        self._ranking: tuple[Version, Future[list[Candidate]]] | None = None  # used after the next decision
        self.save()
        self._rank()

    @property
    def current(self) -> Candidate | None:
        """The pair to decide about."""
        return self._queue[0] if self._queue else None

    @property
    def relation(self) -> str | None:
        """The relation that the review is limited to, by its present name."""
        return self._relation_in(self.version)

    def _relation_in(self, version: Version) -> str | None:
        if self._only is None:
            return None
        found = present_id(self._only.id, self._only.identity, version.state.known)
        return version.known(found or self._only.id).id

    def judge(self, *, holds: bool, relation: str | None = None) -> None:
        """Say whether the proposed relation holds, or that another relation does."""
        one = self._required()
        name = self.version.known(relation).id if relation else one.relation
        judgement = judgement_of(self.version, one.example, name, holds=holds)
        said: Said = "no" if not holds else "yes" if name == one.relation else "other"
        self._journal.add(Decision(one.key, name, said), judgement)
        self._advance(one, judgement)
        if len(self._journal.pending) - len(unplaced(self._journal, self.extractor.version)) >= PER_VERSION:
            self.save()
            if self.extractor.version.relations == self.version.relations:
                self._rank_meanwhile()
            else:  # another process has taught, and the numbers of relations change
                self._rank()

    def skip(self) -> None:
        """Decide nothing about the current pair, and do not show it again."""
        one = self._required()
        self._journal.add(Decision(one.key, one.relation, "skip"))
        self._advance(one, None)

    def undo(self) -> bool:
        """Take the last decision of this session back and show its pair again; return whether there was one."""
        if not self._done:
            return False
        self._use_ranking()
        one, judgement = self._done[-1]
        rest = [other for other in self._journal.pending if pair_key(other.example) != one.key]
        is_waiting = len(rest) < len(self._journal.pending)
        if judgement is not None and not is_waiting:
            self.extractor.take_back(judgement.example)
        self._journal.add(Decision(one.key, one.relation, "undo"))
        if is_waiting:  # last: after a kill the judgement counts, and its pair is shown again
            self._journal.write_pending(rest)
        self._done.pop()
        self._queue.insert(0, one)
        return True

    def save(self) -> None:
        """Make one version of all pending judgements; judgements of unknown relations stay pending."""
        rest = add_pending(self.extractor, self._journal.pending)
        if len(rest) < len(self._journal.pending):
            self._journal.write_pending(rest)

    @property
    def progress(self) -> ReviewProgress:
        """Counts so far."""
        return review_progress(self._journal, len(self._queue))

    @property
    def why_nothing(self) -> str:
        """The reason why there is no current pair."""
        return why_nothing(self.pool, self._journal, self.relation)

    @property
    def why_unplaced(self) -> str:
        """A line about judgements that cannot become part of a version; empty if there is none."""
        return why_unplaced(unplaced(self._journal, self.extractor.version))

    def _required(self) -> Candidate:
        if self.current is None:
            raise DataError(self.why_nothing)
        return self.current

    def _advance(self, one: Candidate, judgement: Judgement | None) -> None:
        self._done.append((one, judgement))
        self._queue.pop(0)
        self._use_ranking()
        if not self._queue:
            self.save()
            self._rank()

    def _rank(self) -> None:
        self.version = self.extractor.version
        self._queue = self.pool.ranked(
            self.version, self.relation, without=self._journal.shown, progress=self._progress
        )

    def _rank_meanwhile(self) -> None:
        """Rank by the new version while the person decides about the next pair of the old ranking."""
        version, shown = self.extractor.version, frozenset(self._journal.shown)
        ranked, relation = Future[list[Candidate]](), self._relation_in(version)
        self._ranking = version, ranked

        def rank() -> None:
            try:
                ranked.set_result(self.pool.ranked(version, relation, without=shown))
            except BaseException as error:  # raised where the ranking is used
                ranked.set_exception(error)

        Thread(target=rank, daemon=True).start()

    def _use_ranking(self) -> None:
        if self._ranking is not None:
            (version, ranked), self._ranking = self._ranking, None
            found, self.version = ranked.result(), version
            self._queue = [one for one in found if one.key not in self._journal.shown]


@contextmanager
def open_review(
    extractor: Extractor,
    texts: Iterable[TextRow],
    *,
    relation: str | None = None,
    pronouns: bool = True,
    progress: Progress | None = None,
) -> Iterator[Review]:
    """Open a review of some texts, and keep other reviews of the store out; at the end its judgements are a version."""
    if not extractor.version.state.known:
        raise DataError(NOTHING_TAUGHT)
    folder = extractor.folder / FOLDER
    path = vectors_path(extractor.folder, extractor.version.state.stamp.setup.encoder)
    with locked(folder, busy="another review of this extractor is open", wait=0):
        extractor.refresh()
        journal = ReviewJournal(folder)
        journal.drop_undone(held_keys(extractor.version))
        pool = CandidatePool(extractor.version, texts, pronouns=pronouns, vectors=path, progress=progress)
        review = Review(extractor, pool, journal, relation=relation, progress=progress)
        try:
            yield review
        finally:
            with suppress(ErdaError):  # the judgements stay pending
                review.save()
