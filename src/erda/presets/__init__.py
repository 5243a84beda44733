"""Settings files that come with the package, by name: `erda run --preset NAME`."""

from __future__ import annotations

import tomllib
from pathlib import Path

from erda.errors import SettingsError, unknown_name

FOLDER = Path(__file__).parent


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
