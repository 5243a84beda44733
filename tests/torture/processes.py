"""Run calls in processes forked from this one, which has already imported everything.

A fork takes a hundredth of a second and a new Python ten, so thousands of commands can be tried. A call is
`erda.cli.main.main(arguments)`, which is all that the command `erda` does, or a function of the library.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import re
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import RLock

from tqdm import tqdm

CRASHED = 70  # exit status of a child that ended in an exception
MEMORY = 8 << 30  # bytes that a child may ask for beyond what it has
PATIENCE = 600.0  # seconds until a child counts as hung; a busy machine takes minutes
_COLLAPSE = 25  # MADV_COLLAPSE
_UNUSED = ("__main__", "serve", "spacy_component")  # no command of the trial imports them
_THREADS = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "NUMBA")

Call = Sequence[str] | Callable[[], None]  # arguments of `erda`, or a function


@dataclass(frozen=True, slots=True)
class Answer:
    """Output and exit status of a command; a negative status is the number of the signal that ended it."""

    status: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Status, standard output and standard error as text."""
        return f"exit status {self.status}\n--- stdout\n{self.out}\n--- stderr\n{self.err}\n"


def warm_up() -> None:
    """Import everything that commands import, with one thread: locks of other threads stay locked after a fork."""
    os.environ |= {f"{name}_NUM_THREADS": "1" for name in _THREADS}
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "MPLBACKEND": "Agg", "COLUMNS": "120"}
    for name in ("ERDA_DATA", "ERDA_CACHE", "ERDA_DEBUG"):
        os.environ.pop(name, None)
    import torch

    torch.set_num_threads(1)
    source = Path(importlib.import_module("erda").__file__ or "").parent
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        if not any("ray" in part or part in _UNUSED for part in parts):
            importlib.import_module(".".join(parts).removesuffix(".__init__"))
    models = ("auto.modeling_auto", "auto.tokenization_auto", "bert.modeling_bert", "bert.tokenization_bert")
    others: tuple[str, ...] = ("duckdb", "faiss", "jinja2", "matplotlib.pyplot", "msgspec", "mwparserfromhell")
    others += ("pyarrow.pandas_compat", "sklearn.neighbors")
    for name in (*others, *(f"transformers.models.{model}" for model in models)):
        importlib.import_module(name)
    importlib.import_module("erda.app.answer_files").BATCH = 64  # type: ignore[attr-defined]  # few rows, many batches


def freeze() -> None:
    """Make forks cheap: exempt all memory so far from garbage collection, and let huge pages hold it if Linux can.

    A collection in a fork would copy all of it. A fork copies a table of all pages: 21 ms instead of 43.
    """
    gc.collect()
    gc.freeze()
    size = 2 << 20
    madvise = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text().splitlines():
        if found := re.match(r"(\w+)-(\w+) rw-p \w+ 00:00 0\s*(\[heap\])?$", line):
            start, end = -(-int(found[1], 16) // size) * size, int(found[2], 16) // size * size
            if start < end:
                madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _COLLAPSE)  # a refusal does no harm


class Child:
    """A call running in `folder`; `limit` bounds each file that it writes, in bytes."""

    def __init__(self, call: Call, folder: Path, *, limit: int | None = None) -> None:
        self.out, self.err = (folder.with_name(f"{folder.name}.{name}.{id(self):x}") for name in ("out", "err"))
        ours, theirs = os.pipe()
        self.began, self.seconds, self.status = time.monotonic(), 0.0, 0
        self.pid = os.fork()
        if not self.pid:
            os.close(ours)
            _live(call, self, folder, ready=theirs, limit=limit)
        os.close(theirs)
        os.read(ours, 1)  # wait until the child is ready
        os.close(ours)
        self.began = time.monotonic()

    @property
    def alive(self) -> bool:
        """Whether the process is still running."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def kill(self) -> Answer:
        """Kill the process at once, as the out-of-memory killer does."""
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self, patience: float = PATIENCE) -> Answer:
        """Wait for the end; return the answer."""
        process = os.pidfd_open(self.pid)
        if not select.select([process], [], [], max(0.0, self.began + patience - time.monotonic()))[0]:
            os.kill(self.pid, signal.SIGKILL)
        os.close(process)
        _, status = os.waitpid(self.pid, 0)
        self.seconds, self.status = time.monotonic() - self.began, os.waitstatus_to_exitcode(status)
        texts = [path.read_bytes().decode(errors="replace") for path in (self.out, self.err)]
        for path in (self.out, self.err):
            path.unlink()
        return Answer(self.status, *texts)


def ask(call: Call, folder: Path, *, limit: int | None = None, patience: float = PATIENCE) -> Answer:
    """Run a call in `folder` and return its answer."""
    return Child(call, folder, limit=limit).wait(patience)


def _live(call: Call, child: Child, folder: Path, *, ready: int, limit: int | None) -> None:
    """Run the call in the child process; never returns."""
    status = CRASHED
    try:
        for number, path in ((1, child.out), (2, child.err)):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(file, number)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        memory = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        tqdm.set_lock(RLock())  # tqdm's own lock is shared with all forks, and a killed one never releases it
        os.chdir(folder)
        os.close(ready)
        status = _status_of(call)
        sys.stdout.flush()
    except SystemExit as end:  # argparse
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _status_of(call: Call) -> int:
    from erda.cli.main import FAULT, main
    from erda.cli.printing import print_fault
    from erda.errors import ErdaError

    if not callable(call):
        sys.argv = ["erda", *call]
        return main(list(call))
    try:
        call()
    except (ErdaError, OSError) as fault:  # as `main` does
        print_fault(str(fault))
        return FAULT
    return 0
