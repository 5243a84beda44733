"""Routes that change the extractor, and those that list what it knows."""

from __future__ import annotations

import pathlib
from dataclasses import asdict
from tempfile import TemporaryDirectory
from typing import Annotated
from zipfile import ZIP_DEFLATED, ZipFile

from fastapi import APIRouter, Path, Query, Response

from erda.app.export import export
from erda.app.texts import read_annotated
from erda.app.version import Version
from erda.serve.bodies import (
    DeclareBody,
    DescribeBody,
    JudgeBody,
    MergeBody,
    Name,
    RenameBody,
    TeachBody,
    TuneBody,
    UndoBody,
    givens_of,
    refuse_many,
)
from erda.serve.failures import Json, Refused
from erda.serve.job_routes import added_job
from erda.serve.replies import Changed, JobReply, Reply, TaughtReply, history_row, lesson_row, relations_row, taught_row
from erda.serve.routing import FAILURES, FAILURES_IN_JSON, TheJobs, TheService, replies
from erda.serve.work import teach_from

router = APIRouter(prefix="/v1", tags=["teaching"], responses=FAILURES)
CHANGED = replies(Changed, "The new version.")
Number = Annotated[int, Path(ge=0, lt=2**53, description="number of an example", examples=[0])]
Relation = Annotated[Name, Query(description="id or name of a relation", examples=["founded by"])]


@router.post(
    "/teach",
    responses={
        **replies(TaughtReply, "What was taught."),
        **replies(JobReply, "A large teaching: a job.", status=202),
    },
)
async def teach(body: TeachBody, service: TheService, jobs: TheJobs) -> Response:
    """Teach one relation by examples, or several by examples that name theirs."""
    if body.job or len(body.examples) > service.limits.n_batch:
        return added_job(jobs, "teach", body, len(body.examples), service.limits)
    return Json(taught_row(await service.write(lambda extractor: teach_from(extractor, body))))


@router.post("/judge", responses=replies(TaughtReply, "What the judgement changed."))
async def judge(body: JudgeBody, service: TheService) -> Response:
    """Say whether a known relation holds in a sentence: it becomes an example or a counterexample."""
    example = body.example()
    done = await service.write(lambda extractor: extractor.judge(example, body.relation, holds=body.holds))
    return Json(taught_row(done))


@router.get("/relations", responses=replies(Reply, "All relations."))
async def relations(service: TheService) -> Response:
    """List the known relations with the number of their examples."""
    return Json(await service.read(relations_row))


@router.delete("/relations", responses=CHANGED)
async def forget(relation: Relation, service: TheService) -> Response:
    """Forget a relation and its examples; earlier versions still hold them."""
    return Json({"version": await service.write(lambda extractor: extractor.forget(relation))})


@router.post("/relations/rename", responses=CHANGED)
async def rename(body: RenameBody, service: TheService) -> Response:
    """Rename a relation."""
    return Json({"version": await service.write(lambda extractor: extractor.rename(body.relation, body.to))})


@router.post("/relations/merge", responses=CHANGED)
async def merge(body: MergeBody, service: TheService) -> Response:
    """Move all examples of one relation into another, and drop the first."""
    return Json({"version": await service.write(lambda extractor: extractor.merge(body.relation, body.into))})


@router.post("/relations/describe", responses=CHANGED)
async def describe(body: DescribeBody, service: TheService) -> Response:
    """Replace the description of a relation."""
    return Json({"version": await service.write(lambda one: one.describe(body.relation, body.description))})


@router.post("/relations/declare", responses=CHANGED)
async def declare(body: DeclareBody, service: TheService) -> Response:
    """Declare a relation symmetric, its inverse, and the types of its entities."""
    given = body.model_dump(include=body.model_fields_set - {"relation"})
    return Json({"version": await service.write(lambda extractor: extractor.declare(body.relation, **given))})


@router.post("/tune", responses=replies(Reply, "The thresholds and what to expect of them."))
async def tune(body: TuneBody, service: TheService) -> Response:
    """Fit confidence thresholds for a precision; if no threshold reaches it, nothing changes.

    Labelled examples tune `/v1/predict`, annotated texts tune `/v1/extract`.
    """
    if bool(body.examples) == bool(body.texts):
        raise Refused(422, "invalid", "Give examples or texts.", "examples")
    refuse_many(body.examples, service.limits.n_batch, "examples")
    if (size := sum(len(one.text) for one in body.texts)) > service.limits.text_size:
        raise Refused(422, "too_many", f"{size:,} characters; at most {service.limits.text_size:,} at once.", "texts")
    labelled = read_annotated([one.row() for one in body.texts]) if body.texts else givens_of(body.examples)
    found = await service.write(lambda one: one.tune(labelled, precision=body.precision, no_relation=body.no_relation))
    return Json(asdict(found))


@router.get("/examples", responses=replies(Reply, "The examples and counterexamples of a relation."))
async def examples(relation: Relation, service: TheService) -> Response:
    """List the examples and counterexamples of a relation with their numbers."""

    def listed(version: Version) -> dict[str, object]:
        known = version.known(relation)
        rows = {"examples": known.lessons, "counterexamples": known.counterexamples}
        return {"version": version.number, **{name: [lesson_row(one) for one in own] for name, own in rows.items()}}

    return Json(await service.read(listed))


@router.delete("/examples/{number}", responses=CHANGED)
async def take_back(number: Number, service: TheService) -> Response:
    """Take back one example, as if it had never been taught."""
    return Json({"version": await service.write(lambda extractor: extractor.take_back(number))})


@router.get("/history", responses=replies(Reply, "All versions."))
async def history(service: TheService) -> Response:
    """List all versions on disk, oldest first."""
    return Json(await service.read(lambda version: history_row(version, service.extractor.history())))


@router.post("/undo", responses=CHANGED)
async def undo(body: UndoBody, service: TheService) -> Response:
    """Return to the version before the current one, or to any version on disk."""
    to = body.to
    return Json({"version": await service.write(lambda one: one.undo() if to is None else one.rollback(to))})


@router.get(
    "/export", response_class=Response, responses={**FAILURES_IN_JSON, 200: {"content": {"application/zip": {}}}}
)
async def export_zip(service: TheService) -> Response:
    """Download the current version as a folder that answers without erda, in a zip file."""
    return Response(
        await service.read(zipped),
        media_type="application/zip",
        headers={"content-disposition": f'attachment; filename="erda-version-{service.version.number}.zip"'},
    )


def zipped(version: Version) -> bytes:
    """The export of a version as the bytes of a zip file."""
    with TemporaryDirectory() as place:
        folder, packed = pathlib.Path(place) / "extractor", pathlib.Path(place) / "export.zip"
        export(version, folder)
        with ZipFile(packed, "w", ZIP_DEFLATED, compresslevel=1) as file:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    file.write(path, path.relative_to(folder.parent))
        return packed.read_bytes()
