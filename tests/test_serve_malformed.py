"""Thousands of malformed requests: no answer but the documented ones, no crash, nothing written elsewhere."""

import http.client
import io
import json
import os
import random
import socket
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

from serving import Process, bomb, form, head_of, png

DOCUMENTED = {200, 400, 403, 404, 405, 408, 409, 413, 415, 421, 422}
JUNK: list[Any] = [
    None,
    True,
    -1,
    1e308,
    float("nan"),
    "",
    "a",
    "\x00",
    "../x",
    "💥" * 50,
    [],
    [[]],
    {},
    {"a": 1},
    [None],
]


NAMES = (
    "learn",
    "predict",
    "forget",
    "undo",
    "forget-class",
    "rename",
    "merge",
    "classes",
    "report",
    "samples",
    "model",
    "health",
    "metrics",
)


def images(chance: random.Random) -> bytes:
    """An image of some format, with some bytes changed, cut or repeated."""
    array = np.random.default_rng(chance.randrange(2**32)).integers(0, 255, (9, 7, 3), dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(array).save(content, chance.choice(["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"]))
    mutated = bytearray(content.getvalue())
    for _ in range(chance.choice([0, 1, 3, 20])):
        mutated[chance.randrange(len(mutated))] = chance.randrange(256)
    if chance.random() < 0.2:
        del mutated[chance.randrange(len(mutated)) :]
    return bytes(mutated) * chance.choice([1, 1, 1, 2])


def request(chance: random.Random) -> tuple[str, str, bytes, dict[str, str]]:
    """Method, path, body and headers of one request, most of them malformed somewhere."""
    path = f"/v1/{chance.choice(NAMES)}" + chance.choice(
        ["", "", "?top=x", "?after=-1", "?pictures=1", "?" + "a" * 500]
    )
    path = chance.choice([path] * 9 + ["/", "/v1", "/%00", "/../../etc/passwd", "//", "/style.css/.."])
    method = chance.choice(["POST"] * 8 + ["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
    headers = chance.choice([{}] * 8 + [{"Origin": "null"}, {"Content-Encoding": "br"}, {"Authorization": "Bearer x"}])
    kind = chance.random()
    if kind < 0.5:
        parts = [
            (chance.choice(["image"] * 5 + ["label", "x", ""]), images(chance)) for _ in range(chance.randrange(4))
        ]
        parts += [("label", chance.choice([b"a", "ü".encode(), b"\xff", b"", b"\x00", b"x" * 500]))]
        body, more = form(*parts)
        if chance.random() < 0.1:
            body = body[: chance.randrange(len(body))]
        return method, path, body, more | headers
    if kind < 0.8:
        keys = ["images", "vectors", "labels", "label", "new_label"]
        content = {chance.choice(keys): chance.choice([*JUNK, ["AAAA"], [[1, 2]], [[1e39]]]) for _ in range(3)}
        body = json.dumps(content).encode()
        if chance.random() < 0.2:
            body = body.replace(b"[", b"[" * chance.choice([2, 2000]), 1)
        return method, path, body, {"Content-Type": "application/json"} | headers
    types = [
        "image/png",
        "image/svg+xml",
        "text/html",
        "application/octet-stream",
        "multipart/form-data; boundary=",
        "",
    ]
    return (
        method,
        path,
        chance.randbytes(chance.choice([0, 10, 3000])),
        {"Content-Type": chance.choice(types)} | headers,
    )


def files_below(*folders: Path) -> dict[str, int]:
    return {str(path): path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("number", [150, pytest.param(10_000, marks=pytest.mark.slow)])
def test_malformed_requests(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path / "work")
    process = Process(tmp_path / "state", "--size", "8", "--memory", "40KB", "--fsync", "never")
    chance, statuses = random.Random(0), dict.fromkeys(DOCUMENTED, 0)
    connection = http.client.HTTPConnection(urlsplit(process.address).netloc, timeout=60)
    for index in range(number):
        method, path, body, headers = request(chance)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        except (http.client.HTTPException, ConnectionError):  # the server closes after it refused a body
            connection.close()
            continue
        assert answer.status in DOCUMENTED, (index, method, path, headers, body[:200], answer.status, content)
        statuses[answer.status] += 1
        if answer.status >= 400 and method != "HEAD" and path.startswith("/v1/"):
            assert json.loads(content)["error"]
    connection.close()
    process.client.learn([png(np.zeros((8, 8), np.uint8))], ["after all"])
    assert process.client.classes()["after all"] >= 1
    assert statuses[422] > number / 10
    assert statuses[200] > number / 50
    code, errors = process.stop()
    assert code == 0
    assert "Traceback" not in errors
    assert not files_below(tmp_path / "temporary", tmp_path / "work")
    known = ("journal-", "snapshot-", "settings.json", ".lock")
    assert all(Path(name).name.startswith(known) for name in files_below(tmp_path / "state"))


def resident(pid: int) -> int:
    """The largest amount of memory of a process so far, in bytes."""
    return 1024 * int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0])


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")  # noqa: PTH110
def test_bombs_are_refused_within_a_second_and_100_megabytes(tmp_path: Path) -> None:
    process = Process(tmp_path / "state")
    process.client.learn([png(np.zeros((32, 32, 3), np.uint8))], ["a"])
    process.client.predict([png(np.zeros((32, 32, 3), np.uint8))])  # waits for the solution
    before = resident(process.pid)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(50_000_000))
    bodies = [
        (*form(("label", b"a"), ("image", bomb(60_000, 60_000))), 413),
        (*form(("label", b"a"), ("image", bomb(10_000, 10_000))), 413),
        (*form(("label", b"a"), ("image", packed.getvalue())), 422),
        (packed.getvalue(), {"Content-Type": "application/zip"}, 415),
    ]
    host = urlsplit(process.address).netloc
    started = processor_seconds(process.pid)
    for body, headers, status in bodies:
        assert status_of(host, body, headers) == status
    for length in (f"Content-Length: {5 * 2**30}", "Transfer-Encoding: chunked"):
        name, port = host.split(":")
        with socket.create_connection((name, int(port)), 60) as stream:
            stream.sendall(head_of(name, 0).replace(b"Content-Length: 0", length.encode()))
            try:
                for _ in range(100):
                    stream.sendall(b"100000\r\n" + bytes(2**20) + b"\r\n")
                    if b"413" in received(stream):
                        break
            except (ConnectionError, TimeoutError):
                pass
    assert processor_seconds(process.pid) - started < 1  # for all of them
    assert resident(process.pid) - before < 100_000_000
    assert process.client.classes() == {"a": 1}
    code, _ = process.stop()
    assert code == 0


def processor_seconds(pid: int) -> float:
    """How long a process has computed, which does not depend on what else the machine does."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def status_of(host: str, body: bytes, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("POST", "/v1/learn", body, headers)
    status = connection.getresponse().status
    connection.close()
    return status


def received(stream: socket.socket) -> bytes:
    """What has arrived, without waiting for more."""
    stream.settimeout(0.01)
    try:
        return stream.recv(1000)
    except TimeoutError:
        return b""
    finally:
        stream.settimeout(60)
