"""Shared parts of the extractor commands: options, the store, input files, progress bars, keys."""

from __future__ import annotations

import argparse
import os
import select
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Any

from erda.cli.checking import named_path
from erda.cli.printing import print_line
from erda.errors import DataError, ErdaError, counted, one_line

if TYPE_CHECKING:
    from erda.app.extractor import Extractor
    from erda.app.store import Store

STORE = "my-extractor"
STANDARD_INPUT = "-"
SILENCE = 10.0  # seconds between two lines of progress in a log


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the option that selects the extractor."""
    about = f"folder of the extractor (default: $ERDA_STORE, else {STORE})"
    parser.add_argument("--store", type=named_path, metavar="DIR", default=default_store(), help=about)


def command(options: argparse.Namespace, words: str) -> str:
    """A command to suggest to the user, with `--store` where the store is not the default one."""
    is_default = options.store == default_store()
    return f"erda {words}" + ("" if is_default else f" --store {shlex.quote(str(options.store))}")


def default_store() -> Path:
    """The store of commands that name none."""
    return Path(os.environ.get("ERDA_STORE") or STORE)


def add_rows(parser: argparse.ArgumentParser, *, labelled: bool = True) -> None:
    """Add the options of a file of rows; `labelled` rows name relations."""
    formats = "brat, cfrl, csv, fewrel, jsonl, labelstudio, marked, prodigy or tacred (default: detected)"
    parser.add_argument("--format", metavar="NAME", help=formats)
    add_columns(parser, "text=sentence,head=subject,tail=object" + (",relation=label" if labelled else ""))
    if labelled:
        text = "a name in the file that means 'no relation', for example Other (may be repeated)"
        parser.add_argument("--no-relation", metavar="NAME", action="append", default=[], help=text)


def add_columns(parser: argparse.ArgumentParser, example: str) -> None:
    """Add the option that names the columns of a table."""
    about = f"columns of a table (CSV), for example {example}"
    parser.add_argument("--columns", type=_columns, metavar="NAME=COLUMN,...", help=about)


def _columns(text: str) -> dict[str, str]:
    pairs = [tuple(part.strip() for part in one.partition("=")) for one in text.split(",")]
    if any(not (name and sign and column) for name, sign, column in pairs):
        raise argparse.ArgumentTypeError("expected NAME=COLUMN,NAME=COLUMN, as in text=sentence,relation=label.")
    return {name: column for name, _, column in pairs}


def chosen(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The values of some options, for a function whose parameters have the same names."""
    return {name: getattr(options, name) for name in names}


def add_overwrite(parser: argparse.ArgumentParser) -> None:
    """Add the option that permits an existing output file to be replaced."""
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if it exists")


def open_store(options: argparse.Namespace, *, create: bool = False, **asked: Any) -> Extractor:
    """Open the selected extractor; only `create` permits a new one."""
    if not create:
        stored(options)
    from erda.app.extractor import Extractor

    return Extractor.open(options.store, **asked)


def stored(options: argparse.Namespace) -> Store:
    """Open the store of the selected extractor, without loading a model."""
    from erda.app.store import Store
    from erda.files import user_path

    store = Store(user_path(options.store))
    if not store.exists():
        begin = command(options, "teach RELATION SENTENCE ...")
        raise DataError(f"There is no extractor in {options.store} yet. Create one: {begin}")
    return store


