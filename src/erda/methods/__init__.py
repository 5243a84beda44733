"""The methods by name: one file a method, one visible table."""

from __future__ import annotations

from erda.errors import SettingsError, unknown_name
from erda.methods.base import Method
from erda.methods.erda import Erda
from erda.methods.sequential import Joint, SeqRun

METHODS: dict[str, type[Method]] = {
    "erda": Erda,
    "seqrun": SeqRun,
    "joint": Joint,
}


def find_method(name: str) -> type[Method]:
    """The method of that name."""
    if name not in METHODS:
        raise SettingsError(unknown_name("method", name, METHODS))
    return METHODS[name]
