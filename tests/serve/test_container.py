"""The container file: what it promises."""

import json
import shlex
from pathlib import Path
from typing import Any

from erda.cli.main import build_parser

ROOT = Path(__file__).parents[2]


def steps() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile; lines that end in a backslash are joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, " ".join(rest.split())) for name, _, rest in (line.partition(" ") for line in lines)]


def last(name: str) -> str:
    """The argument of the last instruction of a kind."""
    return [rest for other, rest in steps() if other == name][-1]


def in_json(text: str) -> Any:
    return json.loads(text[text.index("[") :])


def test_the_image_is_slim_runs_a_command_that_exists_not_as_root_and_is_checked() -> None:
    names = [name for name, _ in steps()]
    assert all("-slim" in rest for name, rest in steps() if name == "FROM")
    assert last("USER") not in ("root", "0")
    assert names.index("USER") < names.index("CMD")
    command, check = in_json(last("CMD")), in_json(last("HEALTHCHECK"))
    options = build_parser("serve").parse_args(command[1:])
    assert (command[0], options.host, options.token_file) == ("erda", "0.0.0.0", Path("/data/token"))
    assert options.store.is_relative_to(last("VOLUME"))
    assert int(last("EXPOSE")) == options.port
    assert f"http://127.0.0.1:{options.port}/health" in check[-1]
    compile(check[-1], "HEALTHCHECK", "exec")
    for name, rest in steps():
        if name == "COPY" and not rest.startswith("--from"):
            assert all((ROOT / one).exists() for one in shlex.split(rest)[:-1])
