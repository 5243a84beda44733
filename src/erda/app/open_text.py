"""The open-text head of a version: fitted at its first question, from taught examples and counterexamples.

Only `Posterior` over an encoder with statistics of unlabelled pairs has one. Other methods keep `calibration.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from erda.app.state import State
from erda.encoders.contract import Encoder, unit_rows
from erda.methods.base import Method
from erda.methods.open_head import OpenHead, Pairs
from erda.methods.openness import TaughtPairs, fit_open_head
from erda.methods.posterior import Posterior
from erda.text.descriptions import patterns_of
from erda.text.spacy_tagger import TokenTagger, typed_examples
from erda.types import Example, pair_in_sentence

_vectors: WeakKeyDictionary[Encoder, dict[object, np.ndarray]] = WeakKeyDictionary()  # of counterexamples


def open_head(method: Method, state: State, tag: TokenTagger | None = None) -> OpenHead | None:
    """Fit the head of a version; None if it can have none. `tag` adds types to untyped entities of taught examples."""
    if not isinstance(method, Posterior) or method.trains or method.score != "two-covariance":
        return None
    unlabelled = method.encoder.unlabelled()
    if unlabelled is None:
        return None
    examples = [[lesson.example for lesson in one.lessons] for one in state.known]
    against = [[lesson.example for lesson in one.counterexamples] for one in state.known]
    against.append([lesson.example for lesson in state.unrelated])
    if tag:
        typed = iter(typed_examples([one for own in (*examples, *against) for one in own], tag))
        examples, against = ([[next(typed) for _ in own] for own in some] for some in (examples, against))
    names = unlabelled.type_names
    new = _embedded(method.encoder, [one for own in against for one in own])
    vectors = iter(np.split(new, np.cumsum([len(own) for own in against])[:-1]))
    taught = [
        TaughtPairs(
            Pairs.of(own, method.taught_vectors(one.id), names),
            name,
            Pairs.of(wrong, next(vectors), names),
            (one.head_types, one.tail_types),
            len(patterns_of(one.relation.description)),
            [row for row, lesson in enumerate(one.lessons) if lesson.is_judged],
        )
        for one, own, wrong, name in zip(state.known, examples, against[:-1], method.centred_names(), strict=True)
    ]
    return fit_open_head(taught, method.fitted, unlabelled, unrelated=Pairs.of(against[-1], next(vectors), names))


def _embedded(encoder: Encoder, examples: Sequence[Example]) -> np.ndarray:
    """Vectors of counterexamples, [n, dim]. Those of the previous version are kept in memory."""
    if not examples:
        return np.zeros((0, encoder.dim))
    kept, keys = _vectors.get(encoder, {}), [pair_in_sentence(one) for one in examples]
    new = {key: one for key, one in zip(keys, examples, strict=True) if key not in kept}
    if new:
        kept = kept | dict(zip(new, unit_rows(encoder.embed(list(new.values()))), strict=True))
    _vectors[encoder] = {key: kept[key] for key in keys}
    return np.stack([kept[key] for key in keys])
