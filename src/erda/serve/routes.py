"""Routes that ask, that change the extractor, and that list what it knows."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from itertools import chain
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import IO, Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import FileResponse, JSONResponse
from starlette.background import BackgroundTask

from erda.answers import Extraction, Progress, Taught
from erda.app.candidates import suggest
from erda.app.entities import tagged_sentences
from erda.app.evaluation import evaluate, read_questions
from erda.app.export import export
from erda.app.extractor import Extractor
from erda.app.inputs import example_of, read_each
from erda.app.version import NOTHING_TAUGHT, Version
from erda.encoders.contract import watched
from erda.errors import DataError, ErdaError
from erda.graph import graph_file
from erda.serve import bodies, wire
from erda.serve.failures import FAILURES, FAILURES_IN_JSON, Refused, replies
from erda.serve.jobs import ACCEPTED, TheJobs
from erda.serve.service import Lane, Service, TheService

router = APIRouter(prefix="/v1", tags=["extractor"], responses=FAILURES)
CHANGED = replies(wire.Reply, "The new version.")
ZIP: dict[str, Any] = {"content": {"application/zip": {}}}
GraphFormat = Literal["graphml", "ttl", "cypher", "jsonl"]
MEDIA_TYPES = {"graphml": "application/graphml+xml", "ttl": "text/turtle"}
MEDIA_TYPES |= {"cypher": "text/plain", "jsonl": "application/jsonl"}
GRAPHS: dict[str, Any] = {"content": {media_type: {} for media_type in MEDIA_TYPES.values()}}
MOST_POINTS = 2_000  # newest examples on a map
Number = Annotated[int, Path(ge=0, lt=2**53, description="number of an example", examples=[0])]
Relation = Annotated[bodies.Name, Query(description="id or name of a relation", examples=["founded by"])]


async def read(service: Service, work: Callable[[Version], dict[str, Any]], lane: Lane = "listing") -> Response:
    """Answer from the current version, in a thread of a lane."""
    return JSONResponse(await service.read(lambda version: {"version": version.number, **work(version)}, lane))


async def write(service: Service, work: Callable[[Extractor], int]) -> Response:
    """Change the extractor and answer with the new version."""
    return JSONResponse({"version": await service.write(work)})


# -- questions ---------------------------------------------------------------------------------------------------------


@router.post("/predict", responses=replies(wire.AnswerReply | wire.AnswersReply, "The answers."))
async def predict_relations(body: bodies.PredictBody, service: TheService) -> Response:
    """Predict the relation between the two marked entities of a sentence, or of each of many sentences."""
    many = body.questions
    if many is not None and (body.text is not None or body.tokens is not None):
        raise DataError("give one sentence or 'questions', not both.")
    bodies.refuse_many(many or (), service.settings.n_batch, "questions")
    sentences = [body.example()] if many is None else bodies.read_sentences(many, "question")
    version, found = await service.predict(sentences, top=body.top, least=body.min_confidence)
    rows = [wire.answer_row(one) for one in found]
    return JSONResponse({"version": version.number, **(rows[0] if many is None else {"answers": rows})})


@router.post("/extract", responses={**replies(wire.ExtractionReply, "The relations of one text."), **ACCEPTED})
async def extract_relations(body: bodies.ExtractBody, service: TheService, jobs: TheJobs) -> Response:
    """Predict the relations between all entities of a text that share a sentence; many documents become a job."""
    documents = body.all_documents()
    if body.documents is None:
        bodies.refuse_long(documents, service.settings.text_size, "Send it as 'documents'.")
        return await read(
            service, lambda version: wire.extraction_row(extracted(version, documents[0], body), body.keep), "text"
        )
    bodies.refuse_many(documents, service.settings.n_job, "documents")

    def work(progress: Progress) -> dict[str, Any]:
        version, rows = service.newest(), list[dict[str, Any]]()
        for done, document in enumerate(documents, 1):
            try:
                rows.append({"id": document.id, **wire.extraction_row(extracted(version, document, body), body.keep)})
            except ErdaError as fault:
                rows.append({"id": document.id, "error": str(fault)})
            progress(done, len(documents))
        return {"version": version.number, "documents": rows}

    return jobs.add("extract", work, len(documents))


def extracted(version: Version, document: bodies.DocumentBody, body: bodies.ExtractBody) -> Extraction:
    """The relations of one text."""
    asked = body.model_dump(include={"top", "min_confidence", "pronouns"})
    return version.extract(document.text, document.names_or_marks(), **asked)


@router.post("/graph", response_class=Response, responses={**FAILURES_IN_JSON, 200: GRAPHS})
async def extract_graph(body: bodies.ExtractBody, service: TheService, format: GraphFormat = "graphml") -> Response:
    """Download the relations of texts as a graph (docs/howto/graph.md), or as rows (`jsonl`)."""
    documents = body.all_documents()
    bodies.refuse_long(documents, service.settings.text_size, "Use `erda extract --out`.")

    def work(version: Version) -> bytes:
        found = (extracted(version, one, body).rows(pairs=body.keep, document=one.id) for one in documents)
        return graph_file(chain.from_iterable(found), format)

    named = {"content-disposition": f'attachment; filename="relations.{format}"'}
    return Response(await service.read(work, "text"), media_type=MEDIA_TYPES[format], headers=named)


@router.post("/explain", responses=replies(wire.ExplanationReply, "The reasons of an answer."))
async def explain_answer(body: bodies.ExampleBody, service: TheService) -> Response:
    """Explain an answer by similar examples and influential words."""
    example = body.example()
    return await read(service, lambda version: wire.explanation_row(version.explain(example)), "text")


@router.post("/evaluate", responses=replies(wire.EvaluationReply, "Answers compared with the truth."))
async def evaluate_examples(body: bodies.EvaluateBody, service: TheService) -> Response:
    """Compare answers with the truth."""
    bodies.refuse_many(body.examples, service.settings.n_batch, "examples")
    labelled = read_questions(bodies.read_sentences(body.examples), body.no_relation)
    return await read(service, lambda version: wire.evaluation_row(evaluate(version, labelled)), "heavy")


@router.post("/suggest", responses=replies(wire.Reply, "Sentences to judge or to teach."))
async def suggest_examples(body: bodies.SuggestBody, service: TheService) -> Response:
    """Suggest sentences of unlabelled texts as examples of a relation, most useful first."""

    def suggested(version: Version) -> dict[str, Any]:
        options: dict[str, Any] = {"store": service.folder, "n": body.n, "progress": service.refuse_stopping}
        found = suggest(version, body.relation, body.texts, **options)
        return {"relation": body.relation, "suggestions": [wire.value_row(one) for one in found]}

    return await read(service, suggested, "heavy")


# -- teaching ----------------------------------------------------------------------------------------------------------


@router.post("/teach", responses={**replies(wire.TaughtReply, "What was taught."), **ACCEPTED})
async def teach_examples(body: bodies.TeachBody, service: TheService, jobs: TheJobs) -> Response:
    """Teach one relation by examples, or several by examples that name theirs."""
    n_examples = len(body.examples)
    if not body.job and n_examples <= service.settings.n_batch:
        return JSONResponse(wire.taught_row(await service.write(lambda extractor: teach_from(extractor, body))))
    bodies.refuse_many(body.examples, service.settings.n_job, "examples")

    def work(progress: Progress) -> dict[str, Any]:
        def taught(extractor: Extractor) -> Taught:
            with watched(lambda n_done: progress(n_done, n_examples)):
                return teach_from(extractor, body)

        return wire.taught_row(service.write_later(taught).result())

    return jobs.add("teach", work, n_examples)


def teach_from(extractor: Extractor, body: bodies.TeachBody) -> Taught:
    """Teach the examples of a request."""
    examples = bodies.read_sentences(body.examples)
    more: dict[str, Any] = {
        "counterexamples": bodies.read_sentences(body.counterexamples, "counterexample"),
        "unrelated": bodies.read_sentences(body.unrelated, "unrelated sentence"),
    }
    if body.relation is None:
        return extractor.teach_many(examples, **more)
    return extractor.teach(body.relation, examples, **more, description=body.description)


@router.post("/judge", responses=replies(wire.TaughtReply, "What the judgement changed."))
async def judge_sentence(body: bodies.JudgeBody, service: TheService) -> Response:
    """Say whether a known relation holds in a sentence: it becomes an example or a counterexample."""
    example = body.example()
    done = await service.write(lambda extractor: extractor.judge(example, body.relation, holds=body.holds))
    return JSONResponse(wire.taught_row(done))


@router.get("/relations", responses=replies(wire.Reply, "All relations."))
async def relations(service: TheService) -> Response:
    """List the known relations with the number of their examples."""
    return await read(service, lambda version: {"relations": wire.relation_rows(version)})


@router.delete("/relations", responses=CHANGED)
async def forget_relation(relation: Relation, service: TheService) -> Response:
    """Forget a relation and its examples; earlier versions still hold them."""
    return await write(service, lambda extractor: extractor.forget(relation))


@router.post("/relations/rename", responses=CHANGED)
async def rename_relation(body: bodies.RenameBody, service: TheService) -> Response:
    """Rename a relation."""
    return await write(service, lambda extractor: extractor.rename(body.relation, body.to))


@router.post("/relations/merge", responses=CHANGED)
async def merge_relations(body: bodies.MergeBody, service: TheService) -> Response:
    """Move all examples of one relation into another, and drop the first."""
    return await write(service, lambda extractor: extractor.merge(body.relation, body.into))


@router.post("/relations/describe", responses=CHANGED)
async def describe_relation(body: bodies.DescribeBody, service: TheService) -> Response:
    """Replace the description of a relation."""
    return await write(service, lambda extractor: extractor.describe(body.relation, body.description))


@router.post("/relations/declare", responses=CHANGED)
async def declare_relation(body: bodies.DeclareBody, service: TheService) -> Response:
    """Declare the types of the entities of a relation."""
    fields = body.model_dump(include=body.model_fields_set - {"relation"})
    return await write(service, lambda extractor: extractor.declare(body.relation, **fields))


@router.post("/tune", responses=replies(wire.Reply, "The thresholds and what to expect of them."))
async def tune_thresholds(body: bodies.TuneBody, service: TheService) -> Response:
    """Fit confidence thresholds for a precision; if no threshold reaches it, nothing changes.

    Labelled examples tune `/v1/predict`, annotated texts tune `/v1/extract`.
    """
    if bool(body.examples) == bool(body.texts):
        raise Refused(422, "invalid", "Give examples or texts.", "examples")
    bodies.refuse_many(body.examples, service.settings.n_batch, "examples")
    if (size := sum(len(one.text) for one in body.texts)) > service.settings.text_size:
        raise Refused(422, "too_many", f"{size:,} characters; at most {service.settings.text_size:,} at once.", "texts")
    for one in body.texts:
        for entity in one.entities:
            bodies.refuse_mismatch(entity, one.text)
    rows = read_each(body.examples, lambda one: example_of(one) if isinstance(one, str) else one.row())
    labelled: Any = body.texts or rows
    found = await service.write(lambda one: one.tune(labelled, precision=body.precision, no_relation=body.no_relation))
    return JSONResponse(asdict(found))


@router.get("/examples", responses=replies(wire.Reply, "The examples and counterexamples of a relation."))
async def examples(service: TheService, relation: Relation | None = None) -> Response:
    """List the examples and counterexamples of a relation, or of all, with their numbers."""

    def listed(version: Version) -> dict[str, Any]:
        known = version.state.known if relation is None else (version.known(relation),)
        both = {"examples": [one.lessons for one in known], "counterexamples": [one.counterexamples for one in known]}
        return {name: [wire.value_row(one) for some in lessons for one in some] for name, lessons in both.items()}

    return await read(service, listed)


@router.delete("/examples/{number}", responses=CHANGED)
async def take_back(number: Number, service: TheService) -> Response:
    """Take back one example, as if it had never been taught."""
    return await write(service, lambda extractor: extractor.take_back(number))


@router.get("/history", responses=replies(wire.Reply, "All versions."))
async def history(service: TheService) -> Response:
    """List all versions on disk, oldest first."""
    return await read(service, lambda version: {"versions": [asdict(one) for one in service.extractor.history()]})


@router.post("/undo", responses=CHANGED)
async def undo_version(body: bodies.UndoBody, service: TheService) -> Response:
    """Return to the version before the current one, or to any version on disk."""
    to = body.to
    return await write(service, lambda extractor: extractor.undo() if to is None else extractor.rollback(to))


@router.get("/export", response_class=Response, responses={**FAILURES_IN_JSON, 200: ZIP})
async def export_zip(service: TheService) -> Response:
    """Download the current version as a folder that answers without erda, in a zip file."""
    file = await service.read(zipped, "heavy")
    held = BackgroundTask(file.flush)  # the file exists as long as someone holds it
    name = f"erda-version-{service.version.number}.zip"
    return FileResponse(file.name, media_type="application/zip", filename=name, background=held)


@lru_cache(maxsize=1)
def zipped(version: Version) -> IO[bytes]:
    """The export of a version in a temporary file, built once for all who download it."""
    with TemporaryDirectory() as place:
        export(version, pathlib.Path(place) / "extractor")
        packed = shutil.make_archive(f"{place}/export", "zip", root_dir=place, base_dir="extractor")
        file = NamedTemporaryFile(suffix=".zip")  # noqa: SIM115
        shutil.copyfile(packed, file.name)
        return file


# -- views of the page -------------------------------------------------------------------------------------------------


@router.post("/entities", responses=replies(wire.Reply, "The entities and sentences of a text, by characters."))
async def entities(body: bodies.TextBody, service: TheService) -> Response:
    """Find the entities of a text, even before anything is taught."""

    def found(version: Version) -> dict[str, Any]:
        tagged = tagged_sentences(body.text, taught=version.taught_names)
        sentences = [one for one in tagged.sentences if one.offsets]
        mentions = [(entity, one.characters(entity.span)) for one in sentences for entity in one.entities]
        return {
            "tagger": tagged.tagger,
            "hint": tagged.hint,
            "sentences": [[one.offsets[0][0], one.offsets[-1][1]] for one in sentences],
            "entities": [{"span": span, "name": entity.name, "type": entity.type} for entity, span in mentions],
        }

    return await read(service, found, "text")


@router.get("/map", responses=replies(wire.Reply, "Taught examples as points of a plane."))
async def map_of_examples(service: TheService) -> Response:
    """Project the vectors of the taught examples on their two principal axes."""
    return await read(service, map_row, "text")


def map_row(version: Version) -> dict[str, Any]:
    """The points of a version; `share` is the part of the variance that the plane shows."""
    lessons = [one for known in version.state.known for one in known.lessons]
    lessons = sorted(lessons, key=lambda one: one.number)[-MOST_POINTS:]
    if not lessons:
        raise DataError(NOTHING_TAUGHT)
    points, share = plane_of(version.method.encoder.embed([one.example for one in lessons]))
    rows = [{**row, "x": x, "y": y} for row, (x, y) in zip(map(wire.value_row, lessons), points.tolist(), strict=True)]
    return {"share": share, "points": rows}


def plane_of(vectors: np.ndarray) -> tuple[np.ndarray, float]:
    """Project rows on their first two principal axes, scaled to [-1, 1]; return the share of variance as well."""
    centred = np.asarray(vectors, dtype=np.float64) - np.mean(vectors, axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    plane = np.pad(left * sizes, ((0, 0), (0, 2)))[:, :2]  # a single example has one axis
    total = float(np.square(sizes).sum())
    return plane / (np.abs(plane).max() or 1.0), float(np.square(sizes[:2]).sum()) / total if total else 1.0
