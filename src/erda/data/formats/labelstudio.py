"""Label Studio's export "JSON": an array of tasks with `data` and `annotations`.

The `result` of an annotation holds regions of the task's text, and relations from one region to another (`from_id`,
`to_id`, `direction`) with `labels`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal

from pydantic import StrictInt, StrictStr

from erda.data.formats.document_spans import Marked, sentences_example
from erda.data.formats.row_collector import SourceRow
from erda.errors import DataError
from erda.files import decode
from erda.text.reading import Faults, JsonWalk
from erda.types import Example

EXPECTED = "an array of tasks with 'data' and 'annotations' (export format JSON)"
NO_RELATION = "the task has no relation"
CANCELLED = "the annotation was skipped"


@dataclass(frozen=True, slots=True)
class Region:
    """Start, end, text and labels of a region; the first label is the type of the entity."""

    start: StrictInt
    end: StrictInt
    text: StrictStr | None = None
    labels: list[StrictStr] | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """An item of an annotation: a region, a relation or another kind."""

    type: StrictStr = ""
    id: StrictStr | None = None
    value: dict[str, Any] | None = None
    from_id: StrictStr | None = None
    to_id: StrictStr | None = None
    direction: Literal["left", "right", "bi"] | None = "right"
    labels: list[StrictStr] | None = None


@dataclass(frozen=True, slots=True)
class Annotation:
    """One person's annotation of a task."""

    result: list[Result]
    was_cancelled: bool = False


@dataclass(frozen=True, slots=True)
class LabelledTask:
    """A task of the file."""

    data: dict[str, Any]
    annotations: list[Annotation] | None = None
    completions: list[Annotation] | None = None  # the name in older versions
    id: StrictInt | StrictStr | None = None


def labelstudio_rows(path: Path, faults: Faults) -> Iterator[SourceRow]:
    """Yield a row for each relation of each annotation; a task without relations yields one row to skip."""
    numbers = count(1)
    stem = path.name.split(".")[0]
    walk = JsonWalk(path)
    for index, (line, value) in enumerate(walk.array(), 1):
        try:
            task = decode(value, LabelledTask, remedy="Export the project as JSON (JSON-MIN has no relations).")
        except DataError as error:
            faults.add(line, f"task {index}: {error}")
            continue
        where = f"task {index if task.id is None else task.id}: "
        n_rows = 0
        for annotation in task.annotations or task.completions or ():
            for read in _readers(task, annotation):
                n_rows, number = n_rows + 1, next(numbers)
                yield SourceRow(line, partial(read, f"{stem}:{number}"), where, number)
        if not n_rows:
            yield SourceRow(line, lambda: NO_RELATION, where, next(numbers))
    walk.end()


def _readers(task: LabelledTask, annotation: Annotation) -> Iterator[Callable[[str], Example | str]]:
    """Yield a reader for each relation of an annotation; it takes the id of the example."""
    if annotation.was_cancelled:
        yield lambda example_id: CANCELLED
        return
    regions = {result.id: result for result in annotation.result if result.id and result.type != "relation"}
    for relation in annotation.result:
        if relation.type == "relation":
            ends = (relation.from_id, relation.to_id)
            pairs = {"left": [ends[::-1]], "bi": [ends, ends[::-1]]}.get(relation.direction or "", [ends])
            for pair in pairs:
                for label in relation.labels or [""]:
                    yield partial(_example, task.data, regions, pair, label)


def _example(
    data: Mapping[str, Any], regions: Mapping[str, Result], pair: tuple[str | None, ...], label: str, example_id: str
) -> Example | str:
    text = _text(data)
    head, tail = (_marked(regions, region_id) for region_id in pair)
    return sentences_example(text, head, tail, relation=label.strip(), id=example_id)


def _marked(regions: Mapping[str, Result], region_id: str | None) -> Marked:
    region = regions.get(region_id or "")
    if region is None:
        raise DataError(f"a relation names region {region_id!r}, which this annotation does not have.")
    found = decode(region.value, Region, place=f"region {region_id}", remedy="Only plain text regions are supported.")
    return Marked(found.start, found.end, found.text, type=next(iter(found.labels or ()), None))


def _text(data: Mapping[str, Any]) -> str:
    texts = {name: value for name, value in data.items() if isinstance(value, str)}
    if "text" not in texts and len(texts) != 1:
        fields = ", ".join(sorted(data))[:200]
        raise DataError(f"'data' has no field 'text' and not exactly one text field ({fields}). Name the field 'text'.")
    return texts.get("text") or next(iter(texts.values()))
