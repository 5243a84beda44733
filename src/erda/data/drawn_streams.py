"""Streams drawn by seed from any dataset: N-way K-shot tasks after a first task with more examples.

The seed decides the order of the relations and the training examples. Where a dataset has no test or validation pool
of its own, its sentences are split once, by a fixed rule, so that the questions are the same for every seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from erda.data.dataset import Dataset, pair_in_sentence, shuffled
from erda.data.streams import DRAWN, Pool, StreamManifest, TaskStream, build_stream
from erda.errors import StreamError, join_faults
from erda.types import Example, Relation

FIXED_SEED = 2022  # what does not depend on the stream's seed: the split into pools, candidate lists
TRAIN_SHARE = 0.6  # of a relation's examples, at least, stay for training where the dataset has no pools of its own

ByRelation = dict[str, list[Example]]


def draw_stream(
    dataset: Dataset,
    *,
    way: int,
    shots: int,
    seed: int,
    first_way: int | None = None,
    first_shots: int | None = 100,
    n_tasks: int | None = None,
    test_per_relation: int | None = 100,
    validation_per_relation: int | None = 50,
    candidates: int | None = None,
    min_examples: int | None = None,
) -> TaskStream:
    """A stream: first `first_way` relations with `first_shots` examples each, then tasks of `way` with `shots`.

    `first_way` defaults to `way`; `first_shots=None` means `shots`. The first task is drawn among the relations that
    have enough examples. The last task takes the relations that are left and may be smaller; `n_tasks` stops earlier.
    `candidates` lists so many wrong relations with each question (None: no candidate lists). Relations with fewer than
    `min_examples` examples are left out. The manifest notes what is left out.
    """
    first_way, first_shots = first_way or way, first_shots or shots
    _check_numbers(way=way, shots=shots, first_way=first_way, first_shots=first_shots, n_tasks=n_tasks)
    dataset, n_ambiguous = without_ambiguous(dataset)
    dataset, rare = _without_rare(dataset, min_examples)
    pools = split_pools(
        dataset, shots=shots, test_per_relation=test_per_relation, validation_per_relation=validation_per_relation
    )
    _check_enough(dataset, pools, shots, n_ambiguous)
    groups = _draw_groups(dataset, pools.train, way=way, first_way=first_way, first_shots=first_shots, seed=seed)
    if n_tasks is not None and n_tasks > len(groups):
        raise StreamError(
            f"Dataset '{dataset.name}' has {len(dataset.relations)} relations: a first task of {first_way} and then "
            f"{way} a task make {len(groups)} tasks; {n_tasks} were asked for."
        )
    notes = (*rare, *not_learned(groups, n_tasks))
    groups = groups[:n_tasks]
    train: list[Example] = []
    for index, group in enumerate(groups):
        wanted = shots if index else first_shots
        chosen = [e for relation in group for e in shuffled(pools.train[relation.id], seed, relation.id)[:wanted]]
        train += shuffled(chosen, seed, f"task {index}")
    about = StreamManifest(
        dataset=dataset.name,
        checksum=dataset.checksum,
        family=DRAWN,
        seed=seed,
        shots=shots,
        first_shots=first_shots,
        hygiene={"ambiguous_left_out": n_ambiguous},
        notes=notes,
    )
    return build_stream(
        f"{dataset.name} {way}-way {shots}-shot, seed {seed}",
        about,
        groups,
        train=Pool(train),
        validation=_question_pool(pools.validation, candidates),
        test=_question_pool(pools.test, candidates),
    )


def without_ambiguous(dataset: Dataset) -> tuple[Dataset, int]:
    """The dataset without the examples whose sentence and entities occur with two relations, and their number.

    Such an example has no single right answer, so it can be neither asked nor taught.
    """
    relations: dict[tuple[object, ...], set[str | None]] = {}
    for example in chain(dataset.train, dataset.validation, dataset.test):
        relations.setdefault(pair_in_sentence(example), set()).add(example.relation)
    kept = dataset.only(lambda example: len(relations[pair_in_sentence(example)]) == 1)
    before, after = (len(one.train) + len(one.validation) + len(one.test) for one in (dataset, kept))
    return kept, before - after


@dataclass(frozen=True, slots=True)
class Pools:
    """Examples of each relation, by purpose."""

    train: ByRelation
    validation: ByRelation
    test: ByRelation


def split_pools(
    dataset: Dataset, *, shots: int, test_per_relation: int | None, validation_per_relation: int | None
) -> Pools:
    """The three pools of a dataset; those that it lacks are split off its training examples, whole sentences at a time.

    Of a relation with n examples max(shots, 0.6 n) stay for training; of the rest three eighths (at most
    `validation_per_relation`) are for validation and the others (at most `test_per_relation`) for the test.
    """
    train = _by_relation(dataset, dataset.train)
    validation, test = (_by_relation(dataset, pool) for pool in (dataset.validation, dataset.test))
    if not dataset.validation or not dataset.test:
        quotas = {}
        for relation, examples in train.items():
            spare = len(examples) - _reserve(len(examples), shots)
            share = spare if dataset.test else spare * 3 // 8
            n_validation = 0 if dataset.validation else _capped(share, validation_per_relation)
            n_test = 0 if dataset.test else _capped(spare - n_validation, test_per_relation)
            quotas[relation] = (n_validation, n_test)
        train, split_validation, split_test = _split_sentences(train, quotas, shots)
        validation, test = validation if dataset.validation else split_validation, test if dataset.test else split_test
    for pool, limit in ((validation, validation_per_relation), (test, test_per_relation)):
        for relation, examples in pool.items():
            if limit is not None and len(examples) > limit:
                pool[relation] = shuffled(examples, FIXED_SEED, relation)[:limit]
    return Pools(train, validation, test)


def not_learned(groups: Sequence[Sequence[Relation]], n_tasks: int | None) -> tuple[str, ...]:
    """The line that says which relations a stream of `n_tasks` tasks never comes to; none where it takes all."""
    left = [relation.id for group in groups[n_tasks:] for relation in group] if n_tasks else []
    if not left:
        return ()
    total = sum(map(len, groups))
    return (f"n_tasks={n_tasks} leaves out {len(left)} of {total} relations: {', '.join(left)}",)


def draw_candidates(examples: Sequence[Example], relations: Iterable[str], n_listed: int) -> list[tuple[str, ...]]:
    """For each example `n_listed` wrong relations at random; they depend on its id, not on the order of the stream."""
    ids = sorted(relations)
    lists = []
    for example in examples:
        wrong = [relation for relation in ids if relation != example.relation]
        lists.append(tuple(random.Random(f"{FIXED_SEED}:{example.id}").sample(wrong, min(n_listed, len(wrong)))))
    return lists


def _split_sentences(
    train: ByRelation, quotas: Mapping[str, tuple[int, int]], shots: int
) -> tuple[ByRelation, ByRelation, ByRelation]:
    """Give whole sentences to validation and test, rarest relation first, never below a relation's training share."""
    sentences: dict[str, list[Example]] = {}
    for examples in train.values():
        for example in examples:
            sentences.setdefault(_spaced(example), []).append(example)
    left = {relation: len(examples) for relation, examples in train.items()}
    floor = {relation: _reserve(n_examples, shots) for relation, n_examples in left.items()}
    purpose: dict[str, int] = {}  # sentence -> 0 validation, 1 test
    given = {relation: [0, 0] for relation in train}
    for relation in sorted(train, key=lambda relation: (len(train[relation]), relation)):
        keys = shuffled(list(dict.fromkeys(_spaced(example) for example in train[relation])), 0, relation)
        for key in keys:
            wanted = next((p for p in (1, 0) if given[relation][p] < quotas[relation][p]), None)
            if wanted is None:
                break
            cost = Counter(str(example.relation) for example in sentences[key])
            if key in purpose or any(left[other] - n < floor[other] for other, n in cost.items()):
                continue
            purpose[key] = wanted
            for other, n in cost.items():
                left[other] -= n
                given[other][wanted] += n
    split: tuple[ByRelation, ByRelation, ByRelation] = ({}, {}, {})
    for relation, examples in train.items():
        for pool in split:
            pool[relation] = []
        for example in examples:
            split[purpose.get(_spaced(example), -1) + 1][relation].append(example)
    return split


