"""`erda corpus`: build an unlabelled corpus and look into it; one file a few commands, one table of them."""

from __future__ import annotations

import argparse

from erda.cli import corpus_augment, corpus_build, corpus_index, corpus_look, corpus_narrow, corpus_train

COMMANDS = (
    corpus_build,
    corpus_look,
    corpus_train,
    corpus_index,
    corpus_augment,
    corpus_narrow,
)  # each adds its commands by `add_commands`


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the group `corpus` to the command line."""
    about = "Build a corpus of unlabelled text with tagged entities, and look into it."
    group = subparsers.add_parser(
        "corpus",
        help=about,
        description=about,
        epilog="examples:\n  erda corpus build tagged.jsonl.gz --out corpora/mine\n  erda corpus stats corpora/mine\n\n"
        "`erda corpus COMMAND --help` says more about a command; docs/corpus.md shows the whole path.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.add_commands(commands)
