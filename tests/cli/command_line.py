"""What tests of the command line share: the type of its fixture, a few questions, files of rows."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

Erda = Callable[..., SimpleNamespace]
TESTS = ("[[SpaceX]] was founded by {{Elon}} .", "founded by"), ("[[Ada]] was born in {{London}} .", "born in")


def write_rows(name: str, rows: tuple[tuple[str, str | None], ...]) -> None:
    Path(name).write_text("".join(json.dumps({"text": text, "relation": name}) + "\n" for text, name in rows))
