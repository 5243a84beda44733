"""`erda export`: write an extractor as a folder that runs without erda."""

from __future__ import annotations

import argparse
from pathlib import Path

from erda.cli.checking import Commands, add_command
from erda.cli.printing import print_line
from erda.cli.store import add_store, open_store

EXPORT = """\
The folder holds an ONNX graph, a tokenizer, the learned parameters, and predict.py, which needs only onnxruntime,
tokenizers and numpy and gives the same answers.

examples:
  erda export my-export
  erda export my-export-32 --engine onnx
"""


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    about = "Write an extractor as a folder that runs without erda and PyTorch."
    export = add_command(commands, "export", about, EXPORT, brief="write a folder that runs without erda")
    export.add_argument("out", type=Path, metavar="OUT", help="a new folder")
    engine = "onnx (float32) or onnx-int8, made from the weights (extra train); default: the encoder's own file"
    export.add_argument("--engine", metavar="NAME", help=engine)
    add_store(export)
    export.set_defaults(handler=run_export)


def run_export(options: argparse.Namespace) -> None:
    """Write the folder."""
    from erda.app.export import export

    version = open_store(options).version
    folder = export(version, options.out, engine=options.engine)
    print_line(
        f'{folder} is written. Try it: python {folder / "predict.py"} "[[SpaceX]] was set up by {{{{Elon Musk}}}}."'
    )
