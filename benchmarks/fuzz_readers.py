"""Mutate valid files of every format that `erda` reads, and count what is not a clear answer.

python benchmarks/fuzz_readers.py --n 20000 --seed 1

A reader returns a value or raises an `ErdaError`. Any other exception is a traceback; over ten seconds is a hang.
Examples that were read are written as CSV and JSONL, and both files must be readable with the same number of examples.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from erda.data.formats.row_collector import Reading
from erda.data.own_data import describe, read_examples, write_examples
from erda.errors import ErdaError
from fuzz_targets import TARGETS, Target

HANG_SECONDS = 10  # of processor time: the machine may be busy
Rng = random.Random


# -- mutations ---------------------------------------------------------------------------------------------------------

JUNK: tuple[bytes, ...] = (
    *(
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\r",
        b"\n\n",
        b"\t",
        b'"',
        b"'",
        b"\\",
        b"[[",
        b"]]",
        b"{{",
        b"}}",
        b",",
        b";",
    ),
    *(
        b"-1",
        b"1e400",
        b"9" * 30,
        b"9" * 5000,
        b"NaN",
        b"null",
        b"true",
        b"[" * 500,
        b"{" * 500,
        b'{"a":' * 2000,
        b"\xc3",
    ),
    *(
        "\u0301é😀\u202e\u2028\ufeff".encode(),
        b'"\\ud800"',
        b"=1+1",
        b"\x1b[31m",
        b" " * 3000,
        b"a" * 70_000,
        b"\x1f\x8b",
    ),
)
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**30, 1.5, 2**63, "", " ", "a", "\0", "\ud800", "no_relation", "[[a]] {{b}}", "=1", "\n"),
    *([], [[]], [0, 10**9], [-1, 1], [1, 0], {}, {"span": [0, 1]}, {"a": {"b": [1]}}, ["", " "], [None]),
)


def mutated(content: bytes, rng: Rng) -> bytes:
    """A valid file with one to four changes: of its JSON, its lines or its bytes, perhaps packed."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        content = rng.choice((_other_value, _other_value, _other_lines, _other_bytes, _inserted))(content, rng)
    pack = rng.choice((None,) * 12 + (gzip.compress, bz2.compress))
    if pack is not None:
        content = pack(content)
        content = _other_bytes(content, rng) if rng.random() < 0.5 else content
    return content


def _other_value(content: bytes, rng: Rng) -> bytes:
    """Replace, remove or repeat a value somewhere in a JSON document, or in one line of JSON."""
    lines = content.splitlines(keepends=True)
    at = rng.randrange(len(lines)) if lines else 0
    for start, end in ((0, len(lines)), (at, at + 1)):
        with suppress(ValueError, RecursionError):
            value = json.loads(b"".join(lines[start:end]))
            _change(value, rng)
            text = json.dumps(
                value, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, 1)) if start == 0 else None
            )
            return b"".join(lines[:start]) + text.encode("utf-8", "surrogatepass") + b"\n" + b"".join(lines[end:])
    return _inserted(content, rng)


def _change(value: Any, rng: Rng) -> None:
    while isinstance(value, dict | list) and value:
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        inner = value[key]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.3:
            act = rng.randrange(5)
            if act == 0:
                del value[key]
            elif act == 1 and isinstance(value, dict):
                value[rng.choice(("id", "text", "tokens", "relation", "", "head"))] = value.pop(key)
            elif act == 2 and isinstance(value, list):
                value.extend(value[:50])
            else:
                value[key] = rng.choice(VALUES)
            return
        value = inner


def _other_lines(content: bytes, rng: Rng) -> bytes:
    lines = content.splitlines(keepends=True) or [b""]
    act, at = rng.randrange(5), rng.randrange(len(lines))
    if act == 0:
        lines.insert(at, rng.choice(lines))
    elif act == 1:
        del lines[at]
    elif act == 2:
        rng.shuffle(lines)
    elif act == 3:
        fields = lines[at].split(b"\t")
        fields[rng.randrange(len(fields))] = rng.choice((b"", *JUNK[:20]))
        lines[at] = b"\t".join(fields)
    else:
        lines[at] = rng.choice((b"\t", b" ", b"")) + lines[at]
    return b"".join(lines)


