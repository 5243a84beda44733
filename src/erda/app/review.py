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
from pathlib import Path
from threading import RLock, Thread
from time import time

from erda.answers import Progress
from erda.app.candidates import (
    FOLDER,
    PENDING,
    SCREENS,
    TEXTS,
    Candidate,
    CandidatePool,
    Decision,
    ReviewJournal,
    Said,
    held_keys,
    pair_key,
    vectors_path,
)
from erda.app.entities import NO_ENTITY
from erda.app.extractor import Extractor
from erda.app.inputs import check_text, known_relation
from erda.app.state import Judgement, present_id
from erda.app.store import Store
from erda.app.texts import TextRow
from erda.app.version import NOTHING_TAUGHT, Version
from erda.errors import BusyError, DataError, ErdaError, counted
from erda.files import file_state, locked, read_json, read_sealed, sealed, write_json
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


SCREEN_SECONDS = 600.0  # after which the pair on a silent device is shown elsewhere
MOST_SCREENS = 1_000
WAIT_SECONDS = 2.0
NO_TEXT = "No text is under review. Choose one first."
ELSEWHERE = "The last pairs of the text are on other screens."


@dataclass(frozen=True, slots=True)
class ReviewTexts:
    """`texts.json`."""

    texts: tuple[str, ...]
    pronouns: bool = True


@dataclass(frozen=True, slots=True)
class Screen:
    """The pair on a device, and when it came there."""

    key: str
    relation: str
    confidence: float
    since: float
    identity: str = ""  # of the relation (`Known.identity`)


@dataclass(frozen=True, slots=True)
class Screens:
    """`screens.json`."""

    devices: dict[str, Screen]


@dataclass(frozen=True, slots=True)
class ReviewView:
    """What a device shows: a pair, or the reason why there is none; counts; the confidences of all pairs left."""

    version: int
    current: Candidate | None
    reason: str
    n_texts: int
    n_waiting: int  # judgements that are not part of a version yet
    confidences: tuple[float, ...]
    progress: ReviewProgress


