"""Review one's own text: pairs of entities are shown one after another, and a person says whether a relation holds.

`PairQueue` is the core: the ranked pairs, the one on the screen, and the decisions about them. `Review` is a person's
review at a terminal (`erda review`); `SharedReview` is the review of a server, which also keeps its texts:

    STORE/reviews/texts.json    the texts under review on a server

A judgement is on disk before the next pair is shown (`ReviewJournal`). Ten judgements, or the end of a review, make one
version. After a kill, the next review adds what is pending; a judgement that is part of a version already changes
nothing. A judgement follows its relation when that is renamed or merged, and is kept while the relation is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock

from erda.answers import Progress
from erda.app.candidates import Candidate, CandidatePool
from erda.app.entities import NO_ENTITY
from erda.app.extractor import Extractor
from erda.app.inputs import check_text
from erda.app.review_journal import FOLDER, PENDING, TEXTS, Decision, ReviewJournal, Said, vectors_path
from erda.app.state import Judgement, pair_key, present_id, taught_keys
from erda.app.store import Store
from erda.app.texts import TextRow
from erda.app.version import NOTHING_TAUGHT, Version
from erda.errors import BusyError, DataError, ErdaError, counted
from erda.files import file_state, locked, read_sealed, sealed, write_json
from erda.types import Example

PER_VERSION = 10  # judgements
RECENT = 20  # judgements whose share of accepted ones is displayed
WAIT_SECONDS = 2.0  # for another process that reviews


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


def add_pending(extractor: Extractor, pending: Sequence[Judgement]) -> list[Judgement]:
    """Make one version of judgements, by the present names of their relations; return those of unknown relations."""
    if not pending:
        return []
    extractor.refresh()
    names = [present_id(one.relation, one.identity, extractor.version.state.known) for one in pending]
    if placed := [replace(one, relation=name) for one, name in zip(pending, names, strict=True) if name]:
        extractor.judge_many(placed)
    return [one for one, name in zip(pending, names, strict=True) if name is None]


class PairQueue:
    """The pairs of some texts that nobody has decided about; one of them is shown until it is decided."""

    def __init__(self, pool: CandidatePool, journal: ReviewJournal, progress: Progress | None = None) -> None:
        self.pool, self.journal, self._progress = pool, journal, progress
        self._ranked: dict[str | None, list[Candidate]] = {}  # by the relation that the review is limited to
        self._ranked_by = ""  # identity of the version
        self._candidates: dict[str, Candidate] = {}  # all that were ranked
        self._shown: tuple[Candidate, str] | None = None  # a pair, and the identity of its relation

    def use(self, version: Version, relation: str | None, ranked: list[Candidate]) -> None:
        """Use a ranking of the pairs by a version."""
        if self._ranked_by != version.state.stamp.identity:
            self._ranked, self._ranked_by = {}, version.state.stamp.identity
        self._ranked[relation] = ranked
        self._candidates |= {one.key: one for one in ranked}

    def ranked(self, relation: str | None) -> list[Candidate]:
        """The undecided pairs of the last ranking."""
        shown = self.journal.shown
        return [one for one in self._ranked.get(relation, ()) if one.key not in shown]

    def left(self, version: Version, relation: str | None) -> list[Candidate]:
        """The undecided pairs, most useful first; they are ranked again when a ranking is used up."""
        is_new = self._ranked_by != version.state.stamp.identity or relation not in self._ranked
        if is_new or (self._ranked[relation] and not self.ranked(relation)):
            self.use(
                version,
                relation,
                self.pool.ranked(version, relation, without=self.journal.shown, progress=self._progress),
            )
        return self.ranked(relation)

    def current(self, version: Version, relation: str | None) -> Candidate | None:
        """The pair to decide about: the same one, with the same relation, until it is decided."""
        if self._shown and self._shown[0].key not in self.journal.shown:
            one, identity = self._shown
            name = present_id(one.relation, identity, version.state.known)
            if name and relation in (None, name):
                return replace(one, relation=name)
        self._show(next(iter(self.left(version, relation)), None), version)
        return self._shown[0] if self._shown else None

    def _show(self, one: Candidate | None, version: Version) -> None:
        self._shown = (one, version.known(one.relation).identity) if one else None

    def decide(self, version: Version, relation: str | None, *, holds: bool | None, instead: str | None) -> Candidate:
        """Say whether the proposed relation holds, or another one; None skips the pair."""
        one = self.current(version, relation)
        if one is None:
            raise DataError(self.reason(version, relation))
        name = version.known(instead).id if instead else one.relation
        if holds is None:
            self.journal.add(Decision(one.key, one.relation, "skip"))
        else:
            said: Said = "no" if not holds else "yes" if name == one.relation else "other"
            self.journal.add(Decision(one.key, name, said), judgement_of(version, one.example, name, holds=holds))
        return one

    def undo(self, extractor: Extractor, keys: Sequence[str]) -> None:
        """Take decisions back, including those that are part of a version; show the last pair again."""
        waiting = {pair_key(one.example): one.relation for one in self.journal.pending}
        decided = waiting | {one.key: one.relation for one in self.journal.decisions}
        extractor.take_back_many(_taught(extractor, set(keys) - waiting.keys()))
        self.journal.add_all([Decision(key, decided[key], "undo") for key in keys])
        if waiting.keys() & set(keys):  # last: after a kill the judgement counts, and its pair is shown again
            self.journal.write_pending([one for one in self.journal.pending if pair_key(one.example) not in keys])
        again = [self._candidates[key] for key in keys if key in self._candidates]
        for relation, own in self._ranked.items():
            own[:0] = [one for one in again if relation in (None, one.relation) and one not in own]
        if again and any(one.id == again[-1].relation for one in extractor.version.state.known):
            self._show(again[-1], extractor.version)

    def progress(self, n_left: int) -> ReviewProgress:
        """Count the decisions of the journal."""
        rows = [one for one in self.journal.decisions if one.said != "skip"]
        right = tuple(one.said == "yes" for one in rows if one.said != "accepted")
        yes = Counter(one.relation for one in rows if one.said != "no")
        no = Counter(one.relation for one in rows if one.said == "no")
        share = sum(right[-RECENT:]) / len(right[-RECENT:]) if right else None
        return ReviewProgress(len(rows), n_left, share, dict(yes), dict(no), right)

    def reason(self, version: Version, relation: str | None) -> str:
        """The reason why no pair is shown."""
        if not self.pool.n_texts:
            return "The text is empty."
        if not self.pool.n_entities:
            return f"{NO_ENTITY} {self.pool.hint}".strip()
        if not self.pool.n_pairs:
            return f"No sentence of the text has two entities. {self.pool.hint}".strip()
        if self.journal.shown:
            return "Every likely pair of the text was shown. Review another text, or teach more examples."
        named = f"'{relation}'" if relation else "a known relation"
        return f"No pair of entities is likely to have {named}. Teach more examples, or review another text."

    def unplaced(self, version: Version) -> list[Judgement]:
        """The pending judgements of relations that are not known."""
        known = version.state.known
        return [one for one in self.journal.pending if present_id(one.relation, one.identity, known) is None]

    def why_unplaced(self, version: Version) -> str:
        """A line about pending judgements of unknown relations; empty if there is none."""
        if not (rows := self.unplaced(version)):
            return ""
        names = ", ".join(f"'{name}'" for name in dict.fromkeys(one.relation for one in rows))
        return f"{counted(len(rows), 'judgement')} of {names} kept, but the relation is unknown. Teach it to add them."


def _taught(extractor: Extractor, keys: set[str]) -> list[Example]:
    """An example or counterexample of each of these pairs."""
    lessons = [one for known in extractor.version.state.known for one in (*known.lessons, *known.counterexamples)]
    found = {pair_key(one.example): one.example for one in lessons}
    return [example for key, example in found.items() if key in keys]


# -- a terminal --------------------------------------------------------------------------------------------------------


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
        self.extractor, self.pool, self._journal = extractor, pool, journal
        self._only = self.version.known(relation) if relation else None
        self._queue, self._done = PairQueue(pool, journal, progress), list[str]()  # keys of the decisions so far
        self.save()
        self._queue.left(self.version, self.relation)

    @property
    def version(self) -> Version:
        """The version that proposes."""
        return self.extractor.version

    @property
    def current(self) -> Candidate | None:
        """The pair to decide about."""
        return self._queue.current(self.version, self.relation)

    @property
    def relation(self) -> str | None:
        """The relation that the review is limited to, by its present name."""
        if self._only is None:
            return None
        found = present_id(self._only.id, self._only.identity, self.version.state.known)
        return self.version.known(found or self._only.id).id

    def judge(self, *, holds: bool, relation: str | None = None) -> None:
        """Say whether the proposed relation holds, or that another relation does."""
        self._advance(self._queue.decide(self.version, self.relation, holds=holds, instead=relation))
        if len(self._journal.pending) - len(self._queue.unplaced(self.version)) >= PER_VERSION:
            self.save()

    def skip(self) -> None:
        """Decide nothing about the current pair, and do not show it again."""
        self._advance(self._queue.decide(self.version, self.relation, holds=None, instead=None))

    def undo(self) -> bool:
        """Take the last decision of this session back and show its pair again; return whether there was one."""
        if not self._done:
            return False
        self._queue.undo(self.extractor, self._done[-1:])
        self._done.pop()
        return True

    def save(self) -> None:
        """Make one version of all pending judgements; judgements of unknown relations stay pending."""
        rest = add_pending(self.extractor, self._journal.pending)
        if len(rest) < len(self._journal.pending):
            self._journal.write_pending(rest)

    @property
    def progress(self) -> ReviewProgress:
        """Counts so far."""
        return self._queue.progress(len(self._queue.left(self.version, self.relation)))

    @property
    def why_nothing(self) -> str:
        """The reason why there is no current pair."""
        return self._queue.reason(self.version, self.relation)

    @property
    def why_unplaced(self) -> str:
        """A line about judgements that cannot become part of a version; empty if there is none."""
        return self._queue.why_unplaced(self.version)

    def _advance(self, one: Candidate) -> None:
        self._done.append(one.key)
        if not self._queue.ranked(self.relation):
            self.save()


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
        journal.drop_undone(taught_keys(extractor.version.state))
        pool = CandidatePool(extractor.version, texts, pronouns=pronouns, vectors=path, progress=progress)
        review = Review(extractor, pool, journal, relation=relation, progress=progress)
        try:
            yield review
        finally:
            with suppress(ErdaError):  # the judgements stay pending
                review.save()


# -- a server ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReviewTexts:
    """`texts.json`."""

    texts: tuple[str, ...]
    pronouns: bool = True


@dataclass(frozen=True, slots=True)
class ReviewView:
    """The pair to show, or the reason why there is none; counts; the confidences of all pairs left."""

    version: int
    current: Candidate | None
    reason: str
    n_texts: int
    n_waiting: int  # judgements that are not part of a version yet
    confidences: tuple[float, ...]
    progress: ReviewProgress


class SharedReview:
    """The review of a store. Threads can share it; every call reads the journal, and a restart loses nothing."""

    def __init__(self, store: Path) -> None:
        self._store, self._folder, self._lock = store, store / FOLDER, RLock()
        self._queue: PairQueue | None = None
        self._queue_is_of: object = None  # state of `texts.json`
        self._held: tuple[Version, frozenset[str]] | None = None

    def begin(
        self, version: Version, texts: Sequence[str], *, pronouns: bool = True, progress: Progress | None = None
    ) -> None:
        """Review other texts; an empty list ends the review. Decisions about earlier texts are kept."""
        if not version.state.known:
            raise DataError(NOTHING_TAUGHT)
        texts = [text for text in texts if text.strip()]
        for place, text in enumerate(texts, 1):
            try:
                check_text(text, most=None)
            except DataError as fault:
                raise DataError(f"text {place}: {fault}") from None
        given = ReviewTexts(tuple(texts), pronouns)
        pool = self._pool(version, given, progress)
        pool.ranked(version, progress=progress)
        with self._journal(version) as journal:
            write_json(self._folder / TEXTS, sealed(given))
            self._queue, self._queue_is_of = PairQueue(pool, journal), file_state(self._folder / TEXTS)

    def view(self, version: Version, *, relation: str | None = None) -> ReviewView:
        """The pair to decide about, and counts."""
        with self._open(version) as queue:
            name = version.known(relation).id if relation else None
            left, current = queue.left(version, name), queue.current(version, name)
            reason = queue.reason(version, name) if queue.pool.n_texts else "No text is under review. Choose one first."
            return ReviewView(
                version.number,
                current,
                "" if current else f"{reason} {queue.why_unplaced(version)}".strip(),
                queue.pool.n_texts,
                len(queue.journal.pending),
                tuple(sorted((round(one.confidence, 4) for one in left), reverse=True)),
                queue.progress(len(left)),
            )

    def judge(
        self, version: Version, key: str, *, holds: bool | None, instead: str | None = None, relation: str | None = None
    ) -> bool:
        """Say whether the proposed relation holds, or another one; None skips. False: the pair was decided before.

        `relation` is the one that the review is limited to.
        """
        with self._open(version) as queue:
            if key in queue.journal.shown:
                return False
            name = version.known(relation).id if relation else None
            current = queue.current(version, name)
            if current is None or current.key != key:
                raise DataError("This pair is not the one to decide about. Ask for the next pair.")
            queue.decide(version, name, holds=holds, instead=instead)
            return True

    def accept(self, version: Version, *, least: float, relation: str | None = None) -> list[str]:
        """Accept every pair of at least this confidence; return their keys."""
        with self._open(version) as queue:
            left = queue.left(version, version.known(relation).id if relation else None)
            chosen = [one for one in left if round(one.confidence, 4) >= least]
            queue.journal.add_all(
                [Decision(one.key, one.relation, "accepted") for one in chosen],
                [judgement_of(version, one.example, one.relation, holds=True) for one in chosen],
            )
            return [one.key for one in chosen]

    def save(self, extractor: Extractor) -> None:
        """Make one version of the pending judgements; judgements of unknown relations stay pending."""
        if not (self._folder / PENDING).exists():
            return
        with self._journal(extractor.version) as journal:
            waiting = journal.pending
        rest = add_pending(extractor, waiting)
        with self._journal(extractor.version) as journal:
            journal.write_pending([one for one in journal.pending if one in rest or one not in waiting])

    def undo(self, extractor: Extractor, keys: Sequence[str] = ()) -> list[str]:
        """Take decisions back and show the last of them again; without keys, the last decision of all."""
        with self._open(extractor.version) as queue:
            decided = [one.key for one in queue.journal.decisions]
            decided += [pair_key(one.example) for one in queue.journal.pending]
            chosen = [key for key in keys if key in decided] if keys else decided[: len(queue.journal.decisions)][-1:]
            queue.undo(extractor, chosen)
            return chosen

    @contextmanager
    def _journal(self, version: Version) -> Iterator[ReviewJournal]:
        if not version.state.known:
            raise DataError(NOTHING_TAUGHT)
        head = Store(self._store).head()
        busy = "another review of this extractor is open"
        with self._lock, locked(self._folder, busy=busy, error=BusyError, wait=WAIT_SECONDS):
            journal = ReviewJournal(self._folder)
            if head.identity == version.state.stamp.identity:  # else the judgements may be in a version not loaded yet
                if self._held is None or self._held[0] is not version:
                    self._held = version, taught_keys(version.state)
                journal.drop_undone(self._held[1])
            yield journal

    @contextmanager
    def _open(self, version: Version) -> Iterator[PairQueue]:
        """Yield the queue over the journal as it is on disk."""
        with self._journal(version) as journal:
            path = self._folder / TEXTS
            if self._queue is None or file_state(path) != self._queue_is_of:  # after a restart, or a purge
                texts = read_sealed(path, ReviewTexts, remedy=f"Delete {path}.") if path.exists() else ReviewTexts(())
                self._queue, self._queue_is_of = PairQueue(self._pool(version, texts), journal), file_state(path)
            self._queue.journal = journal
            yield self._queue

    def _pool(self, version: Version, texts: ReviewTexts, progress: Progress | None = None) -> CandidatePool:
        rows = [TextRow(text) for text in texts.texts]
        path = vectors_path(self._store, version.state.stamp.setup.encoder)
        return CandidatePool(version, rows, pronouns=texts.pronouns, vectors=path, progress=progress)
