import errno
import hashlib
import io
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from onebyone.data import download
from onebyone.data.download import cache_folder, fetch, unpack
from onebyone.errors import UsageError

CONTENT = os.urandom(1 << 20)
MD5 = hashlib.md5(CONTENT).hexdigest()
ALTERNATIVES = r"ONEBYONE_MIRROR .* put the archive at .*it\.bin .*root \(data_dir\)"


@dataclass
class Server:
    """A web server in a thread. ``behaviour``: ranges, no ranges, 404, or it breaks or hangs half way."""

    behaviour: str
    base: str = ""
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # path and Range of each request
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        return f"{self.base}/folder/it.bin"


def handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            server.asked.append((self.path, asked))
            if server.behaviour == "404":
                return self.send_error(404)
            start = int(asked[len("bytes=") : -1]) if asked and server.behaviour != "no ranges" else 0
            if start >= len(CONTENT):
                return self.send_error(416)
            body = CONTENT[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if server.behaviour in ("breaks", "hangs"):
                body = body[: len(body) // 2]
            self.wfile.write(body)
            self.wfile.flush()
            if server.behaviour == "hangs":
                server.closing.wait(10)
            return None

        def log_message(self, *arguments: Any) -> None:
            pass

    return Handler


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Server]]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("ONEBYONE_MIRROR", raising=False)
    with ExitStack() as stack:

        def start(behaviour: str) -> Server:
            server = Server(behaviour)
            web = ThreadingHTTPServer(("127.0.0.1", 0), handler(server))
            server.base = f"http://127.0.0.1:{web.server_port}"
            thread = threading.Thread(target=lambda: web.serve_forever(poll_interval=0.01))
            thread.start()
            for stop in (web.server_close, thread.join, web.shutdown, server.closing.set):
                stack.callback(stop)
            return server

        yield start


