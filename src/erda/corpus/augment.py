"""Find extra examples for a few-shot task in unlabelled text, with their provenance (the paper, Section 3.4).

Q is the set of corpus sentences with the same two entities as an example. Members of Q whose similarity with the
example exceeds alpha get its relation. Where Q is empty, the K nearest sentences of the corpus get it. Known sentences
(of this task and of earlier ones) are never returned and do not count as members of Q. Each sentence is used at most
once: an entity match wins over a neighbour, then the higher score wins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from erda.data.formats.jsonl_examples import example_to_json
from erda.errors import DataError, require
from erda.fields import Count, Settings, Similarity, changed_settings
from erda.text.keys import EntityPair, sentence_key
from erda.types import Example

if TYPE_CHECKING:
    from erda.corpus.corpus_store import CorpusSentence, CorpusStore
    from erda.corpus.similarity import SimilarityModel
    from erda.corpus.vector_index import VectorIndex

ENTITY_MATCH = "entity-match"
NEIGHBOUR = "neighbour"
MOST_NEIGHBOURS = 10_000  # per example
_PER_PAIR = 256  # sentences considered per entity pair, the most similar first
SPARE = 24  # neighbours retrieved beyond K, to replace sentences that are known or already used
_CACHED_VECTORS = 20_000
_BATCH_SIZE = 16  # a task has few sentences: a quarter of a batch of 64 would be padding


class AugmentSettings(Settings):
    """Which sentences may become extra examples; the defaults are the paper's.

    `entity_matching` off is the paper's "w.o. EM", `similarity_search` off its "w.o. SS". `agreement` filters extra
    examples: the mean of its own relation must be nearer than that of any other relation of the task and of
    `exemplars`, by at least `agreement_margin`.
    """

    entity_matching: bool = True
    similarity_search: bool = True
    match_threshold: Similarity = 0.65  # alpha; a match must exceed it
    max_matches: Count = 16  # per example
    n_neighbours: Annotated[int, Field(ge=1, le=MOST_NEIGHBOURS)] = 1  # K
    neighbour_threshold: Similarity = 0.0  # minimum score of a neighbour
    search_matched: bool = False  # search for every example
    agreement: Literal["none", "mean"] = "none"
    agreement_margin: Annotated[float, Field(ge=-2, lt=2)] = 0.0


PAPERS = AugmentSettings()


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra example with its provenance.

    `example` is row `row` of the corpus with the relation of `origin`, the example of the task. `score` is the
    similarity of the two. `margin` is the similarity to its own relation minus that to the next relation (see
    `AugmentSettings.agreement`): filter or weight by it.
    """

    example: Example
    rule: str
    score: float
    margin: float
    origin: Example
    row: int

    def to_json(self) -> dict[str, Any]:
        """Convert for a record; without the field `augmentation` it is an example in erda's JSONL format."""
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
    """The extra examples of one task. `dropped` counts rejected candidates by reason."""

    extras: tuple[Extra, ...]
    n_examples: int
    n_matched: int  # examples with at least one sentence of their entity pair
    n_searched: int  # examples whose neighbours were searched
    dropped: dict[str, int] = field(default_factory=dict)
    settings: AugmentSettings = PAPERS

    @property
    def examples(self) -> tuple[Example, ...]:
        """The extra examples without provenance."""
        return tuple(extra.example for extra in self.extras)

    @property
    def counts(self) -> dict[str, int]:
        """Number of extra examples by rule."""
        rules = Counter(extra.rule for extra in self.extras)
        return {ENTITY_MATCH: rules[ENTITY_MATCH], NEIGHBOUR: rules[NEIGHBOUR]}

    def to_json(self) -> dict[str, Any]:
        """Convert for a record: settings, counts, and every extra example with its provenance."""
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
    place: int  # index of the example in the task
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
        """Find extra examples for the labelled examples of one task.

        Sentences of `known`, and those with a `sentence_key` in `known_keys`, are never returned. `exemplars` represent
        relations learned earlier, for `agreement` and margins. `changes` override settings: `n_neighbours=3`.
        """
        settings = changed_settings(settings, changes)
        if any(example.relation is None for example in examples):
            raise DataError("an example without a relation cannot be augmented; label every example.")
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
            dropped["below match_threshold"] += n_all - len(candidates)
        searched: list[int] = []
        if settings.similarity_search:
            searched = [i for i in range(len(examples)) if settings.search_matched or i not in matched]
            candidates += self._neighbours(searched, own, settings, taken, dropped)
        margins = self._margins(candidates, [*examples, *exemplars], vectors)
        extras = _select(candidates, margins, examples, settings, dropped)
        counts = {reason: n for reason, n in dropped.items() if n}
        return Augmentation(tuple(extras), len(examples), len(matched), len(searched), counts, settings)

    def origin(self) -> dict[str, Any]:
        """Describe the corpus and the model, with their fingerprints, for a record."""
        name, n_rows = self.store.folder.name, len(self.store)
        return {"name": name, "n_rows": n_rows, "digest": self.store.digest, "model": self.model.fingerprint}

    def _encode(self, examples: Sequence[Example]) -> np.ndarray:
        """Encode examples, with a cache: [n_examples, dim]."""
        new = [example for example in dict.fromkeys(examples) if example not in self._vectors]
        if len(self._vectors) + len(new) > _CACHED_VECTORS:
            self._vectors.clear()
            new = list(dict.fromkeys(examples))
        if new:
            self._vectors.update(zip(new, self.model.encode(new, batch_size=_BATCH_SIZE), strict=True))
        return np.stack([self._vectors[example] for example in examples])

    def _matches(
        self, examples: Sequence[Example], vectors: np.ndarray, taken: set[int], dropped: Counter[str]
    ) -> list[_Candidate]:
        """Find Q of every example, without known sentences, by one lookup and one query."""
        found = self.store.find([EntityPair.of(example) for example in examples])
        rows = np.unique(np.concatenate(found))
        by_row = dict(zip(rows.tolist(), self.index.shards.vectors(rows), strict=True))
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
        """Find K + `SPARE` nearest sentences of each example, by one search and one query."""
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
        found = [_Candidate(place, rule, score, sentences[row]) for place, row, score in scored]
        kept = [one for one in found if one.sentence.key not in taken]
        dropped["known sentence"] += len(scored) - len(kept)
        return kept

    def _margins(self, candidates: Sequence[_Candidate], known: Sequence[Example], vectors: np.ndarray) -> np.ndarray:
        """Similarity of each candidate to its own relation minus that to the next relation: [n_candidates].

        With a single relation, the similarity to that relation.
        """
        relations = sorted({str(example.relation) for example in known})
        rows = {name: [i for i, one in enumerate(known) if one.relation == name] for name in relations}
        found = self.index.shards.vectors([candidate.sentence.row for candidate in candidates])
        means = np.stack([vectors[rows[name]].mean(axis=0) for name in relations])
        means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
        similarities = found @ means.T
        own = np.array([relations.index(str(known[one.place].relation)) for one in candidates], int)
        at = np.arange(len(candidates))
        best = similarities[at, own]
        similarities[at, own] = -np.inf
        return best if len(relations) == 1 else np.asarray(best - similarities.max(axis=1))


