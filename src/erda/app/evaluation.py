"""Evaluate a version on labelled examples or annotated texts, and fit thresholds of confidences on them (`tuned`).

A cell is a question, a known relation, its confidence, and whether it holds. The threshold of some cells is the one
whose answers reach the wanted precision with the highest recall. One overall threshold is fitted on all cells,
and one for each relation with at least `LEAST_ROWS` labelled questions. The expected precision and recall come from
cross-validation: thresholds fitted on four fifths of the questions are applied to the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from erda.answers import Evaluation, Progress, RelationScore, TripleEvaluation, Tuned, TunedRelation
from erda.app.inputs import ExampleInput, find_relation, labelled_rows_of, names_of
from erda.app.state import Thresholds
from erda.app.texts import AnnotatedText, is_annotated, read_annotated
from erda.app.version import Version
from erda.data.formats.row_collector import Reading
from erda.data.own_data import read_examples
from erda.errors import DataError
from erda.files import user_path
from erda.types import NO_RELATION, Example, pair_key

LEAST_ROWS = 20  # labelled questions of a relation that support a threshold of its own
LEAST_ANSWERS = 10  # answers that support a precision
FOLDS = 5
MISSED = -1.0  # confidence of a relation between entities that share no sentence
Cell = tuple[str, float, bool, int]  # relation, confidence, whether it holds, number of the row
Labelled = str | Path | Reading | Iterable[ExampleInput] | Iterable[AnnotatedText | Mapping[str, Any]]


def read_labelled(labelled: Labelled, no_relation: Collection[str] = ()) -> list[tuple[Example, bool]]:
    """Read labelled rows: a file in any known format, or a list; the bool says whether the relation holds.

    A row that names no relation, or one of `no_relation`, has the relation None.
    """
    none = {NO_RELATION, *names_of(no_relation, "no_relation")}
    if isinstance(labelled, str | Path):
        labelled = read_examples(user_path(labelled), no_relation=no_relation)
    if isinstance(labelled, Reading):
        rows = [(one, True) for one in labelled.examples]
        rows += [(replace(one, relation=None), True) for one in labelled.unrelated]
        rows += [(one, False) for one in labelled.counterexamples]
    else:
        rows = labelled_rows_of(labelled)  # type: ignore[arg-type]  # the caller handles annotated texts
    return [(replace(one, relation=None) if one.relation in none else one, holds) for one, holds in rows]


def read_questions(labelled: Labelled, no_relation: Collection[str] = ()) -> list[Example]:
    """Read questions with the relations that hold; questions without a relation count too."""
    if is_annotated(labelled):
        raise DataError("These are annotated texts: evaluate_extraction() compares their triples.")
    rows = read_labelled(labelled, no_relation)
    if not rows:
        raise DataError("There are no questions to answer.")
    return [one if holds else replace(one, relation=None) for one, holds in rows]


def evaluate(
    version: Version,
    questions: Sequence[Example],
    *,
    min_confidence: float | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Compare the answers of a version with the truth."""
    answers = version.predict(questions, top=1, min_confidence=min_confidence, progress=progress)
    names = {one.relation: find_relation(one.relation, version.relations) for one in questions if one.relation}
    taught = {one: found.id for one, found in names.items() if found}
    truth = [taught.get(one.relation or "") for one in questions]
    given = [answer.relation for answer in answers]
    first = [answer.ranked[0].relation for answer in answers]
    pairs = Counter(zip(truth, given, strict=True))
    asked, answered, lessons = Counter(truth), Counter(given), version.judged
    known = [one == right for one, right in zip(first, truth, strict=True) if right is not None]
    return Evaluation(
        len(answers),
        sum(n for (right, one), n in pairs.items() if right == one) / len(answers),
        sum(known) / len(known) if known else None,
        {
            relation.id: RelationScore(asked[relation.id], pairs[relation.id, relation.id], answered[relation.id])
            for relation in version.relations
        },
        dict(pairs),
        tuple(sorted(names.keys() - taught.keys())),
        sum(pair_key(one) in lessons for one in questions),
    )