def _spaced(example: Example) -> str:
    """A sentence as the split takes it. `sentence_key` sees more sentences as one; the streams on record do not."""
    return " ".join(" ".join(example.tokens).casefold().split())


def _draw_groups(
    dataset: Dataset,
    train: ByRelation,
    *,
    way: int,
    first_way: int,
    first_shots: int,
    seed: int,
) -> list[tuple[Relation, ...]]:
    """The relations of each task in an order drawn by seed; every relation once."""
    relations = shuffled(sorted(dataset.relations, key=lambda relation: relation.id), seed, "order")
    if first_way > len(relations):
        raise StreamError(
            f"Dataset '{dataset.name}' has {len(relations)} relations; a first task of {first_way} was asked for."
        )
    base = [relation for relation in relations if len(train[relation.id]) >= first_shots][:first_way]
    if len(base) < first_way:
        most = max(len(examples) for examples in train.values())
        raise StreamError(
            f"Dataset '{dataset.name}': the first task needs {first_way} relations with {first_shots} training "
            f"examples each; {len(base)} have so many (the most is {most}). Ask for fewer examples in the first task."
        )
    rest = [relation for relation in relations if relation not in base]
    return [tuple(base), *(tuple(rest[start : start + way]) for start in range(0, len(rest), way))]


