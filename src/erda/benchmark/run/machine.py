"""What the machine says about a run: memory, versions, and 'out of memory' in words."""

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
    """The most memory this process ever held, in MB; with a GPU it does not count the GPU's own."""
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    machine = f"{platform.system()} {platform.machine()}"
    found = {"python": platform.python_version(), "machine": machine, "erda": __version__}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def wait_for_device(device: str) -> None:
    """Let a GPU finish, so that seconds are charged where they belong."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize(device)


@contextmanager
def memory_faults_explained(asked: Run) -> Iterator[None]:
    """Turn 'out of memory' of the machine or of a GPU into a message that says what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise ErdaError(
            f"{asked.title}: out of memory on {asked.device}. The tasks before are kept; "
            "give the same command again with more memory, fewer --jobs, or a smaller encoder into another --out."
        ) from error
