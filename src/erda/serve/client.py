"""A client of `erda serve` with the calls of `Extractor`: plain HTTP, and nothing beyond the core."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import requests

from erda.app.annotated import AnnotatedText, is_annotated, read_annotated
from erda.app.answers import (
    Answer,
    Change,
    Evaluation,
    Explanation,
    Extraction,
    Moved,
    Neighbour,
    Ranked,
    RelationScore,
    Suggestion,
    Taught,
    TextPlace,
    Tuned,
    WordEffect,
)
from erda.app.inputs import Given, labelled_examples_of, says_it_holds
from erda.app.lessons import Lesson
from erda.app.state import VersionInfo
from erda.data.formats import example_to_json
from erda.errors import DataError, ErdaError, ModelError
from erda.files import decode, user_path
from erda.text.marks import Mark, example_from_marks
from erda.types import Entity, Example, Relation, Span

if TYPE_CHECKING:
    from erda.serve.client_review import ClientReview

BATCH = 500  # sentences per request
SECONDS = 300.0  # for an answer
POLL_SECONDS = 0.2  # between two looks at a job
NO_TOKEN = "The token is missing or wrong. Pass it: Client(url, token=...)."
Row = Mapping[str, Any]


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
        return tuple(Lesson(one["number"], one.get("teaching", 0), example_of_row(one)) for one in found)

    @overload
    def predict(  # type: ignore[overload-overlap]  # a str is also an iterable of str
        self, given: Given, *, top: int = 5, min_confidence: float | None = None
    ) -> Answer: ...
    @overload
    def predict(self, given: Iterable[Given], *, top: int = 5, min_confidence: float | None = None) -> list[Answer]: ...
    def predict(
        self, given: Given | Iterable[Given], *, top: int = 5, min_confidence: float | None = None
    ) -> Answer | list[Answer]:
        """Predict the relation between the two marked entities of a sentence, or of each sentence of a list."""
        if isinstance(given, str | Example | Mapping):
            return self.predict([given], top=top, min_confidence=min_confidence)[0]
        rows = rows_of(given)
        answers = list[Answer]()
        for start in range(0, len(rows), BATCH):
            body = {"questions": rows[start : start + BATCH], "top": top, "min_confidence": min_confidence}
            answers += [answer_of_row(one) for one in self._call("POST", "/v1/predict", body)["answers"]]
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
        given = None if entities is None else [one if isinstance(one, str) else _mark_row(one) for one in entities]
        body = {"text": text, "entities": given, "keep": "all", "top": top}
        row = self._call("POST", "/v1/extract", body | {"min_confidence": min_confidence, "pronouns": pronouns})
        answers = tuple(answer_of_row(one) for one in row["answers"])
        counts = row["n_entities"], row["n_left_out"]
        return Extraction(answers, row["tagger"], *counts, row["hint"], row.get("inverses", {}))

    def explain(self, given: Given) -> Explanation:
        """Explain an answer by similar examples and influential words."""
        row = self._call("POST", "/v1/explain", rows_of([given])[0])
        nearest = tuple(Neighbour(example_of_row(one), one["similarity"]) for one in row["nearest"])
        return Explanation(answer_of_row(row["answer"]), nearest, tuple(WordEffect(**one) for one in row["words"]))

    def evaluate(self, questions: Iterable[Given], *, no_relation: Collection[str] = ()) -> Evaluation:
        """Compare answers with the truth."""
        body = {"examples": rows_of(questions), "no_relation": list(no_relation)}
        row = self._call("POST", "/v1/evaluate", body)
        counts = ("n", "n_right", "n_answered")
        relations = {name: RelationScore(*(one[count] for count in counts)) for name, one in row["relations"].items()}
        confusion = {(one["truth"], one["answer"]): one["n"] for one in row["confusion"]}
        shares = row["accuracy"], row["accuracy_of_known"]
        return Evaluation(row["n"], *shares, relations, confusion, tuple(row["untaught"]), row["n_taught"])

    def compare(self, before: int, after: int, questions: Iterable[Given]) -> list[Change]:
        """List the questions that two versions answer differently."""
        row = self._call("POST", "/v1/compare", {"before": before, "after": after, "examples": rows_of(questions)})
        return [Change(example_of_row(one), one["before"], one["after"], one["truth"]) for one in row["changes"]]

    def suggest(self, relation: str, texts: Iterable[str], *, n: int = 10) -> list[Suggestion]:
        """Suggest sentences of unlabelled texts as examples of a relation, most useful first."""
        row = self._call("POST", "/v1/suggest", {"relation": relation, "texts": list(texts), "n": n})
        return [Suggestion(example_of_row(one), one["confidence"]) for one in row["suggestions"]]

    def review(
        self, texts: Iterable[str] | None = None, *, relation: str | None = None, pronouns: bool = True
    ) -> ClientReview:
        """Judge pairs of entities of texts, one after another; without texts, continue with the server's texts."""
        from erda.serve.client_review import ClientReview

        return ClientReview(lambda *call: self._call("POST", *call), texts, relation=relation, pronouns=pronouns)

    # -- teaching ------------------------------------------------------------------------------------------------------

    def teach(
        self,
        relation: str,
        examples: Iterable[Given] = (),
        *,
        counterexamples: Iterable[Given] = (),
        unrelated: Iterable[Given] = (),
        description: str = "",
    ) -> Taught:
        """Teach one relation by examples, and by counterexamples in which it does not hold.

        Lines of `description` may be patterns, which count as sentences: `"[[X]] was founded by {{Y}}."`.
        """
        named = {"relation": relation, "description": description}
        return self._teach(named, examples, counterexamples, unrelated)

    def teach_many(
        self,
        what: Mapping[str, Iterable[Given]] | Iterable[Given],
        *,
        counterexamples: Iterable[Given] = (),
        unrelated: Iterable[Given] = (),
    ) -> Taught:
        """Teach several relations in one version: a mapping of relations to examples, or examples with relations."""
        if isinstance(what, Mapping):
            what = [{**row, "relation": name} for name, some in what.items() for row in rows_of(some)]
        return self._teach({}, what, counterexamples, unrelated)

    def _teach(self, named: dict[str, Any], *some: Iterable[Given]) -> Taught:
        kinds = ("examples", "counterexamples", "unrelated")
        rows = {kind: rows_of(one) for kind, one in zip(kinds, some, strict=True)}
        is_long = sum(map(len, rows.values())) > BATCH
        row = self._call("POST", "/v1/teach", {**named, **rows, "job": is_long})
        return taught_of_row(self._result(row["id"]) if is_long else row)

    def judge(self, example: Given, relation: str, *, holds: bool = True) -> Taught:
        """Say whether a known relation holds in a sentence: it becomes an example or a counterexample."""
        body = {**rows_of([example])[0], "relation": relation, "holds": holds}
        return taught_of_row(self._call("POST", "/v1/judge", body))

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
        """Declare `symmetric`, `inverse`, `head_types` or `tail_types` of a relation; return the new version."""
        return self._changed("POST", "/v1/relations/declare", {"relation": relation, **declared})

    def tune(
        self,
        labelled: Iterable[Given] | Iterable[AnnotatedText | Row],
        *,
        precision: float = 0.9,
        no_relation: Collection[str] = (),
    ) -> Tuned:
        """Fit confidence thresholds so that this share of the answers is right (`Extractor.tune`)."""
        given = list(labelled)
        if is_annotated(given):
            asked = {"texts": [_without_none(asdict(one)) for one in read_annotated(given)]}
        else:
            asked = {"examples": labelled_rows(given)}  # type: ignore[arg-type]
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
        with zipfile.ZipFile(io.BytesIO(self._answer("GET", "/v1/export").content)) as file:
            for name in file.namelist():
                path = place / Path(name).relative_to("extractor")
                if ".." in path.parts:
                    raise DataError(f"{self.url}: the export names a file outside its folder ({name}).")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.read(name))
        return place

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


