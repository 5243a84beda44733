"""Exports of annotation tools: brat, Label Studio and Prodigy.

brat: a text (`x.txt`) and its annotations (`x.ann`), one per line; or a folder of such files.
`T1<tab>City 0 4<tab>Oslo` marks an entity, `R1<tab>capital_of Arg1:T1 Arg2:T2` a relation from the first argument to
the second, `N1<tab>Reference T1 Wikidata:Q585<tab>Oslo` gives the id of an entity. Events, attributes, notes and
equivalences are ignored.

Label Studio, export "JSON": an array of tasks with `data` and `annotations`. The `result` of an annotation holds
regions of the task's text, and relations from one region to another (`from_id`, `to_id`, `direction`) with `labels`.

Prodigy, JSONL of the recipe rel.manual: a text with `tokens`, `spans` and `relations`. A relation goes from `head` to
`child`: our head and tail. Both are token numbers, or spans that contain the token. A rejected row with one relation is
a counterexample of it; of several relations, nobody knows which one is wrong.

Files for Label Studio and Prodigy have one text per sentence, with all its entities and relations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, count
from pathlib import Path
from typing import Any, Literal

from pydantic import StrictInt, StrictStr

from erda.data.formats.row_collector import Rejected, SourceRow, sentences_example
from erda.errors import DataError
from erda.files import decode, decode_json, read_bytes
from erda.text.marks import Mark
from erda.text.reading import Faults, JsonWalk, read_lines
from erda.types import NO_RELATION, Example, Span

NOT_ANNOTATED = "no relation is annotated"
IN_PIECES = "an entity has several fragments"
EVENT = "an argument is an event"
_ENTITY = re.compile(r"\S+ (\d{1,12}) (\d{1,12})((?:;\d+ \d+)*)")
_RELATION = re.compile(r"(\S+) \S+?:(\S+) \S+?:(\S+)\s*")
_REFERENCE = re.compile(r"Reference (\S+) (\S+)")
UNTYPED = "entity"  # the label of a region whose entity has no type
CANCELLED = "the annotation was skipped"
NOT_ACCEPTED = "the row was not accepted"
AMBIGUOUS = "the row was rejected and has several relations"


@dataclass(frozen=True, slots=True)
class Standoff:
    """The entities, references and relations of one text; each relation with its line."""

    entities: dict[str, tuple[re.Match[str], str]] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)
    relations: list[tuple[int, re.Match[str]]] = field(default_factory=list)


def brat_rows(path: Path, faults: Faults) -> Iterator[SourceRow]:
    """Yield a row for each relation; a text without relations yields one row to skip."""
    numbers = count(1)
    for file in brat_files(path):
        faults.path = file
        text = _brat_text(file.with_suffix(".txt"))
        found = _standoff(file, faults)
        for line, relation in found.relations:
            number = next(numbers)
            yield SourceRow(line, partial(_brat_example, text, found, relation, f"{file.stem}:{line}"), number=number)
        if not found.relations:
            yield SourceRow(1, lambda: NOT_ANNOTATED, number=next(numbers))


def brat_files(path: Path) -> list[Path]:
    """Return the `.ann` files of a path: the file itself, the one beside a text, or those in a folder."""
    return sorted(path.glob("*.ann")) if path.is_dir() else [path.with_suffix(".ann")]


def _brat_text(path: Path) -> str:
    try:
        return read_bytes(path).decode()  # with its byte order mark: brat counts it
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 (byte 0x{error.object[error.start]:02x}); save it as UTF-8.") from None


def _standoff(path: Path, faults: Faults) -> Standoff:
    found = Standoff()
    for number, line in read_lines(path, faults):
        key, _, rest = line.partition("\t")
        about, _, words = rest.partition("\t")
        if not line or line.isspace() or (key and key[0] in "EAM#*"):
            continue
        pattern = {"T": _ENTITY, "R": _RELATION, "N": _REFERENCE}.get(key[:1])
        match = pattern.fullmatch(about) if pattern else None
        if match is None:
            faults.add(number, f"not a brat annotation: {line[:60]!r}.")
        elif key[0] == "T":
            found.entities[key] = (match, words)
        elif key[0] == "R":
            found.relations.append((number, match))
        else:
            found.references.setdefault(match[1], match[2])
    return found


def _brat_example(text: str, found: Standoff, relation: re.Match[str], example_id: str) -> Example | str:
    marks: list[Mark] = []
    for entity_id in relation.group(2, 3):
        if entity_id.startswith("E"):
            return EVENT
        if entity_id not in found.entities:
            raise DataError(f"argument {entity_id} is not defined in this file.")
        entity, words = found.entities[entity_id]
        if entity[3]:
            return IN_PIECES
        marks.append(
            Mark(int(entity[1]), int(entity[2]), words or None, found.references.get(entity_id), entity[0].split()[0])
        )
    return sentences_example(text, *marks, relation=relation[1], id=example_id)


# -- Label Studio ------------------------------------------------------------------------------------------------------


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
        annotations = task.annotations or task.completions or ()
        readers = [read for annotation in annotations for read in _readers(task, annotation)]
        for read in readers or [lambda example_id: NOT_ANNOTATED]:
            number = next(numbers)
            yield SourceRow(line, partial(read, f"{stem}:{number}"), where, number)
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
                    yield partial(_task_example, task.data, regions, pair, label)


def _task_example(
    data: Mapping[str, Any], regions: Mapping[str, Result], pair: tuple[str | None, ...], label: str, example_id: str
) -> Example | str:
    text = _task_text(data)
    head, tail = (_region_mark(regions, region_id) for region_id in pair)
    return sentences_example(text, head, tail, relation=label.strip(), id=example_id)


def _region_mark(regions: Mapping[str, Result], region_id: str | None) -> Mark:
    if (region := regions.get(region_id or "")) is None:
        raise DataError(f"a relation names region {region_id!r}, which this annotation does not have.")
    found = decode(region.value, Region, place=f"region {region_id}", remedy="Only plain text regions are supported.")
    label = next(iter(found.labels or ()), UNTYPED)
    return Mark(found.start, found.end, found.text, type=None if label == UNTYPED else label)


def region(text: str, place: tuple[int, int], type: str | None, **names: str) -> dict[str, Any]:
    """The region of an entity of a text; `names` are those of the labelling configuration."""
    start, end = place
    value = {"start": start, "end": end, "text": text[start:end], "labels": [type or UNTYPED]}
    return {
        "id": f"erda-{start}-{end}",
        "type": "labels",
        "value": value,
        "from_name": "label",
        "to_name": "text",
    } | names


def relation_result(head: Mapping[str, Any], tail: Mapping[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    """The relations from one region to another."""
    ends = {"from_id": head["id"], "to_id": tail["id"]}
    return {"type": "relation", **ends, "direction": "right", "labels": list(labels)}


def labelstudio_lines(examples: Iterable[Example], counterexamples: Sequence[Example] = ()) -> Iterator[str]:
    """Write tasks with annotations, as the lines of a JSON array; Label Studio has no place for counterexamples."""
    start = "["
    for one in _sentences(examples):
        regions = {span: region(one.text, place, type) for span, (place, type) in one.entities.items()}
        relations = [relation_result(regions[head], regions[tail], [label]) for head, tail, label in one.relations]
        task = {"data": {"text": one.text}, "annotations": [{"result": [*regions.values(), *relations]}]}
        yield start + json.dumps(task, ensure_ascii=False)
        start = ","
    yield "]" if start == "," else "[]"


def _task_text(data: Mapping[str, Any]) -> str:
    texts = {name: value for name, value in data.items() if isinstance(value, str)}
    if "text" not in texts and len(texts) != 1:
        fields = ", ".join(sorted(data))[:200]
        raise DataError(f"'data' has no field 'text' and not exactly one text field ({fields}). Name the field 'text'.")
    return texts.get("text") or next(iter(texts.values()))


# -- Prodigy -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProdigySpan:
    """A character span or a token; `token_end` is inclusive."""

    start: StrictInt
    end: StrictInt
    text: StrictStr | None = None
    token_start: StrictInt | None = None
    token_end: StrictInt | None = None
    label: StrictStr | None = None

    def holds(self, token: int) -> bool:
        """Return whether the span contains a token."""
        return self.token_start is not None and self.token_start <= token <= (self.token_end or self.token_start)


@dataclass(frozen=True, slots=True)
class ProdigyRelation:
    """A relation between two tokens, given by number, or between the spans around them."""

    head: StrictInt
    child: StrictInt
    label: StrictStr | None = None
    head_span: ProdigySpan | None = None
    child_span: ProdigySpan | None = None


@dataclass(frozen=True, slots=True)
class ProdigyRow:
    """A row of the file."""

    text: StrictStr
    relations: list[ProdigyRelation] = field(default_factory=list)
    spans: list[ProdigySpan] = field(default_factory=list)
    tokens: list[ProdigySpan] = field(default_factory=list)
    answer: StrictStr = "accept"


def prodigy_rows(path: Path, faults: Faults) -> Iterator[SourceRow]:
    """Yield a row for each relation; a line without relations, or without a clear answer, yields one row to skip."""
    numbers = count(1)
    stem = path.name.split(".")[0]
    for line, text in read_lines(path, faults):
        if not text or text.isspace():
            continue
        try:
            row = decode_json(text, ProdigyRow)
        except DataError as error:
            faults.add(line, str(error))
            continue
        if reason := _skipped(row):
            yield SourceRow(line, partial(str, reason), number=next(numbers))
            continue
        for relation in row.relations:
            number = next(numbers)
            yield SourceRow(line, partial(_read_prodigy, row, relation, f"{stem}:{number}"), number=number)


def _skipped(row: ProdigyRow) -> str:
    """The reason to skip a row; empty if there is none."""
    if row.answer not in ("accept", "reject"):
        return NOT_ACCEPTED
    if not row.relations:
        return NOT_ANNOTATED if row.answer == "accept" else NOT_ACCEPTED
    return AMBIGUOUS if row.answer == "reject" and len(row.relations) > 1 else ""


def _read_prodigy(row: ProdigyRow, relation: ProdigyRelation, example_id: str) -> Example | Rejected | str:
    head = _prodigy_mark(row, "head", relation.head, relation.head_span)
    tail = _prodigy_mark(row, "child", relation.child, relation.child_span)
    found = sentences_example(row.text, head, tail, relation=(relation.label or "").strip(), id=example_id)
    return Rejected(found) if row.answer == "reject" and isinstance(found, Example) else found


def _prodigy_mark(row: ProdigyRow, role: str, token: int, span: ProdigySpan | None) -> Mark:
    span = span or next((each for each in row.spans if each.holds(token)), None)
    if span is None:
        if not 0 <= token < len(row.tokens):
            raise DataError(f"{role} {token} is out of range ({len(row.tokens)} tokens).")
        span = row.tokens[token]
    return Mark(span.start, span.end, span.text, type=None if span.label == UNTYPED else span.label or None)


def prodigy_lines(examples: Iterable[Example], counterexamples: Sequence[Example] = ()) -> Iterator[str]:
    """Write rows of the recipe rel.manual; the relation of a counterexample is a rejected row."""
    accepted = ((one, "accept") for one in _sentences(examples))
    for one, answer in (*accepted, *((one, "reject") for each in counterexamples for one in _sentences([each]))):
        tokens = [
            {"text": one.text[a:b], "start": a, "end": b, "id": i, "ws": True} for i, (a, b) in enumerate(one.places)
        ]
        spans = {
            span: {"start": a, "end": b, "token_start": span.start, "token_end": span.end - 1, "label": type or UNTYPED}
            for span, ((a, b), type) in one.entities.items()
        }
        relations = [
            {"head": head.end - 1, "child": tail.end - 1, "label": label}
            | {"head_span": spans[head], "child_span": spans[tail]}
            for head, tail, label in one.relations
        ]
        row = {"text": one.text, "tokens": tokens, "spans": list(spans.values()), "relations": relations}
        yield json.dumps({**row, "answer": answer}, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class AnnotatedSentence:
    """A text with the characters of its tokens, the place and type of its entities, and its relations."""

    text: str
    places: list[tuple[int, int]]
    entities: dict[Span, tuple[tuple[int, int], str | None]]
    relations: list[tuple[Span, Span, str]]


def _sentences(examples: Iterable[Example]) -> Iterator[AnnotatedSentence]:
    """Group examples by their sentences, whose tokens are joined by spaces."""
    groups: dict[tuple[str, ...], list[Example]] = {}
    for example in examples:
        groups.setdefault(example.tokens, []).append(example)
    for tokens, own in groups.items():
        ends = accumulate(tokens, lambda end, token: end + 1 + len(token), initial=-1)
        places = [(end + 1, end + 1 + len(token)) for end, token in zip(ends, tokens, strict=False)]
        marked = [entity for one in own for entity in (one.head, one.tail)]
        types = {entity.span: entity.type for entity in marked if entity.type}
        spans = [entity.span for entity in marked]
        entities = {one: ((places[one.start][0], places[one.end - 1][1]), types.get(one)) for one in spans}
        relations = [(one.head.span, one.tail.span, one.relation or NO_RELATION) for one in own]
        yield AnnotatedSentence(" ".join(tokens), places, entities, relations)
