"""A review of texts on a server, with the members of `erda.app.review.Review`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Any

from erda.app.candidates import Candidate
from erda.app.review import RECENT, ReviewProgress
from erda.errors import DataError
from erda.serve.client import example_of_row

Call = Callable[[str, dict[str, Any]], Any]  # (path, body) -> answer


class ClientReview:
    """A review on one of several devices: `current` is the pair to decide about; None if there is none left.

    Without texts, the review that is open on the server continues.
    """

    def __init__(self, call: Call, texts: Iterable[str] | None, *, relation: str | None, pronouns: bool) -> None:
        self._call, self._device, self.relation = call, secrets.token_hex(8), relation
        self._done: list[list[str]] = []  # keys of each decision on this device
        if texts is not None:
            call("/v1/review/texts", {"texts": list(texts), "pronouns": pronouns, "device": self._device})
        self._row = self._post("next")

    @property
    def current(self) -> Candidate | None:
        """The pair to decide about."""
        if (row := self._row["pair"]) is None:
            return None
        return Candidate(example_of_row({**row, "relation": None}), row["relation"], row["confidence"], row["key"])

    def judge(self, *, holds: bool, relation: str | None = None) -> None:
        """Say whether the proposed relation holds, or that another relation does."""
        self._decide("judge", key=self._key, holds=holds, instead=relation)

    def skip(self) -> None:
        """Decide nothing about the current pair, and do not show it again."""
        self._decide("judge", key=self._key, holds=None)

    def accept(self, min_confidence: float) -> int:
        """Accept all pairs of at least this confidence in one version; return their number."""
        self._decide("accept", min_confidence=min_confidence)
        return len(self._row["keys"])

    def undo(self) -> bool:
        """Take the last decision of this device back and show its pair again; return whether there was one."""
        if not self._done:
            return False
        self._row = self._post("undo", keys=self._done[-1])
        self._done.pop()
        return True

    @property
    def progress(self) -> ReviewProgress:
        """Counts so far, of all devices."""
        row, right = self._row, tuple(self._row["right"])
        share = sum(right[-RECENT:]) / len(right[-RECENT:]) if right else None
        return ReviewProgress(row["n_judged"], row["n_left"], share, row["n_yes"], row["n_no"], right)

    @property
    def why_nothing(self) -> str:
        """The reason why there is no current pair."""
        return str(self._row["reason"])

    @property
    def _key(self) -> str:
        if self.current is None:
            raise DataError(self.why_nothing)
        return self.current.key

    def _decide(self, what: str, **body: Any) -> None:
        self._row = self._post(what, **body)
        if self._row["keys"]:
            self._done.append(self._row["keys"])

    def _post(self, what: str, **body: Any) -> Any:
        return self._call(f"/v1/review/{what}", {"device": self._device, "relation": self.relation, **body})
