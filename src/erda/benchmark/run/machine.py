"""The machine of a run: peak memory, versions, and a readable out-of-memory error."""

from __future__ import annotations

import platform
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from erda import __version__
from erda.encoders.devices import is_out_of_memory
from erda.errors import ErdaError
from erda.settings.runs import Run

PACKAGES = ("torch", "transformers", "numpy")


def peak_memory_mb() -> float:
    """Peak memory of this process in MB, without GPU memory."""
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)


def versions() -> dict[str, str]:
    """Versions of Python, erda and the packages that affect results."""
    machine = f"{platform.system()} {platform.machine()}"
    found = {"python": platform.python_version(), "machine": machine, "erda": __version__}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def wait_for_device(device: str) -> None:
    """Synchronize a GPU, so that its time is charged to the right step."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize(device)


@contextmanager
def memory_faults_explained(asked: Run) -> Iterator[None]:
    """Turn an out-of-memory error of the machine or a GPU into a message that says what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise ErdaError(
            f"{asked.title}: out of memory on {asked.device}. Earlier tasks are saved; "
            "repeat the command with more memory or fewer --jobs, or use a smaller encoder and another --out."
        ) from error
