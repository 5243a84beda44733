"""File formats: each reader turns one file into a `Reading`, or reports all its faults at once."""

from erda.data.formats.cfrl import read_cfrl
from erda.data.formats.fewrel_json import read_fewrel
from erda.data.formats.jsonl_examples import example_from_json, example_to_json, read_jsonl
from erda.data.formats.relation_lists import read_relation_list
from erda.data.formats.row_collector import Reading
from erda.data.formats.tacred import read_tacred

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
