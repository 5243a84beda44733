"""Tables of parts by name: imported at first use, extended by entry points of other packages and by files."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections import UserDict
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from erda.errors import EXTRAS, SettingsError, did_you_mean, one_line

T = TypeVar("T")


class Registry(UserDict[str, T]):
    """Name -> object. Values are objects, or `module:name` strings that are imported at first use.

    Installed packages add names through the entry-point group; they cannot replace a built-in name.
    """

    def __init__(self, group: str, builtin: Mapping[str, Any]) -> None:
        super().__init__(builtin)
        self.group = group
        self.builtin = tuple(builtin)  # names of this package

    def __getitem__(self, name: str) -> T:
        if name not in self.data:
            return cast(T, load_object(plugin_paths(self.group)[name], whose=f"'{name}' of {self.group}: "))
        found = self.data[name]
        return cast(T, load_object(found)) if isinstance(found, str) else found

    def __contains__(self, name: object) -> bool:
        return name in self.data or name in plugin_paths(self.group)

    def __iter__(self) -> Iterator[str]:
        yield from self.data
        yield from (name for name in plugin_paths(self.group) if name not in self.data)

    def __len__(self) -> int:
        return len({*self.data, *plugin_paths(self.group)})


@cache  # reading the metadata of all packages takes 15 ms
def plugin_paths(group: str) -> dict[str, str]:
    """Entry points of installed packages in a group: name -> import path."""
    from importlib.metadata import entry_points

    return {one.name: one.value for one in entry_points(group=group)}


def load_object(path: str, *, whose: str = "") -> object:
    """Import `module:name` or `folder/file.py:name`; report a fault of foreign code in one line."""
    place, _, name = path.rpartition(":")
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else import_module(place)
    except Exception as fault:
        is_missing = isinstance(fault, ImportError) and fault.name in EXTRAS
        if is_missing or isinstance(fault, SettingsError) or place.startswith("erda."):
            raise
        said = one_line(f"{type(fault).__name__}: {fault}")
        raise SettingsError(f"{whose}{path}: cannot be imported ({said}).") from fault
    if not hasattr(module, name):
        raise SettingsError(f"{whose}'{place}' has no '{name}'.{did_you_mean(name, vars(module))}")
    return getattr(module, name)


def _load_file(path: Path) -> ModuleType:
    """Import a Python file that is not installed, once."""
    place = path.expanduser().resolve()
    if not place.is_file():
        raise SettingsError(f"{path}: no such file.")
    name = f"{place.stem}_{hashlib.sha256(str(place).encode()).hexdigest()[:8]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, place)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
