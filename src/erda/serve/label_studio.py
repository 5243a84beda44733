"""Label Studio's ML-backend protocol: `/setup` and `/predict` (`/health` is the server's own).

Suggested regions and relations come back for each task. Regions that people have drawn already are asked about;
without any, the tagger finds them. Nothing is fetched: the text of a task is in its `data`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from erda.answers import Answer
from erda.app.version import Version
from erda.errors import ErdaError
from erda.serve.bodies import add_examples, refuse_many
from erda.serve.failures import FAILURES, Json, replies
from erda.serve.service import TheService
from erda.text.marks import Mark

router = APIRouter(tags=["Label Studio"], responses=FAILURES)
CONFIG = '<View><Labels name="label" toName="text"/><Text name="text" value="$text"/></View>'
_ATTRIBUTE = re.compile(r'(\w+)\s*=\s*"([^"]*)"')


class TaskBody(BaseModel):
    """A task; other fields are not read."""

    model_config = ConfigDict(extra="ignore")

    data: dict[str, Any]
    annotations: list[dict[str, Any]] = []


class TasksBody(BaseModel):
    """The tasks to predict, and the labelling configuration of their project."""

    model_config = ConfigDict(extra="ignore", json_schema_extra=add_examples)

    tasks: Annotated[list[TaskBody], Field(max_length=1_000)]
    label_config: Annotated[str, Field(max_length=100_000)] = CONFIG


class SetupBody(BaseModel):
    """A project that connects; nothing of it is needed."""

    model_config = ConfigDict(extra="ignore", json_schema_extra=add_examples)


class SetupReply(BaseModel):
    """The version that answers."""

    model_version: str


class TaskPredictions(SetupReply):
    """The predictions of all tasks, in their order."""

    results: list[dict[str, Any]]


@router.post("/setup", responses=replies(SetupReply, "The model."))
async def setup(body: SetupBody, service: TheService) -> Response:
    """Connect a project."""
    return Json({"model_version": model_version(service.version)})


@router.post("/predict", responses=replies(TaskPredictions, "Regions and relations of each task."))
async def predict(body: TasksBody, service: TheService) -> Response:
    """Suggest regions and relations for tasks."""
    refuse_many(body.tasks, service.limits.n_batch, "tasks")
    names = config_names(body.label_config)

    def predicted(version: Version) -> dict[str, Any]:
        results = [prediction(version, one, names) for one in body.tasks]
        return {"results": results, "model_version": model_version(version)}

    return Json(await service.read(predicted))


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
    """The prediction of one task; a text that cannot be read has no suggestion."""
    text = task.data.get(names["field"])
    try:
        found = version.extract(text, _marks(task, text)).found if isinstance(text, str) else ()
    except ErdaError:
        found = ()
    regions = dict[tuple[int, int], dict[str, Any]]()
    relations = []
    for answer in found:
        ends = [_region(regions, str(text), answer, role, names) for role in ("head", "tail")]
        relations.append(
            {
                "type": "relation",
                "from_id": ends[0],
                "to_id": ends[1],
                "direction": "right",
                "labels": list(answer.relations),
            }
        )
    score = min((answer.confidence for answer in found), default=0.0)
    return {"result": [*regions.values(), *relations], "score": score, "model_version": model_version(version)}


def _region(
    regions: dict[tuple[int, int], dict[str, Any]], text: str, answer: Answer, role: str, names: dict[str, str]
) -> str:
    """The id of the region of an entity, which is added if it is new."""
    place, entity = answer.place, getattr(answer.example, role)
    start, end = getattr(place, f"{role}_start"), getattr(place, f"{role}_end")
    value = {"start": start, "end": end, "text": text[start:end], "labels": [entity.type or "entity"]}
    region = {"id": f"erda-{start}-{end}", "type": "labels", "value": value}
    regions.setdefault((start, end), region | {name: names[name] for name in ("from_name", "to_name")})
    return str(region["id"])


def _marks(task: TaskBody, text: str | None) -> list[Mark] | None:
    """The regions that people have drawn; None if there are none."""
    marks = list[Mark]()
    for annotation in task.annotations:
        for one in annotation.get("result") or ():
            value = one.get("value") if isinstance(one, dict) else None
            if isinstance(value, dict) and isinstance(value.get("start"), int) and isinstance(value.get("end"), int):
                labels = value.get("labels") or [None]
                marks.append(Mark(value["start"], value["end"], type=str(labels[0]) if labels[0] else None))
    return marks or None
