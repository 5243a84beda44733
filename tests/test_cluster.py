"""Connecting to Ray where it is not installed or does not run."""

import socket
import sys

import pytest

from erda.cluster import connected
from erda.errors import ErdaError, SettingsError


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ErdaError, match=r"pip install 'erda\[ray\]'"), connected("auto"):
        pass


@pytest.mark.timeout(120)  # Ray alone tries for minutes and then ends the process
@pytest.mark.parametrize("port", ["taken, but nobody listens", "99999"])
def test_an_address_that_does_not_answer_is_rejected(port: str) -> None:
    pytest.importorskip("ray", reason="Ray is an extra: pip install 'erda[ray]'")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{port if port.isdigit() else found.getsockname()[1]}"
        with pytest.raises(SettingsError, match=f"no Ray cluster at '{address}'"), connected(address):
            pass
