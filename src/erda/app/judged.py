"""What people said about entity pairs decides the answers about these pairs, whatever the scores are.

A pair that was taught has the relations it was taught with, and no other. A relation that was rejected for a pair is
never an answer about it. An export contains a copy of this module.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from erda.types import Example

if TYPE_CHECKING:
    import numpy as np

Judged = Mapping[str, Mapping[str, bool]]  # key of a pair -> id of a relation -> whether it holds


def pair_key(example: Example) -> str:
    """Return a key of an entity pair in a sentence, from which neither can be read."""
    head, tail = example.head.span, example.tail.span
    place = f"{head.start} {head.end} {tail.start} {tail.end} "
    return hashlib.blake2b((place + "\x1f".join(example.tokens)).encode(), digest_size=8).hexdigest()


def settled(
    confidences: np.ndarray, examples: Sequence[Example], relations: Sequence[str], judged: Judged
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return confidences, and whether each relation is confirmed or ruled out: [n, n_relations] each.

    A confirmed relation has confidence 1 and rules out the others of its pair, whose confidence is 0.
    """
    import numpy as np  # here, because `state.py` must not load it

    confirmed, ruled_out = (np.zeros(confidences.shape, dtype=bool) for _ in range(2))
    columns = {name: column for column, name in enumerate(relations)}
    for row, example in enumerate(examples if judged else ()):
        for name, holds in judged.get(pair_key(example), {}).items():
            (confirmed if holds else ruled_out)[row, columns[name]] = True
    ruled_out |= confirmed.any(axis=1, keepdims=True)
    ruled_out &= ~confirmed
    return np.where(confirmed, 1.0, np.where(ruled_out, 0.0, confidences)), confirmed, ruled_out
