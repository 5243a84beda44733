"""Evaluate a version on labelled examples or annotated texts, and compare two versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from erda.app.annotated import AnnotatedText, is_annotated
from erda.app.answers import Change, Evaluation, Progress, RelationScore, TripleEvaluation
from erda.app.candidates import held_keys
from erda.app.inputs import Given, find_relation, labelled_examples_of, names_of
from erda.app.review_journal import pair_key
from erda.app.version import Version
from erda.data.own_data import read_examples
from erda.errors import DataError
from erda.files import user_path
from erda.types import NO_RELATION, Example

Triple = tuple[str, str, str]  # head, relation, tail


@dataclass(frozen=True, slots=True)
class Questions:
    """Examples without their relations, and the relations."""

    examples: tuple[Example, ...]
    truth: tuple[str | None, ...]


def read_labelled(
    path: str | Path,
    *,
    format: str | None = None,
    no_relation: Collection[str] = (),
    columns: Mapping[str, str] | None = None,
) -> tuple[Example, ...]:
    """Read all examples of a file; rows without a relation, and counterexamples, have the relation None."""
    reading = read_examples(user_path(path), format, no_relation, columns=columns)
    others = (*reading.unrelated, *reading.counterexamples)
    return (*reading.examples, *(replace(one, relation=None) for one in others))


def read_questions(source: str | Path | Iterable[Given], no_relation: Collection[str] = ()) -> Questions:
    """Read questions from a file in any known format, or from a list; questions without a relation count too."""
    no_relation = names_of(no_relation, "no_relation")
    if is_annotated(source):
        raise DataError("These are annotated texts: evaluate_extraction() compares their triples.")
    if isinstance(source, str | Path):
        source = read_labelled(source, no_relation=no_relation)
    asked = labelled_examples_of(source)
    if not asked:
        raise DataError("There are no questions to answer.")
    none = {NO_RELATION, *no_relation}
    truth = (None if one.relation in none else one.relation for one in asked)
    return Questions(tuple(replace(one, relation=None) for one in asked), tuple(truth))


def evaluate(
    version: Version, questions: Questions, *, min_confidence: float | None = None, progress: Progress | None = None
) -> Evaluation:
    """Compare the answers of a version with the truth."""
    answers = version.predict(questions.examples, top=1, min_confidence=min_confidence, progress=progress)
    names = {one: find_relation(one, version.relations) for one in set(questions.truth) if one is not None}
    taught = {one: found.id for one, found in names.items() if found}
    truth = [taught.get(one or "") for one in questions.truth]
    given = [answer.relation for answer in answers]
    first = [answer.ranked[0].relation for answer in answers]
    pairs = Counter(zip(truth, given, strict=True))
    asked, answered, lessons = Counter(truth), Counter(given), held_keys(version)
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
        sum(pair_key(one) in lessons for one in questions.examples),
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

    With `find_entities`, a tagger finds the entities; a mention stands for the annotated one that it overlaps. A
    symmetric relation, or one with an inverse, may be found in either direction.
    """
    names = {name for one in texts for _, name, _ in one.triples()}
    taught = {name: known.id for name in names if (known := find_relation(name, version.relations))}
    asked, answered, right = Counter[str](), Counter[str](), Counter[str]()
    for done, one in enumerate(texts, 1):
        entities = None if find_entities else one.row.marks()
        found = version.extract(one.text, entities, min_confidence=min_confidence).found if one.text.strip() else ()
        truth = _once(((h, taught[r], t) for h, r, t in one.triples() if r in taught), version.inverses)
        keyed = ((one.key_of(each, "head"), r, one.key_of(each, "tail")) for each in found for r in each.relations)
        triples = _once(keyed, version.inverses, like=truth)
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


def _once(triples: Iterable[Triple], inverses: Mapping[str, str], like: Collection[Triple] = ()) -> set[Triple]:
    """Drop triples that repeat another one in the other direction; keep the direction of triples in `like`."""
    found = set[Triple]()
    for head, relation, tail in triples:
        other = (tail, inverses[relation], head) if relation in inverses else None
        if other is not None and other in like:
            found.add(other)
        elif other not in found:
            found.add((head, relation, tail))
    return found


def compare(before: Version, after: Version, questions: Questions) -> list[Change]:
    """List the questions that two versions answer differently."""
    answers = (version.predict(questions.examples, top=1) for version in (before, after))
    return [
        Change(one.example, one.relation, other.relation, truth)
        for one, other, truth in zip(*answers, questions.truth, strict=True)
        if one.relation != other.relation
    ]
