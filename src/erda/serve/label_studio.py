"""Label Studio's ML-backend protocol: `/setup` and `/predict` (`/health` is the server's own).

Suggested regions and relations come back for each task. Regions that people have drawn already are asked about;
without any, the tagger finds them. Nothing is fetched: the text of a task is in its `data`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import chain
from typing import Annotated, Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from erda.answers import Answer
from erda.app.version import Version
from erda.data.formats.annotation_tools import region, relation_result
from erda.errors import DataError, ErdaError, printable
from erda.files import decode
from erda.serve.bodies import add_examples, refuse_many
from erda.serve.failures import FAILURES, replies
from erda.serve.service import TheService
from erda.text.marks import Mark

router = APIRouter(tags=["Label Studio"], responses=FAILURES)
CONFIG = '<View><Labels name="label" toName="text"/><Text name="text" value="$text"/></View>'
_ATTRIBUTE = re.compile(r'(\w+)\s*=\s*"([^"]*)"')


class LabelStudioBody(BaseModel):
    """A body whose other fields are not read; nothing of a project that connects is needed."""

    model_config = ConfigDict(extra="ignore", json_schema_extra=add_examples)


class TaskBody(LabelStudioBody):
    """A task with the annotations of people."""

    data: dict[str, Any]
    annotations: list[dict[str, Any]] = []


class TasksBody(LabelStudioBody):
    """The tasks to predict, and the labelling configuration of their project."""

    tasks: Annotated[list[TaskBody], Field(max_length=1_000)]
    label_config: Annotated[str, Field(max_length=100_000)] = CONFIG


class TaskPredictions(BaseModel):
    """The version that answers, and the predictions of all tasks in their order."""

    model_version: str
    results: list[dict[str, Any]] = []


@router.post("/setup", responses=replies(TaskPredictions, "The model."))
async def setup_project(body: LabelStudioBody, service: TheService) -> Response:
    """Connect a project."""
    return JSONResponse({"model_version": model_version(service.version)})


@router.post("/predict", responses=replies(TaskPredictions, "Regions and relations of each task."))
async def predict_tasks(body: TasksBody, service: TheService) -> Response:
    """Suggest regions and relations for tasks."""
    refuse_many(body.tasks, service.settings.n_batch, "tasks")
    names = config_names(body.label_config)

    def predicted(version: Version) -> dict[str, Any]:
        results = [prediction(version, one, names) for one in body.tasks]
        return {"results": results, "model_version": model_version(version)}

    return JSONResponse(await service.read(predicted, "heavy"))


def model_version(version: Version) -> str:
    """The name of a version in Label Studio."""
    return f"erda-{version.number}"


def config_names(config: str) -> dict[str, str]:
    """The names that a labelling configuration gives to its labels, its text and the field of the text."""
    tags = {tag: re.search(rf"<{tag}\b([^<>]*)>", config) for tag in ("Labels", "Text")}
    found = {tag: dict(_ATTRIBUTE.findall(match[1])) if match else {} for tag, match in tags.items()}
    return {
        "from_name": found["Labels"].get("name", "label"),
        "to_name": found["Text"].get("name", "text"),
        "field": found["Text"].get("value", "$text").removeprefix("$"),
    }


def prediction(version: Version, task: TaskBody, names: dict[str, str]) -> dict[str, Any]:
    """The prediction of one task; a text or an annotation that cannot be read has no suggestion."""
    text = task.data.get(names["field"])
    try:
        found = version.extract(text, drawn_marks(task)).found if isinstance(text, str) else ()
    except ErdaError:
        found = ()
    regions, relations = dict[str, dict[str, Any]](), list[dict[str, Any]]()
    for answer in found:
        head, tail = (answer_region(str(text), answer, role, names) for role in ("head", "tail"))
        for one in (head, tail):
            regions.setdefault(one["id"], one)
        relations.append(relation_result(head, tail, answer.relations))
    score = min((answer.confidence for answer in found), default=0.0)
    return {"result": [*regions.values(), *relations], "score": score, "model_version": model_version(version)}


def answer_region(text: str, answer: Answer, role: str, names: dict[str, str]) -> dict[str, Any]:
    """The region of the head or tail of an answer."""
    place = getattr(answer.place, f"{role}_start"), getattr(answer.place, f"{role}_end")
    about = {name: names[name] for name in ("from_name", "to_name")}
    return region(text, place, getattr(answer.example, role).type, **about)


def drawn_marks(task: TaskBody) -> list[Mark] | None:
    """The regions that people have drawn; None if there are none."""
    marks = list[Mark]()
    results = decode([one.get("result") or [] for one in task.annotations], list[list[dict[str, Any]]])
    for one in chain.from_iterable(results):
        with suppress(DataError):  # a relation, or a result without characters
            value = decode(one.get("value"), dict[str, Any])
            label, *_ = decode(value.get("labels") or [None], list[Any])
            marks.append(decode({**value, "type": printable(str(label)) if label else None}, Mark))
    return marks or None