def test_download(serve: Callable[[str], Server], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    server, destination = serve("ranges"), tmp_path / "new" / "it.bin"
    calls: list[tuple[str, int, int | None]] = []
    fetch(server.address, destination, MD5, progress=lambda *now: calls.append(now))
    assert destination.read_bytes() == CONTENT
    assert not destination.with_name("it.bin.part").exists()
    assert server.asked == [("/folder/it.bin", None)]
    assert calls[-1] == ("downloading it.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)
    assert capfd.readouterr() == ("", "")  # printing is for the caller
    fetch(server.address, destination, MD5)
    assert len(server.asked) == 1  # what is there is not downloaded again


@pytest.mark.parametrize("behaviour", ["ranges", "no ranges"])
def test_a_download_resumes_from_the_part(serve: Callable[[str], Server], tmp_path: Path, behaviour: str) -> None:
    server = serve(behaviour)
    (tmp_path / "it.bin.part").write_bytes(CONTENT[:1000])
    fetch(server.address, tmp_path / "it.bin", MD5)
    assert (tmp_path / "it.bin").read_bytes() == CONTENT
    assert server.asked == [("/folder/it.bin", "bytes=1000-")]


def test_a_complete_part_needs_no_network(serve: Callable[[str], Server], tmp_path: Path) -> None:
    server = serve("ranges")
    (tmp_path / "it.bin.part").write_bytes(CONTENT)
    fetch(server.address, tmp_path / "it.bin", MD5)
    assert (tmp_path / "it.bin").read_bytes() == CONTENT
    assert server.asked == []


@pytest.mark.parametrize("part", [b"x" * len(CONTENT), CONTENT + b"x"])
def test_a_wrong_part_of_full_length_is_downloaded_again(
    serve: Callable[[str], Server], tmp_path: Path, part: bytes
) -> None:
    server = serve("ranges")
    (tmp_path / "it.bin.part").write_bytes(part)
    fetch(server.address, tmp_path / "it.bin", MD5)
    assert (tmp_path / "it.bin").read_bytes() == CONTENT
    assert [asked for _, asked in server.asked] == [f"bytes={len(part)}-", None]


def test_broken_connection_is_resumed(serve: Callable[[str], Server], tmp_path: Path) -> None:
    server = serve("breaks")
    half = len(CONTENT) // 2
    message = rf"broke off after {half:,} of {len(CONTENT):,} bytes; what was received is kept in .*it\.bin\.part"
    with pytest.raises(UsageError, match=f"{message}, and running again resumes .*{ALTERNATIVES}"):
        fetch(server.address, tmp_path / "it.bin", MD5)
    assert (tmp_path / "it.bin.part").read_bytes() == CONTENT[:half]
    assert not (tmp_path / "it.bin").exists()
    server.behaviour = "ranges"
    fetch(server.address, tmp_path / "it.bin", MD5)
    assert (tmp_path / "it.bin").read_bytes() == CONTENT
    assert server.asked[-1][1] == f"bytes={half}-"


def test_a_hanging_server_times_out(
    serve: Callable[[str], Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    with pytest.raises(UsageError, match=f"timed out; what was received is kept .*{ALTERNATIVES}"):
        fetch(serve("hangs").address, tmp_path / "it.bin", MD5)
    assert (tmp_path / "it.bin.part").stat().st_size > 0


def test_wrong_checksum(serve: Callable[[str], Server], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"sent has MD5 {MD5}; expected {'0' * 32}; it has been deleted: run"):
        fetch(serve("ranges").address, tmp_path / "it.bin", "0" * 32)
    assert not (tmp_path / "it.bin.part").exists()
    assert not (tmp_path / "it.bin").exists()


def test_an_existing_wrong_file_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "it.bin").write_bytes(b"mine")
    with pytest.raises(UsageError, match=rf"it\.bin has MD5 .*; expected {MD5}: .* delete it and run again"):
        fetch("http://127.0.0.1:9/it.bin", tmp_path / "it.bin", MD5)
    assert (tmp_path / "it.bin").read_bytes() == b"mine"


def test_not_found(serve: Callable[[str], Server], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"HTTP error 404 Not Found; run again later; or .*{ALTERNATIVES}"):
        fetch(serve("404").address, tmp_path / "it.bin", MD5)


def test_no_network(serve: Callable[[str], Server], tmp_path: Path) -> None:
    server = serve("ranges")
    (tmp_path / "it.bin.part").write_bytes(CONTENT[:9])
    # Port 9 of this machine: no server listens there, as on a machine without a network.
    with pytest.raises(UsageError, match=f"could not download .* kept in .*{ALTERNATIVES}"):
        fetch("http://127.0.0.1:9/it.bin", tmp_path / "it.bin", MD5)
    assert (tmp_path / "it.bin.part").read_bytes() == CONTENT[:9]
    assert server.asked == []


def test_mirror(serve: Callable[[str], Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve("ranges")
    for number, base in enumerate((f"{server.base}/mirror/", f"{server.base}/other")):
        monkeypatch.setenv("ONEBYONE_MIRROR", base)
        fetch("http://nowhere.invalid/a/it.bin", tmp_path / str(number) / "it.bin", MD5)
    assert [path for path, _ in server.asked] == ["/mirror/it.bin", "/other/it.bin"]
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "it.bin").write_bytes(CONTENT)
    monkeypatch.setenv("ONEBYONE_MIRROR", (tmp_path / "local").as_uri())  # a folder is a mirror, too
    fetch("http://nowhere.invalid/a/it.bin", tmp_path / "3" / "it.bin", MD5)
    assert (tmp_path / "3" / "it.bin").read_bytes() == CONTENT
    monkeypatch.setenv("ONEBYONE_MIRROR", "not an address")
    with pytest.raises(UsageError, match=r"could not download not an address/it\.bin: unknown url type"):
        fetch("http://nowhere.invalid/a/it.bin", tmp_path / "4" / "it.bin", MD5)


def test_runs_started_together_download_once(serve: Callable[[str], Server], tmp_path: Path) -> None:
    server = serve("ranges")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: fetch(server.address, tmp_path / "it.bin", MD5), range(4)))
    assert (tmp_path / "it.bin").read_bytes() == CONTENT
    assert len(server.asked) == 1


def test_full_disk(serve: Callable[[str], Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    really_open = Path.open
    monkeypatch.setattr(
        Path,
        "open",
        lambda path, mode="r": Full() if path.suffix == ".part" else really_open(path, mode),
    )
    with pytest.raises(UsageError, match=r"could not write to .*: the disk is full; free space .*ONEBYONE_CACHE"):
        fetch(serve("ranges").address, tmp_path / "it.bin", MD5)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"could not write to .*file.*; free space or get write access"):
        fetch("http://127.0.0.1:9/it.bin", tmp_path / "file" / "it.bin", MD5)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    source = tmp_path / "source" / "things"
    source.mkdir(parents=True)
    (source / "a.bin").write_bytes(CONTENT)
    (source / "b.txt").write_text("b")
    with tarfile.open(tmp_path / "it.tar.gz", "w:gz") as tar:
        tar.add(source, "things")
    return tmp_path / "it.tar.gz"


def test_unpack(archive: Path, tmp_path: Path) -> None:
    unpack(archive, tmp_path / "things")
    assert (tmp_path / "things" / "a.bin").read_bytes() == CONTENT
    unpack(archive, tmp_path / "things")  # as if another process had been faster
    assert {path.name for path in tmp_path.iterdir()} == {"source", "it.tar.gz", "things"}


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "not an archive"])
def test_damaged_archive(archive: Path, tmp_path: Path, damage: str) -> None:
    content = bytearray(archive.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 5000] = b"\xff" * 5000
    archive.write_bytes(
        {
            "cut": archive.read_bytes()[:middle],
            "changed": bytes(content),
            "empty": b"",
            "not an archive": b"<html>Sign in to the hotel's network</html>",
        }[damage]
    )
    with pytest.raises(UsageError, match=r"it\.tar\.gz could not be unpacked .*; delete it and run again, which"):
        unpack(archive, tmp_path / "things")
    assert {path.name for path in tmp_path.iterdir()} == {"source", "it.tar.gz"}


def test_an_archive_without_the_folder_is_refused(archive: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"could not be unpacked \(it contains no folder other\)"):
        unpack(archive, tmp_path / "other")


def test_an_archive_with_paths_outside_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "it.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("../../outside"))
    with pytest.raises(UsageError, match=r"could not be unpacked .*outside"):
        unpack(tmp_path / "it.tar", tmp_path / "things")
    assert {path.name for path in tmp_path.iterdir()} == {"it.tar"}


def test_unpack_on_a_full_disk(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "extractall", full)
    with pytest.raises(UsageError, match="the disk is full"):
        unpack(archive, tmp_path / "things")
    assert {path.name for path in tmp_path.iterdir()} == {"source", "it.tar.gz"}


def test_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEBYONE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.setenv("ONEBYONE_CACHE", "~/here")
    assert cache_folder() == Path.home() / "here"
    monkeypatch.delenv("ONEBYONE_CACHE")
    assert "onebyone" in cache_folder().parts
