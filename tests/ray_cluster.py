"""A real Ray cluster of two nodes on loopback, for tests of the engines that use one."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent


@contextmanager
def two_nodes() -> Iterator[tuple[str, dict[str, str]]]:
    """Address and environment of two nodes with one CPU each; all that they start and write goes with them."""
    pytest.importorskip("ray", reason="Ray is an extra: pip install 'erda[ray]'")
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets need a short path
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # for us alone
    environment = {**os.environ, **token, "OMP_NUM_THREADS": "1"}
    common = ["--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats", "--node-ip-address=127.0.0.1"]
    head = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}"]
    try:
        for role in (head, [f"--address=127.0.0.1:{port}"]):
            run_command([str(BIN / "ray"), "start", *role, *common], environment)
        yield f"127.0.0.1:{port}", environment
    finally:
        for process in processes_with(folder):  # `ray stop` would stop every other cluster of this machine too
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def run_command(command: list[str], environment: Mapping[str, str]) -> str:
    """What a command printed; it must end well."""
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def processes_with(text: str, *, what: str = "cmdline") -> list[int]:
    """Processes with this text in their command line (or their `environ`)."""
    found = []
    for path in Path("/proc").glob(f"[0-9]*/{what}"):
        with suppress(OSError):
            if text.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found
