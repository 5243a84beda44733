"""Toy data for the tests of this folder."""

import json
from pathlib import Path

from hypothesis import strategies as st

from erda.data.dataset import Dataset
from erda.types import Entity, Example, Relation, Span

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=6)


@st.composite
def examples(draw: st.DrawFn) -> Example:
    """Draw any valid example: two spans that do not overlap."""
    tokens = tuple(draw(st.lists(WORDS, min_size=2, max_size=12)))
    cuts = sorted(draw(st.lists(st.integers(0, len(tokens)), min_size=4, max_size=4)))
    first, second = (cuts[0], max(cuts[1], cuts[0] + 1)), (cuts[2], max(cuts[3], cuts[2] + 1))
    if first[1] > second[0] or second[1] > len(tokens):
        first, second = (0, 1), (1, len(tokens))
    spans = [Span(*first), Span(*second)]
    if draw(st.booleans()):
        spans.reverse()
    optional = st.none() | WORDS
    head, tail = (Entity(draw(WORDS), span, draw(optional)) for span in spans)
    return Example(tokens, head, tail, draw(optional), draw(WORDS), draw(optional))


def sentence(number: int, relation: str | None) -> Example:
    """Return the toy sentence of that number."""
    tokens = ("Ann", f"met{number}", "Bob", "in", f"town{number}")
    return Example(tokens, Entity("Ann", Span(0, 1)), Entity("Bob", Span(2, 3)), relation, f"toy:{number}")


def toy_dataset(n_relations: int = 7, n_each: int = 20, *, name: str = "toy", checksum: str = "c0ffee") -> Dataset:
    """Return a dataset with one pool."""
    relations = tuple(Relation(f"r{i}", f"relation {i}") for i in range(n_relations))
    train = tuple(sentence(i * n_each + j, f"r{i}") for i in range(n_relations) for j in range(n_each))
    return Dataset(name, relations, train, checksum=checksum)


def write_lines(path: Path, rows: list[object]) -> Path:
    """Write rows as JSONL; a string is written verbatim."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def row(**changes: object) -> dict[str, object]:
    """Return a valid row of our own format, with changes."""
    valid: dict[str, object] = {"head": {"span": [0, 1]}, "tail": {"span": [2, 3]}, "relation": "meets"}
    return {"tokens": ["Ann", "met", "Bob", "."], **valid, **changes}
