"""File formats: each reader turns one file into a `Reading`, or reports all its faults at once."""

from erda.data.formats.jsonl_examples import example_from_json, example_to_json, read_jsonl, read_relation_list
from erda.data.formats.published_formats import read_cfrl, read_fewrel, read_tacred
from erda.data.formats.row_collector import Reading

__all__ = [
    "Reading",
    "example_from_json",
    "example_to_json",
    "read_cfrl",
    "read_fewrel",
    "read_jsonl",
    "read_relation_list",
    "read_tacred",
]
