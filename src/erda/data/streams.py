"""Task streams: the tasks that a method learns one after another, and the tests that it never sees.

Iterating over a `TaskStream` yields `Task`s, which hold training examples only. `stream.test(k)` and
`stream.validation(k)` return the questions of task `k`; a method has no access to them.

Written patterns of 93 Wikidata relations, five sentences each that state the relation between X and Y, were written for
this project from the name and the description of each relation. No sentence of a dataset was consulted. The setting
`patterns` of a stream adds them to the descriptions, as lines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from erda.errors import DataError, StreamError
from erda.fields import Count, Settings
from erda.text.keys import sentence_key
from erda.types import Example, Relation, Task, TestSet

DRAWN = "drawn"  # family of the streams drawn by seed; the other families are published orders
Ids = tuple[tuple[str, ...], ...]
PATTERNS = "patterns.json"


class StreamSettings(Settings):
    """Settings of a drawn stream; sizes default to the dataset's own, or to 5-way 5-shot for a user's own data."""

    way: Count | None = None
    first_way: Count | None = None
    first_shots: Count | None = None
    n_tasks: Count | None = None
    test_per_relation: Count | None = 100
    candidates: Count | None = None
    min_examples: Count | None = None  # relations with fewer are left out
    no_relation: str = ""  # relation names that mean "none", separated by commas
    patterns: bool = False  # add written patterns to descriptions


@dataclass(frozen=True, slots=True)
class StreamManifest:
    """The content of a stream, down to the example. Two runs are comparable when their digests are equal."""

    dataset: str
    checksum: str  # sha256 of the source data
    family: str  # "erda" or "sckd" (published orders), or "drawn"
    seed: int
    shots: int
    first_shots: int
    order: tuple[int, ...] = ()  # published task clusters in the order of learning; empty when drawn
    relations: Ids = ()  # relation ids of each task; the next three hold example ids of each task
    train: Ids = field(default=(), repr=False)
    validation: Ids = field(default=(), repr=False)
    test: Ids = field(default=(), repr=False)
    hygiene: Mapping[str, int] = field(default_factory=dict)  # counts of sentences shared between pools
    notes: tuple[str, ...] = ()  # remarks for the reader, such as omitted relations

    @property
    def digest(self) -> str:
        """Hex sha256 of all fields except `notes`."""
        text = json.dumps(replace(self, notes=()).to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as plain JSON values, without empty `notes`."""
        value: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return value if self.notes else {name: part for name, part in value.items() if name != "notes"}

    def summary(self) -> dict[str, Any]:
        """Return the manifest with its digest and with counts instead of example ids, small enough for every record."""
        value = self.to_json()
        for pool in ("train", "validation", "test"):
            value[f"n_{pool}"] = [len(ids) for ids in value.pop(pool)]
        return {**value, "digest": self.digest}


@dataclass(frozen=True, slots=True)
class TaskWithTests:
    """One task of a stream with its validation and test questions."""

    task: Task
    validation: TestSet
    test: TestSet


class TaskStream:
    """Tasks in the order of learning. Iteration and indexing return `Task`s; `test` and `validation` the questions."""

    def __init__(self, name: str, steps: Sequence[TaskWithTests], manifest: StreamManifest) -> None:
        self.name = name
        self.manifest = manifest
        self._steps = tuple(steps)

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[Task]:
        return (step.task for step in self._steps)

    def __getitem__(self, k: int) -> Task:
        return self._steps[k].task

    def __repr__(self) -> str:
        return f"TaskStream({self.name!r}, {len(self)} tasks, {len(self.relations)} relations)"

    @property
    def relations(self) -> tuple[Relation, ...]:
        """All relations, in the order of learning."""
        return tuple(relation for task in self for relation in task.relations)

    def test(self, k: int) -> TestSet:
        """Return the test questions of task `k` (0 is the first)."""
        return self._steps[k].test

    def validation(self, k: int) -> TestSet:
        """Return the validation questions of task `k`; none of them is in a test or training set."""
        return self._steps[k].validation


