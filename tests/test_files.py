"""Files are written whole or not at all and read into typed values."""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from erda.errors import DataError, ModelError, RecordError, SettingsError, WriteError
from erda.files import (
    cache_folder,
    check_output,
    data_folder,
    decode_json,
    inside,
    locked,
    read_arrays,
    read_json,
    read_sealed,
    remove_left_lock,
    remove_own,
    remove_unfinished,
    sealed,
    verify_sha256,
    whole_file,
    write_arrays,
    write_json,
)


@dataclass(frozen=True, slots=True)
class Numbered:
    number: int
    share: float = 0.5


@dataclass(frozen=True)
class Part:
    name: str
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Whole:
    format: int
    parts: tuple[Part, ...]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    value = Whole(1, (Part("á", (1, 2)), Part("b", ())))
    write_json(tmp_path / "deep" / "a.json", value)
    assert read_json(tmp_path / "deep" / "a.json", Whole) == value
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"format": 1}', "a.json: parts: is missing. Build it again."),
        ("[]", "a.json: expected an object, got"),
        ('{"format": "1", "parts": []}', "format: expected a whole number, got '1'."),
        ('{"format": 1, "parts": [{"name": "a", "rows": [1, null]}]}', "parts[0].rows[1]: expected a whole number"),
        ('{"format": 1, "par', "is not valid JSON"),
        ("[" * 5000, "is not valid JSON"),
        ('{"format": ' + "9" * 5000 + ', "parts": []}', "number out of range"),
        ('{"format": 1, "parts": [{"name": "\\ud800", "rows": []}]}', "is not valid JSON"),
        ("\xff", "is not valid JSON"),
        ("", "is not valid JSON"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(RecordError) as fault:
        read_json(path, Whole, error=RecordError, remedy="Build it again.")
    assert said in str(fault.value)
    assert "\n" not in str(fault.value)
    assert str(fault.value).endswith("Build it again.")


def test_a_file_that_cannot_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be read \(No such file or directory\)\.$"):
        read_json(tmp_path / "none.json", Whole, remedy="Build it again.")
    with pytest.raises(DataError, match=r"cannot be read \(Is a directory\)"):
        read_json(tmp_path, Whole)


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})

    def fail() -> None:
        with whole_file(path) as temporary:
            temporary.write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(WriteError, match=r"the disk is full"):
        fail()
    assert read_json(path, dict[str, int]) == {"a": 1}
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]


def test_arrays_come_back_and_damage_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    write_arrays(path, {"x": np.arange(100)})
    np.testing.assert_array_equal(read_arrays(path)["x"], np.arange(100))
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(content)
        for place in rng.integers(0, len(content), size=3):
            damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(damaged)[: int(rng.integers(1, len(content) + 1))])
        with suppress(ModelError):  # no other kind of fault
            read_arrays(path, error=ModelError)


@pytest.mark.parametrize("name", ["../victim", "/etc/passwd", "a/../../b", "", ".", "a\0b"])
def test_a_path_read_from_a_file_never_leaves_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="outside its folder"):
        inside(tmp_path, name)
    assert inside(tmp_path, "a/b.npy") == tmp_path / "a/b.npy"


def _hold(folder: Path, pipe: object) -> None:
    with locked(folder, busy="busy"):
        pipe.send("held")
        pipe.recv()


def test_verify_accepts_the_right_file_and_refuses_others(tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(b"hello")
    verify_sha256(file, hashlib.sha256(b"hello").hexdigest())
    file.write_bytes(b"hellO")  # same size: the time of change tells
    with pytest.raises(DataError, match=r"a\.bin is damaged .* expected sha256 2cf2"):
        verify_sha256(file, hashlib.sha256(b"hello").hexdigest())
    with pytest.raises(DataError, match=r"nothing\.bin is missing"):
        verify_sha256(tmp_path / "nothing.bin", "0" * 64)


def test_a_lock_keeps_other_processes_out_and_ends_with_them(tmp_path: Path) -> None:
    here, there = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_hold, args=(tmp_path, there))
    process.start()
    assert here.recv() == "held"
    with pytest.raises(DataError, match="busy"), locked(tmp_path, busy="busy"):
        pass
    process.kill()
    process.join()
    with locked(tmp_path, busy="busy"):
        pass
    assert not (tmp_path / ".lock").exists()


