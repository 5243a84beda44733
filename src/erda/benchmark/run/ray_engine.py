"""Execution of jobs on a Ray cluster, one Ray task per job; `engines.py` holds the local engines.

`erda` must be installed on every node. Nodes need not share storage with the driver, but data given by a path (a custom
dataset, a corpus, a model folder) must exist under the same path on every node.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from erda import __version__
from erda.benchmark.run.engines import Outcome, Result, Work, unexpected
from erda.cluster import connected
from erda.errors import ErdaError, SettingsError

TASK = "erda-run"  # name of a job in Ray's tools


@dataclass(frozen=True, slots=True)
class _Driver:
    """State of the driver that a worker copies, so that relative paths resolve alike."""

    version: str = __version__
    folder: str = field(default_factory=os.getcwd)
    variables: dict[str, str] = field(
        default_factory=lambda: {name: value for name, value in os.environ.items() if name.startswith("ERDA_")}
    )


def run_on_ray(
    function: Callable[[Work], Result],
    works: Sequence[Work],
    *,
    address: str | None,
    n_cpus_each: int = 1,
    n_gpus_each: int = 0,
    n_at_once: int | None = None,
) -> Iterator[Outcome[Work, Result]]:
    """Run as many jobs in parallel as the cluster can hold, or `n_at_once`; nodes must be able to import `function`.

    `address` is "auto", HOST:PORT, or None for a cluster on this machine. A worker or node that dies fails only its own
    job.
    """
    if not works:
        return
    with connected(address) as ray:
        _check_room(ray, n_cpus_each, n_gpus_each)
        task = ray.remote(_run_on_node).options(
            name=TASK, num_cpus=n_cpus_each, num_gpus=n_gpus_each, max_retries=0, scheduling_strategy="SPREAD"
        )
        driver, waiting = _Driver(), iter(works)
        running: dict[Any, Work] = {}
        try:
            while True:
                for work in islice(waiting, None if n_at_once is None else n_at_once - len(running)):
                    running[task.remote(function, work, driver)] = work
                if not running:
                    break
                (done, *_), _ = ray.wait(list(running), num_returns=1)
                yield _receive(ray, done, running.pop(done))
        finally:
            for unfinished in running:
                with suppress(Exception):  # the cluster may be gone
                    ray.cancel(unfinished, force=True)


def _check_room(ray: Any, n_cpus: int, n_gpus: int) -> None:
    """Reject a job that fits no node: Ray would wait forever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(node.get("CPU", 0) >= n_cpus and node.get("GPU", 0) >= n_gpus for node in nodes):
        raise SettingsError(
            f"no node of the Ray cluster has {n_cpus} CPU and {n_gpus} GPU for a run ({len(nodes)} nodes)."
        )


def _receive(ray: Any, done: Any, work: Work) -> Outcome[Work, Any]:
    try:
        result, fault = ray.get(done)
    except ray.exceptions.RayTaskError as error:
        print(error, file=sys.stderr)
        return Outcome(work, None, unexpected(error.cause))
    except ray.exceptions.RayError as error:
        reason = (str(error).splitlines() or [""])[0]
        message = f"its worker was killed; is there too little memory? ({type(error).__name__}: {reason})"
        return Outcome(work, None, ErdaError(message))
    return Outcome(work, result, fault)


def _run_on_node(function: Callable[[Any], Any], work: Any, driver: _Driver) -> tuple[Any, ErdaError | None]:
    node = socket.gethostname()
    if driver.version != __version__:
        return None, ErdaError(f"node {node} has erda {__version__}, not {driver.version} as here.")
    os.environ.update(driver.variables)
    if Path(driver.folder).is_dir():
        os.chdir(driver.folder)
    try:
        return function(work), None
    except ErdaError as fault:
        return None, type(fault)(f"{fault} (on node {node})")
