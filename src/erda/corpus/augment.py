"""Extra examples for a few-shot task out of unlabelled text (the paper, Section 3.4), each with where it came from.

For each example of the task, sentences of the corpus with the same two entities are found (Q); those whose similarity
with the example is over alpha get its relation. Where Q is empty, the K nearest sentences of the corpus get it.
Sentences that are known already (the task's own, and those of earlier tasks) count for nothing, not even as members of
Q. No sentence is taken twice: of all that claim it, an entity match goes before a neighbour, then the higher score.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from erda.data.formats import example_to_json
from erda.errors import DataError, require
from erda.fields import Count, Settings, Similarity, changed_settings
from erda.files import write_lines
from erda.text.keys import EntityPair, sentence_key
from erda.types import Example

if TYPE_CHECKING:
    from erda.corpus.corpus_store import CorpusSentence, CorpusStore
    from erda.corpus.similarity import SimilarityModel
    from erda.corpus.vector_index import VectorIndex

ENTITY_MATCH = "entity-match"
NEIGHBOUR = "neighbour"
MOST_NEIGHBOURS = 10_000  # of an example
_PER_PAIR = 256  # of a pair with more sentences than this, the most similar ones are looked at
SPARE = 24  # neighbours asked for beyond K, to stand in for those that are known or taken
_KEPT_VECTORS = 20_000
_BATCH_SIZE = 16  # a task is few sentences: batches of 64 would be a quarter padding


class AugmentSettings(Settings):
    """What may become an extra example; the defaults are the paper's.

    `entity_matching` off is the paper's "w.o. EM", `similarity_search` off its "w.o. SS".
    `agreement` keeps only what the whole task agrees on: the relation that an extra example gets must be nearer to it
    than any other relation of the task (and of `exemplars`) by `agreement_margin`, measured to the relations' means
    ("mean") or to their nearest examples ("nearest").
    """

    entity_matching: bool = True
    similarity_search: bool = True
    match_threshold: Similarity = 0.65  # alpha: only matches above it
    max_matches: Count = 16  # of each example
    n_neighbours: Annotated[int, Field(ge=1, le=MOST_NEIGHBOURS)] = 1  # K
    neighbour_threshold: Similarity = 0.0  # only neighbours at or above it
    search_rejected: bool = False  # search also where there are matches but none is above alpha
    search_matched: bool = False  # search for every example, matched or not
    agreement: Literal["none", "mean", "nearest"] = "none"
    agreement_margin: Annotated[float, Field(ge=-2, lt=2)] = 0.0


PAPERS = AugmentSettings()


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra example with its provenance.

    `example` is row `row` of the corpus with the relation of `origin`, the example it was found for. `score` is the
    similarity of the two; `margin` is how much nearer the relation is than the next one of the task (see
    `AugmentSettings.agreement`): a measure of trust to filter or weight by.
    """

    example: Example
    rule: str
    score: float
    margin: float
    origin: Example
    row: int

    def to_json(self) -> dict[str, Any]:
        """As a record keeps it; without `augmentation` it is an example of our own format."""
        provenance = {
            "rule": self.rule,
            "score": round(self.score, 4),
            "margin": round(self.margin, 4),
            "row": self.row,
            "found_for": self.origin.id,
            "found_for_sentence": " ".join(self.origin.tokens),
        }
        return {**example_to_json(self.example), "augmentation": provenance}


@dataclass(frozen=True, slots=True)
class Augmentation:
    """What was found for one task. `dropped` counts candidates that were turned down, by reason."""

    extras: tuple[Extra, ...]
    n_examples: int
    n_matched: int  # examples with at least one sentence of their entity pair
    n_searched: int  # examples whose neighbours were looked for
    dropped: dict[str, int] = field(default_factory=dict)
    settings: AugmentSettings = PAPERS

    @property
    def examples(self) -> tuple[Example, ...]:
        """The extra examples themselves."""
        return tuple(extra.example for extra in self.extras)

    @property
    def counts(self) -> dict[str, int]:
        """How many extra examples each rule gave."""
        rules = Counter(extra.rule for extra in self.extras)
        return {ENTITY_MATCH: rules[ENTITY_MATCH], NEIGHBOUR: rules[NEIGHBOUR]}

    def to_json(self) -> dict[str, Any]:
        """For a record: settings, counts, and every extra example with its provenance."""
        return {
            "settings": self.settings.model_dump(),
            "n_examples": self.n_examples,
            "n_matched": self.n_matched,
            "n_searched": self.n_searched,
            "counts": self.counts,
            "dropped": dict(self.dropped),
            "extras": [extra.to_json() for extra in self.extras],
        }