def open_augmenter(corpus: Path, model: str | Path | None = None, *, device: str = "cpu") -> Augmenter:
    """Open the augmenter of a corpus folder with its index of a similarity model (default: that of its only index)."""
    from erda.corpus.corpus_store import CorpusStore
    from erda.corpus.similarity import load_similarity
    from erda.corpus.vector_index import VectorIndex, indexed_model

    require("duckdb", "faiss")
    store = CorpusStore.open(Path(corpus))
    similarity = load_similarity(model or indexed_model(store), device=device)
    return Augmenter(store, VectorIndex.open(store, similarity), similarity)


def _select(
    candidates: Sequence[_Candidate],
    margins: np.ndarray,
    examples: Sequence[Example],
    settings: AugmentSettings,
    dropped: Counter[str],
) -> list[Extra]:
    """Select extra examples: entity matches first, then by score; each sentence once, each example up to its limit."""
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
            dropped["beyond max_matches"] += one.rule == ENTITY_MATCH
            continue
        if settings.agreement != "none" and margin < settings.agreement_margin:
            dropped["nearer to another relation"] += 1
            continue
        if one.sentence.key in taken:
            dropped["used for another example"] += 1
            continue
        taken.add(one.sentence.key)
        given[one.place, one.rule] += 1
        origin = examples[one.place]
        example = replace(one.sentence.example, relation=origin.relation)
        extras.append((one.place, Extra(example, one.rule, one.score, margin, origin, one.sentence.row)))
    return [extra for _, extra in sorted(extras, key=lambda found: (found[0], -found[1].score))]
