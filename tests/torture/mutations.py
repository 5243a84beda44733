"""Ways to damage a file, as a disk, a transfer, an editor or another program might."""

from __future__ import annotations

import codecs
import json
import random
from collections.abc import Callable
from typing import Any

_LITERAL = "<literal %d>"
_LITERALS = (
    "9" * 5000,
    "[" * 5000 + "]" * 5000,
    '{"a":' * 5000 + "1" + "}" * 5000,
    "NaN",
    "-Infinity",
    "1e999",
    '"\\ud800"',
)
_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 10**18, 10**30, -(2**63), 0.5, -0.0, 1e308, 5e-324, 1e38, 2**31, 2**32),
    *("", "x", "0", "../../victim", "/etc/passwd", "a\0b", "\x1b[2J", "é" * 300, "x" * 5000, "=cmd()", "\ufeff", "r0"),
    *([], {}, [[]], {"a": 1}, [1, 2, 3], ["x"], [None]),
)


def damage(content: bytes, name: str, rng: random.Random, others: list[bytes]) -> bytes:
    """Damage the content of a file in one way; the result always differs."""
    ways: list[Callable[[], bytes]] = [
        *[lambda: _flipped(content, rng)] * 4,
        *[lambda: _overwritten(content, rng)] * 2,
        *[lambda: content[: rng.randrange(len(content) + 1)]] * 2,
        lambda: content + rng.choice((b"\0", b"\n", b"{}", rng.randbytes(50), content)),
        lambda: b"",
        lambda: rng.choice(others),
        lambda: _moved(content, rng),
    ]
    if _is_text(content):
        ways += [*[lambda: _edited(content, rng)] * 3, lambda: _encoded(content, rng)]
        suffix = name.removesuffix(".gz").rpartition(".")[2]
        if suffix in ("json", "jsonl"):
            ways += [lambda: _json_changed(content, rng)] * 14
    for _ in range(50):
        if (changed := rng.choice(ways)()) != content:
            return changed
    return content + b"x"


def _flipped(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8)) if content else 0):
        changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _overwritten(content: bytes, rng: random.Random) -> bytes:
    """Overwrite a stretch with zeros or noise, as in a block that was never written; the size stays."""
    start = rng.randrange(len(content) + 1)
    size = min(rng.choice((1, 8, 64, 512, 4096)), len(content) - start)
    return content[:start] + (bytes(size) if rng.random() < 0.5 else rng.randbytes(size)) + content[start + size :]


def _moved(content: bytes, rng: random.Random) -> bytes:
    """Leave out a stretch, or write it twice."""
    start, end = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    return content[:start] + content[end:] if rng.random() < 0.5 else content[:end] + content[start:]


def _is_text(content: bytes) -> bool:
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False


def _edited(content: bytes, rng: random.Random) -> bytes:
    """Remove, repeat or move a line, or change a word in it."""
    lines = content.decode().splitlines(keepends=True)
    if not lines:
        return content
    at = rng.randrange(len(lines))
    way = rng.randrange(4)
    if way == 0:
        del lines[at]
    elif way == 1:
        lines.insert(rng.randrange(len(lines) + 1), lines[at])
    elif way == 2:
        lines.insert(rng.randrange(len(lines)), lines.pop(at))
    else:
        words = lines[at].split(" ")
        odd = rng.choice([*_ODD, *_LITERALS])
        words[rng.randrange(len(words))] = odd if isinstance(odd, str) else json.dumps(odd)
        lines[at] = " ".join(words)
    return "".join(lines).encode(errors="surrogatepass")


def _encoded(content: bytes, rng: random.Random) -> bytes:
    text = content.decode()
    ways = (
        lambda: text.encode("utf-16"),
        lambda: text.encode("utf-16-be"),
        lambda: codecs.BOM_UTF8 + content,
        lambda: (text + "\xe9").encode("latin-1", errors="replace"),
        lambda: content.replace(b"\n", b"\r\n"),
        lambda: content.replace(b"\n", b"\r"),
        lambda: text.encode("utf-32"),
        lambda: text.replace("a", "\ud800", 1).encode(errors="surrogatepass"),
    )
    return rng.choice(ways)()


def _json_changed(content: bytes, rng: random.Random) -> bytes:
    """Change, remove or repeat one value of a JSON document, or of a line of JSONL."""
    lines = content.decode().splitlines()
    try:
        value, at = json.loads(content), None
    except ValueError:
        try:
            at = rng.randrange(len(lines))
            value = json.loads(lines[at])
        except ValueError:
            return content
    text = json.dumps(_changed(value, rng), indent=None if at is not None else 1)
    for number, literal in enumerate(_LITERALS):
        text = text.replace(json.dumps(_LITERAL % number), literal)
    if at is None:
        return text.encode()
    lines[at] = text
    return "\n".join([*lines, ""]).encode()


def _changed(value: Any, rng: random.Random) -> Any:
    """Change one place in the value; small values are more likely than whole branches."""
    if isinstance(value, dict | list) and value and rng.random() < 0.9:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key, way = rng.choice(keys), rng.random()
        copy: Any = dict(value) if isinstance(value, dict) else list(value)
        if way < 0.06:
            del copy[key]
        elif way < 0.1:
            copy[key] = copy[rng.choice(keys)]
        elif way < 0.13:
            copy = {**copy, "another": 1} if isinstance(copy, dict) else [*copy, copy[key]]
        else:
            copy[key] = _changed(value[key], rng)
        return copy
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.5:
        return rng.choice((value + 1, value - 1, -value, value * 2, value * 1000, value / 3, int(value) + 0.5))
    if isinstance(value, str) and value and rng.random() < 0.4:
        return rng.choice((value[:-1], value + "x", value.upper(), value[::-1], f"../{value}"))
    if rng.random() < 0.2:
        return _LITERAL % rng.randrange(len(_LITERALS))
    return rng.choice(_ODD)
