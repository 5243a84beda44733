"""The journal of reviews (`review.py`): every decision is on disk before the next pair is shown.

    STORE/reviews/shown.jsonl    a line for each decision: the key of the pair, the relation, the judgement
    STORE/reviews/pending.json   judgements that are not part of a version yet
    STORE/reviews/vectors-*.npz  vectors of pairs, so that the next review starts at once
    STORE/reviews/texts.json     texts under review on a server

Keys and relations are kept, not sentences, except in `pending.json` and `texts.json`. `Extractor.prune(purge=True)`
removes all but the pending judgements of known relations.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from erda.app.state import Judgement, TaughtRelation, present_id
from erda.errors import BusyError, DataError, WriteError, counted
from erda.files import cannot_write, decode_json, locked, read_sealed, remove_own, remove_unfinished, sealed, write_json
from erda.types import pair_key

FOLDER, SHOWN, PENDING, VECTORS = "reviews", "shown.jsonl", "pending.json", "vectors-{}.npz"
TEXTS = "texts.json"
Said = Literal["yes", "no", "other", "accepted", "skip", "undo"]


@dataclass(frozen=True, slots=True)
class Decision:
    """A line of `shown.jsonl`. `other`: another relation than the proposed one holds; `accepted`: by its confidence,
    unseen; `undo` takes the last back."""

    key: str
    relation: str
    said: Said


@dataclass(frozen=True, slots=True)
class PendingJudgements:
    """`pending.json`."""

    judgements: tuple[Judgement, ...] = ()


@dataclass(frozen=True, slots=True)
class ReviewTexts:
    """`texts.json`."""

    texts: tuple[str, ...]
    pronouns: bool = True


class ReviewJournal:
    """The decisions of all reviews of a store, written at once. A caller that writes holds the lock of the folder.

    With `held`, the keys of a version, decisions whose judgement is neither pending nor in it are left out: it was
    undone. Skipped pairs stay. The file keeps all decisions, so that they count again if the version comes back.
    """

    def __init__(self, folder: Path, held: Set[str] | None = None) -> None:
        for path in (folder, folder / SHOWN):
            if path.is_symlink():
                raise DataError(f"{path}: is a symbolic link; erda does not write through it. Move it away.")
        self.folder, path = folder, folder / PENDING
        self.decisions = _read_decisions(folder / SHOWN)
        self.pending = (
            read_sealed(path, PendingJudgements, remedy=f"Delete {path}.").judgements if path.exists() else ()
        )
        if held is not None:
            held = held | {pair_key(one.example) for one in self.pending}
            self.decisions = [one for one in self.decisions if one.said == "skip" or one.key in held]

    @property
    def shown(self) -> set[str]:
        """The keys of all pairs that were decided."""
        return {one.key for one in self.decisions}

    def add(self, decisions: Sequence[Decision], judgements: Sequence[Judgement] = ()) -> None:
        """Write decisions, and their judgements first: after a kill between the two, the judgements count."""
        if judgements:
            self.write_pending((*self.pending, *judgements))
        if decisions:
            lines = [json.dumps([one.key, one.relation, one.said]).encode() + b"\n" for one in decisions]
            _append_lines(self.folder / SHOWN, b"".join(lines))
            self.decisions = _without_undone([*self.decisions, *decisions])

    def write_pending(self, judgements: Iterable[Judgement]) -> None:
        """Replace the pending judgements; what a killed process left is removed first."""
        remove_unfinished(self.folder)
        self.pending = tuple(judgements)
        write_json(self.folder / PENDING, sealed(PendingJudgements(self.pending)))

    def why_unplaced(self, known: Sequence[TaughtRelation]) -> str:
        """A line about pending judgements of unknown relations; empty if there is none."""
        rows = [one for one in self.pending if present_id(one.relation, one.identity, known) is None]
        names = ", ".join(f"'{name}'" for name in dict.fromkeys(one.relation for one in rows))
        kept = f"{counted(len(rows), 'judgement')} of {names} kept, but the relation is unknown. Teach it to add them."
        return kept if rows else ""


def _append_lines(path: Path, content: bytes) -> None:
    """Append whole lines to a file and sync it to disk; a line that a kill cut short is ended first."""
    try:
        with path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise WriteError(cannot_write(path, error)) from error


def _read_decisions(path: Path) -> list[Decision]:
    """Read the decisions that were not undone; a line cut by a kill is left out."""
    rows = []
    if path.is_file():
        for line in path.read_bytes().splitlines():
            with suppress(DataError):
                rows.append(Decision(*decode_json(line, tuple[str, str, Said])))
    return _without_undone(rows)


def _without_undone(rows: Iterable[Decision]) -> list[Decision]:
    kept: dict[str, Decision] = {}
    for row in rows:
        kept.pop(row.key, None)
        if row.said != "undo":
            kept[row.key] = row
    return list(kept.values())


def purge_reviews(store: Path, known: Sequence[TaughtRelation]) -> None:
    """Remove the reviews of a store, but keep pending judgements of known relations, by their present names."""
    folder = store / FOLDER
    if not folder.is_dir() or folder.is_symlink():
        return
    with locked(folder, busy="a review of this extractor is open; end it first", error=BusyError):
        journal, names = ReviewJournal(folder), {one.id: f"{one.since} {one.id}" for one in known}
        found = ((one, present_id(one.relation, one.identity, known)) for one in journal.pending)
        kept = [
            Judgement(replace(one.example, relation=name), name, one.holds, names[name]) for one, name in found if name
        ]
        if kept:
            journal.write_pending(kept)
        own = (SHOWN, TEXTS, *(() if kept else (PENDING,)))
        remove_own(folder, lambda name: name in own or Path(name).match(VECTORS.format("*")))
