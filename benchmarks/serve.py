"""Measure the server on loopback: first answer, throughput, answers during teaching and suggestions, memory.

    python benchmarks/serve.py            about five minutes; prints a table and exits with 1 if a bound is missed
    python benchmarks/serve.py --quick    a tenth of the work, for a look

The store is new and holds 15 relations of five sentences. The load comes from `serve_clients.py`, a process of its own
that shares the cores with the server; its processor time is printed. Throughput is the median of five ratios, each of
a server run and of an in-process batch that follows it, so that other work on the machine slows both.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from erda.app.extractor import Extractor
from serve_clients import WORDS, sentence

N_CLIENTS = 32
N_ROUNDS = 5  # of server and in-process batch in turn
UNMARKED = str.maketrans("", "", "[]{}")
CLIENTS = Path(__file__).with_name("serve_clients.py")


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value and its bound; `at_least` says on which side it must be."""

    name: str
    value: float
    bound: float
    unit: str
    at_least: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the value is within its bound."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound


class Connection:
    """One kept-alive connection."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send JSON and return the answer; any other status than 200 raises."""
        return self._answer("POST", path, json.dumps(body))

    def get(self, path: str) -> Any:
        """Return the answer; any other status than 200 raises."""
        return self._answer("GET", path)

    def _answer(self, method: str, path: str, body: str | None = None) -> Any:
        self._http.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = self._http.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {content[:200]!r}")
        return json.loads(content)


@contextmanager
def server(store: Path) -> Iterator[tuple[int, int, float]]:
    """Start `erda serve`; yield its port, its process id and the time at which it was started."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "erda", "serve", str(store), "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline().rstrip("/\n").rpartition(":")[2]), process.pid, started
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def timed(connection: Connection, number: int) -> float:
    """Seconds of one prediction."""
    start = time.perf_counter()
    connection.post("/v1/predict", {"text": sentence(number)})
    return time.perf_counter() - start


def load(port: int, n: int, n_clients: int = N_CLIENTS) -> dict[str, float]:
    """The figures of the load generator; an answer that is no success raises."""
    command = [sys.executable, str(CLIENTS), str(port), str(n_clients), str(n)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if found["errors"]:
        raise RuntimeError(f"{found['errors']:.0f} of {n} requests failed")
    return found


def in_process(extractor: Extractor, n: int) -> float:
    """Predictions per second of one batch in this process."""
    start = time.perf_counter()
    extractor.predict([sentence(number) for number in range(n)])
    return n / (time.perf_counter() - start)


@dataclass(frozen=True, slots=True)
class Throughput:
    """Server and in-process batch in turn; `ratios` of their predictions per second."""

    ratios: list[float]
    server: float
    batch: float
    p95: float
    client_share: float  # of the processor time of client and server


def throughput(port: int, pid: int, extractor: Extractor, n: int) -> Throughput:
    """Measure both in turn."""
    rounds = []
    for _ in range(N_ROUNDS):
        before = processor_seconds(pid)
        found = load(port, n)
        used = processor_seconds(pid) - before
        rounds.append((found["rate"], in_process(extractor, n), found["p95"], found["cpu"] / (found["cpu"] + used)))
    server, batch, p95, share = (statistics.median(column) for column in zip(*rounds, strict=True))
    return Throughput([one[0] / one[1] for one in rounds], server, batch, p95, share)


def processor_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Times of one client's answers in seconds, sorted: without and with a teaching at the same time."""

    idle: list[float]
    teaching: list[float]
    teach_seconds: float  # median

    def __str__(self) -> str:
        idle = self.median
        times = [self.teaching[int(share * len(self.teaching))] / idle for share in (0.5, 0.99)]
        return (
            f"idle answers: median {1000 * idle:.1f} ms, slowest {self.idle[-1] / idle:.1f} x; {len(self.teaching)} "
            f"answers during teaching: median {times[0]:.1f} x, p99 {times[1]:.1f} x; a teaching takes "
            f"{1000 * self.teach_seconds:.0f} ms"
        )

    @property
    def median(self) -> float:
        """The median of idle answers."""
        return statistics.median(self.idle)


