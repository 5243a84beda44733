"""`python -m erda` and the command `erda`."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from contextlib import suppress

GARBAGE_AT = 50_000  # new objects between two collections of garbage; imports alone create about 200,000


def main() -> int:
    """Run the command line; then leave without freeing memory piece by piece."""
    gc.set_threshold(GARBAGE_AT)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # a search through all installed packages
    from erda.cli.main import main as run

    status = run(sys.argv[1:])
    if threading.active_count() == 1:
        _leave(status)
    return status


def _leave(status: int) -> None:
    """End the process at once; freeing the objects of NumPy and ONNX Runtime first takes 0.1 s."""
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError, AttributeError):  # no output, or a reader that is gone
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
