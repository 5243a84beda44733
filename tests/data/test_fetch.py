"""Downloads from a local server: complete, interrupted, damaged, unreachable."""

import hashlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from toy_fewrel import wiki_files, write_split

from erda.data.catalogue import DATASETS, open_stream
from erda.data.fetch import get_dataset, git_blob_id
from erda.errors import DataError, SettingsError, WriteError


@dataclass
class Source:
    """A server of fake files, and the requests it received."""

    files: dict[str, bytes]
    url: str = ""
    asked: list[str] = field(default_factory=list)
    breaks_off: set[str] = field(default_factory=set)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    """Serve toy files under the public names and pin their ids in the catalogue."""
    made = tmp_path / "made"
    for shots in (2, 5, 10):
        write_split(made / str(shots), shots=shots)
    contents = {f"fewrel/{name}": content for name, content in wiki_files(75).items()}
    for shots in (2, 5, 10):
        files = (path for path in (made / str(shots)).rglob("*") if path.is_file())
        contents |= {f"fewrel/{path.relative_to(made / str(shots))}": path.read_bytes() for path in files}
    for name in ("fewrel", "fewrel-full"):
        entry = DATASETS[name]
        remote = tuple(replace(file, blob=blob_of(contents[file.target])) for file in entry.remote)
        monkeypatch.setitem(DATASETS, name, replace(entry, remote=remote))
    served = Source({file.url(""): contents[file.target] for file in DATASETS["fewrel"].remote})
    server = ThreadingHTTPServer(("127.0.0.1", 0), _answers(served))
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield served
    server.shutdown()
    server.server_close()
    thread.join()


def _answers(source: Source) -> type[BaseHTTPRequestHandler]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            source.asked.append(self.path)
            content = source.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if self.path in source.breaks_off else content)

        def log_message(self, *args: object) -> None:
            pass

    return Answers


def blob_of(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.endswith(".part")]


def test_get_fetches_all_files_of_a_stream(source: Source, tmp_path: Path) -> None:
    folder, said = tmp_path / "data", []
    assert get_dataset("fewrel", folder=folder, mirror=source.url, say=said.append) == folder
    assert len(source.asked) == len(DATASETS["fewrel"].remote) == 14
    assert not leftovers(folder)
    assert len(open_stream("fewrel", shots=10, family="sckd", seed=300, folder=folder).relations) == 80
    assert (folder / "fewrel/validation.jsonl.gz").is_file()
    get_dataset("fewrel", folder=folder, mirror=source.url, say=said.append)
    assert len(source.asked) == 14
    assert said[-1] == f"fewrel: complete ({folder})."
    get_dataset("fewrel-full", folder=folder, mirror=source.url)
    assert len(source.asked) == 14
    assert len(open_stream("fewrel-full", shots=20, first_shots=20, folder=folder)) == 8
    damaged = folder / DATASETS["fewrel"].remote[1].target
    damaged.write_bytes(b"cut")
    get_dataset("fewrel", folder=folder, mirror=source.url)
    assert len(source.asked) == 15, "a damaged file is fetched again"
    assert damaged.stat().st_size > 3


def test_an_interrupted_transfer_leaves_only_complete_files(source: Source, tmp_path: Path) -> None:
    broken = DATASETS["fewrel"].remote[4]
    source.breaks_off.add(broken.url(""))
    folder = tmp_path / "data"
    with pytest.raises(DataError) as caught:
        get_dataset("fewrel", folder=folder, mirror=source.url)
    message = str(caught.value)
    assert message.startswith(f"Cannot fetch {broken.url(source.url)}: ")
    assert f"{broken.url(source.url)}\n    -> {folder / broken.target}  (git blob id {broken.blob})" in message
    assert DATASETS["fewrel"].remote[3].target not in message
    assert not leftovers(folder)
    assert not (folder / broken.target).exists()
    source.breaks_off.clear()
    source.asked.clear()
    get_dataset("fewrel", folder=folder, mirror=source.url)
    assert len(source.asked) == 10
    assert git_blob_id(folder / broken.target) == broken.blob


def test_a_file_with_a_wrong_checksum_is_discarded(source: Source, tmp_path: Path) -> None:
    first = DATASETS["fewrel"].remote[0]
    source.files[first.url("")] = b"something else"
    with pytest.raises(DataError) as caught:
        get_dataset("fewrel", folder=tmp_path, mirror=source.url)
    assert f"git blob id {blob_of(b'something else')}, expected {first.blob}" in str(caught.value)
    assert not (tmp_path / first.target).exists()
    assert not leftovers(tmp_path)


def test_without_a_network_the_message_lists_sources_and_targets(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DataError) as caught:
        get_dataset("fewrel", folder=tmp_path, mirror=f"http://127.0.0.1:{port}")
    assert "no connection." in str(caught.value)
    assert all(str(tmp_path / file.target) in str(caught.value) for file in DATASETS["fewrel"].remote)


def test_a_missing_source_and_an_impossible_target(source: Source, tmp_path: Path) -> None:
    (tmp_path / "fewrel").write_text("a file where a folder should be")
    with pytest.raises(WriteError, match=r"Cannot write .+rel_index\.npy: Not a directory\."):
        get_dataset("fewrel", folder=tmp_path, mirror=source.url)
    del source.files[DATASETS["fewrel"].remote[0].url("")]
    with pytest.raises(DataError, match=r"404 .*Not Found"):
        get_dataset("fewrel", folder=tmp_path / "other", mirror=source.url)


def test_datasets_without_a_download(tmp_path: Path) -> None:
    for name, file in (("tacred", "tacred/train.json"), ("redoc41", "redoc41/relations.json")):
        with pytest.raises(DataError, match=str(tmp_path / file)):
            get_dataset(name, folder=tmp_path)
    with pytest.raises(SettingsError, match="Did you mean 'fewrel'"):
        get_dataset("fewrell", folder=tmp_path)
    said: list[str] = []
    get_dataset("atlas", folder=tmp_path, say=said.append)
    assert said == ["atlas: embedded in erda; there is nothing to fetch."]
