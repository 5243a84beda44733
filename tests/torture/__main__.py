"""Torture `erda`: kills, damage, full disks, several processes, hostile names, files of the user, backups put back.

python tests/torture                    # everything: about 25 minutes on two cores
python tests/torture --scale 0.05       # a twentieth of it
python tests/torture --only damage      # one trial
python tests/torture --minutes 10       # as many cases as fit; the table counts those tried
python tests/torture --replay FOLDER    # one failing case again, from the folder that was written for it

Exit status 1 where a command ended in a traceback, answered wrongly in silence, or lost something of the user's.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any

from backups import backup_trial
from changes import change_trials
from damage import damage_trial
from kills import kill_trials
from names import name_trial
from ownership import ownership_trials
from processes import freeze, warm_up
from sharing import sharing_trials
from toys import make_toys
from trial import Runner, Trial

TRIALS: dict[str, Callable[[Path, Path], list[Trial]]] = {
    "kills": kill_trials,
    "damage": lambda toys, work: [damage_trial(toys, work)],
    "sharing": sharing_trials,
    "names": lambda toys, work: [name_trial(toys, work)],
    "ownership": ownership_trials,
    "backups": lambda toys, work: [backup_trial(toys, work)],
    "changes": change_trials,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trials that were asked for."""
    options = _parser().parse_args(arguments)
    options.failures = options.failures.resolve()  # the trials change the working directory
    again = options.replay and _recorded(options.replay)
    seed = again["seed"] if again else random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    print(f"seed {seed}, scale {options.scale:g}", flush=True)
    began = time.monotonic()
    warm_up()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the folder is removed
    work = Path(tempfile.mkdtemp(prefix="erda-torture-", dir=options.work or _memory()))
    try:
        make_toys(work / "toys")
        freeze()
        runner = Runner(
            seed=seed,
            toys=work / "toys",
            work=work,
            failures=options.failures,
            jobs=options.jobs,
            until=began + 60 * options.minutes,
        )
        trials = {trial.name: trial for name in options.only or TRIALS for trial in TRIALS[name](work / "toys", work)}
        if again and again["trial"] not in trials:
            raise SystemExit(f"{options.replay}: unknown trial '{again['trial']}'.")
        if again:
            verdict = runner.replay(trials[again["trial"]], again["number"], options.replay.resolve() / "input")
            print(f"{verdict.kind}: {verdict.why}")
            return int(verdict.kind != "clear")
        try:
            for trial in (one for name, one in trials.items() if options.match in name):
                runner.run(trial, max(1, round(trial.n * options.scale)), first=options.first)
        finally:  # also after Ctrl-C and SIGTERM
            print("\n".join((runner.table(), *runner.unfinished(), *runner.why())), flush=True)
        if runner.failed:
            print(f"failing cases: {options.failures} (again: --replay {options.failures}/NAME)")
        return int(runner.failed or not runner.n_tried)
    finally:
        gc.unfreeze()  # else libraries report leaks at the exit
        shutil.rmtree(work, ignore_errors=True)


def _memory() -> Path | None:
    """A file system in memory with enough space; a container often has 64 MB."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > 2 << 30 else None


def _recorded(folder: Path) -> dict[str, Any]:
    """The record of a failing case."""
    try:
        found = json.loads((folder / "case.json").read_text())
        return {"trial": str(found["trial"]), "number": int(found["number"]), "seed": int(found["seed"])}
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise SystemExit(f"{folder}: not the folder of a failing case ({type(fault).__name__}: {fault}).") from None


def _positive(text: str) -> float:
    if not float(text) > 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}.")
    return float(text)


def _count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {text}.")
    return int(text)


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is not a folder.")
    return Path(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=_positive, default=1.0, metavar="X", help="share of the cases (default: 1)")
    parser.add_argument("--seed", type=int, metavar="N", help="default: another one each time; it is printed")
    parser.add_argument("--only", nargs="+", choices=TRIALS, metavar="TRIAL", help=f"of {', '.join(TRIALS)}")
    parser.add_argument("--match", default="", metavar="TEXT", help="trials whose name contains this: 'in predict'")
    parser.add_argument(
        "--jobs", type=_count, default=os.cpu_count() or 1, metavar="N", help="at once (default: cores)"
    )
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with case N (default: 0)")
    parser.add_argument("--minutes", type=_positive, default=inf, metavar="M", help="start no case after M minutes")
    parser.add_argument("--work", type=_folder, metavar="DIR", help="where to work (default: memory, else /tmp)")
    failures = Path("torture-failures")
    parser.add_argument("--failures", type=Path, default=failures, metavar="DIR", help=f"default: {failures}")
    parser.add_argument("--replay", type=_folder, metavar="FOLDER", help="try a failing case again")
    return parser


if __name__ == "__main__":
    sys.exit(main())
