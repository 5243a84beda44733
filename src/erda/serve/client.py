"""A client of `erda serve` with the calls of `Extractor`: plain HTTP, and nothing beyond the core."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, overload

import requests

from erda.answers import Answer, Evaluation, Explanation, Extraction, Suggestion, Taught, Tuned
from erda.app.candidates import Candidate
from erda.app.inputs import ExampleInput, labelled_rows_of
from erda.app.review import RECENT, ReviewProgress
from erda.app.state import Lesson, VersionInfo
from erda.app.texts import AnnotatedText, is_annotated, read_annotated
from erda.data.formats.jsonl_examples import example_to_json
from erda.errors import DataError, ErdaError, ModelError
from erda.files import decode, user_path
from erda.serve import wire
from erda.text.marks import Mark
from erda.types import Example, Relation

BATCH = 500  # sentences per request
SECONDS = 300.0  # for an answer
POLL_SECONDS = 0.2  # between two looks at a job
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
        found = self._call("GET", "/v1/relations")["relations"]
        return tuple(Relation(one["id"], one["name"], one["description"]) for one in found)

    def examples(self, relation: str) -> tuple[Lesson, ...]:
        """The examples of a relation; `take_back` accepts their numbers."""
        return self._lessons(relation, "examples")

    def counterexamples(self, relation: str) -> tuple[Lesson, ...]:
        """The counterexamples of a relation; `take_back` accepts their numbers."""
        return self._lessons(relation, "counterexamples")

    def _lessons(self, relation: str, kind: str) -> tuple[Lesson, ...]:
        found = self._call("GET", "/v1/examples", params={"relation": relation}).get(kind, ())
        return tuple(Lesson(one["number"], one["teaching"], wire.read_example(one)) for one in found)

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
            answers += [wire.read_answer(one) for one in self._call("POST", "/v1/predict", body)["answers"]]
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
        return wire.read_extraction(self._call("POST", "/v1/extract", body))

    def explain(self, given: ExampleInput) -> Explanation:
        """Explain an answer by similar examples and influential words."""
        return wire.read_explanation(self._call("POST", "/v1/explain", sent_rows([given])[0]))

    def evaluate(self, questions: Iterable[ExampleInput], *, no_relation: Collection[str] = ()) -> Evaluation:
        """Compare answers with the truth."""
        body = {"examples": sent_rows(questions), "no_relation": list(no_relation)}
        return wire.read_evaluation(self._call("POST", "/v1/evaluate", body))

    def suggest(self, relation: str, texts: Iterable[str], *, n: int = 10) -> list[Suggestion]:
        """Suggest sentences of unlabelled texts as examples of a relation, most useful first."""
        row = self._call("POST", "/v1/suggest", {"relation": relation, "texts": list(texts), "n": n})
        return [Suggestion(wire.read_example(one), one["confidence"]) for one in row["suggestions"]]

    def review(
        self, texts: Iterable[str] | None = None, *, relation: str | None = None, pronouns: bool = True
    ) -> ClientReview:
        """Judge pairs of entities of texts, one after another; without texts, continue with the server's texts."""
        return ClientReview(self, texts, relation=relation, pronouns=pronouns)

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
        return self._teach(named, examples, counterexamples, unrelated)

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
        return self._teach({}, what, counterexamples, unrelated)

    def _teach(self, named: dict[str, Any], *some: Iterable[ExampleInput]) -> Taught:
        kinds = ("examples", "counterexamples", "unrelated")
        rows = {kind: sent_rows(one) for kind, one in zip(kinds, some, strict=True)}
        is_long = sum(map(len, rows.values())) > BATCH
        row = self._call("POST", "/v1/teach", {**named, **rows, "job": is_long})
        return wire.read_taught(self._result(row["id"]) if is_long else row)

    def judge(self, example: ExampleInput, relation: str, *, holds: bool = True) -> Taught:
        """Say whether a known relation holds in a sentence: it becomes an example or a counterexample."""
        body = {**sent_rows([example])[0], "relation": relation, "holds": holds}
        return wire.read_taught(self._call("POST", "/v1/judge", body))

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
        labelled: Iterable[ExampleInput] | Iterable[AnnotatedText | wire.Row],
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
        return decode(self._call("POST", "/v1/tune", body), Tuned)

    # -- versions ------------------------------------------------------------------------------------------------------

    def undo(self) -> int:
        """Return to the version before the current one; return its number."""
        return self._changed("POST", "/v1/undo", {})

    def rollback(self, version: int) -> int:
        """Make any version on disk the current one."""
        return self._changed("POST", "/v1/undo", {"to": version})

    def history(self) -> list[VersionInfo]:
        """List all versions on disk, oldest first."""
        return [VersionInfo(**one) for one in self._call("GET", "/v1/history")["versions"]]

    def export(self, folder: str | Path) -> Path:
        """Write the current version as a folder that answers without erda."""
        place = user_path(folder)
        if place.exists():
            raise DataError(f"{place} exists; name another folder.")
        place.parent.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO(self._answer("GET", "/v1/export").content)
        with TemporaryDirectory(dir=place.parent) as beside, zipfile.ZipFile(content) as file:
            file.extractall(beside)  # never writes outside the folder
            return (Path(beside) / "extractor").rename(place)

    # -- HTTP ----------------------------------------------------------------------------------------------------------

    def _result(self, job: str) -> Any:
        """Wait for a job; a job that failed raises."""
        while (row := self._call("GET", f"/v1/jobs/{job}"))["state"] in ("waiting", "running"):
            time.sleep(POLL_SECONDS)
        if row["state"] != "done":
            raise DataError((row.get("failure") or {}).get("message") or f"The job {job} was cancelled.")
        return row["result"]

    def _changed(self, method: str, path: str, body: Any = None, **more: Any) -> int:
        return int(self._call(method, path, body, **more)["version"])

    def _call(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        return self._answer(method, path, body, **more).json()

    def _answer(self, method: str, path: str, body: Any = None, **more: Any) -> requests.Response:
        try:
            answer = self._http.request(
                method, self.url + path, json=body, timeout=self._seconds, allow_redirects=False, **more
            )
            if answer.status_code < 300:
                return answer
            failure = answer.json()
            message = NO_TOKEN if answer.status_code == 401 else str(failure["message"])
        except (requests.RequestException, ValueError, KeyError, TypeError) as fault:
            raise ModelError(
                f"{self.url}: no answer of erda serve ({type(fault).__name__}). Is it running there?"
            ) from None
        kind = DataError if answer.status_code in (409, 422) else ModelError if answer.status_code == 503 else ErdaError
        raise kind(message)


def sent_rows(examples: Iterable[ExampleInput], *, labelled: bool = False) -> list[dict[str, Any]]:
    """Examples as rows of our own format, checked before they are sent.

    A counterexample is sent without its relation; if `labelled`, with its relation and `"holds": false`.
    """
    names = ("tokens", "head", "tail", "relation", "id")
    rows = list[dict[str, Any]]()
    for example, holds in labelled_rows_of(examples):
        row = example_to_json(example if holds or labelled else replace(example, relation=None))
        row = {name: row[name] for name in names if row.get(name)}
        rows.append(row if holds or not labelled else {**row, "holds": False})
    return rows


class ClientReview:
    """A review on a server, with the members of `Review`: `current` is the pair to decide about, or None.

    Without texts, the review that is open on the server continues.
    """

    def __init__(self, client: Client, texts: Iterable[str] | None, *, relation: str | None, pronouns: bool) -> None:
        self._client, self.relation = client, relation
        self._done: list[list[str]] = []  # keys of each decision of this object
        if texts is not None:
            client._call("POST", "/v1/review/texts", {"texts": list(texts), "pronouns": pronouns})
        self._row = self._post("next")

    @property
    def current(self) -> Candidate | None:
        """The pair to decide about."""
        if (row := self._row["pair"]) is None:
            return None
        return Candidate(wire.read_example({**row, "relation": None}), row["relation"], row["confidence"], row["key"])

    def judge(self, *, holds: bool, relation: str | None = None) -> None:
        """Say whether the proposed relation holds, or that another relation does."""
        self._decide("judge", key=self._key, holds=holds, instead=relation)

    def skip(self) -> None:
        """Decide nothing about the current pair, and do not show it again."""
        self._decide("judge", key=self._key, holds=None)

    def accept(self, min_confidence: float) -> int:
        """Accept all pairs of at least this confidence in one version; return their number."""
        self._decide("accept", min_confidence=min_confidence)
        return len(self._row["keys"])

    def undo(self) -> bool:
        """Take the last decision of this object back and show its pair again; return whether there was one."""
        if not self._done:
            return False
        self._row = self._post("undo", keys=self._done[-1])
        self._done.pop()
        return True

    @property
    def progress(self) -> ReviewProgress:
        """Counts so far, of all reviews."""
        row, recent = self._row, self._row["right"][-RECENT:]
        share = sum(recent) / len(recent) if recent else None
        return ReviewProgress(row["n_judged"], row["n_left"], share, row["n_yes"], row["n_no"], tuple(row["right"]))

    @property
    def why_nothing(self) -> str:
        """The reason why there is no current pair."""
        return str(self._row["reason"])

    @property
    def _key(self) -> str:
        if self._row["pair"] is None:
            raise DataError(self.why_nothing)
        return str(self._row["pair"]["key"])

    def _decide(self, what: str, **body: Any) -> None:
        self._row = self._post(what, **body)
        if self._row["keys"]:
            self._done.append(self._row["keys"])

    def _post(self, what: str, **body: Any) -> Any:
        return self._client._call("POST", f"/v1/review/{what}", {"relation": self.relation, **body})
