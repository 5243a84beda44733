"""The naming rule for relations from any source: files, mappings, the command line.

The id is the given text with single spaces. The name is the id in words. Two ids with the same name are one relation:
"founded by" and "founded_by", "org:founded_by" and "organization founded by".
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

_TACRED_PREFIXES = {"per": "person", "org": "organization"}


def spaced(text: str) -> str:
    """Return text in composed form (NFC) with single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).split())


@lru_cache(maxsize=1 << 12)
def readable_name(relation_id: str) -> str:
    """Return a relation's id as words.

    >>> readable_name("per:city_of_birth"), readable_name("org:number_of_employees/members"), readable_name("_")
    ('person city of birth', 'organization number of employees or members', '_')
    """
    prefix, colon, rest = relation_id.partition(":")
    words = f"{_TACRED_PREFIXES.get(prefix, prefix)} {rest}" if colon else relation_id
    return spaced(words.replace("_", " ").replace("/", " or ")) or spaced(relation_id) or relation_id
