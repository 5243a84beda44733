"""Settings files: those that come with the package, by name (`erda run --preset NAME`), and the user's own."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from erda.errors import SettingsError, unknown_name

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Given:
    """One value with the place it came from, for messages. Text from a command line takes the type that is expected."""

    name: str
    value: Any
    origin: str
    is_text: bool = False


def preset_names() -> list[str]:
    """All presets."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def preset_text(name: str) -> str:
    """The TOML text of a preset."""
    if name not in preset_names():
        raise SettingsError(unknown_name("preset", name, preset_names()))
    return (FOLDER / f"{name}.toml").read_text(encoding="utf-8")


def preset_description(name: str) -> str:
    """The sentence that a preset says about itself."""
    return str(tomllib.loads(preset_text(name)).get("description", ""))


def read_preset(name: str) -> list[Given]:
    """The values of a preset."""
    return from_toml(preset_text(name), f"preset '{name}'")


def read_settings_file(path: Path) -> list[Given]:
    """The values of a TOML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: is not UTF-8 text (byte {error.start}).") from error
    return from_toml(text, str(path))


def from_toml(text: str, origin: str) -> list[Given]:
    """The values of a TOML text; `origin` is what messages call it."""
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{origin}: is not valid TOML: {error}.") from error
    value.pop("description", None)
    settings = value.pop("settings", {})
    if not isinstance(settings, dict):
        raise SettingsError(f"{origin}: 'settings' must be a table, [settings].")
    given = [Given(tidy_name(name), one, origin) for name, one in value.items()]
    for name, one in settings.items():
        nested = one.items() if isinstance(one, dict) else [("", one)]
        for inner, setting in nested:
            given.append(Given(tidy_name(f"{name}.{inner}" if inner else name), setting, f"{origin}, [settings]"))
    return given


def tidy_name(name: str) -> str:
    """The name of a setting, however its words are joined; the method before a dot keeps its hyphens."""
    owner, dot, setting = name.strip().rpartition(".")
    return f"{owner}{dot}{setting.replace('-', '_')}"
