"""A client of `erda serve` with the calls of `Extractor`: plain HTTP, and nothing beyond the core."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, overload

import requests

from erda.answers import Answer, Evaluation, Explanation, Extraction, Suggestion, Taught, Tuned
from erda.app.inputs import ExampleInput, labelled_rows_of
from erda.app.state import Lesson, VersionInfo
from erda.app.texts import AnnotatedText, is_annotated, read_annotated
from erda.data.formats.jsonl_examples import example_to_json
from erda.errors import DataError, ErdaError, ModelError, one_line
from erda.files import decode, decode_json, user_path
from erda.serve import wire
from erda.text.marks import Mark
from erda.types import Example, Relation

T = TypeVar("T")
BATCH = 500  # sentences per request
SECONDS = 300.0  # for an answer
POLL_SECONDS = 0.2  # between two looks at a job
CHECK = "Is erda serve at this address, and of the same version?"
NO_TOKEN = "The token is missing or wrong. Pass it: Client(url, token=...)."


class Client:
    """An extractor behind a server: `Client("http://127.0.0.1:8111")`. A fault of the server raises `ErdaError`.

    Answers name no exemplar. `seconds` is the time to wait for an answer.
    """

    def __init__(self, url: str, *, token: str | None = None, seconds: float = SECONDS) -> None:
        self.url, self._seconds = url.rstrip("/"), seconds
        self._http = requests.Session()
        self._http.trust_env = False  # no proxy and no stored password between us and the server
        if token:
            self._http.headers["Authorization"] = f"Bearer {token}"

    # -- questions -----------------------------------------------------------------------------------------------------

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The known relations, in the order of teaching."""
        return tuple(self._call(list[Relation], "GET", "/v1/relations", field="relations"))

    def examples(self, relation: str) -> tuple[Lesson, ...]:
        """The examples of a relation; `take_back` accepts their numbers."""
        return self._lessons(relation, "examples")

    def counterexamples(self, relation: str) -> tuple[Lesson, ...]:
        """The counterexamples of a relation; `take_back` accepts their numbers."""
        return self._lessons(relation, "counterexamples")

    def _lessons(self, relation: str, kind: str) -> tuple[Lesson, ...]:
        rows = self._call(list[wire.SentenceRow], "GET", "/v1/examples", field=kind, params={"relation": relation})
        return tuple(one.value(Lesson, relation=one.relation) for one in rows)

    @overload
    def predict(  # type: ignore[overload-overlap]  # a str is also an iterable of str
        self, given: ExampleInput, *, top: int = 5, min_confidence: float | None = None
    ) -> Answer: ...
    @overload
    def predict(
        self, given: Iterable[ExampleInput], *, top: int = 5, min_confidence: float | None = None
    ) -> list[Answer]: ...
    def predict(
        self, given: ExampleInput | Iterable[ExampleInput], *, top: int = 5, min_confidence: float | None = None
    ) -> Answer | list[Answer]:
        """Predict the relation between the two marked entities of a sentence, or of each sentence of a list."""
        if isinstance(given, str | Example | Mapping):
            return self.predict([given], top=top, min_confidence=min_confidence)[0]
        rows = sent_rows(given)
        answers = list[Answer]()
        for start in range(0, len(rows), BATCH):
            body = {"questions": rows[start : start + BATCH], "top": top, "min_confidence": min_confidence}
            answers += [one.answer() for one in self._call(wire.AnswersReply, "POST", "/v1/predict", body).answers]
        if len(answers) != len(rows):
            raise ModelError(f"{self.url}: {len(answers)} answers to {len(rows)} questions. {CHECK}")
        return answers

    def extract(
        self,
        text: str,
        entities: Iterable[str | Mark] | None = None,
        *,
        top: int = 5,
        min_confidence: float | None = None,
        pronouns: bool = True,
    ) -> Extraction:
        """Predict the relations between all entities of a text that share a sentence."""
        body: dict[str, Any] = {"text": text, "keep": "all", "top": top}
        body |= {"min_confidence": min_confidence, "pronouns": pronouns}
        if entities is not None:
            body["entities"] = [
                one if isinstance(one, str) else {"span": [one.start, one.end], "id": one.id, "type": one.type}
                for one in entities
            ]
        return self._call(wire.ExtractionReply, "POST", "/v1/extract", body).value()

    def explain(self, given: ExampleInput) -> Explanation:
        """Explain an answer by similar examples and influential words."""
        return self._call(wire.ExplanationReply, "POST", "/v1/explain", sent_rows([given])[0]).value()

    def evaluate(self, questions: Iterable[ExampleInput], *, no_relation: Collection[str] = ()) -> Evaluation:
        """Compare answers with the truth."""
        body = {"examples": sent_rows(questions), "no_relation": list(no_relation)}
        return self._call(wire.EvaluationReply, "POST", "/v1/evaluate", body).value()

    def suggest(self, relation: str, texts: Iterable[str], *, n: int = 10) -> list[Suggestion]:
        """Suggest sentences of unlabelled texts as examples of a relation, most useful first."""
        body = {"relation": relation, "texts": list(texts), "n": n}
        rows = self._call(list[wire.SentenceRow], "POST", "/v1/suggest", body, field="suggestions")
        return [one.value(Suggestion) for one in rows]

    # -- teaching ------------------------------------------------------------------------------------------------------

    def teach(
        self,
        relation: str,
        examples: Iterable[ExampleInput] = (),
        *,
        counterexamples: Iterable[ExampleInput] = (),
        unrelated: Iterable[ExampleInput] = (),
        description: str = "",
    ) -> Taught:
        """Teach one relation by examples, and by counterexamples in which it does not hold.

        Lines of `description` may be patterns, which count as sentences: `"[[X]] was founded by {{Y}}."`.
        """
        named = {"relation": relation, "description": description}
        return self._teach(named, examples=examples, counterexamples=counterexamples, unrelated=unrelated)

    def teach_many(
        self,
        what: Mapping[str, Iterable[ExampleInput]] | Iterable[ExampleInput],
        *,
        counterexamples: Iterable[ExampleInput] = (),
        unrelated: Iterable[ExampleInput] = (),
    ) -> Taught:
        """Teach several relations in one version: a mapping of relations to examples, or examples with relations."""
        if isinstance(what, Mapping):
            what = [{**row, "relation": name} for name, some in what.items() for row in sent_rows(some)]
        return self._teach({}, examples=what, counterexamples=counterexamples, unrelated=unrelated)

    def _teach(self, named: dict[str, Any], **some: Iterable[ExampleInput]) -> Taught:
        rows = {kind: sent_rows(one) for kind, one in some.items()}
        body = {**named, **rows, "job": sum(map(len, rows.values())) > BATCH}
        if not body["job"]:
            return self._call(wire.TaughtReply, "POST", "/v1/teach", body).value()
        return decode(self._result("/v1/teach", body), wire.TaughtReply, error=ModelError).value()

    def judge(self, example: ExampleInput, relation: str, *, holds: bool = True) -> Taught:
        """Say whether a known relation holds in a sentence: it becomes an example or a counterexample."""
        body = {**sent_rows([example])[0], "relation": relation, "holds": holds}
        return self._call(wire.TaughtReply, "POST", "/v1/judge", body).value()

    def take_back(self, number: int) -> int:
        """Undo the teaching of one example, selected by its number; return the new version."""
        return self._changed("DELETE", f"/v1/examples/{int(number)}")

    def forget(self, relation: str) -> int:
        """Drop a relation and its examples; return the new version."""
        return self._changed("DELETE", "/v1/relations", params={"relation": relation})

    def rename(self, relation: str, new_name: str) -> int:
        """Rename a relation; return the new version."""
        return self._changed("POST", "/v1/relations/rename", {"relation": relation, "to": new_name})

    def merge(self, relation: str, into: str) -> int:
        """Move all examples of one relation into another, and drop the first; return the new version."""
        return self._changed("POST", "/v1/relations/merge", {"relation": relation, "into": into})

    def describe(self, relation: str, description: str) -> int:
        """Replace the description of a relation, whose lines may be patterns (`teach`); return the new version."""
        return self._changed("POST", "/v1/relations/describe", {"relation": relation, "description": description})

    def declare(self, relation: str, **declared: Any) -> int:
        """Declare `head_types` or `tail_types` of a relation; return the new version."""
        return self._changed("POST", "/v1/relations/declare", {"relation": relation, **declared})

    def tune(
        self,
        labelled: Iterable[ExampleInput] | Iterable[AnnotatedText | Mapping[str, Any]],
        *,
        precision: float = 0.9,
        no_relation: Collection[str] = (),
    ) -> Tuned:
        """Fit confidence thresholds so that this share of the answers is right (`Extractor.tune`)."""
        given = list(labelled)
        if is_annotated(given):
            asked = {"texts": [asdict(one) for one in read_annotated(given)]}
        else:
            asked = {"examples": sent_rows(given, labelled=True)}  # type: ignore[arg-type]
        body = {**asked, "precision": precision, "no_relation": list(no_relation)}
        return self._call(Tuned, "POST", "/v1/tune", body)

    # -- versions ------------------------------------------------------------------------------------------------------

    def undo(self) -> int:
        """Return to the version before the current one; return its number."""
        return self._changed("POST", "/v1/undo", {})

    def rollback(self, version: int) -> int:
        """Make any version on disk the current one."""
        return self._changed("POST", "/v1/undo", {"to": version})

    def history(self) -> list[VersionInfo]:
        """List all versions on disk, oldest first."""
        return self._call(list[VersionInfo], "GET", "/v1/history", field="versions")

    def export(self, folder: str | Path) -> Path:
        """Write the current version as a folder that answers without erda."""
        place = user_path(folder)
        if place.exists():
            raise DataError(f"{place} exists; name another folder.")
        place.parent.mkdir(parents=True, exist_ok=True)
        answer = self._answer("GET", "/v1/export")
        try:
            with TemporaryDirectory(dir=place.parent) as beside, zipfile.ZipFile(io.BytesIO(answer.content)) as file:
                file.extractall(beside)  # never writes outside the folder
                return (Path(beside) / "extractor").rename(place)
        except (zipfile.BadZipFile, FileNotFoundError):
            raise ModelError(f"{self.url}: no zip file of erda. {came_back(answer)}") from None

    # -- HTTP ----------------------------------------------------------------------------------------------------------

    def _result(self, path: str, body: Any) -> dict[str, Any]:
        """Start a job and wait for it; a job that failed raises."""
        job = self._call(wire.JobReply, "POST", path, body)
        while job.state in ("waiting", "running"):
            time.sleep(POLL_SECONDS)
            job = self._call(wire.JobReply, "GET", f"/v1/jobs/{job.id}")
        if job.result is None:
            raise DataError(job.failure.message if job.failure else f"The job {job.id} was cancelled.")
        return job.result

    def _changed(self, method: str, path: str, body: Any = None, **more: Any) -> int:
        return self._call(wire.Reply, method, path, body, **more).version

    def _call(
        self, kind: type[T], method: str, path: str, body: Any = None, *, field: str | None = None, **more: Any
    ) -> T:
        """Send a request and read its answer, or one field of it, as a value of `kind`."""
        answer = self._answer(method, path, body, **more)
        if field is None:
            return self._read(answer, kind)
        reply = self._read(answer, wire.Reply).model_extra or {}
        return decode(reply.get(field), kind, place=f"{self.url}: {field}", error=ModelError, remedy=came_back(answer))

    def _answer(self, method: str, path: str, body: Any = None, **more: Any) -> requests.Response:
        try:
            answer = self._http.request(
                method, self.url + path, json=body, timeout=self._seconds, allow_redirects=False, **more
            )
        except requests.RequestException as fault:
            raise ModelError(
                f"{self.url}: no answer of erda serve ({type(fault).__name__}). Is it running there?"
            ) from None
        if answer.status_code < 300:
            return answer
        failure = self._read(answer, wire.Failure)
        kind = DataError if answer.status_code in (409, 422) else ModelError if answer.status_code == 503 else ErdaError
        raise kind(NO_TOKEN if answer.status_code == 401 else failure.message)

    def _read(self, answer: requests.Response, kind: type[T]) -> T:
        return decode_json(answer.content, kind, place=self.url, error=ModelError, remedy=came_back(answer))


def came_back(answer: requests.Response) -> str:
    """Describe an answer that erda serve does not give."""
    begins = one_line(answer.content[:80].decode("utf-8", "replace"))
    about = f"status {answer.status_code}, {answer.headers.get('content-type', 'no content type')}"
    return f"The answer ({about}) begins with '{begins}'. {CHECK}"


def sent_rows(examples: Iterable[ExampleInput], *, labelled: bool = False) -> list[dict[str, Any]]:
    """Examples as rows of our own format, checked before they are sent.

    A counterexample is sent without its relation; if `labelled`, with its relation and `"holds": false`.
    """
    rows = list[dict[str, Any]]()
    for example, holds in labelled_rows_of(examples):
        sent = replace(example, relation=example.relation if holds or labelled else None, source=None)
        row = example_to_json(sent, holds=holds or not labelled)
        rows.append({name: value for name, value in row.items() if value not in (None, "")})
    return rows
