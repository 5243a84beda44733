"""The start of a server: address, token, port, and the files of the container."""

from __future__ import annotations

import json
import re
import shlex
import stat
from pathlib import Path

import pytest

from erda.cli.main import build_parser, main
from erda.errors import SettingsError
from erda.serve.application import ServerSettings
from erda.serve.launch import bound_socket, page_address, read_token

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "erda.example.org"])
def test_an_address_that_others_can_reach_needs_a_token(
    tmp_path: Path, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path / "store"), "--host", host, "--port", "0", "--no-browser"]) == 2
    assert "--token-file" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_a_port_in_use_is_a_fault_of_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with bound_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(tmp_path / "store"), "--port", str(port), "--no-browser"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["serve", str(tmp_path / "store"), "--port", "99999", "--no-browser"]) == 2


def test_a_token_file_is_created_for_its_owner_alone_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = read_token(path)
    assert len(token) > 30
    assert read_token(path) == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert page_address(ServerSettings(tmp_path, "::1", token=token), 8) == f"http://[::1]:8/?token={token}"
    assert token not in repr(ServerSettings(tmp_path, token=token))
    for wrong in ("short", "x" * 20 + " y", "é" * 20):
        path.write_text(wrong)
        with pytest.raises(SettingsError, match="at least 16"):
            read_token(path)


def test_the_container_runs_a_command_that_exists_not_as_root() -> None:
    text = (ROOT / "Dockerfile").read_text()
    command = json.loads(re.findall(r"^CMD (\[.*\])$", text, flags=re.MULTILINE)[-1])
    options = build_parser("serve").parse_args(command[1:])
    assert (options.host, options.token_file) == ("0.0.0.0", Path("/data/token"))
    assert text.index("\nUSER erda") < text.index("\nCMD")
    for source in re.findall(r"^COPY (?!--)(.*) \S+$", text, flags=re.MULTILINE):
        assert all((ROOT / name).exists() for name in shlex.split(source))
    compose = (ROOT / "compose.yaml").read_text()
    assert "read_only: true" in compose
    assert '"127.0.0.1:8111:8111"' in compose
