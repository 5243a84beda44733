"""The exceptions of `erda`, and the wording of their messages.

A message says where the fault is, what is wrong, what was expected, what was found and what to do. The command line
prints the message without a traceback and exits with status 2.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

SHOWN_FAULTS = 20
MANY = 12  # longer lists of names are not shown if one name is close
LONGEST = 100  # characters of a name in a message
# control characters except tab and line break, changes of writing direction, surrogates
_STEERING = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory")  # from CUDA, and from PyTorch's CPU allocator
EXTRAS = {  # module -> the extra of this package that installs it
    **dict.fromkeys(("duckdb", "faiss", "mwparserfromhell"), "corpus"),
    **dict.fromkeys(("jinja2", "markupsafe", "matplotlib", "scipy"), "report"),
    **dict.fromkeys(("torch", "transformers", "numba", "pyarrow", "huggingface_hub", "pebble"), "train"),
    "tabulate": "train",  # also in `report`
    "optuna": "search",
    **dict.fromkeys(("fastapi", "starlette", "uvicorn", "prometheus_client"), "serve"),
    **dict.fromkeys(("networkx", "rdflib"), "graph"),
    "mcp": "mcp",
    "ray": "ray",
    "spacy": "entities",
    "openpyxl": "excel",
}


class ErdaError(Exception):
    """A fault that the user can fix. Only its text is shown."""


class DataError(ErdaError):
    """Invalid data: a file, an example or a relation."""


class BusyError(DataError):
    """Another process holds the lock for too long; the same call can succeed later."""


class SettingsError(ErdaError):
    """An unknown setting, flag or name, or an invalid value."""


class StreamError(ErdaError):
    """A stream of tasks that cannot be built, or a task that cannot be learned."""


class ModelError(ErdaError):
    """Weights, vectors or a saved method that are missing, damaged or of the wrong kind."""


class RecordError(ErdaError):
    """A record that cannot be read, or records that must not be compared."""


class WriteError(ErdaError):
    """A failed write (full disk, no permission). The previous content is intact."""


def require(*modules: str) -> None:
    """Raise if a module of an optional extra is not installed."""
    if missing := [module for module in modules if find_spec(module) is None]:
        raise ErdaError(not_installed(missing))


def not_installed(modules: Iterable[str]) -> str:
    """Say which extras install missing modules."""
    names = sorted(modules)
    extras = ",".join(sorted({EXTRAS[name] for name in names}))
    return f"{', '.join(names)}: not installed, but required here. Run: pip install 'erda[{extras}]'"


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Say that a name is unknown, suggest the closest known name, and list all names unless there are many.

    >>> unknown_name("method", "erdaa", ["erda", "emr"])
    "Unknown method 'erdaa'. Did you mean 'erda'? Known: emr, erda."
    """
    names = sorted(map(one_line, known))
    name = one_line(name if len(name) <= LONGEST else f"{name[:LONGEST]}...")
    hint = did_you_mean(name, names)
    return f"Unknown {kind} '{name}'.{hint}" + ("" if hint and len(names) > MANY else f" Known: {', '.join(names)}.")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest the closest known name, ignoring case; return an empty text if no name is close.

    >>> did_you_mean("MinLM", ["bilstm", "minilm"])
    " Did you mean 'minilm'?"
    """
    folded = {one.casefold(): one for one in known}
    near = difflib.get_close_matches(name.casefold(), folded, n=1)
    return f" Did you mean '{folded[near[0]]}'?" if near else ""


def printable(text: str) -> str:
    """Escape every character that could control a terminal, as in `\\x1b`; tabs and line breaks stay."""
    return re.sub(_STEERING, lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Escape control characters and line breaks, so that a name cannot forge a line of output."""
    return printable(text).replace("\n", "\\n")


def counted(n: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def merge_faults(faults: Iterable[str]) -> list[str]:
    """Group faults of the form `owner: message` by message, ignoring the order of lines in a message.

    >>> merge_faults(["erda 100: no data", "erda 110: no data", "emr 100: no weights"])
    ['erda 100, erda 110: no data', 'emr 100: no weights']
    """
    merged: dict[tuple[str, ...], tuple[str, dict[str, None]]] = {}
    for fault in faults:
        owner, _, text = fault.partition(": ")
        merged.setdefault(tuple(sorted(text.splitlines())), (text, {}))[1][owner] = None
    return [f"{', '.join(owners)}: {text}" for text, owners in merged.values()]


def join_faults(faults: Sequence[str], *, total: int | None = None) -> str:
    """Join faults into one message: the first twenty and the total."""
    total = len(faults) if total is None else total
    shown = list(faults[:SHOWN_FAULTS])
    if total > len(shown):
        shown.append(f"... and {total - len(shown)} more ({total} in all).")
    return "\n".join(shown)


@contextmanager
def memory_faults_explained(said: str) -> Iterator[None]:
    """Raise 'out of memory' of the machine or of a GPU as an error that says what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(text in str(error).lower() for text in _OUT_OF_MEMORY):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ErdaError(f"{said} ({reason})") from error
