"""`erda submit`: pack results for the leaderboard, and check such a bundle."""

from __future__ import annotations

import argparse
from pathlib import Path

from erda.cli.checking import Commands, add_command, named_path, refuse
from erda.cli.printing import print_line

EXAMPLES = """\
A bundle contains the records without their predictions, the installed packages, and the source files of a method
that is not part of erda. Nothing is sent anywhere: attach the bundle to a pull request (docs/benchmark.md).

examples:
  erda submit runs/mine
  erda submit runs/mine --method-file my_method.py --name "My method, MiniLM" --out mine.zip
  erda submit --check mine.zip
"""


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    about = (
        "Check all records under a folder and pack them into a bundle. Unreadable, unsealed or contradictory records, "
        "records without both protocols and records of validation data are rejected, all faults at once."
    )
    parser = add_command(commands, "submit", about, EXAMPLES, brief="pack results for the leaderboard, or check them")
    parser.add_argument("place", type=named_path, metavar="DIR", help="folder of records; with --check a bundle")
    parser.add_argument("--check", action="store_true", help="check a bundle, as the leaderboard does")
    parser.add_argument("--out", type=named_path, metavar="FILE", help="default: the folder's name and .zip")
    parser.add_argument("--name", metavar="TEXT", help="name of the submission (default: the folder's name)")
    parser.add_argument(
        "--method-file", type=named_path, action="append", default=[], metavar="FILE", help="source of a method"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing bundle")
    parser.set_defaults(handler=run)


def run(options: argparse.Namespace) -> None:
    """Pack or check a bundle."""
    from erda.benchmark.submission import check_bundle, pack_bundle
    from erda.outputs import refuse_existing

    if options.check:
        given = {"--out": options.out, "--name": options.name, "--method-file": options.method_file}
        refuse([f"{name}: not with --check." for name, value in given.items() if value])
        checked = check_bundle(options.place)
        methods = sorted({record.method for record in checked.records})
        print_line(f"Valid: {checked.bundle.name}, {len(checked.records)} records of {', '.join(methods)}.")
        return
    name = options.name or options.place.resolve().name
    out = options.out or Path(f"{options.place.resolve().name}.zip")
    refuse_existing(out, overwrite=options.overwrite)
    bundle = pack_bundle(options.place, out, name=name, method_files=tuple(options.method_file))
    size = out.stat().st_size / 1e6
    print_line(f"Bundle: {out}, {len(bundle.members)} files, {size:.1f} MB. Check it with: erda submit --check {out}")
