"""The start of a server: address, token, port."""

import stat
from pathlib import Path

import pytest

from erda.cli.main import main
from erda.errors import SettingsError
from erda.serve.application import bound_socket, page_address, read_token
from erda.serve.service import ServerSettings


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