@dataclass(frozen=True, slots=True)
class _Candidate:
    place: int  # of the example it was found for
    rule: str
    score: float
    sentence: CorpusSentence


class Augmenter:
    """Finds extra examples in one corpus with one similarity model."""

    def __init__(self, store: CorpusStore, index: VectorIndex, model: SimilarityModel) -> None:
        self.store, self.index, self.model = store, index, model
        self._vectors: dict[Example, np.ndarray] = {}

    def find(
        self,
        examples: Sequence[Example],
        *,
        known: Iterable[Example] = (),
        known_keys: Iterable[int] = (),
        exemplars: Sequence[Example] = (),
        settings: AugmentSettings = PAPERS,
        **changes: Any,
    ) -> Augmentation:
        """Extra examples for the examples of one task, which carry their relations.

        `known` are further examples whose sentences must not come back (`known_keys`: by their `sentence_key`);
        `exemplars` stand for relations learned earlier, for `agreement` and margins. `changes` are settings by name:
        `find(examples, n_neighbours=3)`.
        """
        settings = changed_settings(settings, changes)
        if any(example.relation is None for example in examples):
            raise DataError("an example without a relation cannot be augmented: there is no relation to hand on.")
        if not examples:
            return Augmentation((), 0, 0, 0, settings=settings)
        dropped: Counter[str] = Counter()
        vectors = self._encode([*examples, *exemplars])
        own = vectors[: len(examples)]
        taken = {sentence_key(" ".join(one.tokens)) for one in (*examples, *exemplars, *known)} | {*known_keys}
        candidates: list[_Candidate] = []
        matched: set[int] = set()
        if settings.entity_matching:
            candidates = self._matches(examples, own, taken, dropped)
            matched = {candidate.place for candidate in candidates}
            n_all = len(candidates)
            candidates = [one for one in candidates if one.score > settings.match_threshold]
            dropped["match below the threshold"] += n_all - len(candidates)
        searched: list[int] = []
        if settings.similarity_search:
            served = {one.place for one in candidates} if settings.search_rejected else matched
            searched = [i for i in range(len(examples)) if settings.search_matched or i not in served]
            candidates += self._neighbours(searched, own, settings, taken, dropped)
        margins = self._margins(candidates, [*examples, *exemplars], vectors, settings.agreement)
        extras = _select(candidates, margins, examples, settings, dropped)
        counts = {reason: n for reason, n in dropped.items() if n}
        return Augmentation(tuple(extras), len(examples), len(matched), len(searched), counts, settings)

    def origin(self) -> dict[str, Any]:
        """Which corpus and which model: their fingerprints, for a record."""
        name, n_rows = self.store.folder.name, len(self.store)
        return {"name": name, "n_rows": n_rows, "digest": self.store.digest, "model": self.model.fingerprint}

    def _encode(self, examples: Sequence[Example]) -> np.ndarray:
        """Vectors of examples, [n, dim]; those seen before are not computed again."""
        new = [example for example in dict.fromkeys(examples) if example not in self._vectors]
        if len(self._vectors) + len(new) > _KEPT_VECTORS:
            self._vectors.clear()
            new = list(dict.fromkeys(examples))
        if new:
            self._vectors.update(zip(new, self.model.encode(new, batch_size=_BATCH_SIZE), strict=True))
        return np.stack([self._vectors[example] for example in examples])

    def _matches(
        self, examples: Sequence[Example], vectors: np.ndarray, taken: set[int], dropped: Counter[str]
    ) -> list[_Candidate]:
        """Q of every example: all unknown sentences with its two entities, by one lookup and one query."""
        found = self.store.find([EntityPair.of(example) for example in examples])
        rows = np.unique(np.concatenate(found))
        by_row = dict(zip(rows.tolist(), self.index.vectors(rows), strict=True))
        scored: list[tuple[int, int, float]] = []
        for place, its_rows in enumerate(found):
            scores = [(float(by_row[row] @ vectors[place]), row) for row in its_rows.tolist()]
            best = sorted(scores, key=lambda one: (-one[0], one[1]))[:_PER_PAIR]
            scored += [(place, row, score) for score, row in best]
        return self._candidates(scored, ENTITY_MATCH, taken, dropped)

    def _neighbours(
        self,
        places: Sequence[int],
        vectors: np.ndarray,
        settings: AugmentSettings,
        taken: set[int],
        dropped: Counter[str],
    ) -> list[_Candidate]:
        """The nearest sentences of these examples, a few more than K of each: one search and one query."""
        if not places:
            return []
        scores, rows = self.index.search(vectors[list(places)], settings.n_neighbours + SPARE)
        scored = [
            (place, int(row), float(score))
            for place, its_scores, its_rows in zip(places, scores, rows, strict=True)
            for score, row in zip(its_scores, its_rows, strict=True)
            if row >= 0 and score >= settings.neighbour_threshold
        ]
        return self._candidates(scored, NEIGHBOUR, taken, dropped)

    def _candidates(
        self, scored: Sequence[tuple[int, int, float]], rule: str, taken: set[int], dropped: Counter[str]
    ) -> list[_Candidate]:
        rows = sorted({row for _, row, _ in scored})
        sentences = dict(zip(rows, self.store.sentences(rows), strict=True))
        kept = [
            _Candidate(place, rule, score, sentences[row])
            for place, row, score in scored
            if sentences[row].key not in taken
        ]
        dropped["sentence that is known already"] += len(scored) - len(kept)
        return kept

    def _margins(
        self, candidates: Sequence[_Candidate], known: Sequence[Example], vectors: np.ndarray, agreement: str
    ) -> np.ndarray:
        """How much nearer each candidate is to the relation it would get than to the next relation: [n_candidates].

        With a single relation there is no other: its own similarity.
        """
        if not candidates:
            return np.zeros(0)
        relations = sorted({str(example.relation) for example in known})
        rows = {name: [i for i, one in enumerate(known) if one.relation == name] for name in relations}
        found = self.index.vectors([candidate.sentence.row for candidate in candidates])
        if agreement == "nearest":
            products = found @ vectors.T
            similarities = np.stack([products[:, rows[name]].max(axis=1) for name in relations], axis=1)
        else:
            means = np.stack([vectors[rows[name]].mean(axis=0) for name in relations])
            means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
            similarities = found @ means.T
        own = np.array([relations.index(str(known[one.place].relation)) for one in candidates])
        at = np.arange(len(candidates))
        best = similarities[at, own]
        similarities[at, own] = -np.inf
        return best if len(relations) == 1 else np.asarray(best - similarities.max(axis=1))


