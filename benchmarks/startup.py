"""Start-up cost of the extractor: size of the install, seconds of a command, memory, one question.

python benchmarks/startup.py                        commands, memory and one question, in this environment
python benchmarks/startup.py --encoder open-mpnet   the same over the larger encoder (erda data get open-mpnet)
python benchmarks/startup.py --python OLD/bin/python    the same commands of another environment, in turn
python benchmarks/startup.py install                builds the wheel and installs it into a fresh environment

Each command prints wall-clock seconds beside its target, and seconds of processor time, which a busy machine changes
less. Compare two environments in one run.
"""

from __future__ import annotations

import argparse
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

from targets import Figure, measure

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 7
N_RELATIONS, SHOTS = 100, 5
SENTENCE = "[[SpaceX]] was founded by {{Elon Musk}}."
COMMANDS = {  # arguments -> wall-clock seconds
    ("predict", SENTENCE): 1.0,
    ("relations",): 0.4,
    ("versions",): 0.4,
    ("versions", "--undo"): 0.4,
    ("forget", "relation 7"): 0.4,
    ("--help",): 0.2,
}
TEACH = f"""
import sys
from erda import Extractor
extractor = Extractor.open(sys.argv[1], encoder=sys.argv[2])
teach = getattr(extractor, "teach_many", extractor.teach)
sentence = "[[head {{0}} {{1}}]] has word {{0}} of {{{{{{{{tail {{1}}}}}}}}}}."
numbers = range({N_RELATIONS})
teach({{f"relation {{i}}": [sentence.format(i, j) for j in range({SHOTS})] for i in numbers}})
extractor.teach("founded by", ["{{{{Jobs}}}} founded [[Apple]] ."])
"""
ASK = """
import resource, statistics, sys, time
from erda import Extractor
extractor = Extractor.open(sys.argv[1])
extractor.predict("[[SpaceX]] was founded by {{Elon Musk}} .")
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
times, used = [], []
for number in range(200):
    start, began = time.perf_counter(), time.process_time()
    extractor.predict(f"[[Company {number}]] was set up in the year 2002 by its founder {{{{Elon Musk {number}}}}} .")
    times.append(time.perf_counter() - start)
    used.append(time.process_time() - began)
print(memory, 1000 * statistics.median(times), 1000 * statistics.median(used))
"""


def commands(options: argparse.Namespace) -> Iterator[Figure]:
    """Seconds of commands on a store of 100 relations, memory after one answer, milliseconds of one question."""
    print(f"{platform.processor() or platform.machine()}, {_processor()}, Python {platform.python_version()}")
    pythons = {"this": sys.executable, **({"other": options.python} if options.python else {})}
    with tempfile.TemporaryDirectory() as folder:
        stores = {name: str(Path(folder) / name) for name in pythons}
        for name, python in pythons.items():
            subprocess.run([python, "-c", TEACH, stores[name], options.encoder], check=True)
            _erda(python, "predict", SENTENCE, "--store", stores[name])
        for arguments, target in COMMANDS.items():
            times: dict[str, list[tuple[float, float]]] = {name: [] for name in pythons}
            for _ in range(ROUNDS):  # in turn, so that load affects both alike
                for name, python in pythons.items():
                    times[name].append(_seconds(python, arguments, stores[name]))
            for name in pythons:
                wall, processor = (statistics.median(each) for each in zip(*times[name], strict=True))
                aim = f"<= {target}" if name == "this" and options.encoder == "open" else ""
                yield Figure(f"{name}: erda {' '.join(arguments).partition(' [[')[0]}", wall, "s", aim)
                yield Figure("  processor time", processor, "s")
        for name, python in pythons.items():
            ran = subprocess.run([python, "-c", ASK, stores[name]], check=True, capture_output=True, text=True)
            memory, question, used = map(float, ran.stdout.split())
            aims = ("<= 250", "<= 5") if name == "this" and options.encoder == "open" else ("", "")
            yield Figure(f"{name}: memory after one answer", memory, "MB", aims[0])
            yield Figure(f"{name}: one question in process", question, "ms", aims[1])
            yield Figure("  processor time", used, "ms")


def _seconds(python: str, arguments: Sequence[str], store: str) -> tuple[float, float]:
    """Wall-clock and processor seconds of one command; its changes are undone."""
    store_option = [] if arguments[0].startswith("-") else ["--store", store]
    start, before = perf_counter(), _children()
    _erda(python, *arguments, *store_option)
    seconds = perf_counter() - start, _children() - before
    if arguments[-1] == "--undo" or arguments[0] == "forget":
        back = ["--undo"] if arguments[0] == "forget" else ["--to", "2"]
        _erda(python, "versions", *back, "--store", store)
    return seconds


def _erda(python: str, *words: str) -> None:
    subprocess.run([python, "-m", "erda", *words], check=True, capture_output=True)


def _children() -> float:
    """Processor seconds of all finished child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def install(options: argparse.Namespace) -> Iterator[Figure]:
    """Megabytes of the wheel and of a fresh environment with it, without pip and setuptools."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        quiet = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, str(ROOT)]
        subprocess.run(quiet, check=True)
        (wheel,) = place.glob("erda-*.whl")
        yield Figure("wheel", wheel.stat().st_size / 1e6, "MB", "<= 45")
        subprocess.run([sys.executable, "-m", "venv", str(place / "venv")], check=True)
        subprocess.run([str(place / "venv/bin/pip"), "install", "-q", str(wheel)], check=True)
        (packages,) = (place / "venv/lib").glob("python*/site-packages")
        own = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
        size = sum(
            file.stat().st_size
            for file in packages.rglob("*")
            if file.is_file() and not file.relative_to(packages).parts[0].startswith(own)
        )
        yield Figure("core environment", size / 1e6, "MB", "<= 250")


def _processor() -> str:
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


MEASURES = {"commands": commands, "install": install}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print each figure beside its target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="WHAT", help="commands or install (default: commands)")
    parser.add_argument("--encoder", default="open", metavar="NAME", help="open or open-mpnet (default: open)")
    parser.add_argument("--python", metavar="PATH", help="interpreter of an environment to compare with")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.what if name not in MEASURES]:
        parser.error(f"no such measurement: {', '.join(unknown)}; there are {', '.join(MEASURES)}")
    return measure(lambda: (figure for name in options.what or ["commands"] for figure in MEASURES[name](options)))


if __name__ == "__main__":
    sys.exit(main())
