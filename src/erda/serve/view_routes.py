"""Routes for views of the page: the entities of a text, and a map of the taught examples."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Response
from pydantic import Field

from erda.app.entities import tagged_sentences
from erda.app.version import NOTHING_TAUGHT, Version
from erda.errors import DataError
from erda.serve.bodies import Body, shown
from erda.serve.failures import Json
from erda.serve.replies import Reply, lesson_row
from erda.serve.routing import FAILURES, TheService, replies

router = APIRouter(prefix="/v1", tags=["views"], responses=FAILURES)
MOST_POINTS = 2_000  # newest examples on a map


class TextBody(Body):
    """A text whose entities are searched."""

    text: Annotated[str, Field(max_length=100_000)]

    model_config = shown({"text": "Tesla was started by Martin Eberhard."})


@router.post("/entities", responses=replies(Reply, "The entities and sentences of a text, by characters."))
async def entities(body: TextBody, service: TheService) -> Response:
    """Find the entities of a text, even before anything is taught."""

    def found(version: Version) -> dict[str, Any]:
        tagged = tagged_sentences(body.text, taught=version.taught_names)
        sentences = [one for one in tagged.sentences if one.offsets]
        mentions = [(entity, one.characters(entity.span)) for one in sentences for entity in one.entities]
        return {
            "version": version.number,
            "tagger": tagged.tagger,
            "hint": tagged.hint,
            "sentences": [[one.offsets[0][0], one.offsets[-1][1]] for one in sentences],
            "entities": [{"span": span, "name": entity.name, "type": entity.type} for entity, span in mentions],
        }

    return Json(await service.read(found))


@router.get("/map", responses=replies(Reply, "Taught examples as points of a plane."))
async def map_of_examples(service: TheService) -> Response:
    """Project the vectors of the taught examples on their two principal axes."""
    return Json(await service.read(map_row))


def map_row(version: Version) -> dict[str, Any]:
    """The points of a version; `share` is the part of the variance that the plane shows."""
    lessons = sorted((one for known in version.state.known for one in known.lessons), key=lambda one: one.number)
    lessons = lessons[-MOST_POINTS:]
    if not lessons:
        raise DataError(NOTHING_TAUGHT)
    points, share = plane_of(version.method.encoder.embed([one.example for one in lessons]))
    rows = [
        {**lesson_row(one), "teaching": one.teaching, "x": x, "y": y}
        for one, (x, y) in zip(lessons, points.tolist(), strict=True)
    ]
    return {"version": version.number, "share": share, "points": rows}


def plane_of(vectors: np.ndarray) -> tuple[np.ndarray, float]:
    """Project rows on their first two principal axes, scaled to [-1, 1]; return the share of variance as well."""
    centred = np.asarray(vectors, dtype=np.float64) - np.mean(vectors, axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    plane = np.zeros((len(centred), 2))
    plane[:, : min(2, len(sizes))] = (left * sizes)[:, :2]
    total = float(np.square(sizes).sum())
    return plane / (np.abs(plane).max() or 1.0), float(np.square(sizes[:2]).sum()) / total if total else 1.0
