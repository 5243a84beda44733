"""Descriptions of relations: lines of text. A line that marks both entities is a pattern, a sentence for the relation.

the person or organisation that began a company
[[X]] was set up by {{Y}}.
"""

from __future__ import annotations

from erda.errors import DataError, join_faults
from erda.text.marks import example_from_marks
from erda.text.relation_names import spaced


def tidy_description(description: str) -> str:
    """Return a description with single spaces and without empty lines; raise if a pattern lacks a mark."""
    lines = [line for line in map(spaced, description.splitlines()) if line]
    faults = []
    for line in filter(is_pattern, lines):
        try:
            example_from_marks(line)
        except DataError as fault:
            faults.append(f"description, line '{line:.80}': {fault}")
    if faults:
        raise DataError(join_faults(faults))
    return "\n".join(lines)


def meaning_of(description: str) -> str:
    """Return the lines of a description that are not patterns, on one line."""
    return " ".join(line for line in description.splitlines() if not is_pattern(line))


def patterns_of(description: str) -> list[str]:
    """Return the patterns of a description."""
    return [line for line in description.splitlines() if is_pattern(line)]


def is_pattern(line: str) -> bool:
    """Whether a line marks an entity."""
    return any(mark in line for mark in ("[[", "]]", "{{", "}}"))
