"""A light load generator for `benchmarks/serve.py`: kept-alive connections on raw sockets, in a process of its own.

    python benchmarks/serve_clients.py PORT N_CLIENTS N_REQUESTS

Each connection sends its next request when the answer to the last one has come. An answer is read by its
Content-Length and is not parsed, so that the generator costs little of the two cores that it shares with the server.
Prints JSON: requests per second, times in milliseconds, errors, and the processor seconds of this process.
"""

from __future__ import annotations

import json
import selectors
import socket
import statistics
import sys
import time

WORDS = (
    *("founded", "born", "capital", "owns", "plays", "leads", "wrote", "met"),
    *("married", "joined", "built", "sold", "bought", "runs", "teaches"),
)


def sentence(number: int) -> str:
    """A sentence of about twenty words."""
    word = WORDS[number % len(WORDS)]
    return (
        f"In the spring of {1900 + number % 120} the [[Company {number}]] of the northern district {word} by and with "
        f"{{{{Person {number % 97}}}}} , who had moved there from the coast ."
    )


def request(number: int) -> bytes:
    """A whole request for one answer."""
    body = json.dumps({"text": sentence(number)}).encode()
    head = (
        f"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    return head.encode() + b"\r\n\r\n" + body


def length_of(answer: bytes) -> int:
    """The length of an answer with its head, once the head is there; else a length that it does not have yet."""
    head, found, _ = answer.partition(b"\r\n\r\n")
    if not found:
        return len(answer) + 1
    return len(head) + 4 + int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])


def run(port: int, n_clients: int, n_requests: int) -> dict[str, float]:
    """Send the requests; measure."""
    ready, times, n_sent, n_errors = selectors.DefaultSelector(), list[float](), 0, 0
    begun = time.perf_counter()
    for _ in range(min(n_clients, n_requests)):
        one = socket.create_connection(("127.0.0.1", port), timeout=60)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ready.register(one, selectors.EVENT_READ, [time.perf_counter(), b""])
        one.sendall(request(n_sent))
        n_sent += 1
    while len(times) < n_requests:
        for key, _ in ready.select():
            connection, about = key.fileobj, key.data
            assert isinstance(connection, socket.socket)
            part = connection.recv(65_536)
            about[1] += part
            if not part:
                raise ConnectionError("the server closed a connection")
            if len(about[1]) < length_of(about[1]):
                continue
            times.append(time.perf_counter() - about[0])
            n_errors += not about[1].startswith(b"HTTP/1.1 200 ")
            if n_sent < n_requests:
                about[:] = time.perf_counter(), b""
                connection.sendall(request(n_sent))
                n_sent += 1
    seconds = time.perf_counter() - begun
    ranked = statistics.quantiles(times, n=20) if len(times) > 1 else times * 20
    return {
        "rate": n_requests / seconds,
        "p50": 1000 * statistics.median(times),
        "p95": 1000 * ranked[-1],
        "slowest": 1000 * max(times),
        "errors": n_errors,
        "cpu": time.process_time(),
    }


if __name__ == "__main__":
    print(json.dumps(run(*map(int, sys.argv[1:4]))))