def test_the_lock_of_a_killed_process_is_removed_and_a_held_one_stays(tmp_path: Path) -> None:
    with locked(tmp_path, busy="busy"):
        remove_left_lock(tmp_path)
        assert (tmp_path / ".lock").exists()
    for content, stays in (("", False), ("mine", True)):
        (tmp_path / ".lock").write_text(content)
        remove_left_lock(tmp_path)
        assert (tmp_path / ".lock").exists() is stays
    remove_left_lock(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_folders_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ERDA_CACHE", raising=False)
    monkeypatch.delenv("ERDA_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "erda"
    assert data_folder() == tmp_path / "erda" / "data"
    monkeypatch.setenv("ERDA_CACHE", str(tmp_path / "mine"))
    monkeypatch.setenv("ERDA_DATA", str(tmp_path / "data"))
    assert (cache_folder(), data_folder()) == (tmp_path / "mine", tmp_path / "data")


def test_a_change_of_a_sealed_file_is_noticed(tmp_path: Path) -> None:
    value, path = Whole(1, (Part("á\ud800", (1, 2)),)), tmp_path / "a.json"
    write_json(path, sealed(value))
    assert read_sealed(path, Whole) == Whole(1, (Part("á?", (1, 2)),))  # half a surrogate pair cannot be stored
    text = path.read_text()
    path.write_text(text.replace("2", "3"))
    with pytest.raises(DataError, match=r"a.json: was changed or damaged since it was written. Build it again."):
        read_sealed(path, Whole, remedy="Build it again.")
    write_json(path, {"format": 1, "parts": []})
    with pytest.raises(DataError, match="was changed or damaged since it was written"):
        read_sealed(path, Whole)  # its seal was removed


def test_only_temporary_files_are_removed(tmp_path: Path) -> None:
    kept = [tmp_path / name for name in ("a.json", ".hidden.tmp", ".a.json.7.tmp", "a.0123456789abcdef.tmp", ".lock")]
    for path in (*kept, tmp_path / ".a.json.0123456789abcdef.tmp"):
        path.touch()
    other = tmp_path / ".a.json.gz.0123456789abcdef.tmp"  # of another file, whose process may be alive
    other.touch()
    remove_unfinished(tmp_path, of="a.json")
    assert sorted(tmp_path.iterdir()) == sorted((*kept, other))
    remove_unfinished(tmp_path)
    remove_unfinished(tmp_path / "none")
    assert sorted(tmp_path.iterdir()) == sorted(kept)


# -- ownership ---------------------------------------------------------------------------------------------------------


def test_a_temporary_file_is_never_written_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    monkeypatch.setattr("erda.files.secrets.token_hex", lambda n: "0" * 2 * n)  # an attacker who guesses the name
    (tmp_path / ".a.json.0000000000000000.tmp").symlink_to(victim)
    with pytest.raises(WriteError, match="File exists"):
        write_json(tmp_path / "a.json", {})
    assert victim.read_text() == "mine"
    assert sorted(one.name for one in tmp_path.iterdir()) == [".a.json.0000000000000000.tmp", "victim"]


@pytest.mark.parametrize("way", ["itself", "dots", "symlink", "hard link", "symlinked folder", "descriptor"])
def test_no_output_is_an_input(tmp_path: Path, way: str) -> None:
    given, other = tmp_path / "in.csv", tmp_path / "other.csv"
    given.write_text("mine")
    out = {"dots": tmp_path / "x" / ".." / "in.csv", "symlinked folder": tmp_path / "y" / "in.csv"}.get(way, other)
    (tmp_path / "x").mkdir()
    (tmp_path / "y").symlink_to(tmp_path)
    check_output(out if out == other else tmp_path / "new.csv", given, tmp_path / "none", overwrite=False)
    if way == "symlink":
        other.symlink_to(given)
    elif way == "hard link":
        other.hardlink_to(given)
    elif way in ("itself", "descriptor"):
        out = given
    with given.open() as file, pytest.raises(SettingsError, match="would be overwritten"):
        check_output(out, None, tmp_path / "none", file.fileno() if way == "descriptor" else given, overwrite=True)


def test_links_are_neither_followed_nor_removed(tmp_path: Path) -> None:
    (tmp_path / "theirs" / "deep").mkdir(parents=True)
    (tmp_path / "theirs" / "a").write_text("mine")
    ours = tmp_path / "ours"
    (ours / "sub").mkdir(parents=True)
    (ours / "sub" / "b").touch()
    (ours / "link").symlink_to(tmp_path / "theirs")
    (ours / "c").symlink_to(tmp_path / "theirs" / "a")
    assert sorted(remove_own(ours, lambda name: True)) == [ours / "c", ours / "link"]
    assert sorted(one.name for one in ours.iterdir()) == ["c", "link"]
    assert remove_own(ours / "link", lambda name: True) == [ours / "link"]
    assert (tmp_path / "theirs" / "a").read_text() == "mine"


def test_a_lock_file_of_the_user_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("mine")
    with pytest.raises(DataError, match="was not written by erda"), locked(tmp_path, busy="busy"):
        pass
    assert (tmp_path / ".lock").read_text() == "mine"


@pytest.mark.parametrize(
    "content",
    ['{"number": 1.0}', '{"number": true}', '{"number": "1"}', '{"number": 1', '{"number": 1, "more": "\\ud800"}'],
)
def test_plain_values_are_decoded_as_strictly_as_models_and_with_the_same_messages(content: str) -> None:
    with pytest.raises(DataError) as by_pydantic:
        decode_json(content, Numbered, place="x.json")
    with pytest.raises(DataError) as by_msgspec:
        decode_json(content, Numbered, place="x.json", plain=True)
    assert str(by_msgspec.value) == str(by_pydantic.value)