@dataclass(frozen=True, slots=True)
class Pool:
    """Labelled examples, with the candidate relations of each if the dataset lists them."""

    examples: Sequence[Example]
    candidates: Sequence[tuple[str, ...]] | None = None

    def of(self, relations: Sequence[Relation]) -> Pool:
        """Return the part of the pool that belongs to these relations, in the same order."""
        wanted = {relation.id for relation in relations}
        rows = [row for row, example in enumerate(self.examples) if example.relation in wanted]
        listed = self.candidates
        return Pool([self.examples[row] for row in rows], None if listed is None else [listed[row] for row in rows])

    def questions(self) -> TestSet:
        """Return the examples without their relations, and the answers separately."""
        return TestSet(
            tuple(replace(example, relation=None) for example in self.examples),
            tuple(str(example.relation) for example in self.examples),
            None if self.candidates is None else tuple(self.candidates),
        )


def build_stream(
    name: str, about: StreamManifest, groups: Sequence[Sequence[Relation]], *, train: Pool, validation: Pool, test: Pool
) -> TaskStream:
    """Assemble a stream from the relations of each task and the example pools. Its manifest completes `about`."""
    steps = []
    for index, group in enumerate(groups):
        try:
            task = Task(index, tuple(group), tuple(train.of(group).examples))
            task.check_examples()
        except DataError as error:
            raise StreamError(f"Cannot build stream '{name}': {error}") from None
        steps.append(TaskWithTests(task, validation.of(group).questions(), test.of(group).questions()))
    manifest = replace(
        about,
        relations=tuple(tuple(relation.id for relation in step.task.relations) for step in steps),
        train=tuple(_ids(step.task.examples) for step in steps),
        validation=tuple(_ids(step.validation.examples) for step in steps),
        test=tuple(_ids(step.test.examples) for step in steps),
        hygiene={**about.hygiene, **_hygiene(steps)},
    )
    _check_disjoint(manifest)
    return TaskStream(name, steps, manifest)


def text_key(example: Example) -> int:
    """Return the key of an example's sentence, which ignores case and spacing."""
    return sentence_key(" ".join(example.tokens))


def _ids(examples: Sequence[Example]) -> tuple[str, ...]:
    return tuple(example.id for example in examples)


def _hygiene(steps: Sequence[TaskWithTests]) -> dict[str, int]:
    """Count the test and validation sentences that also occur in another pool."""
    train = {text_key(example) for step in steps for example in step.task.examples}
    test = [text_key(example) for step in steps for example in step.test.examples]
    validation = [text_key(example) for step in steps for example in step.validation.examples]
    tested = set(test)
    return {
        "test_in_train": sum(key in train for key in test),
        "validation_in_train": sum(key in train for key in validation),
        "validation_in_test": sum(key in tested for key in validation),
    }


def _check_disjoint(manifest: StreamManifest) -> None:
    seen: dict[str, str] = {}
    for pool in ("train", "validation", "test"):
        for ids in getattr(manifest, pool):
            for example_id in ids:
                if example_id in seen:
                    raise StreamError(f"Example '{example_id}' is in both {seen[example_id]} and {pool}.")
                seen[example_id] = pool


@cache
def written_patterns() -> dict[str, tuple[str, ...]]:
    """Return the patterns of each relation, by its Wikidata id."""
    found = json.loads(files("erda.data").joinpath(PATTERNS).read_text(encoding="utf-8"))
    return {relation: tuple(lines) for relation, lines in found.items()}


def with_written_patterns(relation: Relation) -> Relation:
    """Add the written patterns of a relation to its description."""
    return replace(relation, description="\n".join([relation.description, *written_patterns().get(relation.id, ())]))


def with_patterns(stream: TaskStream) -> TaskStream:
    """Return the stream with written patterns in the descriptions of its relations; its checksum covers them."""
    used = {one.id: written_patterns()[one.id] for one in stream.relations if one.id in written_patterns()}
    if not used:
        raise StreamError("patterns: no relation of this stream has written patterns; they have Wikidata ids.")
    steps = [
        replace(step, task=replace(step.task, relations=tuple(map(with_written_patterns, step.task.relations))))
        for step in stream._steps
    ]
    whole = hashlib.sha256(f"{stream.manifest.checksum} {json.dumps(used, sort_keys=True)}".encode()).hexdigest()
    notes = (*stream.manifest.notes, f"written patterns for {len(used)} of {len(stream.relations)} relations")
    return TaskStream(stream.name, steps, replace(stream.manifest, checksum=whole, notes=notes))
