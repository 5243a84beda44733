"""Connect to a running Ray cluster, or start a local one."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from erda.errors import SettingsError, require

LOCAL = "local"
ANSWER_SECONDS = 10


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Connect for the duration of a job and yield the module `ray`.

    `address` is "auto", HOST:PORT, "local" or None (also local). An existing connection is reused and left open.
    """
    require("ray")
    import ray

    if ray.is_initialized():
        yield ray
        return
    local = address in (None, LOCAL)
    if local:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics
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
    """Fail fast if nothing listens: Ray would retry for minutes and then exit the process."""
    host, sign, port = address.rpartition(":")
    if not sign or "//" in address or not port.isdigit():
        return  # "auto", or another form that Ray accepts
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
