"""The container files: what they promise, and their steps in a clean virtual environment, since no daemon is needed."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from toy_words import FOUNDED

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
    assert set(names) <= {*("FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "CMD")}
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
            kept = (ROOT / ".dockerignore").read_text().splitlines()
            assert all(f"!{one}" in kept for one in shlex.split(rest)[:-1])


def test_compose_promises_a_read_only_root_no_rights_and_a_port_on_loopback() -> None:
    one = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["erda"]
    assert one["read_only"] is True
    assert one["tmpfs"] == ["/tmp"]
    assert one["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in one["security_opt"]
    assert one["ports"] == [f"127.0.0.1:{last('EXPOSE')}:{last('EXPOSE')}"]
    assert [volume.partition(":")[2] for volume in one["volumes"]] == [last("VOLUME")]
    seconds = re.findall(r"--(?:interval|timeout)=(\d+)s", last("HEALTHCHECK"))
    assert [int(found) for found in seconds] == [30, 5]


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_the_steps_of_the_image_work_in_a_clean_virtual_environment(tmp_path: Path) -> None:
    """RUN, HEALTHCHECK and CMD with folders of this test in the place of those of the image."""
    source, venv, data = (tmp_path / name for name in ("src", "venv", "data"))
    source.mkdir()
    data.mkdir()
    places = {"/venv": str(venv), "/data": str(data)}

    def placed(text: str) -> str:
        return re.sub(r"(?<![\w.])/(venv|data)\b", lambda found: places[found[0]], text)

    for name, rest in steps()[: [name for name, _ in steps()].index("FROM", 1)]:  # the stage that builds
        if name == "COPY":
            *parts, target = shlex.split(rest)
            for part in parts:
                copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
                copy(ROOT / part, source / (part if target == "./" else target))
        elif name == "RUN":
            line = placed(rest).replace("python -m venv", f"{sys.executable} -m venv")
            subprocess.run(["/bin/sh", "-ec", line], cwd=source, check=True, env=clean())
    command, check = (in_json(placed(last(name))) for name in ("CMD", "HEALTHCHECK"))
    environment = clean(PATH=f"{venv / 'bin'}:{os.environ['PATH']}", ERDA_CACHE=str(tmp_path / "cache"))
    line = [str(venv / "bin" / "erda"), *command[1:], "--port", "0"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path) as server:
        assert server.stdout is not None
        try:
            printed = server.stdout.readline().strip().replace("0.0.0.0", "127.0.0.1")
            url, token = printed.split("/?token=")
            healthy = [str(venv / "bin" / "python"), "-c", check[-1].replace("http://127.0.0.1:8111", url)]
            assert subprocess.run(healthy, env=environment, check=False).returncode == 0
            body = {"relation": "founded by", "examples": FOUNDED}
            assert requests.post(f"{url}/v1/teach", json=body, timeout=60).status_code == 401
            good = {"Authorization": f"Bearer {token}"}
            assert requests.post(f"{url}/v1/teach", json=body, headers=good, timeout=60).json()["version"] == 1
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) in (0, -signal.SIGTERM)  # uvicorn ends by the signal, after the last answer
    assert {path.name for path in data.iterdir()} >= {"store", "token"}


def clean(**more: str) -> dict[str, str]:
    """The environment without what points to this installation."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ERDA"))} | more