def slowdown(port: int, n_relations: int) -> Slowdown:
    """Ask without and with teachings one after another."""
    asking, teaching = Connection(port), Connection(port)
    idle = sorted(timed(asking, number) for number in range(5 * n_relations))
    times, taught, is_done = list[float](), list[float](), threading.Event()

    def teach() -> None:
        try:
            for number in range(n_relations):
                examples = [sentence(100_000 + 5 * number + i) for i in range(5)]  # none is taught already
                start = time.perf_counter()
                teaching.post("/v1/teach", {"relation": f"relation {number}", "examples": examples})
                taught.append(time.perf_counter() - start)
        finally:
            is_done.set()

    thread = threading.Thread(target=teach)
    thread.start()
    while not is_done.is_set():
        times.append(timed(asking, 7))
    thread.join()
    return Slowdown(idle, sorted(times), statistics.median(taught))


def listings_during_suggestions(port: int, n_texts: int) -> list[float]:
    """Seconds of cheap reads while four clients search texts, sorted."""
    texts = [[f"{number} {sentence(number)}".translate(UNMARKED) for number in range(i, i + n_texts)] for i in range(4)]
    searches = [
        threading.Thread(
            target=Connection(port).post, args=("/v1/suggest", {"relation": f"{WORDS[0]} 0", "texts": some})
        )
        for some in texts
    ]
    for one in searches:
        one.start()
    reading, times = Connection(port), list[float]()
    while any(one.is_alive() for one in searches):
        for path in ("/ready", "/v1/relations", "/v1/history"):
            start = time.perf_counter()
            reading.get(path)
            times.append(time.perf_counter() - start)
    return sorted(times)


def memory_with_slow_readers(port: int, pid: int) -> float:
    """Resident memory in megabytes while 12 clients have asked for an export and do not read it."""
    with ExitStack() as stack:
        for _ in range(12):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(b"GET /v1/export HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert slow.recv(12) == b"HTTP/1.1 200"
        time.sleep(2)
        return memory(pid)


def memory(pid: int) -> float:
    """Resident memory of a process in megabytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> int:
    """Measure and print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    scale = 10 if parser.parse_args().quick else 1
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        names = {f"{word} {n}": [sentence(100 * n + i) for i in range(5)] for n, word in enumerate(WORDS)}
        extractor = Extractor.open(store)
        extractor.teach_many(names)
        extractor.predict(sentence(0))
        with server(store) as (port, pid, started):
            Connection(port).post("/v1/predict", {"text": sentence(0)})
            first = time.perf_counter() - started
            load(port, 100)
            rates = throughput(port, pid, extractor, 1000 // scale)
            before, n_requests = memory(pid), 10_000 // scale
            load(port, n_requests)
            after = memory(pid)
            slow = slowdown(port, 100 // scale)
            listings = listings_during_suggestions(port, 400 // scale)
            with_readers = memory_with_slow_readers(port, pid)
    ratio, (least, *_, most) = statistics.median(rates.ratios), sorted(rates.ratios)
    figures = [
        Figure("first answer after start", first, 2.0, "s"),
        Figure(f"throughput, {N_CLIENTS} clients, of in-process batch", 100 * ratio, 80, "%", at_least=True),
        Figure("slowest answer during teaching, of idle median", slow.teaching[-1] / slow.median, 5, "x"),
        Figure(f"memory after {n_requests:,} requests", after, 350, "MB"),
        Figure(f"growth over {n_requests:,} requests", after - before, 20, "MB"),
        Figure("95 % of listings during four suggestions", 1000 * listings[int(0.95 * len(listings))], 100, "ms"),
        Figure("memory with 12 slow readers of an export", with_readers, 350, "MB"),
    ]
    print(
        f"in-process {rates.batch:.0f}/s; server {rates.server:.0f}/s, p95 {rates.p95:.0f} ms; ratios {least:.2f} to "
        f"{most:.2f}; load generator {rates.client_share:.1%} of the processor time\n{slow}"
    )
    for one in figures:
        sign = ">=" if one.at_least else "<="
        print(f"{'ok  ' if one.is_met else 'MISS'} {one.name}: {one.value:.2f} {one.unit} ({sign} {one.bound:g})")
    return 0 if all(one.is_met for one in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