# -- rows to values ----------------------------------------------------------------------------------------------------


def rows_of(given: Iterable[Given]) -> list[dict[str, Any]]:
    """Examples as rows of our own format, checked before they are sent."""
    keep = ("tokens", "head", "tail", "relation", "id")
    rows = [example_to_json(one) for one in labelled_examples_of(given)]
    return [{name: row[name] for name in keep if row.get(name)} for row in rows]


def labelled_rows(given: Sequence[Given]) -> list[dict[str, Any]]:
    """Examples as rows; a counterexample keeps its relation and has `"holds": false`."""
    holds = [says_it_holds(one) for one in given]
    named = [{**one, "holds": True} if isinstance(one, Mapping) and not says_it_holds(one) else one for one in given]
    return [row if yes else {**row, "holds": False} for row, yes in zip(rows_of(named), holds, strict=True)]


def example_of_row(row: Row) -> Example:
    """The example of an answer."""

    def entity(role: str) -> Entity:
        more = {name: row.get(f"{role}_{name}") for name in ("type", "resolved")}
        return Entity(row[role], Span(*row[f"{role}_span"]), **more)

    return Example(tuple(row["tokens"]), entity("head"), entity("tail"), row.get("relation"))


def answer_of_row(row: Row) -> Answer:
    """An answer with its places, where it has them."""
    names = TextPlace.__slots__
    place = TextPlace(*(row[name] for name in names)) if names[0] in row else None
    ranked = tuple(Ranked(one["relation"], one["confidence"], one["score"]) for one in row["ranked"])
    relations: Sequence[str] = row.get("relations") or ([row["relation"]] if row["relation"] is not None else ())
    example = example_of_row({**row, "relation": None})
    return Answer(example, row["relation"], ranked, place, tuple(relations))


def taught_of_row(row: Row) -> Taught:
    """The result of a teaching."""
    fields: dict[str, Any] = {name: tuple(row[name]) for name in ("new", "forgotten", "described")}
    fields |= {name: row[name] for name in ("version", "n_examples", "n_counterexamples", "n_unrelated", "n_patterns")}
    fields["duplicates"] = tuple(map(example_from_marks, row["duplicates"]))
    fields["moved"] = tuple(Moved(example_from_marks(one["text"]), one["before"], one["after"]) for one in row["moved"])
    return Taught(**fields)


def _mark_row(mark: Mark) -> dict[str, Any]:
    return {"span": [mark.start, mark.end], "id": mark.id, "type": mark.type}


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(one) for name, one in value.items() if one is not None}
    return [_without_none(one) for one in value] if isinstance(value, list) else value
