"""Review one's own text: pairs of entities are shown one after another, and a person says whether a relation holds.

`SharedReview` ranks the pairs, shows one until it is decided, and keeps the decisions; a server has one. `Review` is a
person's session at a terminal (`erda review`) over the same object.

A judgement is on disk before the next pair is shown (`ReviewJournal`). Ten judgements, or the end of a review, make one
version. After a kill, the next review adds what is pending; a judgement that is part of a version already changes
nothing. A judgement follows its relation when that is renamed or merged, and is kept while the relation is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import RLock

from erda.answers import Progress
from erda.app.candidates import Candidate, CandidatePool
from erda.app.extractor import Extractor
from erda.app.inputs import read_each
from erda.app.questions import NO_ENTITY
from erda.app.review_journal import FOLDER, PENDING, TEXTS, Decision, ReviewJournal, ReviewTexts, Said
from erda.app.state import Judgement, present_id
from erda.app.store import Store
from erda.app.texts import TextRow
from erda.app.version import NOTHING_TAUGHT, Version
from erda.errors import BusyError, DataError, ErdaError
from erda.files import file_state, locked, read_sealed, remove_unfinished, sealed, write_json
from erda.text.marks import check_text
from erda.types import Example, pair_key

PER_VERSION = 10  # judgements
WAIT_SECONDS = 2.0  # for another process that reviews
ENOUGH = "Ten more judgements would hardly change the answers. Begin the review again to go on."
LATER = "What to expect of the new version follows after the next judgement."
BUSY = "another review of this extractor is open"


@dataclass(frozen=True, slots=True)
class ReviewView:
    """The pair to show, or the reason why there is none; counts; the confidences of all pairs left.

    `n_yes` and `n_no` count the judgements of each relation in all reviews of the store.
    """

    version: int
    current: Candidate | None
    reason: str
    n_texts: int
    n_waiting: int  # judgements that are not part of a version yet
    n_judged: int
    n_left: int  # candidates that are likely enough
    n_yes: dict[str, int]
    n_no: dict[str, int]
    right: tuple[bool, ...]  # for each proposal that was judged, whether it was right
    progress: str  # a sentence about the shares of right answers and of facts found
    confidences: tuple[float, ...]
    unplaced: str  # a line about judgements of unknown relations


def judgement_of(version: Version, example: Example, relation: str, *, holds: bool) -> Judgement:
    """A judgement about a relation of a version, which follows the relation when that is renamed or merged."""
    return Judgement(replace(example, relation=relation), relation, holds, version.known(relation).identity)


class SharedReview:
    """The review of a store. Threads can share it; every call reads the journal, and a restart loses nothing.

    With a `pool` of pairs, `texts.json` is neither read nor written, and the caller has locked the reviews.
    """

    def __init__(self, store: Path, pool: CandidatePool | None = None, progress: Progress | None = None) -> None:
        self._store, self._folder, self._lock = store, store / FOLDER, RLock()
        self.pool, self._has_texts, self._progress = pool, pool is None, progress
        self._pool_is_of: object = None  # state of `texts.json`
        self._ranked: dict[str | None, list[Candidate]] = {}  # by the relation that the review is limited to
        self._ranked_by: Version | None = None
        self._ranker = ThreadPoolExecutor(1, "erda-ranking")
        self._ranking: tuple[object, int, Future[list[Candidate]]] | None = None  # used after the next decision
        self._candidates: dict[str, Candidate] = {}  # all that were ranked
        self._shown: tuple[Candidate, str] | None = None  # a pair, and the identity of its relation
        self._n_judged = 0  # since the review was begun or opened

    def begin(
        self, version: Version, texts: Sequence[str], *, pronouns: bool = True, progress: Progress | None = None
    ) -> None:
        """Review other texts; an empty list ends the review. Decisions about earlier texts are kept."""
        given = ReviewTexts(tuple(text for text in texts if text.strip()), pronouns)
        read_each(given.texts, partial(check_text, most=None), what="text")
        pool = self._read_pool(version, given, progress)
        keys = {one.key for one in pool.ranked(version, progress=progress)}
        with self._open(version):
            write_json(self._folder / TEXTS, sealed(given))
            shown = self._shown
            self._use(pool)
            self._shown = shown if shown and shown[0].key in keys else None  # a text can be extended under review
            self._n_judged = 0

    def view(self, version: Version, *, relation: str | None = None) -> ReviewView:
        """The pair to decide about, and counts."""
        with self._open(version) as journal:
            name = version.known(relation).id if relation else None
            left, current = self._left(version, name, journal), self._current(version, name, journal)
            rows = [one for one in journal.decisions if one.said != "skip"]
            return ReviewView(
                version.number,
                current,
                "" if current else ENOUGH if left else self._reason(name, journal),
                self.pool.n_texts if self.pool else 0,
                len(journal.pending),
                len(rows),
                len(left),
                dict(Counter(one.relation for one in rows if one.said != "no")),
                dict(Counter(one.relation for one in rows if one.said == "no")),
                tuple(one.said == "yes" for one in rows if one.said != "accepted"),
                self._expected(left, name, journal)[0],
                tuple(sorted((round(one.confidence, 4) for one in left), reverse=True)),
                journal.why_unplaced(version.state.known),
            )

    def judge(
        self, version: Version, key: str, *, holds: bool | None, instead: str | None = None, relation: str | None = None
    ) -> bool:
        """Say whether the proposed relation holds, or another one; None skips. False: the pair was decided before.

        `relation` is the one that the review is limited to.
        """
        with self._open(version) as journal:
            if key in journal.shown:
                return False
            one = self._current(version, version.known(relation).id if relation else None, journal)
            if one is None or one.key != key:
                raise DataError("This pair is not the one to decide about. Ask for the next pair.")
            name = version.known(instead).id if instead else one.relation
            if holds is None:
                journal.add([Decision(key, one.relation, "skip")])
            else:
                said: Said = "no" if not holds else "yes" if name == one.relation else "other"
                journal.add([Decision(key, name, said)], [judgement_of(version, one.example, name, holds=holds)])
                self._n_judged += 1
            return True

    def accept(self, version: Version, *, least: float, relation: str | None = None) -> list[str]:
        """Accept every pair of at least this confidence; return their keys."""
        with self._open(version) as journal:
            left = self._left(version, version.known(relation).id if relation else None, journal)
            chosen = [one for one in left if round(one.confidence, 4) >= least]
            journal.add(
                [Decision(one.key, one.relation, "accepted") for one in chosen],
                [judgement_of(version, one.example, one.relation, holds=True) for one in chosen],
            )
            self._n_judged += len(chosen)
            return [one.key for one in chosen]

    def save(self, extractor: Extractor) -> None:
        """Make one version of the pending judgements; judgements of unknown relations stay pending."""
        if not (self._folder / PENDING).exists():
            return
        with self._open(extractor.version) as journal:
            waiting = journal.pending
        if not waiting:
            return
        extractor.refresh()
        names = [present_id(one.relation, one.identity, extractor.version.state.known) for one in waiting]
        if placed := [(one, replace(one, relation=name)) for one, name in zip(waiting, names, strict=True) if name]:
            extractor.judge_many(now for _, now in placed)
            with self._open(extractor.version) as journal:
                added = [before for before, _ in placed]
                journal.write_pending([one for one in journal.pending if one not in added])

    def undo(self, extractor: Extractor, keys: Sequence[str] = ()) -> list[str]:
        """Take decisions back, also those in a version, and show the last pair again; without keys, the last one."""
        with self._open(extractor.version) as journal:
            waiting = {pair_key(one.example): one.relation for one in journal.pending}
            decided = waiting | {one.key: one.relation for one in journal.decisions}
            keys = [key for key in keys if key in decided] if keys else [one.key for one in journal.decisions[-1:]]
            extractor.take_back_many(_taught(extractor, set(keys) - waiting.keys()))
            journal.add([Decision(key, decided[key], "undo") for key in keys])
            if waiting.keys() & set(keys):  # last: after a kill the judgement counts, and its pair is shown again
                journal.write_pending([one for one in journal.pending if pair_key(one.example) not in keys])
            again = [self._candidates[key] for key in keys if key in self._candidates]
            for relation, own in self._ranked.items():
                own[:0] = [one for one in again if relation in (None, one.relation) and one not in own]
            if again and any(one.id == again[-1].relation for one in extractor.version.state.known):
                self._show(again[-1], extractor.version)
            return list(keys)

    # -- parts ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def _open(self, version: Version) -> Iterator[ReviewJournal]:
        """Lock the reviews; yield the journal as it is on disk."""
        if not version.state.known:
            raise DataError(NOTHING_TAUGHT)
        head = Store(self._store).head()
        lock = locked(self._folder, busy=BUSY, error=BusyError, wait=WAIT_SECONDS) if self._has_texts else nullcontext()
        with self._lock, lock:
            is_newest = head.identity == version.state.stamp.identity  # else a judgement may be in one not loaded yet
            yield ReviewJournal(self._folder, version.judged.keys() if is_newest else None)

    def _use(self, pool: CandidatePool | None) -> None:
        self.pool, self._pool_is_of = pool, file_state(self._folder / TEXTS)
        self._ranked, self._ranked_by, self._ranking = {}, None, None  # those of other texts
        self._candidates, self._shown = {}, None

    def _read_pool(self, version: Version, texts: ReviewTexts, progress: Progress | None = None) -> CandidatePool:
        rows = [TextRow(text) for text in texts.texts]
        return CandidatePool(version, rows, self._store, pronouns=texts.pronouns, progress=progress)

    def _left(self, version: Version, relation: str | None, journal: ReviewJournal) -> list[Candidate]:
        """The undecided pairs, most useful first; they are ranked again when a ranking is used up.

        A new version ranks them while the person decides about the shown pair, so that nobody waits.
        """
        path = self._folder / TEXTS
        if self._has_texts and file_state(path) != self._pool_is_of:  # after a restart, or a purge
            texts = read_sealed(path, ReviewTexts, remedy=f"Delete {path}.") if path.exists() else None
            self._use(self._read_pool(version, texts) if texts else None)
        if self.pool is None:
            return []
        found, shown, mine = self._ranked.get(relation), journal.shown, (version.state.stamp.identity, relation)
        rank = partial(self.pool.ranked, version, relation, without=shown)
        left = [one for one in found or () if one.key not in shown]
        is_new = self._ranked_by is None or self._ranked_by.state.stamp.identity != mine[0]
        if is_new and left and self._shown and self._ranked_by and self._ranked_by.relations == version.relations:
            if self._ranking is None or self._ranking[0] != mine:
                self._ranking = mine, len(shown), self._ranker.submit(rank)
            if self._ranking[1] == len(shown):
                return left
        if is_new or found is None or (found and not left):
            begun, self._ranking = self._ranking, None
            if begun is None or begun[0] != mine:
                begun = mine, len(shown), self._ranker.submit(rank, progress=self._progress)
            self._ranked = {**({} if is_new else self._ranked), relation: begun[2].result()}
            self._ranked_by = version
            self._candidates |= {one.key: one for one in self._ranked[relation]}
            left = [one for one in self._ranked[relation] if one.key not in shown]
        return left

    def _current(self, version: Version, relation: str | None, journal: ReviewJournal) -> Candidate | None:
        """The pair to decide about: the same one, with the same relation, until it is decided."""
        left = self._left(version, relation, journal)
        if self._shown and self._shown[0].key not in journal.shown:
            one, identity = self._shown
            name = present_id(one.relation, identity, version.state.known)
            if name and relation in (None, name):
                return replace(one, relation=name)
        is_enough = self._n_judged >= PER_VERSION and self._expected(left, relation, journal)[1]
        self._show(None if is_enough else next(iter(left), None), version)
        return self._shown[0] if self._shown else None

    def _expected(self, left: Sequence[Candidate], relation: str | None, journal: ReviewJournal) -> tuple[str, bool]:
        """What to expect of the answers now, and whether ten more judgements would hardly change that."""
        if self._ranking is not None:  # the confidences are those of an earlier version
            return LATER, False
        rows = (one for one in journal.decisions if one.said not in ("no", "skip") and relation in (None, one.relation))
        return self.pool.expected({one.key for one in rows}, left, PER_VERSION) if self.pool else ("", False)

    def _show(self, one: Candidate | None, version: Version) -> None:
        self._shown = (one, version.known(one.relation).identity) if one else None

    def _reason(self, relation: str | None, journal: ReviewJournal) -> str:
        """The reason why no pair is shown."""
        pool = self.pool
        if pool is None or not pool.n_texts:
            return "No text is under review. Choose one first." if self._has_texts else "The text is empty."
        if not pool.n_pairs:
            missing = "No sentence of the text has two entities." if pool.n_entities else NO_ENTITY
            return f"{missing} {pool.hint}".strip()
        if journal.shown:
            return "Every likely pair of the text was shown. Review another text, or teach more examples."
        named = f"'{relation}'" if relation else "a known relation"
        return f"No pair of entities is likely to have {named}. Teach more examples, or review another text."


def _taught(extractor: Extractor, keys: set[str]) -> list[Example]:
    """An example or counterexample of each of these pairs."""
    lessons = [one for known in extractor.version.state.known for one in (*known.lessons, *known.counterexamples)]
    found = {pair_key(one.example): one.example for one in lessons}
    return [example for key, example in found.items() if key in keys]


class Review:
    """A person's review of some texts: `view` has the pair to decide about, or the reason why there is none."""

    def __init__(self, extractor: Extractor, shared: SharedReview, relation: str | None = None) -> None:
        self.extractor, self._shared = extractor, shared
        self._only = self.version.known(relation) if relation else None
        self._done = list[str]()  # keys of the decisions so far
        self.save()
        self.view = self._next()

    @property
    def version(self) -> Version:
        """The version that proposes."""
        return self.extractor.version

    @property
    def hint(self) -> str:
        """How to get a better tagger; empty if there is none."""
        return self._shared.pool.hint if self._shared.pool else ""

    @property
    def relation(self) -> str | None:
        """The relation that the review is limited to, by its present name."""
        if self._only is None:
            return None
        found = present_id(self._only.id, self._only.identity, self.version.state.known)
        return self.version.known(found or self._only.id).id

    def judge(self, *, holds: bool | None, relation: str | None = None) -> None:
        """Say whether the proposed relation holds, or that another one does; None skips the pair for good."""
        if self.view.current is None:
            raise DataError(self.view.reason)
        key = self.view.current.key
        self._shared.judge(self.version, key, holds=holds, instead=relation, relation=self.relation)
        self._done.append(key)
        self.view = self._next()
        if self.view.n_waiting >= PER_VERSION or (self.view.n_waiting and self.view.current is None):
            self.save()
            self.view = self._next()

    def undo(self) -> bool:
        """Take the last decision of this session back and show its pair again; return whether there was one."""
        if not self._done:
            return False
        self._shared.undo(self.extractor, self._done[-1:])
        self._done.pop()
        self.view = self._next()
        return True

    def save(self) -> None:
        """Make one version of all pending judgements; judgements of unknown relations stay pending."""
        self._shared.save(self.extractor)

    def _next(self) -> ReviewView:
        return self._shared.view(self.version, relation=self.relation)


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
    with locked(folder, busy=BUSY, wait=0):
        remove_unfinished(folder)  # of a killed review
        extractor.refresh()
        ReviewJournal(folder)  # a damaged or foreign one is rejected before the pairs are embedded
        pool = CandidatePool(extractor.version, texts, extractor.folder, pronouns=pronouns, progress=progress)
        review = Review(extractor, SharedReview(extractor.folder, pool, progress), relation)
        try:
            yield review
        finally:
            with suppress(ErdaError):  # the judgements stay pending
                review.save()
