"""`erda corpus build`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from erda.corpus.build import BuildReport

ABOUT = (
    "Build a corpus from tagged JSONL, a Wikipedia dump, documents with mentions (DocRED's JSON) or plain text. "
    "Run the same command again to go on after an interruption, or to check a finished corpus and mend damaged parts."
)
EXAMPLES = """examples:
  erda corpus build tagged.jsonl.gz --out corpora/mine
  erda corpus build enwiki-latest-pages-articles.xml.bz2 --out corpora/enwiki --workers 8 --exclude test.jsonl
  erda corpus build documents.json.gz --out corpora/mine --add
  erda corpus build notes.txt --names people-and-places.txt --out corpora/notes
"""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `build`."""
    parser = commands.add_parser(
        "build",
        help="build a corpus, go on with one, or add to one",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sources", metavar="SOURCE", type=Path, nargs="+", help="files to read, also .gz and .bz2")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder of the corpus")
    parser.add_argument(
        "--exclude",
        metavar="FILE",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        help="test and validation data: none of its sentences enters, whatever their case and spacing",
    )
    parser.add_argument(
        "--exclude-overlap",
        metavar="SHARE",
        type=float,
        default=0.5,
        help="a sentence with this share of the 8-word runs of an excluded one stays out too (default: 0.5); "
        "1: all of them, 0: near-duplicates may enter",
    )
    parser.add_argument("--add", action="store_true", help="add the sources to the corpus that is there")
    parser.add_argument(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="go on with an unfinished build (default), or give it up and begin anew",
    )
    parser.add_argument(
        "--max-pairs",
        metavar="N",
        type=int,
        default=12,
        help="ordered entity pairs that one sentence gives, closest first (default: 12); JSONL rows are single pairs",
    )
    parser.add_argument(
        "--max-tokens", metavar="N", type=int, default=250, help="longer sentences are dropped (default: 250)"
    )
    parser.add_argument("--format", metavar="NAME", help="jsonl, wikipedia, documents or text (default: by file name)")
    parser.add_argument("--names", metavar="FILE", type=Path, help="plain text: entity names, one a line [tab id]")
    parser.add_argument("--spacy", metavar="MODEL", help="plain text: a spaCy pipeline that finds the entities")
    parser.add_argument("--workers", metavar="N", type=int, default=1, help="processes for wikitext (default: 1)")
    parser.add_argument("--memory", metavar="SIZE", default="2GB", help="what sorting may use (default: 2GB)")
    parser.set_defaults(handler=build)


def build(options: argparse.Namespace) -> int:
    """Build and print what entered and what was dropped."""
    from erda.corpus.build import BuildSettings, build_corpus
    from erda.corpus.sources import Limits, SourceSettings

    reading = SourceSettings(format=options.format, names=options.names, spacy=options.spacy, n_workers=options.workers)
    report = build_corpus(
        options.sources,
        options.out,
        exclude=options.exclude,
        exclude_overlap=options.exclude_overlap,
        settings=BuildSettings(
            limits=Limits(max_pairs=options.max_pairs, max_tokens=options.max_tokens),
            reading=reading,
            memory=options.memory,
        ),
        add=options.add,
        resume=options.resume,
        show=lambda line: print(line, file=sys.stderr),
    )
    _print_report(report, options.out)
    return 0


def _print_report(report: BuildReport, folder: Path) -> None:
    from erda.corpus.manifest import Manifest

    manifest = report.manifest
    if report.repaired:
        print(f"Repaired: {', '.join(report.repaired)}.")
    if not report.n_added:
        print(f"{folder}: complete, nothing to do ({manifest.n_rows:,} rows, every file checked).")
        return
    print(f"{folder}: {manifest.n_rows:,} rows, {report.n_added:,} of them new, version {manifest.digest[:12]}.")
    latest = Manifest((manifest.segments[-1],)).dropped
    if latest:
        print("Left out, by reason:")
    places: dict[str, str] = {}
    for source in manifest.segments[-1].sources:
        for reason, shown in source.places.items():
            places.setdefault(reason, shown[0])
    for reason, n in latest.items():
        print(f"  {n:>12,}  {reason}" + (f"  (first: {places[reason]})" if reason in places else ""))
