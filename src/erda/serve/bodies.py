"""The bodies of requests. Unknown fields are rejected, and so is an entity whose characters are not its name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sized
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from erda.answers import Pairs
from erda.app.inputs import LONGEST_DESCRIPTION, example_of, read_each
from erda.app.texts import AnnotatedText
from erda.app.version import TOP
from erda.data.formats.jsonl_examples import EntityRow, example_to_json
from erda.errors import DataError
from erda.serve.failures import Refused
from erda.text.marks import MOST_CHARACTERS, Mark
from erda.types import Example

Whole = Annotated[int, Field(ge=0, lt=2**53, strict=True)]
Confidence = Annotated[float, Field(ge=0, le=1, description="replaces the thresholds of the extractor")]
Name = Annotated[str, Field(max_length=1_000)]
Sentence = Annotated[str, Field(max_length=MOST_CHARACTERS, description="both entities marked: [[head]] and {{tail}}")]
LINES = "meaning; lines such as [[X]] was founded by {{Y}}. are patterns, which count as sentences"
Description = Annotated[str, Field(max_length=LONGEST_DESCRIPTION, description=LINES)]
PairKey = Annotated[str, Field(pattern="^[0-9a-f]{16}$", description="`key` of a pair")]
EXAMPLES: dict[str, list[Any]] = json.loads((Path(__file__).parent / "body_examples.json").read_bytes())


def add_examples(schema: dict[str, Any], body: type[BaseModel]) -> None:
    """Add the examples of a body to its schema; a test sends them all."""
    if body.__name__ in EXAMPLES:
        schema["examples"] = EXAMPLES[body.__name__]


class Body(BaseModel):
    """A request; unknown fields are rejected."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", json_schema_extra=add_examples)


class EntityBody(Body):
    """An entity: characters of `text`, or tokens of `tokens`, the end excluded; `name`, if given, is their text."""

    span: Annotated[list[Whole], Field(min_length=2, max_length=2)]
    name: Name | None = None
    id: Name | None = None
    type: Name | None = None


def refuse_mismatch(entity: EntityBody | EntityRow, text: str, role: str = "entities") -> None:
    """Reject a name that is not at the span: the offsets do not count the characters of `text`."""
    start, end = entity.span
    there, name = text[start:end], entity.name
    if name is not None and there.casefold().split() != name.casefold().split():
        raise DataError(
            f"{role}: characters {start} to {end} of the text are '{there[:80]}', not '{name[:80]}'. Spans "
            "count characters (Unicode code points) from 0 and exclude their end."
        )


EntityBodies = Annotated[list[Name | EntityBody], Field(max_length=10_000)]


class ExampleBody(Body):
    """A sentence: `text` with inline marks, `text` with character spans, or `tokens` with token spans."""

    text: Annotated[str, Field(max_length=MOST_CHARACTERS)] | None = None
    tokens: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=2_000)] | None = None
    head: EntityBody | None = None
    tail: EntityBody | None = None
    relation: Name | None = None
    id: Name | None = None

    def example(self) -> Example:
        """The example, validated."""
        for role, entity in (("head", self.head), ("tail", self.tail)):
            if entity is not None and self.text is not None:
                refuse_mismatch(entity, self.text, role)
        return example_of(self.model_dump(exclude_none=True, include=set(ExampleBody.model_fields)))


class LabelledBody(ExampleBody):
    """A sentence and its relation, which does not hold if `holds` is false."""

    holds: bool = True

    def row(self) -> dict[str, Any]:
        """The example as a row of labelled examples."""
        return {**example_to_json(self.example()), "holds": self.holds}


SentenceBodies = Annotated[list[Sentence | ExampleBody], Field(max_length=50_000)]


def read_sentences(bodies: Iterable[str | ExampleBody], what: str = "example") -> list[Example]:
    """Read the sentences of a request; all faults are reported at once."""
    return read_each(bodies, lambda one: example_of(one) if isinstance(one, str) else one.example(), what=what)


def refuse_many(given: Sized, most: int, where: str) -> None:
    """Reject a request that is too large to be answered at once."""
    if len(given) > most:
        raise Refused(422, "too_many", f"{len(given):,} {where}; at most {most:,} at once.", where)


def refuse_long(documents: Iterable[DocumentBody], most: int, remedy: str) -> None:
    """Reject texts that are too long to be answered at once."""
    if (size := sum(len(one.text) for one in documents)) > most:
        raise Refused(422, "too_large", f"The text has {size:,} characters; at most {most:,} at once. {remedy}", "text")


class PredictBody(ExampleBody):
    """One sentence, or many as `questions`."""

    questions: SentenceBodies | None = None
    top: Annotated[int, Field(ge=1, le=1_000)] = TOP
    min_confidence: Confidence | None = None


