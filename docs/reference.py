"""Write docs/cli.md from the parsers, docs/http.md from the OpenAPI document, and the type stubs of packages."""

from __future__ import annotations

import argparse
import importlib
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from erda.cli.main import build_parser

DOCS = Path(__file__).parent
PACKAGES = ("erda", "erda.benchmark", "erda.corpus")  # with names that are imported at first use
CLI = "# Command line\n\nGenerated from the parsers by `make docs`; do not edit.\n"
HTTP = """\
# HTTP API

Generated from the OpenAPI document by `make docs`; do not edit. A running server has the same at
`/openapi.json`. [The server](server.md) describes tokens, jobs and limits.

Every body is JSON. A token goes into the header `Authorization: Bearer TOKEN`. Every error has the
body `{"error": ..., "message": ..., "where": ...}`. In a reply, `...` stands for further fields,
mostly those of the value that the [library](api.md) returns.
"""


def render_cli() -> str:
    """The page of all commands."""
    return CLI + "".join(_sections(build_parser()))


def render_http() -> str:
    """The page of all calls of the server."""
    from erda.serve.application import build_application
    from erda.serve.service import ServerSettings

    with TemporaryDirectory() as folder:
        application = build_application(ServerSettings(Path(folder) / "none"))
        document = application.openapi()
        application.state.service.stop()
    calls = [
        _call(document, path, method, call)
        for path, methods in document["paths"].items()
        for method, call in methods.items()
    ]
    return "\n".join([HTTP, *calls])


def render_stubs() -> dict[Path, str]:
    """The type stubs of packages: every public name with its module."""
    stubs = {}
    for package in map(importlib.import_module, PACKAGES):
        lines = [f"from {home} import {name} as {name}" for home, names in package.PUBLIC.items() for name in names]
        lines += ["", "PUBLIC: dict[str, tuple[str, ...]]"]
        lines += ["__version__: str"] if hasattr(package, "__version__") else []
        stubs[Path(str(package.__file__)).with_suffix(".pyi")] = "\n".join([*lines, ""])
    return stubs


def _wrapped(text: str) -> str:
    """Paragraphs with lines of at most 100 characters."""
    return "\n\n".join(
        textwrap.fill(one, 100, break_long_words=False, break_on_hyphens=False) for one in text.split("\n\n")
    )


# -- commands ----------------------------------------------------------------------------------------------------------


def _sections(parser: argparse.ArgumentParser) -> Iterator[str]:
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    arguments = [action for action in parser._actions if action not in groups and action.help != argparse.SUPPRESS]
    lines = ["", f"## {parser.prog}", "", _wrapped(parser.description or ""), ""]
    own = [action for action in arguments if not isinstance(action, argparse._HelpAction)]
    if own:
        lines += ["| argument | meaning |", "|---|---|"]
        lines += [f"| {_signature(action)} | {_meaning(action)} |" for action in own]
        lines.append("")
    if parser.epilog:
        lines += ["```", parser.epilog.strip(), "```", ""]
    yield "\n".join(lines)
    for group in groups:
        for child in group.choices.values():
            yield from _sections(child)


def _signature(action: argparse.Action) -> str:
    value = action.metavar or ("" if action.nargs == 0 else (action.dest.upper()))
    if action.choices is not None and action.metavar is None:
        value = " or ".join(map(str, action.choices))
    text = value if isinstance(value, str) else " ".join(value)
    if not action.option_strings:
        return f"`{text}`"
    return f"`{', '.join(action.option_strings)}{' ' + text if text and action.nargs != 0 else ''}`"


def _meaning(action: argparse.Action) -> str:
    return " ".join((action.help or "").split()).replace("|", "\\|")


# -- calls -------------------------------------------------------------------------------------------------------------


def _call(document: dict[str, Any], path: str, method: str, call: dict[str, Any]) -> str:
    schemas = document["components"]["schemas"]
    (body,) = _schemas(schemas, call.get("requestBody", {})) or [{}]
    lines = [f"## {method.upper()} {path}", "", _wrapped(call.get("description", "")), ""]
    asked = [(one["name"], one["schema"], one.get("required", False)) for one in call.get("parameters", ())]
    asked += _fields(body)
    if asked:
        lines += ["| field | type |", "|---|---|"]
        lines += [f"| `{name}`{', required' if required else ''} | {_type(one)} |" for name, one, required in asked]
        lines.append("")
    for example in body.get("examples", ())[:1]:
        lines += ["```json", json.dumps(example, ensure_ascii=False, indent=2), "```", ""]
    if replies := [_reply(one) for one in _schemas(schemas, call["responses"].get("200", {}))]:
        lines += [_wrapped(f"Reply: {'; or '.join(replies)}."), ""]
    return "\n".join(lines)


def _schemas(schemas: dict[str, Any], part: dict[str, Any]) -> list[dict[str, Any]]:
    """The named schemas of a body or a reply; several where one of them is sent."""
    schema = part.get("content", {}).get("application/json", {}).get("schema", {})
    return [schemas[_name(one)] for one in schema.get("anyOf", [schema]) if _name(one) in schemas]


def _reply(schema: dict[str, Any]) -> str:
    names = [f"`{name}`" for name, _, _ in _fields(schema)]
    if schema.get("additionalProperties"):
        names.append("...")
    return ", ".join(names)


def _fields(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any], bool]]:
    required = schema.get("required", ())
    return [(name, one, name in required) for name, one in schema.get("properties", {}).items()]


def _name(schema: dict[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _type(schema: dict[str, Any]) -> str:
    """A type in words: `list of string or Example`."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "items" in schema:
        return f"list of ({inner})" if " or " in (inner := _type(schema["items"])) else f"list of {inner}"
    return _name(schema).removesuffix("Body").lower() or str(schema.get("type", "any"))


if __name__ == "__main__":
    pages = {DOCS / "cli.md": render_cli(), DOCS / "http.md": render_http(), **render_stubs()}
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
