"""Suggest sentences of a corpus as examples of a relation, to accept or reject."""

from __future__ import annotations

from pathlib import Path

from erda.app.answers import Suggestion
from erda.app.version import Version
from erda.corpus.augment import MOST_NEIGHBOURS, open_augmenter
from erda.errors import DataError

MOST_ASKED = 50  # taught examples whose neighbours are searched
WIDER = 10  # times as many candidates as suggestions


def suggest_from_corpus(version: Version, relation: str, corpus: Path, *, n: int = 10) -> list[Suggestion]:
    """Find sentences near the taught examples of a relation, the least certain answers first.

    A confident answer teaches little, and a sentence that the extractor would reject is rarely an example.
    """
    if n < 1:
        raise DataError(f"n: must be at least 1, got {n}.")
    known = version.known(relation)
    if not known.lessons:
        raise DataError(f"'{known.id}' was taught by its name alone; suggestions need at least one example of it.")
    taught = [lesson.example for lesson in known.lessons[-MOST_ASKED:]]
    each = min(-(-WIDER * n // len(taught)), MOST_NEIGHBOURS)
    found = open_augmenter(corpus).find(
        taught,
        known=[lesson.example for one in version.state.known for lesson in one.lessons],
        match_threshold=0.0,
        max_matches=each,
        n_neighbours=each,
        search_matched=True,
    )
    extras = {extra.example: extra.score for extra in found.extras}
    answers = version.predict(list(extras), top=len(version.relations))
    suggestions = [
        Suggestion(extra, next(one.confidence for one in answer.ranked if one.relation == known.id), score)
        for (extra, score), answer in zip(extras.items(), answers, strict=True)
    ]
    return sorted(suggestions, key=lambda one: (abs(one.confidence - 0.5), -(one.similarity or 0)))[:n]