def evaluate_extraction(
    version: Version,
    texts: Sequence[AnnotatedText],
    *,
    find_entities: bool = False,
    min_confidence: float | None = None,
    progress: Progress | None = None,
) -> TripleEvaluation:
    """Compare the triples of `Extraction.found` with the annotated ones.

    With `find_entities`, a tagger finds the entities; a mention stands for the annotated one that it overlaps.
    """
    names = {name for one in texts for _, name, _ in one.triples()}
    taught = {name: known.id for name in names if (known := find_relation(name, version.relations))}
    asked, answered, right = Counter[str](), Counter[str](), Counter[str]()
    for done, one in enumerate(texts, 1):
        entities = None if find_entities else one.row.marks()
        found = version.extract(one.text, entities, min_confidence=min_confidence).found if one.text.strip() else ()
        truth = {(h, taught[r], t) for h, r, t in one.triples() if r in taught}
        triples = {(one.key_of(each, "head"), r, one.key_of(each, "tail")) for each in found for r in each.relations}
        asked.update(relation for _, relation, _ in truth)
        answered.update(relation for _, relation, _ in triples)
        right.update(relation for _, relation, _ in truth & triples)
        if progress:
            progress(done, len(texts))
    return TripleEvaluation(
        len(texts),
        RelationScore(asked.total(), right.total(), answered.total()),
        {one.id: RelationScore(asked[one.id], right[one.id], answered[one.id]) for one in version.relations},
        tuple(sorted(names - taught.keys())),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Labelled confidences, [n] each: the relation, whether it holds, the fold of the question."""

    relations: np.ndarray  # places in the known relations
    confidences: np.ndarray
    holds: np.ndarray
    folds: np.ndarray
    n_rows: int  # questions or texts
    n_taught: int  # left out because they were taught
    in_text: bool  # all pairs of texts, not marked pairs


def labelled_cells(
    version: Version, labelled: Labelled, *, no_relation: Collection[str] = (), progress: Progress | None = None
) -> Cells:
    """Ask a version about labelled rows (a file in any known format, or a list) or about annotated texts."""
    if is_annotated(labelled):
        return _text_cells(version, read_annotated(labelled))
    return _row_cells(version, read_labelled(labelled, no_relation), progress)


def _row_cells(version: Version, rows: Sequence[tuple[Example, bool]], progress: Progress | None) -> Cells:
    known, seen = version.relations, set[str]()
    ids = {name: find_relation(name, known) for name in {one.relation for one, _ in rows} if name}
    questions: dict[str, Example] = {}
    holding: dict[str, set[str]] = {}
    denied: dict[str, set[str]] = {}  # of questions of which nothing else is known
    for example, holds in rows:
        key, relation = pair_key(example), ids.get(example.relation or "")
        if key in version.judged:
            seen.add(key)
        elif holds or relation:
            questions.setdefault(key, example)
            (holding if holds else denied).setdefault(key, set()).update([relation.id] if relation else [])
    answers = version.predict(list(questions.values()), top=len(known), progress=progress)
    found = list[Cell]()
    for row, (pair, answer) in enumerate(zip(questions, answers, strict=True)):
        confidences = {one.relation: one.confidence for one in answer.ranked}
        if pair not in holding:  # only denials: the other relations are unknown
            confidences = {name: one for name, one in confidences.items() if name in denied[pair]}
        found += [(name, one, name in holding.get(pair, ()), row) for name, one in confidences.items()]
    return _cells(version, found, len(questions), n_taught=len(seen))


def _text_cells(version: Version, texts: Sequence[AnnotatedText]) -> Cells:
    found = list[Cell]()
    for number, one in enumerate(texts):
        truth: dict[tuple[str, str], set[str]] = {}
        for head, name, tail in one.triples():
            if relation := find_relation(name, version.relations):
                truth.setdefault((head, tail), set()).add(relation.id)
        answers = version.extract(one.text, one.row.marks(), top=len(version.relations)).answers if one.entities else ()
        asked: dict[tuple[str, str], dict[str, float]] = {}  # a triple is as likely as its likeliest mention
        for answer in answers:
            surest = asked.setdefault((one.key_of(answer, "head"), one.key_of(answer, "tail")), {})
            for each in answer.ranked:
                surest[each.relation] = max(each.confidence, surest.get(each.relation, 0.0))
        for pair, confidences in asked.items():
            found += [(name, each, name in truth.get(pair, ()), number) for name, each in confidences.items()]
        for pair in truth.keys() - asked.keys():  # not in one sentence: missed at any threshold
            found += [(name, MISSED, True, number) for name in truth[pair]]
    return _cells(version, found, len(texts), in_text=True)


def _cells(version: Version, rows: Sequence[Cell], n_rows: int, *, n_taught: int = 0, in_text: bool = False) -> Cells:
    places = {one.id: place for place, one in enumerate(version.relations)}
    relations = np.array([places[name] for name, *_ in rows], dtype=np.int64)
    confidences = np.array([one for _, one, *_ in rows], dtype=np.float64)
    holds = np.array([one for *_, one, _ in rows], dtype=bool)
    folds = np.random.default_rng(0).permutation(max(n_rows, 1)) % FOLDS
    numbers = np.array([row for *_, row in rows], dtype=np.int64)
    return Cells(relations, confidences, holds, folds[numbers], n_rows, n_taught, in_text)


@dataclass(frozen=True, slots=True)
class Fit:
    """Thresholds of some cells; a relation without its own one takes the overall one. Infinity: nothing is answered."""

    overall: float
    own: Mapping[int, float]

    def answers(self, cells: Cells) -> np.ndarray:
        """Which cells are answers, [n]."""
        least = [self.own.get(place, self.overall) for place in range(cells.relations.max(initial=0) + 1)]
        return np.asarray(cells.confidences >= np.array(least)[cells.relations])


def fit(cells: Cells, precision: float, chosen: np.ndarray | None = None) -> Fit:
    """Fit the overall threshold and those of relations with enough rows, on the `chosen` cells."""
    chosen = np.ones(len(cells.holds), dtype=bool) if chosen is None else chosen
    own: dict[int, float] = {}
    for place in np.unique(cells.relations[chosen & cells.holds]).tolist():
        mine = chosen & (cells.relations == place)
        if (cells.holds & mine).sum() >= LEAST_ROWS:
            own[place] = best_threshold(cells.confidences[mine], cells.holds[mine], precision)
    own = {place: threshold for place, threshold in own.items() if threshold < np.inf}
    return Fit(best_threshold(cells.confidences[chosen], cells.holds[chosen], precision), own)


def best_threshold(confidences: np.ndarray, holds: np.ndarray, precision: float) -> float:
    """The highest threshold with the highest recall at a precision; infinity if too few answers reach it."""
    order = np.argsort(-confidences, kind="stable")
    sorted_, right = confidences[order], np.cumsum(holds[order])
    counts = np.arange(1, len(order) + 1)
    is_last = np.append(sorted_[1:] != sorted_[:-1], True)  # equal confidences are answered together
    enough = np.flatnonzero(is_last & (counts >= LEAST_ANSWERS) & (right >= precision * counts) & (sorted_ >= 0))
    if not len(enough):
        return float(np.inf)
    at = int(enough[np.argmax(right[enough])])
    below = max(float(sorted_[at + 1]), 0.0) if at + 1 < len(sorted_) else 0.0
    return (float(sorted_[at]) + below) / 2


def tuned(version: Version, cells: Cells, precision: float) -> tuple[Thresholds, Tuned]:
    """Fit thresholds and estimate what they do; raise if the precision cannot be reached."""
    n, taught = int(cells.holds.sum()), f" ({cells.n_taught} rows were taught and do not count)"
    if not 0 < precision < 1:
        raise DataError(f"precision: must be between 0 and 1, got {precision:g}.")
    if n < LEAST_ROWS:
        got = f"{n}{taught if cells.n_taught else ''}"
        raise DataError(f"Thresholds need at least {LEAST_ROWS} labelled rows of known relations, got {got}.")
    if cells.holds.all():
        raise DataError("Every relation holds in every row; give rows of other relations, or of no_relation.")
    found = fit(cells, precision)
    if found.overall == np.inf:
        right = np.cumsum(cells.holds[np.argsort(-cells.confidences, kind="stable")])
        best = np.max((right / np.arange(1, len(right) + 1))[LEAST_ANSWERS - 1 :])
        raise DataError(
            f"No threshold reaches a precision of {precision:g}: the highest is {best:.2f}. Nothing was changed. "
            "Judge more sentences (judge, erda teach --not), or ask for a lower precision."
        )
    answered = np.zeros(len(cells.holds), dtype=bool)
    for fold in range(FOLDS):
        test = cells.folds == fold
        answered |= test & fit(cells, precision, ~test).answers(cells)

    def expected(mine: np.ndarray) -> RelationScore:
        right = (answered & cells.holds & mine).sum()
        return RelationScore(int((cells.holds & mine).sum()), int(right), int((answered & mine).sum()))

    ids = [one.id for one in version.relations]
    own = {ids[place]: threshold for place, threshold in found.own.items()}
    relations = {
        name: TunedRelation(own.get(name, found.overall), name in own, expected(cells.relations == place))
        for place, name in enumerate(ids)
    }
    thresholds = Thresholds(found.overall, own, precision, version.number, cells.in_text)
    everything = expected(np.ones(len(cells.holds), dtype=bool))
    return thresholds, Tuned(
        version.number, precision, cells.n_rows, found.overall, everything, relations, cells.in_text, cells.n_taught
    )
