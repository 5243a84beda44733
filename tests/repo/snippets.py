"""Run the snippets of a page and compare what they print with what the page shows.

    python tests/repo/snippets.py PAGE...    # write the real output of console blocks into the pages

A page runs from top to bottom in one empty folder:

- a block after a sentence that names a file and ends with a colon ("Save this as `news.txt`:") is written to that file;
- `console`: each line that begins with `$ ` is run, and the lines below it are its output;
- `python`: is executed; its output is in comments (`print(1)  # 1`, or lines of their own) or in the next block;
- an HTML comment before a block gives the keys of `erda review` (`<!-- keys: y n q -->`) or says why the block
  is not run (`<!-- not run: installs packages -->`).

Numbers with a decimal point may differ by 0.1, dates and times are not compared, and `...` stands for anything.
"""

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import requests

from erda.cli.main import main

BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", flags=re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`([\w./-]+\.\w+)`[^`]*:\n\n$")
NOTE = re.compile(r"<!-- (keys|not run): (.*?) -->\n\n?$")
COMMENT = re.compile(r"^(?:\s*print\(.*\)  )?# (.*)$", flags=re.MULTILINE)
ADDRESS = "127.0.0.1:8111"


@dataclass(frozen=True)
class Shown:
    """What a page shows as the output of a snippet, where it stands, and the real output."""

    snippet: str
    start: int
    end: int
    expected: str
    real: str

    @property
    def is_same(self) -> bool:
        pattern = "".join(map(_pattern, re.split(r"(\.{3}|\d+\.\d+|\d{4}-\d\d-\d\d \d\d:\d\d)", self.expected.strip())))
        found = re.fullmatch(pattern, self.real.strip(), flags=re.DOTALL)
        wanted = re.findall(r"\d+\.\d+", self.expected)
        return found is not None and all(
            abs(float(a) - float(b)) <= 0.1 for a, b in zip(wanted, found.groups(), strict=True)
        )


def _pattern(part: str) -> str:
    if part == "...":
        return ".*?"
    if re.fullmatch(r"\d{4}-.*", part):
        return r"\d{4}-\d\d-\d\d \d\d:\d\d"
    return r"(\d+\.\d+)" if re.fullmatch(r"\d+\.\d+", part) else re.escape(part)


class Screen(io.StringIO):
    """Standard output as on a terminal."""

    def isatty(self) -> bool:
        return True


@dataclass
class Page:
    """A page that is being run in the current folder."""

    text: str
    names: dict[str, object] = field(default_factory=lambda: {"__name__": "page"})
    server: subprocess.Popen[str] | None = None
    address: str = ADDRESS

    def run(self) -> Iterator[Shown]:
        """Run all blocks, in order."""
        blocks = list(BLOCK.finditer(self.text))
        outputs = set[int]()
        for place, block in enumerate(blocks):
            before = self.text[: block.start()]
            note = dict([found.groups()] if (found := NOTE.search(before)) else [])
            named = FILE.search(before)
            if "not run" in note or place in outputs:
                continue
            if named:
                Path(named[1]).parent.mkdir(parents=True, exist_ok=True)
                Path(named[1]).write_text(block["text"], encoding="utf-8")
            elif block["language"] == "console":
                yield from self._console(block, note.get("keys", ""))
            elif block["language"] == "python":
                after = blocks[place + 1] if place + 1 < len(blocks) else None
                is_output = after and not after["language"] and not self.text[block.end() : after.start()].strip()
                outputs |= {place + 1} if is_output else set()
                yield self._python(block, after if is_output else None)

    def _console(self, block: re.Match[str], keys: str) -> Iterator[Shown]:
        for part in re.finditer(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block["text"], flags=re.MULTILINE):
            real = self._command(part[1].replace("\\\n", " "), keys)
            start = block.start("text") + part.start(2)
            yield Shown(part[1], start, start + len(part[2]), part[2], real)

    def _command(self, command: str, keys: str) -> str:
        command = command.replace(ADDRESS, self.address)
        words = shlex.split(command, comments=True)
        if words[:2] == ["erda", "serve"]:
            return self._serve(words)
        if words[0] == "curl":
            return _curl(words)
        if words[0] == "erda" and "<" not in words:
            return _erda(words[1:], keys)
        words = [sys.executable if word == "python" else word for word in words]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
        return ran.stdout + ran.stderr

    def _python(self, block: re.Match[str], after: re.Match[str] | None) -> Shown:
        code = block["text"].replace(ADDRESS, self.address)
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, "page", "exec"), self.names)
        if after is not None:
            return Shown(code, after.start("text"), after.end("text"), after["text"], printed.getvalue())
        expected = "\n".join(COMMENT.findall(code))
        return Shown(code, -1, -1, expected, printed.getvalue())

    def _serve(self, words: list[str]) -> str:
        """Start a server on a free port; it stands for the page's address from now on."""
        command = [sys.executable, "-m", *words, "--port", "0", "--no-browser"]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        printed = [self.server.stdout.readline() for _ in range(2)]
        self.address = printed[0].strip().removeprefix("http://").strip("/")
        return "".join(printed).replace(self.address, ADDRESS)

    def close(self) -> None:
        """Stop the server."""
        if self.server:
            self.server.terminate()
            self.server.communicate(timeout=60)


def _erda(words: list[str], keys: str) -> str:
    screen = Screen()
    errors = io.StringIO()  # no terminal: without progress bars
    errors.write = screen.write
    typed = io.TextIOWrapper(io.BytesIO("\n".join(keys.split()).encode()))
    with redirect_stdout(screen), redirect_stderr(errors), patch("sys.stdin", typed):
        main(words)
    return screen.getvalue()


def _curl(words: list[str]) -> str:
    """What curl prints, for machines without it: -d BODY, then the address."""
    address = next(word for word in words if "://" in word)
    body = words[words.index("-d") + 1] if "-d" in words else None
    answer = requests.request("POST" if body else "GET", address, json=json.loads(body) if body else None, timeout=60)
    return answer.text


@contextmanager
def plain_surroundings() -> Iterator[None]:
    """An empty folder, a terminal of 100 columns without colours, no store of the user's and no trained tagger."""
    with ExitStack() as stack:
        stack.enter_context(chdir(stack.enter_context(TemporaryDirectory())))
        environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100"}
        environment.pop("ERDA_STORE", None)
        stack.enter_context(patch.dict(os.environ, environment, clear=True))
        for name in ("model_folder", "installed_pipeline"):
            stack.enter_context(patch(f"erda.app.entities.{name}", lambda: None))
        yield


def run_page(path: Path) -> list[Shown]:
    """Run all snippets of a page."""
    page = Page(path.read_text(encoding="utf-8"))
    with plain_surroundings():
        try:
            return list(page.run())
        finally:
            page.close()


def write_outputs(path: Path) -> None:
    """Replace the output of each command on a page where it differs."""
    text = path.read_text(encoding="utf-8")
    for shown in reversed(run_page(path)):
        if not shown.is_same and shown.start >= 0:
            print(f"{path}: $ {shown.snippet}")
            text = text[: shown.start] + shown.real.strip("\n") + "\n" * bool(shown.real.strip()) + text[shown.end :]
        elif not shown.is_same:
            print(f"{path}: change by hand:\n{shown.snippet}\n{shown.real}")
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for page in sys.argv[1:]:
        write_outputs(Path(page))
