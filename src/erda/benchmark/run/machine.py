"""The machine of a run: peak memory and versions."""

from __future__ import annotations

import platform
import resource
import sys
from importlib import metadata

from erda import __version__

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
