"""Driver process of `test_ray_engine.py`: run jobs on a cluster and write their outcomes as JSON.

Ray reads the cluster's token from the environment at import time, so the test process cannot be the driver.
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

    if number in {1, 2}:  # wait for each other: with one CPU per node they run on two nodes
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
        raise ValueError("an unexpected error")
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
