"""The machine of a run: peak memory and versions."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

from erda import __version__

PACKAGES = ("torch", "transformers", "numpy")


def peak_memory_mb() -> float:
    """Peak memory of this process in MB, without GPU memory."""
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)


def versions() -> dict[str, str]:
    """Versions of Python, erda, its commit and the packages that affect results."""
    machine = f"{platform.system()} {platform.machine()}"
    found = {"python": platform.python_version(), "machine": machine, "erda": __version__, "commit": commit()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


@cache
def commit() -> str:
    """Commit of the checkout that erda runs from, with "+" if files differ from it; "" outside a checkout.

    `ERDA_COMMIT` names it where the checkout has no history, for example in a container.
    """
    if "ERDA_COMMIT" in os.environ:
        return os.environ["ERDA_COMMIT"]
    folder = Path(__file__).resolve().parent
    if not (folder.parents[3] / ".git").exists():
        return ""
    git = ["git", "-C", str(folder), "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(git, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def wait_for_device(device: str) -> None:
    """Synchronize a GPU, so that its time is charged to the right step."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize(device)
