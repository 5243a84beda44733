"""What `test_ray_engine.py` runs in a process of its own: pieces of work on a cluster, the outcomes as JSON.

Ray reads its environment (the token of the cluster) when it is imported, so the process of the tests cannot do it.
"""

import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

from erda.benchmark.run.ray_engine import run_on_ray
from erda.errors import DataError, ErdaError


def double(meeting: Path, number: int) -> list[object]:
    import ray

    if number in {1, 2}:  # each waits for the other: with one CPU a node, the two are then on two nodes
        (meeting / f"{number}.begun").touch()
        for _ in range(600):
            if (meeting / f"{3 - number}.begun").exists():
                break
            time.sleep(0.1)
    if number == 3:
        raise DataError("three is bad")
    if number == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 5:
        raise ValueError("a mistake of ours")
    return [2 * number, os.environ.get("ERDA_DATA"), str(Path.cwd()), ray.get_runtime_context().get_node_id()]


def main(address: str, out: str) -> None:
    os.environ["ERDA_DATA"] = "here"
    works, work = [1, 2, 3, 4, 5, 6, 7], partial(double, Path(out).parent)
    found: dict[str, object] = {
        str(one.work): [one.result, type(one.fault).__name__, str(one.fault)]
        for one in run_on_ray(work, works, address=address)
    }
    try:
        list(run_on_ray(work, [1], address=address, n_cpus_each=50))
    except ErdaError as fault:
        found["too large"] = str(fault)
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
