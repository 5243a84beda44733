"""The work of jobs: large teachings, extraction from many documents, reviews of long texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from erda.app.answers import Taught
from erda.app.extractor import Extractor
from erda.app.shared_review import SharedReview
from erda.app.version import Version
from erda.encoders.contract import watched
from erda.errors import ErdaError
from erda.serve.bodies import DocumentBody, ExtractBody, ReviewBody, TeachBody, givens_of
from erda.serve.jobs import Kind, Work
from erda.serve.replies import Row, extraction_row, taught_row
from erda.serve.service import Service

Progress = Callable[[int, int], None]


def teach_from(extractor: Extractor, body: TeachBody) -> Taught:
    """Teach the examples of a request."""
    given, against, none = (givens_of(some) for some in (body.examples, body.counterexamples, body.unrelated))
    if body.relation is None:
        return extractor.teach_many(given, counterexamples=against, unrelated=none)
    return extractor.teach(body.relation, given, counterexamples=against, unrelated=none, description=body.description)


def extracted(version: Version, document: DocumentBody, body: ExtractBody) -> Row:
    """The relations of one text."""
    found = version.extract(
        document.text,
        document.names_or_marks(),
        top=body.top,
        min_confidence=body.min_confidence,
        pronouns=body.pronouns,
    )
    return extraction_row(found, body.keep)


def job_work(service: Service, shared: SharedReview) -> dict[Kind, Work]:
    """The work of each kind of job."""

    def teach(request: dict[str, Any], progress: Progress) -> dict[str, Any]:
        body = TeachBody.model_validate(request)

        def work(extractor: Extractor) -> Taught:
            with watched(lambda n_done: progress(n_done, len(body.examples))):
                return teach_from(extractor, body)

        return taught_row(service.write_later(work).result())

    def extract(request: dict[str, Any], progress: Progress) -> dict[str, Any]:
        body, version = ExtractBody.model_validate(request), service.newest()
        documents, rows = body.documents or [], list[dict[str, Any]]()
        for done, document in enumerate(documents, 1):
            try:
                rows.append({"id": document.id, **extracted(version, document, body)})
            except ErdaError as fault:
                rows.append({"id": document.id, "error": str(fault)})
            progress(done, len(documents))
        return {"version": version.number, "documents": rows}

    def review(request: dict[str, Any], progress: Progress) -> dict[str, Any]:
        body, version = ReviewBody.model_validate(request), service.newest()
        shared.begin(version, body.texts, pronouns=body.pronouns, progress=progress)
        return {"version": version.number, "n_texts": len(body.texts)}

    return {"teach": teach, "extract": extract, "review": review}
