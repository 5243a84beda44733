"""Descriptions of relations: lines of text. A line that marks both entities is a pattern; it counts as a sentence.

the person or organisation that began a company
[[X]] was set up by {{Y}}.
"""

from __future__ import annotations

from erda.errors import DataError, join_faults
from erda.text.marks import example_from_marks
from erda.text.relation_names import spaced


def tidy_description(description: str) -> str:
    """Return a description with single spaces, without empty and repeated lines; raise if a pattern lacks a mark.

    Patterns that differ only inside the marks are one pattern: the first stays.
    """
    lines: dict[tuple[str, ...], str] = {}
    faults = []
    for line in filter(None, map(spaced, description.splitlines())):
        try:
            lines.setdefault(_wording(line) if is_pattern(line) else (line,), line)
        except DataError as fault:
            faults.append(f"description, line '{line:.80}': {fault}")
    if faults:
        raise DataError(join_faults(faults))
    return "\n".join(lines.values())


def meaning_of(description: str) -> str:
    """Return the lines of a description that are not patterns, on one line."""
    return " ".join(line for line in description.splitlines() if not is_pattern(line))


def patterns_of(description: str) -> list[str]:
    """Return the patterns of a description."""
    return [line for line in description.splitlines() if is_pattern(line)]


def is_pattern(line: str) -> bool:
    """Whether a line holds a mark, complete or not."""
    return any(mark in line for mark in ("[[", "]]", "{{", "}}"))


def _wording(pattern: str) -> tuple[str, ...]:
    """Return the tokens of a pattern with one mark in place of each entity."""
    example = example_from_marks(pattern)
    tokens = list(example.tokens)
    for span, mark in sorted([(example.head.span, "[["), (example.tail.span, "{{")], reverse=True):
        tokens[span.start : span.end] = [mark]
    return tuple(tokens)
