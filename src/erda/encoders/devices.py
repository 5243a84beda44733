"""Where tensors are: the names that `--device` takes, and what a device that is full says."""

from __future__ import annotations

import re

from erda.errors import SettingsError

_NAMES = re.compile(r"cpu|cuda(:(?P<number>\d+))?")
_FULL = ("out of memory", "can't allocate memory")  # CUDA's words, and those of PyTorch's allocator on a CPU


def device_kind(device: str) -> str:
    """`cpu` or `cuda`; any other name is refused. Whether such a device is here is not looked at."""
    if not _NAMES.fullmatch(device):
        raise SettingsError(f"device: '{device}' is none that erda runs on. Known: cpu, cuda, cuda:0, cuda:1, ...")
    return device.partition(":")[0]


def check_device(device: str) -> None:
    """Refuse a device that is none, or that this machine does not have."""
    if device_kind(device) == "cpu":
        return
    import torch

    if not torch.cuda.is_available():
        raise SettingsError(
            f"device: '{device}' was asked for, but PyTorch sees no CUDA device here. Use --device cpu."
        )
    found, n_devices = _NAMES.fullmatch(device), torch.cuda.device_count()
    if found and int(found["number"] or 0) >= n_devices:
        raise SettingsError(f"device: '{device}' was asked for, but there are {n_devices}: cuda:0 to {n_devices - 1}.")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the machine or a GPU ran out of memory."""
    if isinstance(error, RuntimeError):
        return any(text in str(error).lower() for text in _FULL)
    return isinstance(error, MemoryError)
