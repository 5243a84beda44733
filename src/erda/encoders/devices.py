"""Names of devices, and out-of-memory errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from erda.errors import ErdaError, SettingsError

_NAMES = re.compile(r"cpu|cuda(:(?P<number>\d+))?")
_FULL = ("out of memory", "can't allocate memory")  # from CUDA, and from PyTorch's CPU allocator


def device_kind(device: str) -> str:
    """Return `cpu` or `cuda`, or reject the name. Does not check that the device exists."""
    if not _NAMES.fullmatch(device):
        raise SettingsError(f"device: unknown device '{device}'. Known: cpu, cuda, cuda:0, cuda:1, ...")
    return device.partition(":")[0]


def check_device(device: str) -> None:
    """Reject an unknown device, and a GPU that this machine does not have."""
    if device_kind(device) == "cpu":
        return
    import torch

    if not torch.cuda.is_available():
        raise SettingsError(f"device: PyTorch finds no CUDA device for '{device}'. Use --device cpu.")
    found, n_devices = _NAMES.fullmatch(device), torch.cuda.device_count()
    if found and int(found["number"] or 0) >= n_devices:
        raise SettingsError(f"device: no '{device}'; this machine has cuda:0 to cuda:{n_devices - 1}.")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the machine or a GPU ran out of memory."""
    if isinstance(error, RuntimeError):
        return any(text in str(error).lower() for text in _FULL)
    return isinstance(error, MemoryError)


@contextmanager
def memory_faults_explained(said: str) -> Iterator[None]:
    """Raise 'out of memory' of the machine or of a GPU as an error that says what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ErdaError(f"{said} ({reason})") from error
