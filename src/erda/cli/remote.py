"""`--server URL` of predict, extract and teach: the same command over a running `erda serve`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erda.cli.printing import print_line
from erda.errors import SettingsError

if TYPE_CHECKING:
    from erda.serve.client import Client

TOKEN = "ERDA_TOKEN"


def add_server(parser: argparse.ArgumentParser) -> None:
    """Add the option that names a server."""
    about = f"address of a running 'erda serve', used instead of --store (its token: ${TOKEN})"
    parser.add_argument("--server", metavar="URL", help=about)


def open_client(options: argparse.Namespace, *without: str) -> Client:
    """Open the client; options that have no effect on a server are rejected."""
    from erda.serve.client import Client

    for name in without:
        if getattr(options, name):
            raise SettingsError(f"--{name.replace('_', '-')}: not with --server.")
    if not options.server.startswith(("http://", "https://")):
        raise SettingsError(f"--server: expected an address such as http://127.0.0.1:8111, got '{options.server}'.")
    return Client(options.server, token=os.environ.get(TOKEN))


def predicted_rows(options: argparse.Namespace, path: Path) -> Iterator[dict[str, Any]]:
    """Answer all sentences of a file."""
    from erda.app.evaluation import read_labelled

    client = open_client(options, "out")
    examples = read_labelled(path, format=options.format, columns=options.columns)
    for answer in client.predict(examples, top=options.top, min_confidence=options.min_confidence):
        yield answer.to_json()


def extracted_rows(
    options: argparse.Namespace, path: Path, names: Mapping[str, str | None]
) -> Iterator[dict[str, Any]]:
    """Extract from each text of a file, as `ask_text` does; at the end, print the server's hint on its tagger."""
    from erda.app.answer_files import INPUT
    from erda.app.texts import read_texts
    from erda.text.reading import Faults

    client, faults = open_client(options, "out"), Faults(path)
    asked = {"min_confidence": options.min_confidence, "pronouns": options.pronouns}
    hint = ""
    for line in read_texts(path, columns=options.columns):
        if line.error:
            faults.add(line.line, line.error)
            continue
        marks = line.row.marks()
        found = client.extract(line.row.text, (list(names) or None) if marks is None else marks, **asked)
        hint = found.hint or hint
        place = {"id": line.row.id, "line": line.line, "entities": found.tagger}
        given = {INPUT: line.columns} if line.columns else {}
        for answer in found.kept(options.pairs):
            row = answer.to_json()
            yield {**place, **row, "sentence": row["text"], "text": line.row.text, **given}
    if hint:
        print_line(f"On the server: {hint}", file=sys.stderr)
    faults.raise_if_any()