def open_augmenter(corpus: Path, model: str | Path | None = None, *, device: str = "cpu") -> Augmenter:
    """The augmenter of a corpus folder that has an index for this similarity model (default: the one that ships)."""
    from erda.corpus.corpus_store import CorpusStore
    from erda.corpus.similarity import load_similarity
    from erda.corpus.vector_index import VectorIndex

    require("duckdb", "faiss")
    store = CorpusStore.open(Path(corpus))
    similarity = load_similarity(model, device=device)
    return Augmenter(store, VectorIndex.open(store, similarity), similarity)


def write_extras(found: Augmentation, path: Path) -> None:
    """Write the extra examples with their provenance, one JSON object a line; a file is whole or not there."""
    write_lines(path, (json.dumps(extra.to_json(), ensure_ascii=False) for extra in found.extras))


def _select(
    candidates: Sequence[_Candidate],
    margins: np.ndarray,
    examples: Sequence[Example],
    settings: AugmentSettings,
    dropped: Counter[str],
) -> list[Extra]:
    """Hand out the sentences: entity matches first, then by score; each at most once, each example its share."""
    limits = {ENTITY_MATCH: settings.max_matches, NEIGHBOUR: settings.n_neighbours}
    order = sorted(
        range(len(candidates)),
        key=lambda i: (candidates[i].rule != ENTITY_MATCH, -candidates[i].score, candidates[i].place, i),
    )
    taken: set[int] = set()
    given: Counter[tuple[int, str]] = Counter()
    extras: list[tuple[int, Extra]] = []
    for i in order:
        one, margin = candidates[i], float(margins[i])
        if given[one.place, one.rule] >= limits[one.rule]:
            dropped["match beyond the limit"] += one.rule == ENTITY_MATCH
            continue
        if settings.agreement != "none" and margin < settings.agreement_margin:
            dropped["another relation is nearer"] += 1
            continue
        if one.sentence.key in taken:
            dropped["sentence taken for another example"] += 1
            continue
        taken.add(one.sentence.key)
        given[one.place, one.rule] += 1
        origin = examples[one.place]
        example = replace(one.sentence.example, relation=origin.relation)
        extras.append((one.place, Extra(example, one.rule, one.score, margin, origin, one.sentence.row)))
    return [extra for _, extra in sorted(extras, key=lambda found: (found[0], -found[1].score))]
