"""Read examples, relations and teachings from user input; report all faults at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from erda.errors import DataError, join_faults, printable, unknown_name
from erda.text.descriptions import readable_name, spaced, tidy_description
from erda.text.marks import CONTROL, check_text, example_from_marks
from erda.types import NO_RELATION, Example, Relation, Task

T = TypeVar("T")
R = TypeVar("R")
ExampleInput = str | Example | Mapping[str, Any]  # inline marks; an example; a row of our own format (tokens or text)
Teachable = Task | Mapping[Any, Iterable[ExampleInput]] | Iterable[ExampleInput]
LONGEST_NAME, LONGEST_DESCRIPTION = 200, 5_000


def example_of(given: ExampleInput) -> Example:
    """Read and validate one example."""
    if isinstance(given, str):
        check_text(given)
        return example_from_marks(given)
    if isinstance(given, Mapping):
        from erda.data.formats.jsonl_examples import example_from_json  # loads pydantic

        example = example_from_json(given)
    elif isinstance(given, Example):
        example = given
    else:
        raise DataError(f"expected a text with marks, an Example or a row with 'tokens' or 'text', got {given!r:.80}.")
    check_text(" ".join((*example.tokens, example.head.name, example.tail.name)))
    return example


def says_it_holds(given: ExampleInput) -> bool:
    """Whether the relation of an example holds; a row with `"holds": false` is a counterexample."""
    return not isinstance(given, Mapping) or given.get("holds") is not False


def examples_of(given: Iterable[ExampleInput]) -> list[Example]:
    """Read questions; their relations are dropped."""
    return [replace(one, relation=None) for one, _ in labelled_rows_of(given)]


def labelled_rows_of(given: Iterable[ExampleInput]) -> list[tuple[Example, bool]]:
    """Read examples, and whether the relation of each holds."""
    refuse_single(given)
    return read_each(given, lambda one: (example_of(one), says_it_holds(one)))


def refuse_single(given: object) -> None:
    """Reject a single example in place of a list."""
    if isinstance(given, str | Example | Mapping) or not isinstance(given, Iterable):
        raise DataError(f"expected a list of examples, got a single {type(given).__name__}; put it in a list.")


def read_each(given: Iterable[T], read: Callable[[T], R], *, what: str = "example") -> list[R]:
    """Read every item of a list; report all faults at once, by position counted from 1."""
    found, faults = list[R](), list[str]()
    for place, one in enumerate(given, 1):
        try:
            found.append(read(one))
        except DataError as fault:
            faults.append(f"{what} {place}: {fault}")
    if faults:
        raise DataError(join_faults(faults))
    return found


def relation_of(given: str | Relation, description: str = "", known: Iterable[Relation] = ()) -> Relation:
    """Find a known relation by id or name, or make a new relation whose name is its id in words."""
    if not isinstance(given, str | Relation):
        raise DataError(f"expected the name of a relation, got {given!r:.80}.")
    if not isinstance(description, str):
        raise DataError(f"description: expected a text, got {description!r:.80}.")
    name = given if isinstance(given, str) else given.id
    if not name.strip():
        raise DataError("A relation needs a name, such as 'founded by'.")
    found = find_relation(name, known)
    if not found:
        refuse_sentence(name)
    description = tidy_description(description)
    if isinstance(given, Relation):
        words = description or tidy_description(given.description) or (found.description if found else "")
        relation = Relation(found.id if found else given.id, given.name, words)
    elif found:
        relation = Relation(found.id, found.name, description or found.description)
    else:
        relation = Relation(spaced(name), readable_name(name), description)
    for what, text in (("id", relation.id), ("name", relation.name), ("description", relation.description)):
        if CONTROL.search(text):
            raise DataError(f"relation '{printable(relation.id)}': its {what} holds a control character.")
    if max(len(relation.id), len(relation.name)) > LONGEST_NAME:
        raise DataError(f"relation '{relation.id[:40]}...': a name has at most {LONGEST_NAME} characters.")
    if len(relation.description) > LONGEST_DESCRIPTION:
        raise DataError(f"relation '{relation.id}': a description has at most {LONGEST_DESCRIPTION:,} characters.")
    if relation.id == NO_RELATION:
        raise DataError(f"'{NO_RELATION}' says that no relation holds; it cannot be the name of a relation.")
    return relation


def find_relation(name: str, known: Iterable[Relation]) -> Relation | None:
    """Find a known relation by id, or by a unique name ("founded_by" is "founded by")."""
    relations, plain, words = list(known), spaced(name), readable_name(name)
    by_id = [one for one in relations if one.id in (name, plain)]
    found = by_id or [one for one in relations if plain == one.name or words in (one.name, readable_name(one.id))]
    return found[0] if len(found) == 1 else None


def known_relation(name: str, known: Iterable[Relation]) -> Relation:
    """Find a known relation by id or name; raise with the closest name if there is none."""
    if not isinstance(name, str):
        raise DataError(f"expected the name of a relation, got {name!r:.80}.")
    relations = list(known)
    if (found := find_relation(name, relations)) is None:
        refuse_sentence(name)
        if not relations:
            raise DataError(f"Unknown relation '{name}': nothing was taught yet.")
        raise DataError(unknown_name("relation", name, (one.id for one in relations)))
    return found


def refuse_sentence(name: object) -> None:
    """Reject a sentence in place of a relation's name: the name is missing, or comes after the sentence."""
    if isinstance(name, str) and "[[" in name and "{{" in name:
        raise DataError(f"'{name[:80]}' is a sentence; name the relation first, then its sentences.")