class SharedReview:
    """The review of a store. Threads and processes can share it."""

    def __init__(self, store: Path) -> None:
        self._store, self._folder, self._lock = store, store / FOLDER, RLock()
        self._pool: CandidatePool | None = None
        self._pool_is_of: object = None
        self._ranked: dict[str | None, list[Candidate]] = {}
        self._ranked_by = -1  # number of the version
        self._candidates: dict[str, Candidate] = {}
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
        pool = self._read_pool(version, ReviewTexts(tuple(texts), pronouns), progress)
        pool.ranked(version, progress=progress)
        with self._open(version):
            write_json(self._folder / TEXTS, sealed(ReviewTexts(tuple(texts), pronouns)))
            self._write_screens({})
            self._use(pool)

    def view(self, version: Version, device: str | None = None, *, relation: str | None = None) -> ReviewView:
        """The counts and, for a device, the pair to decide about: the one on its screen, else the most useful one."""
        with self._open(version) as journal:
            name = known_relation(relation, version.relations).id if relation else None
            left, current = self._left(version, name, journal), None
            screens = self._screens()
            if device is not None:
                current = self._on_screen(screens.get(device), journal, version)
                if current is None or name not in (None, current.relation):
                    taken = _taken(screens, device)
                    current = next((one for one in left if one.key not in taken), None)
                self._show(screens, device, current, version)
            return ReviewView(
                version.number,
                current,
                "" if current or (device is None and left) else self._reason(version, journal, name, left),
                self._pool.n_texts if self._pool else 0,
                len(journal.pending),
                tuple(sorted((round(one.confidence, 4) for one in left), reverse=True)),
                review_progress(journal, len(left)),
            )

    def judge(
        self,
        version: Version,
        device: str,
        key: str,
        *,
        holds: bool | None,
        instead: str | None = None,
        relation: str | None = None,
    ) -> bool:
        """Say whether the proposed relation holds, or another one; None skips. False: the pair was decided before.

        `relation` is the one that the review is limited to.
        """
        with self._open(version) as journal:
            self._left(version, known_relation(relation, version.relations).id if relation else None, journal)
            one, mine = self._candidates.get(key), self._screens().get(device)
            if one is None:
                raise DataError("This pair is not in the texts under review.")
            if key in journal.shown:
                return False
            shown = self._on_screen(mine, journal, version)
            if shown is None or shown.key != key:
                raise DataError("This pair is not on the screen of this device. Ask for the next pair.")
            proposed = shown.relation
            name = known_relation(instead, version.relations).id if instead else proposed
            if holds is None:
                journal.add(Decision(key, proposed, "skip"))
            else:
                said: Said = "no" if not holds else "yes" if name == proposed else "other"
                journal.add(Decision(key, name, said), judgement_of(version, one.example, name, holds=holds))
            return True

    def accept(self, version: Version, device: str, *, least: float, relation: str | None = None) -> list[str]:
        """Accept every pair of at least this confidence that is on no other screen; return their keys."""
        with self._open(version) as journal:
            name = known_relation(relation, version.relations).id if relation else None
            taken = _taken(self._screens(), device)
            left = self._left(version, name, journal)
            chosen = [one for one in left if round(one.confidence, 4) >= least and one.key not in taken]
            journal.add_all(
                [Decision(one.key, one.relation, "accepted") for one in chosen],
                [judgement_of(version, one.example, one.relation, holds=True) for one in chosen],
            )
            return [one.key for one in chosen]

    # -- changes of the extractor --------------------------------------------------------------------------------------

    def save(self, extractor: Extractor) -> None:
        """Make one version of the pending judgements; judgements of unknown relations stay pending."""
        if not (self._folder / PENDING).exists():
            return
        with self._open(extractor.version) as journal:
            waiting = journal.pending
        rest = add_pending(extractor, waiting)
        with self._open(extractor.version) as journal:
            journal.write_pending([one for one in journal.pending if one in rest or one not in waiting])

    def undo(self, extractor: Extractor, device: str, keys: Sequence[str] = ()) -> list[str]:
        """Take decisions back and show the last of them again; without keys, the last decision of all."""
        with self._open(extractor.version) as journal:
            waiting = {pair_key(one.example): one.relation for one in journal.pending}
            decided = waiting | {one.key: one.relation for one in journal.decisions}
            keys = [key for key in keys if key in decided] if keys else [one.key for one in journal.decisions[-1:]]
            extractor.take_back_many(_taught(extractor, set(keys) - waiting.keys()))
            journal.add_all([Decision(key, decided[key], "undo") for key in keys])
            if waiting.keys() & set(keys):  # last: after a kill the judgement counts, and its pair is shown again
                journal.write_pending([one for one in journal.pending if pair_key(one.example) not in keys])
            if keys:
                self._show(self._screens(), device, self._candidates.get(keys[-1]), extractor.version)
            return list(keys)

    # -- parts ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def _open(self, version: Version) -> Iterator[ReviewJournal]:
        if not version.state.known:
            raise DataError(NOTHING_TAUGHT)
        head = Store(self._store).head()
        busy = "another review of this extractor is open"
        with self._lock, locked(self._folder, busy=busy, error=BusyError, wait=WAIT_SECONDS):
            journal = ReviewJournal(self._folder)
            if head.identity == version.state.stamp.identity:  # else the judgements may be in a version not loaded yet
                journal.drop_undone(self._held_by(version))
            yield journal

    def _held_by(self, version: Version) -> frozenset[str]:
        if self._held is None or self._held[0] is not version:
            self._held = version, held_keys(version)
        return self._held[1]

    def _read_pool(self, version: Version, texts: ReviewTexts, progress: Progress | None = None) -> CandidatePool:
        rows = [TextRow(text) for text in texts.texts]
        path = vectors_path(self._store, version.state.stamp.setup.encoder)
        return CandidatePool(version, rows, pronouns=texts.pronouns, vectors=path, progress=progress)

    def _use(self, pool: CandidatePool | None) -> None:
        self._pool, self._pool_is_of = pool, file_state(self._folder / TEXTS)
        self._ranked_by, self._candidates = -1, {}

    def _left(self, version: Version, relation: str | None, journal: ReviewJournal) -> list[Candidate]:
        """The candidates that nobody has decided about, most useful first."""
        if file_state(self._folder / TEXTS) != self._pool_is_of:  # another process has begun this review
            path = self._folder / TEXTS
            texts = read_sealed(path, ReviewTexts, remedy=f"Delete {path}.") if path.exists() else None
            self._use(self._read_pool(version, texts) if texts else None)
        if self._pool is None:
            return []
        if version.number != self._ranked_by:
            self._ranked, self._ranked_by = {}, version.number
        found, shown = self._ranked.get(relation), journal.shown
        left = [one for one in found or () if one.key not in shown]
        if found is None or (found and not left):
            left = self._ranked[relation] = self._pool.ranked(version, relation, without=shown)
            self._candidates |= {one.key: one for one in left}
        return left

    def _screens(self) -> dict[str, Screen]:
        """The pair on each device, including devices that have been silent for long."""
        with suppress(ErdaError):  # missing or damaged: nothing is on a screen
            return read_json(self._folder / SCREENS, Screens).devices
        return {}

    def _on_screen(self, screen: Screen | None, journal: ReviewJournal, version: Version) -> Candidate | None:
        """The undecided pair of a screen, with the relation that it shows, whatever later versions propose."""
        one = self._candidates.get(screen.key) if screen else None
        if one is None or screen is None or one.key in journal.shown:
            return None
        relation = present_id(screen.relation, screen.identity, version.state.known)
        return replace(one, relation=relation, confidence=screen.confidence) if relation else None

    def _show(self, screens: dict[str, Screen], device: str, one: Candidate | None, version: Version) -> None:
        screens.pop(device, None)
        relation = next((own for own in version.state.known if one and own.id == one.relation), None)
        if one is not None and relation is not None:
            screens[device] = Screen(one.key, one.relation, one.confidence, time(), relation.identity)
        self._write_screens(dict(list(screens.items())[-MOST_SCREENS:]))

    def _write_screens(self, screens: dict[str, Screen]) -> None:
        write_json(self._folder / SCREENS, Screens(screens))

    def _reason(self, version: Version, journal: ReviewJournal, relation: str | None, left: Sequence[Candidate]) -> str:
        if self._pool is None or not self._pool.n_texts:
            return NO_TEXT
        why = ELSEWHERE if left else why_nothing(self._pool, journal, relation)
        return f"{why} {why_unplaced(unplaced(journal, version))}".strip()


def _taken(screens: dict[str, Screen], device: str) -> set[str]:
    """The pairs on the screens of other devices that are not silent for long."""
    others = (one for other, one in screens.items() if other != device)
    return {one.key for one in others if 0 <= time() - one.since < SCREEN_SECONDS}


def _taught(extractor: Extractor, keys: set[str]) -> list[Example]:
    """An example or counterexample of each of these pairs."""
    lessons = [one for known in extractor.version.state.known for one in (*known.lessons, *known.counterexamples)]
    found = {pair_key(one.example): one.example for one in lessons}
    return [example for key, example in found.items() if key in keys]
