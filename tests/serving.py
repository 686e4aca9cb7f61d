"""Helpers of the tests of the server."""

import http.client
import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import uvicorn
from PIL import Image

from classifiers import bits
from onebyone.client import Client, ServerError
from onebyone.serve.app import create_app
from onebyone.serve.bodies import Limits
from onebyone.serve.model import Model
from onebyone.serve.operations import Operation
from onebyone.serve.server import configured
from onebyone.serve.service import Service

SMALL: dict[str, Any] = {"size": 8, "gray": True, "memory": "30KB"}  # is built in a second
FEW = Limits(body=200_000, json=100_000, pixels=10_000, samples=8, features=16, label=20, bodies=300_000)


def vectors(count: int, seed: int = 0, width: int = 4) -> tuple[Any, list[str]]:
    """Samples [count, width] in float32 around two class means, and their labels."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, count)
    x = random.normal(size=(count, width)) + 4 * y[:, None]
    return x.astype(np.float32), [("low", "high")[label] for label in y]


def learn(service: Service, samples: Any, labels: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = service.submit(Operation("learn", tuple(labels), samples)).result(60)
    return found


def state(model: Model) -> dict[str, Any]:
    """All that an operation can change, as values."""
    about, arrays = model.teachings.to_json()
    found: dict[str, Any] = {"about": about, "arrays": [(array.shape, array.tobytes()) for array in arrays]}
    if model.state is not None:
        found |= {"bits": bits(model.classifier), "slots": dict(model.state.slots)}
    return found


def png(array: Any) -> bytes:
    content = io.BytesIO()
    Image.fromarray(array).save(content, "PNG")
    return content.getvalue()


def ask(
    client: Client, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """A request as it is, without a client that helps."""
    connection = http.client.HTTPConnection(urlsplit(client.address).netloc, timeout=60)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, found, answer.read()
    finally:
        connection.close()


def ask_json(client: Client, path: str, content: Any) -> tuple[int, Any]:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    status, _, answer = ask(client, "POST", path, body, {"Content-Type": "application/json"})
    return status, json.loads(answer)


def form(*parts: tuple[str, bytes]) -> tuple[bytes, dict[str, str]]:
    pieces = [
        b'--limit\r\nContent-Disposition: form-data; name="%s"; filename="../../x"\r\n\r\n%s\r\n'
        % (name.encode(), value)
        for name, value in parts
    ]
    return b"".join(pieces) + b"--limit--\r\n", {"Content-Type": "multipart/form-data; boundary=limit"}


def pictures(seed: int = 0) -> list[bytes]:
    random = np.random.default_rng(seed)
    return [png(random.integers(0, 255, (12, 9), dtype=np.uint8)) for _ in range(4)]


def bomb(width: int, height: int) -> bytes:
    """A PNG whose head announces this size, with a few bytes of content."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1_000_000))) + chunk(b"IEND", b"")


def head_of(host: str, length: int) -> bytes:
    fields = f"Host: {host}\r\nContent-Type: image/png\r\nContent-Length: {length}"
    return f"POST /v1/learn HTTP/1.1\r\n{fields}\r\n\r\n".encode()


@contextmanager
def running(service: Service, **options: Any) -> Iterator[Client]:
    """A server in a thread of this process, on a free port."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        app = create_app(service, **options)
        server = uvicorn.Server(configured(app))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        client = Client(f"http://127.0.0.1:{bound.getsockname()[1]}", options.get("token"))
        wait_for(client)
        try:
            yield client
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


def wait_for(client: Client, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            client.health()
            return
        except ServerError:
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.05)


class Process:
    """``onebyone serve`` in a process of its own, on a free port."""

    def __init__(self, folder: Path, *options: str, snapshot_operations: int = 2000) -> None:
        start = f"from onebyone.serve import service; service.SNAPSHOT_OPERATIONS = {snapshot_operations}; "
        start += "from onebyone.cli import main; main()"
        words = [sys.executable, "-c", start, "serve", "--state", str(folder), "--port", "0", *options]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        line = self.process.stdout.readline()
        assert "teach it at " in line, self.said + line + self.errors()
        self.address = line.split("teach it at ")[1].split()[0]
        self.client = Client(self.address)
        self.pid = self.process.pid
        wait_for(self.client)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)
        self._close()

    def stop(self) -> tuple[int, str]:
        """Stop in order. Returns the exit code and what was written to stderr."""
        self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        errors = self.errors()
        self._close()
        return self.process.returncode, errors

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def _close(self) -> None:
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
