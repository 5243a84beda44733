"""Tagged JSONL, compressed or not: one sentence with one entity pair per line."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json

from erda.corpus.sources.source import CorpusRow, Limits, Source, Tally
from erda.data.formats import example_from_json
from erda.errors import DataError


class JsonlSource(Source):
    """Rows of a JSONL file; invalid lines are dropped and counted, with their line numbers."""

    batch_size = 20_000

    def rows(self, number: int, unit: str, limits: Limits, tally: Tally) -> list[CorpusRow]:
        """Row of a line."""
        if not unit.strip():
            return []
        tally.read += 1
        place = f"{self.path.name}:{number}"
        try:
            row = _row(from_json(unit))
        except ValueError as error:
            tally.drop("invalid JSON", f"{place}: {error}")
        except DataError as error:
            tally.drop("invalid row", f"{place}: {error}")
        else:
            if row.text.count(" ") < limits.max_tokens:
                return [row]
            tally.drop("sentence longer than max_tokens", place)
        return []


def _row(value: Any) -> CorpusRow:
    """Convert a well-formed row directly, four times as fast; `example_from_json` converts or rejects all others."""
    try:
        tokens, head, tail = value["tokens"], value["head"], value["tail"]
        (head_start, head_end), (tail_start, tail_end) = head["span"], tail["span"]
        text = " ".join(tokens)
        plain = (
            (0 <= head_start < head_end <= tail_start < tail_end <= len(tokens))
            or (0 <= tail_start < tail_end <= head_start < head_end <= len(tokens))
        ) and text.split() == tokens
        names = head["name"], tail["name"]
        others = [head.get("id"), tail.get("id"), value.get("relation"), value.get("source")]
        words = all(names) and all(type(word) is str for word in (*names, *filter(None, others)))
        numbers = (head_start, head_end, tail_start, tail_end)
        if plain and words and all(type(number) is int for number in numbers):
            head_id, tail_id, relation, source = (word or None for word in others)
            columns = (names[0], head_id, *numbers[:2], names[1], tail_id, *numbers[2:])
            return CorpusRow(text, *columns, relation, source)
    except (TypeError, KeyError, ValueError, AttributeError):
        pass
    if not isinstance(value, dict):
        raise DataError("expected a JSON object.")
    return CorpusRow.of(example_from_json(value))
