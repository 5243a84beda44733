"""Device names, and out-of-memory errors."""

import pytest
import torch

from erda.encoders.devices import check_device, device_kind, is_out_of_memory
from erda.errors import SettingsError


def test_device_kind() -> None:
    assert [device_kind(name) for name in ("cpu", "cuda", "cuda:3")] == ["cpu", "cuda", "cuda"]
    with pytest.raises(SettingsError, match=r"device: unknown device 'xpu'\. Known: cpu, cuda, cuda:0"):
        device_kind("xpu")


def test_missing_gpus_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("the CPU needs no look at GPUs"))
    check_device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingsError, match="PyTorch finds no CUDA device for 'cuda'"):
        check_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name in ("cuda", "cuda:0", "cuda:1"):
        check_device(name)
    with pytest.raises(SettingsError, match="no 'cuda:2'; this machine has cuda:0 to cuda:1"):
        check_device("cuda:2")


def test_is_out_of_memory() -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."))
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shape mismatch"))
    assert not is_out_of_memory(ValueError("out of memory"))