def _other_bytes(content: bytes, rng: Rng) -> bytes:
    raw = bytearray(content or b" ")
    at = rng.randrange(len(raw))
    act = rng.randrange(4)
    if act == 0:
        raw[at] = rng.randrange(256)
    elif act == 1:
        del raw[at : at + rng.choice((1, 2, 10))]
    elif act == 2:
        del raw[at:]
    else:
        raw[at:at] = raw[rng.randrange(len(raw)) :][: rng.randrange(1, 40)]
    return bytes(raw)


def _inserted(content: bytes, rng: Rng) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] + rng.choice(JUNK) + content[at + rng.choice((0, 0, 1, 5)) :]


# -- trials ------------------------------------------------------------------------------------------------------------


class HangError(BaseException):
    """A reader took more than `HANG_SECONDS`; no reader may catch this."""


def _hang(*_: object) -> None:
    raise HangError


def attempt(target: Target, content: bytes, folder: Path) -> str:
    """Read a mutated file; "read", "rejected", or a finding that begins with "traceback", "hang" or "changed"."""
    folder = folder / target.name
    folder.mkdir(exist_ok=True)
    path = folder / target.file
    path.write_bytes(content)
    signal.signal(signal.SIGPROF, _hang)
    signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
    try:
        found = target.read(path)
        if isinstance(found, Reading):
            describe(found)
            return _written(found, folder)
        return "read"
    except ErdaError as error:
        return "rejected" if str(error).strip() else "traceback: an error without a message"
    except HangError:
        return f"hang: {target.name}"
    except BaseException as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        return f"traceback: {type(error).__name__} at {Path(at.filename).name}:{at.lineno}: {str(error)[:80]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _written(reading: Reading, folder: Path) -> str:
    """Write what was read in both formats, and read it again."""
    examples = (*reading.examples, *reading.unrelated)
    for name in ("out.csv", "out.jsonl") if examples else ():
        write_examples(folder / name, examples, overwrite=True)
        try:
            again = read_examples(folder / name, name.rpartition(".")[2])
        except ErdaError as error:
            return f"changed: {name} cannot be read ({str(error).partition(': ')[2][:80]})"
        n_again = len(again.examples) + len(again.unrelated) + len(again.duplicates)
        if n_again != len(examples):
            return f"changed: {name} has {n_again} of {len(examples)} examples"
    return "read"


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz every reader, print counts per format, and keep each file that led to a new finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=2000, help="number of files (default: 2000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="folder for the files that led to findings")
    options = parser.parse_args(arguments)
    counts: Counter[tuple[str, str]] = Counter()
    findings: Counter[str] = Counter()
    slowest, began = 0.0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for target in TARGETS:  # also imports every library, outside of any time limit
            (Path(folder) / target.name).mkdir()
            (Path(folder) / target.name / target.file).write_bytes(target.content)
            with suppress(ErdaError) if target.name == "answers" else nullcontext():  # answers are no examples
                target.read(Path(folder) / target.name / target.file)
        for number in range(options.n):
            rng = Rng(f"{options.seed}:{number}")
            target = TARGETS[number % len(TARGETS)]
            content = mutated(target.content, rng)
            before = time.monotonic()
            said = attempt(target, content, Path(folder))
            slowest = max(slowest, time.monotonic() - before)
            counts[target.name, said.partition(":")[0]] += 1
            if said not in ("read", "rejected"):
                findings[f"{target.name}: {said}"] += 1
                if options.keep and findings[f"{target.name}: {said}"] == 1:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    (options.keep / f"{options.seed}-{number}-{target.file}").write_bytes(content)
    for target in TARGETS:
        shown = ", ".join(f"{n:,} {said}" for (name, said), n in sorted(counts.items()) if name == target.name)
        print(f"{target.name:18} {shown}")
    for finding, n in findings.most_common():
        print(f"{n:6}  {finding}")
    total = {said: sum(n for (_, one), n in counts.items() if one == said) for said in ("traceback", "hang", "changed")}
    print(
        f"{options.n:,} files, seed {options.seed}: " + ", ".join(f"{n} {said}s" for said, n in total.items()), end=""
    )
    print(f"; {time.monotonic() - began:.0f} s, the slowest file {slowest:.1f} s")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
