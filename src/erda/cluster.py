"""Connecting to a Ray cluster: one that runs already, or one of this machine alone. Ray is imported only here."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from erda.errors import SettingsError

LOCAL = "local"
ANSWER_SECONDS = 10


def require_ray(module: str = "ray") -> Any:
    """The module of Ray's, or what to install."""
    try:
        return import_module(module)
    except ImportError:
        message = "--engine ray needs Ray, which is not installed: pip install 'erda[ray]'."
        raise SettingsError(message) from None


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """The module `ray`, connected for the time of a job. `address` is "auto", HOST:PORT, or "local" or None.

    A connection that the caller has opened already is used and left open.
    """
    ray = require_ray()
    if ray.is_initialized():
        yield ray
        return
    local = address in (None, LOCAL)
    if local:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster of ours tells nobody
    else:
        _check_answer(str(address))
    try:
        ray.init(
            address=LOCAL if local else address,
            log_to_driver=False,
            logging_level="error",
            **({"include_dashboard": False} if local else {}),
        )
    except (OSError, ValueError, RuntimeError, SystemExit, ray.exceptions.RayError) as error:
        raise _no_cluster(address or LOCAL, error) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_answer(address: str) -> None:
    """Fail at once where nobody listens: Ray would try for minutes and then end the process."""
    host, sign, port = address.rpartition(":")
    if not sign or "//" in address or not port.isdigit():
        return  # "auto", or a form that Ray knows and we do not
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, error) from None


def _no_cluster(address: str, error: BaseException) -> SettingsError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return SettingsError(
        f"no Ray cluster at '{address}' ({reason}). Start one with 'ray start --head' and give its HOST:PORT, "
        "or use --address local."
    )
