"""Streams drawn by seed from any dataset: N-way K-shot tasks after a first task with more examples.

The seed determines the order of the relations and the training examples. A dataset without a test or validation pool
of its own is split once, by a fixed rule, so that the questions are the same for every seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from erda.data.dataset import Dataset, relations_by_pair, shuffled
from erda.data.streams import DRAWN, Pool, StreamManifest, TaskStream, build_stream
from erda.errors import StreamError, counted, join_faults
from erda.types import Example, Relation, pair_in_sentence

FIXED_SEED = 2022  # for everything independent of the stream's seed: the order of questions, candidate lists
N_VALIDATION = 50  # validation examples per relation
TRAIN_SHARE = 0.6  # least share of a relation's examples kept for training when pools are split off

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
    candidates: int | None = None,
    min_examples: int | None = None,
) -> TaskStream:
    """Draw a stream: `first_way` relations with `first_shots` examples each, then tasks of `way` with `shots`.

    `first_way` defaults to `way`; `first_shots=None` means `shots`. The first task is drawn from the relations with
    enough examples. The last task takes the remaining relations and may be smaller; `n_tasks` stops earlier.
    `candidates` is the number of wrong relations listed with each question (None: no candidate lists). Relations with
    fewer than `min_examples` examples are left out. The manifest notes all omitted relations.
    """
    first_way, first_shots = first_way or way, first_shots or shots
    if shots < 1:
        raise StreamError(f"A stream needs at least 1 shot, got {shots}.")
    dataset, n_ambiguous = without_ambiguous(dataset)
    dataset, rare = _without_rare(dataset, min_examples)
    pools = split_pools(dataset, shots=shots, test_per_relation=test_per_relation)
    _check_enough(dataset, pools, shots, n_ambiguous)
    groups = _draw_groups(dataset, pools.train, way=way, first_way=first_way, first_shots=first_shots, seed=seed)
    if n_tasks is not None and n_tasks > len(groups):
        raise StreamError(
            f"Dataset '{dataset.name}' has {len(dataset.relations)} relations: a first task of {first_way}, then "
            f"{way} per task, make {len(groups)} tasks; {n_tasks} were requested."
        )
    notes = (*rare, *_set_aside(dataset, pools), *not_learned(groups, n_tasks))
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
    """Drop examples whose sentence and entities occur with two relations; return the rest and the number dropped."""
    relations = relations_by_pair(chain(dataset.train, dataset.validation, dataset.test))
    kept = dataset.only(lambda example: len(relations[pair_in_sentence(example)]) == 1)
    before, after = (len(each.train) + len(each.validation) + len(each.test) for each in (dataset, kept))
    return kept, before - after


@dataclass(frozen=True, slots=True)
class Pools:
    """The training, validation and test examples of each relation."""

    train: ByRelation
    validation: ByRelation
    test: ByRelation


def split_pools(dataset: Dataset, *, shots: int, test_per_relation: int | None) -> Pools:
    """Return the three pools of a dataset. Missing pools are split off its training examples, by whole sentences.

    Of a relation's n examples, max(shots, 0.6 n) stay for training. Three eighths of the rest (at most
    `N_VALIDATION`) go to validation, the others (at most `test_per_relation`) to the test.
    """
    train = _by_relation(dataset, dataset.train)
    validation, test = (_by_relation(dataset, pool) for pool in (dataset.validation, dataset.test))
    if not dataset.validation or not dataset.test:
        quotas = {}
        for relation, examples in train.items():
            spare = max(0, len(examples) - _reserve(len(examples), shots))
            share = spare if dataset.test else spare * 3 // 8
            n_validation = 0 if dataset.validation else min(share, N_VALIDATION)
            n_test = 0 if dataset.test else spare - n_validation
            quotas[relation] = (n_validation, min(n_test, n_test if test_per_relation is None else test_per_relation))
        train, split_validation, split_test = _split_sentences(train, quotas, shots)
        validation, test = validation if dataset.validation else split_validation, test if dataset.test else split_test
    for pool, limit in ((validation, N_VALIDATION), (test, test_per_relation)):
        for relation, examples in pool.items():
            if limit is not None and len(examples) > limit:
                pool[relation] = shuffled(examples, FIXED_SEED, relation)[:limit]
    return Pools(train, validation, test)


def _set_aside(dataset: Dataset, pools: Pools) -> tuple[str, ...]:
    """Return a note about the training examples that replace a missing validation or test pool."""
    if bool(dataset.validation) == bool(dataset.test):
        return ()
    name, taken = ("test", pools.test) if dataset.validation else ("validation", pools.validation)
    n = sum(map(len, taken.values()))
    return (
        f"dataset '{dataset.name}' has no {name} file: {n} of its training examples are set aside for {name}; "
        f"add {name}.jsonl to keep them for training",
    )


def not_learned(groups: Sequence[Sequence[Relation]], n_tasks: int | None) -> tuple[str, ...]:
    """Return a note that lists the relations a stream of `n_tasks` tasks never reaches; empty if it reaches all."""
    left = [relation.id for group in groups[n_tasks:] for relation in group] if n_tasks else []
    if not left:
        return ()
    total = sum(map(len, groups))
    return (f"n_tasks={n_tasks} leaves out {len(left)} of {total} relations: {', '.join(left)}",)


def draw_candidates(examples: Sequence[Example], relations: Iterable[str], n_listed: int) -> list[tuple[str, ...]]:
    """Draw `n_listed` wrong relations for each example. They depend on its id, not on the order of the stream."""
    ids = sorted(relations)
    lists = []
    for example in examples:
        wrong = [relation for relation in ids if relation != example.relation]
        lists.append(tuple(random.Random(f"{FIXED_SEED}:{example.id}").sample(wrong, min(n_listed, len(wrong)))))
    return lists


def _split_sentences(
    train: ByRelation, quotas: Mapping[str, tuple[int, int]], shots: int
) -> tuple[ByRelation, ByRelation, ByRelation]:
    """Move whole sentences to validation and test, rarest relation first, never below a relation's training share."""
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
    """Return the key by which the split groups sentences.

    `sentence_key` treats more sentences as equal; using it here would change every recorded stream.
    """
    return " ".join(" ".join(example.tokens).casefold().split())