@contextmanager
def input_file(given: str, *, plain: bool = False) -> Iterator[Path]:
    """Yield a file to read; standard input (`-`), a pipe or a sentence (`plain`: without marks) is copied into one."""
    is_sentence = _is_sentence(given, plain=plain)
    is_pipe = not is_sentence and Path(given).is_fifo()  # as <(command) in a shell
    if given != STANDARD_INPUT and not is_sentence and not is_pipe:
        yield Path(given)
        return
    if given == STANDARD_INPUT and sys.stdin is None:
        raise DataError("Standard input is closed; name a file.")
    if given == STANDARD_INPUT and sys.stdin.isatty():
        print_line("Reading from the terminal; end with Ctrl-D.", file=sys.stderr)
    shown = "sentence" if is_sentence else given if is_pipe else "standard input"
    with TemporaryDirectory() as folder, ExitStack() as stack:
        copy = Path(folder) / ("sentence" if is_sentence else "stdin")
        source: Any = BytesIO(os.fsencode(given)) if is_sentence else sys.stdin.buffer
        with copy.open("wb") as file:
            shutil.copyfileobj(stack.enter_context(Path(given).open("rb")) if is_pipe else source, file)
        try:
            yield copy
        except ErdaError as fault:
            raise type(fault)(str(fault).replace(str(copy), shown)) from None


def _is_sentence(given: str, *, plain: bool) -> bool:
    """Whether an argument is a sentence, not a file name: it has marks, or several words and no file ending."""
    if not given.strip():
        raise DataError("FILE: expected a name or a sentence, got nothing.")
    if given == STANDARD_INPUT or os.path.exists(given):  # noqa: PTH110 (False for text that is too long for a name)
        return False
    ending, has_marks = Path(given).suffix, "[[" in given or "{{" in given
    has_words = " " in given and (not ending or " " in ending)
    if has_words and not (plain or has_marks):
        raise DataError(
            f"{given[:80]}: no such file. In a sentence, mark both entities: [[Tesla]] was founded by {{{{Eberhard}}}}."
        )
    return has_marks or has_words


@contextmanager
def progress_bar(about: str, *, unit: str = "it") -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal, else a line on stderr every ten seconds; yield a function of (done, total)."""
    from tqdm import tqdm

    with tqdm(desc=one_line(about), disable=None, unit=f" {unit}") as bar:
        said = monotonic()

        def progress(done: int, total: int) -> None:
            nonlocal said
            if bar.disable and monotonic() - said >= SILENCE:
                print_line(f"{about}: {done:,} of {total:,}", file=sys.stderr, flush=True)
                said = monotonic()
            bar.total = total
            bar.update(done - bar.n)

        yield progress


def say_what_changed(options: argparse.Namespace, before: int) -> None:
    """Print what the current version changed, if it is new, and its counts."""
    now = stored(options).current()
    print_line(f"Version {now.number}: {now.what}." if now.number != before else "Nothing new.")
    say_what_is_known(options)


def say_what_is_known(options: argparse.Namespace) -> None:
    """Print the counts of the current version."""
    from erda.text.descriptions import patterns_of

    store = stored(options)
    now = store.current()
    n_patterns = sum(len(patterns_of(one.relation.description)) for one in store.content().known)
    more = {"pattern": n_patterns, "counterexample": now.n_counterexamples}
    *some, last = [counted(now.n_examples, "example"), *(counted(n, what) for what, n in more.items() if n)]
    source = f"{', '.join(some)} and {last}" if some else last
    model = f", encoder in the folder {now.encoder}" if Path(now.encoder).is_absolute() else ""
    relations = counted(now.n_relations, "relation")
    print_line(f"{store.folder} knows {relations} from {source} (version {now.number}{model}).")


# -- keys --------------------------------------------------------------------------------------------------------------


def on_terminal() -> bool:
    """Whether a person can answer: standard input, which may be closed, is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


@contextmanager
def keys() -> Iterator[Callable[[], str]]:
    """Yield a function that reads the next command: a key on a terminal, otherwise a line."""
    if os.name == "nt" or not on_terminal():
        yield _line
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield lambda: _key(terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _line() -> str:
    line = sys.stdin.readline() if sys.stdin else ""
    return line.strip() or "?" if line else "q"


def _key(terminal: int) -> str:
    """Read a key; the rest of an escape sequence (an arrow key) is dropped."""
    read = os.read(terminal, 1)
    if read == b"\x1b":
        while select.select([terminal], [], [], 0.01)[0]:
            os.read(terminal, 32)
        return "?"
    return "q" if read in (b"", b"\x04") else read.decode(errors="ignore")
