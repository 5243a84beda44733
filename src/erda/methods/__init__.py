"""The table of methods, one file per method. Methods are loaded lazily, by name.

Other packages add methods through the entry-point group `erda.methods`. `module:Class` or `file.py:Class` names a
method outside any package. It is registered under its own name in this process and, through `$ERDA_METHODS`, in child
processes.
"""

from __future__ import annotations

import os
from pathlib import Path

from erda.errors import SettingsError, did_you_mean, one_line, unknown_name
from erda.methods.base import Method
from erda.registry import Registry, load_object

METHODS: Registry[type[Method]] = Registry(
    "erda.methods",
    {
        "erda": "erda.methods.erda:Erda",
        "seqrun": "erda.methods.sequential:SeqRun",
        "joint": "erda.methods.sequential:Joint",
        "emr": "erda.methods.sequential:Emr",
        "emar": "erda.methods.emar:Emar",
        "idlvq-c": "erda.methods.idlvq:IdlvqC",
        "posterior": "erda.methods.posterior:Posterior",
    },
)
DEFAULT_METHOD = "posterior"
OWN_METHODS = "ERDA_METHODS"  # environment variable: paths of the user's methods, separated by commas


def find_method(name: str) -> type[Method]:
    """Load a method by name or by path (`module:Class` or `file.py:Class`)."""
    name = method_name(name)
    if name not in METHODS:
        for path in _own_paths():
            method_name(path)
    if name not in METHODS:
        own = f" For your own method, install its package or set {OWN_METHODS}=file.py:Class."
        raise SettingsError(unknown_name("method", name, METHODS) + ("" if did_you_mean(name, METHODS) else own))
    return METHODS[name]


def method_name(name: str) -> str:
    """Return the name of a method. A method given by path is added to the table first."""
    if ":" not in name:
        return name
    place, _, member = name.rpartition(":")
    path = f"{Path(place).expanduser().resolve()}:{member}" if place.endswith(".py") else name
    found = load_object(path)
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise SettingsError(f"{one_line(name)}: not a subclass of erda.Method.")
    own = getattr(found, "name", "")
    if not own or (own in METHODS and METHODS[own] is not found):
        raise SettingsError(f"{one_line(name)}: needs a unique class attribute 'name', got '{own}'.")
    METHODS[own] = found
    os.environ[OWN_METHODS] = ",".join(dict.fromkeys([*_own_paths(), path]))
    return own


def _own_paths() -> list[str]:
    return [path for path in os.environ.get(OWN_METHODS, "").split(",") if path]