def _check_numbers(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise StreamError(f"A stream needs {name} of at least 1, got {number}.")


def _check_enough(dataset: Dataset, pools: Pools, shots: int, n_ambiguous: int) -> None:
    faults, least = [], shots + 1
    for relation in dataset.relations:
        n_train, n_test = len(pools.train[relation.id]), len(pools.test[relation.id])
        if n_train < shots:
            faults.append(f"relation '{relation.id}' has {n_train} training examples; {shots} shots were asked for.")
        elif not n_test:
            least = max(least, 0 if dataset.test else n_train + 1)
            faults.append(
                f"relation '{relation.id}' has {n_train} examples; {shots} shots leave none for the test."
                if not dataset.test
                else f"relation '{relation.id}' has no test example."
            )
    if faults:
        left_out = " (examples with two relations for the same entities are left out)" if n_ambiguous else ""
        remedy = (
            f"Ask for fewer shots, or leave them out with min_examples={least} (erda run: --set min_examples={least})."
        )
        raise StreamError(
            f"Dataset '{dataset.name}' cannot give such a stream{left_out}:\n{join_faults(faults)}\n{remedy}"
        )


def _without_rare(dataset: Dataset, min_examples: int | None) -> tuple[Dataset, tuple[str, ...]]:
    """The dataset without relations that have too few examples, or none in its own test; and a line that names them."""
    if min_examples is None:
        return dataset, ()
    counts = Counter(example.relation for example in dataset.train)
    tested = {example.relation for example in dataset.test} if dataset.test else set(counts)
    rare = {
        one.id: counts[one.id] for one in dataset.relations if counts[one.id] < min_examples or one.id not in tested
    }
    if not rare:
        return dataset, ()
    if len(rare) == len(dataset.relations):
        raise StreamError(f"No relation of dataset '{dataset.name}' has {min_examples} examples; ask for fewer.")
    relations = tuple(one for one in dataset.relations if one.id not in rare)
    named = ", ".join(f"{relation} ({n})" for relation, n in rare.items())
    note = f"left out, fewer than {min_examples} examples or none in the test: {named}"
    return replace(dataset.only(lambda example: example.relation not in rare), relations=relations), (note,)


def _question_pool(pool: ByRelation, n_listed: int | None) -> Pool:
    """All questions, shuffled so that their order says nothing of their answers."""
    examples = shuffled([example for relation in sorted(pool) for example in pool[relation]], FIXED_SEED, "questions")
    return Pool(examples, None if n_listed is None else draw_candidates(examples, pool, n_listed))


def _by_relation(dataset: Dataset, examples: Iterable[Example]) -> ByRelation:
    grouped: ByRelation = {relation.id: [] for relation in dataset.relations}
    for example in examples:
        grouped[str(example.relation)].append(example)
    return grouped


def _reserve(n_examples: int, shots: int) -> int:
    return max(shots, -int(-n_examples * TRAIN_SHARE // 1))


def _capped(number: int, limit: int | None) -> int:
    return max(0, number if limit is None else min(number, limit))
