"""Routes that ask: predict, extract, explain, evaluate, compare, suggest."""

from __future__ import annotations

from fastapi import APIRouter, Response

from erda.app.evaluation import evaluate, read_questions
from erda.app.inputs import example_of
from erda.errors import DataError
from erda.serve.bodies import (
    CompareBody,
    DocumentBody,
    EvaluateBody,
    ExampleBody,
    ExtractBody,
    PredictBody,
    SuggestBody,
    given_of,
    givens_of,
    refuse_many,
)
from erda.serve.failures import Json, Refused
from erda.serve.job_routes import added_job
from erda.serve.replies import (
    Answers,
    ExtractionReply,
    JobReply,
    OneAnswer,
    Reply,
    answer_row,
    change_row,
    evaluation_row,
    example_row,
    explanation_row,
)
from erda.serve.routing import FAILURES, TheJobs, TheService, replies
from erda.serve.work import extracted

router = APIRouter(prefix="/v1", tags=["questions"], responses=FAILURES)


@router.post("/predict", responses={200: {"model": OneAnswer | Answers, "description": "The answers."}})
async def predict(body: PredictBody, service: TheService) -> Response:
    """Predict the relation between the two marked entities of a sentence, or of each of many sentences."""
    if body.questions is None:
        found = await service.batcher.ask([body.example()], top=body.top, least=body.min_confidence)
        return Json({"version": found.version.number, **answer_row(found.answers[0])})
    if body.text is not None or body.tokens is not None:
        raise DataError("give one sentence or 'questions', not both.")
    refuse_many(body.questions, service.limits.n_batch, "questions")
    questions = [example_of(one) for one in givens_of(body.questions)]
    if not questions:
        return Json({"version": service.version.number, "answers": []})
    found = await service.batcher.ask(questions, top=body.top, least=body.min_confidence)
    return Json({"version": found.version.number, "answers": [answer_row(one) for one in found.answers]})


@router.post(
    "/extract",
    responses={
        **replies(ExtractionReply, "The relations of one text."),
        **replies(JobReply, "Many documents: a job.", status=202),
    },
)
async def extract(body: ExtractBody, service: TheService, jobs: TheJobs) -> Response:
    """Predict the relations between all entities of a text that share a sentence; many documents become a job."""
    if (body.text is None) == (body.documents is None):
        raise DataError("give either 'text' or 'documents'.")
    if body.documents is not None:
        return added_job(jobs, "extract", body, len(body.documents), service.limits)
    document = DocumentBody(text=body.text or "", entities=body.entities)
    if len(document.text) > service.limits.text_size:
        message = f"The text has {len(document.text):,} characters; at most {service.limits.text_size:,} at once."
        raise Refused(422, "too_large", f"{message} Send it as 'documents'.", "text")
    return Json(await service.read(lambda version: {"version": version.number, **extracted(version, document, body)}))


@router.post("/explain", responses=replies(Reply, "The reasons of an answer."))
async def explain(body: ExampleBody, service: TheService) -> Response:
    """Explain an answer by similar examples and influential words."""
    given = given_of(body)
    return Json(
        await service.read(lambda version: {"version": version.number, **explanation_row(version.explain(given))})
    )


@router.post("/evaluate", responses=replies(Reply, "Answers compared with the truth."))
async def evaluate_examples(body: EvaluateBody, service: TheService) -> Response:
    """Compare answers with the truth."""
    refuse_many(body.examples, service.limits.n_batch, "examples")
    questions = read_questions(givens_of(body.examples), body.no_relation)
    row = await service.read(
        lambda version: {"version": version.number, **evaluation_row(evaluate(version, questions))}
    )
    return Json(row)


@router.post("/compare", responses=replies(Reply, "Questions that two versions answer differently."))
async def compare(body: CompareBody, service: TheService) -> Response:
    """List the questions that two versions answer differently."""
    refuse_many(body.examples, service.limits.n_batch, "examples")
    examples = givens_of(body.examples)
    changes = await service.read(lambda version: service.extractor.compare(body.before, body.after, examples))
    return Json({"version": service.version.number, "changes": [change_row(one) for one in changes]})


@router.post("/suggest", responses=replies(Reply, "Sentences to judge or to teach."))
async def suggest(body: SuggestBody, service: TheService) -> Response:
    """Suggest sentences of unlabelled texts as examples of a relation, most useful first."""
    found = await service.read(lambda version: service.extractor.suggest(body.relation, body.texts, n=body.n))
    rows = [{**example_row(one.example), "confidence": one.confidence} for one in found]
    return Json({"version": service.version.number, "relation": body.relation, "suggestions": rows})