def types_of(given: Iterable[str] | None, name: str) -> tuple[str, ...]:
    """Read entity types, such as PERSON; no types are an empty tuple."""
    given = names_of(given, name)
    types = tuple(dict.fromkeys(map(spaced, given)))
    if not all(types) or any(CONTROL.search(one) or len(one) > LONGEST_NAME for one in types):
        raise DataError(f"{name}: expected names of types, such as PERSON, got {list(given)!r:.80}.")
    return types


def names_of(given: Iterable[str] | None, name: str) -> list[str]:
    """Read a list of names; a single text, which is a list of letters to Python, raises."""
    if isinstance(given, str):
        raise DataError(f"{name}: expected a list of names, got a single text; put it in a list.")
    names = list(given) if isinstance(given, Iterable) else [given] if given is not None else []
    if not all(isinstance(one, str) for one in names):
        raise DataError(f"{name}: expected a list of names, got {given!r:.80}.")
    return names


def check_bool(given: object, name: str) -> None:
    """Reject a value that is neither True nor False: "no" counts as true in Python."""
    if not isinstance(given, bool):
        raise DataError(f"{name}: expected True or False, got {given!r:.80}.")


# -- teachings ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Teaching:
    """Relations with their examples and counterexamples, and sentences without a relation."""

    relations: tuple[Relation, ...] = ()
    examples: tuple[Example, ...] = ()
    counterexamples: tuple[Example, ...] = ()
    unrelated: tuple[Example, ...] = ()
    said: str = ""  # the line of the history; what was taught, if it is empty
    is_task: bool = False  # keep every example, duplicates included
    is_judged: bool = False


class _Reader:
    """Collects the content of a teaching and all its faults."""

    def __init__(self, known: Sequence[Relation]) -> None:
        self.known, self.faults = {one.id: one for one in known}, list[str]()
        self.relations: dict[str, Relation] = {}
        self.found: tuple[list[Example], ...] = ([], [], [])  # examples, counterexamples, unrelated
        self._ids: dict[str, str] = {}  # name in an example -> id

    def name(self, given: str | Relation, description: str = "") -> Relation:
        """Find or make a relation, which belongs to this teaching."""
        relation = relation_of(given, description, (self.known | self.relations).values())
        return self.relations.setdefault(relation.id, relation)

    def of_one(
        self, given: str | Relation, some: Iterable[ExampleInput], description: str = "", *, hold: bool = True
    ) -> None:
        """Read examples of one relation, or counterexamples if it does not `hold`; a row can say so itself."""
        relation = None if given == NO_RELATION else self.name(given, description).id
        self._add(some, lambda example: relation, f"{relation or NO_RELATION}: ", hold=hold)

    def of_many(self, some: Iterable[ExampleInput], *, hold: bool = True) -> None:
        """Read examples that name their relations."""
        self._add(some, self._named, "", hold=hold)

    def _named(self, example: Example) -> str | None:
        if example.relation is None:
            raise DataError("it names no relation; give one: teach(relation, examples).")
        if example.relation == NO_RELATION:
            return None
        if example.relation not in self._ids:
            self._ids[example.relation] = self.name(example.relation).id
        return self._ids[example.relation]

    def _add(
        self, some: Iterable[ExampleInput], relation: Callable[[Example], str | None], where: str, *, hold: bool
    ) -> None:
        refuse_single(some)
        for place, given in enumerate(some, 1):
            try:
                example = example_of(given)
                owner = relation(example)
                is_counterexample = not (hold and says_it_holds(given))
                if owner is None and is_counterexample:
                    raise DataError("a counterexample must name the relation that does not hold.")
                self.found[2 if owner is None else int(is_counterexample)].append(replace(example, relation=owner))
            except DataError as fault:
                self.faults.append(f"{where}example {place}: {fault}")

    def teaching(self, unrelated: Iterable[ExampleInput]) -> Teaching:
        """Read the sentences without a relation, which come last; raise if there is a fault, or nothing to teach."""
        self.of_one(NO_RELATION, unrelated)
        if self.faults:
            raise DataError(join_faults(self.faults))
        if not self.relations and not any(self.found):
            raise DataError("nothing to teach: no relation was given.")
        examples, against, apart = map(tuple, self.found)
        return Teaching(tuple(self.relations.values()), examples, against, apart)


def read_one(
    relation: str | Relation,
    known: Sequence[Relation],
    *,
    examples: Iterable[ExampleInput],
    counterexamples: Iterable[ExampleInput] = (),
    unrelated: Iterable[ExampleInput] = (),
    description: str = "",
) -> Teaching:
    """Read the arguments of `teach`; report every fault at once."""
    reader = _Reader(known)
    reader.of_one(relation, examples, description)
    reader.of_one(relation, counterexamples, hold=False)
    return reader.teaching(unrelated)


def read_many(
    what: Teachable,
    known: Sequence[Relation],
    *,
    counterexamples: Iterable[ExampleInput],
    unrelated: Iterable[ExampleInput],
) -> Teaching:
    """Read the arguments of `teach_many`; report every fault at once."""
    reader = _Reader(known)
    if isinstance(what, Mapping):
        for name, some in what.items():
            reader.of_one(name, some)
    elif isinstance(what, Task):
        for relation in what.relations:
            reader.name(relation)
        reader.of_many(what.examples)
    else:
        reader.of_many(what)
    reader.of_many(counterexamples, hold=False)
    return replace(reader.teaching(unrelated), is_task=isinstance(what, Task))