class DocumentBody(Body):
    """A text; its entities are names, or character spans. Without them a tagger finds them."""

    text: Annotated[str, Field(max_length=1_000_000)]
    entities: EntityBodies | None = None
    id: Name | None = None

    def names_or_marks(self) -> list[str | Mark] | None:
        """The entities as the library accepts them."""
        if self.entities is None:
            return None
        found = list[str | Mark]()
        for one in self.entities:
            if isinstance(one, EntityBody):
                refuse_mismatch(one, self.text)
            found.append(one if isinstance(one, str) else Mark(one.span[0], one.span[1], one.name, one.id, one.type))
        return found


class ExtractBody(Body):
    """One text, or many as `documents`, which become a job."""

    text: Annotated[str, Field(max_length=1_000_000)] | None = None
    entities: EntityBodies | None = None
    documents: Annotated[list[DocumentBody], Field(max_length=50_000)] | None = None
    keep: Annotated[Pairs, Field(description="directions of a pair; all: also those without a relation")] = "likelier"
    top: Annotated[int, Field(ge=1, le=1_000)] = TOP
    min_confidence: Confidence | None = None
    pronouns: bool = True

    def all_documents(self) -> list[DocumentBody]:
        """The texts of the request."""
        if (self.text is None) == (self.documents is None):
            raise DataError("give either 'text' or 'documents'.")
        return (
            [DocumentBody(text=self.text or "", entities=self.entities)] if self.documents is None else self.documents
        )


class TeachBody(Body):
    """Examples of one relation, or, without `relation`, examples that name theirs. `job`: answer before it is done."""

    relation: Name | None = None
    examples: SentenceBodies = []
    counterexamples: SentenceBodies = []
    unrelated: Annotated[SentenceBodies, Field(description="sentences in which no known relation holds")] = []
    description: Description = ""
    job: bool = False


class JudgeBody(LabelledBody):
    """A sentence, a known relation, and whether it holds between the two entities."""

    relation: Name


class SuggestBody(Body):
    """The relation to find examples of, and unlabelled texts to search."""

    relation: Name
    texts: Annotated[list[Annotated[str, Field(max_length=100_000)]], Field(min_length=1, max_length=10_000)]
    n: Annotated[int, Field(ge=1, le=1_000)] = 10


class ReviewBody(Body):
    """Texts to review; long ones, or `job`, become a job."""

    texts: Annotated[list[Annotated[str, Field(max_length=1_000_000)]], Field(max_length=10_000)]
    pronouns: bool = True
    job: bool = False


class RenameBody(Body):
    """A relation and its new name."""

    relation: Name
    to: Name


class MergeBody(Body):
    """A relation, and the one that takes over its examples."""

    relation: Name
    into: Name


class DescribeBody(Body):
    """A relation and its description; an empty one removes it."""

    relation: Name
    description: Description


class DeclareBody(Body):
    """The entity types of a relation; a field that is left out stays as it is, null clears it."""

    relation: Name
    head_types: Annotated[list[Name], Field(max_length=100)] | None = None
    tail_types: Annotated[list[Name], Field(max_length=100)] | None = None


class TuneBody(Body):
    """Labelled examples, which tune `predict`, or annotated `texts`, which tune `extract`."""

    examples: Annotated[list[Sentence | LabelledBody], Field(max_length=50_000)] = []
    texts: Annotated[list[AnnotatedText], Field(max_length=50_000)] = []
    precision: Annotated[float, Field(gt=0, lt=1, description="share of answers that is to be right")] = 0.9
    no_relation: Annotated[list[Name], Field(max_length=100)] = []


class EvaluateBody(Body):
    """Labelled examples; `no_relation` are names which mean that none holds."""

    examples: Annotated[SentenceBodies, Field(min_length=1)]
    no_relation: Annotated[list[Name], Field(max_length=100)] = []


class UndoBody(Body):
    """The version to return to; without it the one before the current one."""

    to: Whole | None = None


class TextBody(Body):
    """A text whose entities are searched."""

    text: Annotated[str, Field(max_length=100_000)]


class NextPairBody(Body):
    """`relation` limits the review to one."""

    relation: Name | None = None


class JudgePairBody(NextPairBody):
    """A pair, and whether its relation holds; null skips it. `instead` is the relation that holds, if another does."""

    key: PairKey
    holds: bool | None
    instead: Name | None = None


class AcceptPairsBody(NextPairBody):
    """Accept all pairs of at least this confidence."""

    min_confidence: Annotated[float, Field(ge=0, le=1)]


class UndoPairsBody(NextPairBody):
    """The pairs whose decisions are taken back; none: the last decision of all."""

    keys: Annotated[tuple[PairKey, ...], Field(max_length=100_000)] = ()