def _draw_groups(
    dataset: Dataset, train: ByRelation, *, way: int, first_way: int, first_shots: int, seed: int
) -> list[tuple[Relation, ...]]:
    """Draw the relations of each task; every relation occurs once."""
    relations = shuffled(sorted(dataset.relations, key=lambda relation: relation.id), seed, "order")
    if first_way > len(relations):
        raise StreamError(
            f"Dataset '{dataset.name}' has {counted(len(relations), 'relation')}; a first task of {first_way} was "
            "requested. Lower way and first_way: erda run --set way=1 --set first_way=1."
        )
    base = [relation for relation in relations if len(train[relation.id]) >= first_shots][:first_way]
    if len(base) < first_way:
        most = max(len(examples) for examples in train.values())
        raise StreamError(
            f"Dataset '{dataset.name}': the first task needs {first_way} relations with {first_shots} training "
            f"examples each; {len(base)} have that many (the largest has {most}). Lower first_shots or first_way."
        )
    rest = [relation for relation in relations if relation not in base]
    return [tuple(base), *(tuple(rest[start : start + way]) for start in range(0, len(rest), way))]


def _check_enough(dataset: Dataset, pools: Pools, shots: int, n_ambiguous: int) -> None:
    faults, least = [], shots + 1
    for relation in dataset.relations:
        n_train, n_test = len(pools.train[relation.id]), len(pools.test[relation.id])
        if n_train < shots:
            faults.append(f"relation '{relation.id}' has {n_train} training examples; {shots} shots were requested.")
        elif not n_test:
            least = max(least, 0 if dataset.test else n_train + 1)
            faults.append(
                f"relation '{relation.id}' has {n_train} examples; {shots} shots leave none for the test."
                if not dataset.test
                else f"relation '{relation.id}' has no test example."
            )
    if faults:
        left_out = " (examples with two relations for the same entities are left out)" if n_ambiguous else ""
        remedy = f"Use fewer shots, or leave them out with min_examples={least} (erda run: --set min_examples={least})."
        raise StreamError(
            f"Dataset '{dataset.name}' is too small for this stream{left_out}:\n{join_faults(faults)}\n{remedy}"
        )


def _without_rare(dataset: Dataset, min_examples: int | None) -> tuple[Dataset, tuple[str, ...]]:
    """Drop relations with too few examples, or with none in the dataset's own test pool; return a note about them."""
    if min_examples is None:
        return dataset, ()
    counts = Counter(example.relation for example in dataset.train)
    tested = {example.relation for example in dataset.test} if dataset.test else set(counts)
    ids = [relation.id for relation in dataset.relations]
    rare = {name: counts[name] for name in ids if counts[name] < min_examples or name not in tested}
    if not rare:
        return dataset, ()
    if len(rare) == len(ids):
        raise StreamError(f"No relation of dataset '{dataset.name}' has {min_examples} examples; lower min_examples.")
    relations = tuple(relation for relation in dataset.relations if relation.id not in rare)
    named = ", ".join(f"{name} ({n})" for name, n in rare.items())
    note = f"left out, fewer than {min_examples} examples or none in the test: {named}"
    return replace(dataset.only(lambda example: example.relation not in rare), relations=relations), (note,)


def _question_pool(pool: ByRelation, n_listed: int | None) -> Pool:
    """Return all questions, shuffled so that their order does not reveal the answers."""
    examples = shuffled([example for relation in sorted(pool) for example in pool[relation]], FIXED_SEED, "questions")
    return Pool(examples, None if n_listed is None else draw_candidates(examples, pool, n_listed))


def _by_relation(dataset: Dataset, examples: Iterable[Example]) -> ByRelation:
    grouped: ByRelation = {relation.id: [] for relation in dataset.relations}
    for example in examples:
        grouped[str(example.relation)].append(example)
    return grouped


def _reserve(n_examples: int, shots: int) -> int:
    return max(shots, -int(-n_examples * TRAIN_SHARE // 1))
