"""Connecting to Ray: what is said where there is none."""

from __future__ import annotations

import socket
import sys
import time

import pytest

from erda.cluster import connected, require_ray
from erda.errors import SettingsError


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingsError, match=r"pip install 'erda\[ray\]'"):
        require_ray()
    with pytest.raises(SettingsError, match=r"pip install 'erda\[ray\]'"), connected("auto"):
        pass


def test_an_address_that_does_not_answer_is_said_at_once() -> None:
    pytest.importorskip("ray", reason="Ray is an extra: pip install 'erda[ray]'")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))  # taken, but nobody listens
        address = f"127.0.0.1:{found.getsockname()[1]}"
        start = time.monotonic()
        with pytest.raises(SettingsError, match=f"no Ray cluster at '{address}'"), connected(address):
            pass
    assert time.monotonic() - start < 30  # Ray alone takes minutes, and then ends the process


def test_a_port_that_is_none_is_said() -> None:
    pytest.importorskip("ray", reason="Ray is an extra: pip install 'erda[ray]'")
    with pytest.raises(SettingsError, match=r"no Ray cluster at '127[.]0[.]0[.]1:99999'"), connected("127.0.0.1:99999"):
        pass
