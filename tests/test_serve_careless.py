"""What people and programs do to a server that it was not made for."""

import json
import os
import socket
import struct
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from onebyone import UsageError
from onebyone.client import Client, ServerError
from onebyone.serve import server
from onebyone.serve.journal import HEAD
from onebyone.serve.operations import Operation
from onebyone.serve.service import Service
from serving import Process, ask, ask_json, learn, running, state, vectors

X, Y = vectors(60)
HEAD_OF_REQUEST = b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n"


def taught(folder: Path, calls: int = 3) -> dict[str, Any]:
    """A state folder with some calls in its journal, as after kill -9. Returns its state."""
    service = Service(folder, "never")
    for number in range(calls):
        learn(service, X[number : number + 2], ["low", "high"])
    found = state(service.model)
    service._snapshot = lambda: None  # type: ignore[method-assign]
    service.close()
    return found


def test_a_journal_that_is_damaged_in_the_middle_is_refused_with_the_way_out(tmp_path: Path) -> None:
    taught(tmp_path)
    path = tmp_path / "journal-0"
    content = bytearray(path.read_bytes())
    _, size, _, _ = HEAD.unpack_from(content, 0)
    second = HEAD.size + size
    content[second + HEAD.size + 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(UsageError, match=f"damaged at byte {second}, before other entries.*truncate -s {second}"):
        Service(tmp_path)
    os.truncate(path, second)  # as the sentence says
    again = Service(tmp_path)
    assert again.model.counts() == {}
    again.close()


def test_a_snapshot_without_its_journal_is_not_used(tmp_path: Path) -> None:
    """The process was killed after it wrote a snapshot, and before it wrote the journal that belongs to it."""
    before = taught(tmp_path)
    (tmp_path / "snapshot-99.safetensors").write_bytes(b"of later")
    again = Service(tmp_path)
    assert state(again.model) == before
    assert not (tmp_path / "snapshot-99.safetensors").exists()
    again.close()


def test_a_journal_without_its_snapshot_is_refused_with_a_sentence(tmp_path: Path) -> None:
    service = Service(tmp_path)
    learn(service, X[:4], Y[:4])
    service.close()  # with a snapshot
    (snapshot,) = tmp_path.glob("snapshot-*")
    snapshot.unlink()
    with pytest.raises(UsageError, match="snapshot-1"):
        Service(tmp_path)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folders have no owner")
def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        Service(tmp_path / "file" / "state")  # not even by root


@pytest.mark.parametrize("name", ["../../etc/passwd", "C:\\x", "🦊" * 50, "a" * 100, "Ὀδυσσεύς", "<b>&amp;", "'; --"])
def test_any_text_is_a_class(name: str, tmp_path: Path) -> None:
    with running(Service(tmp_path / "state")) as client:
        client.learn(X[:4], Y[:4])
        client.learn(X[4:6], [name] * 2)
        assert client.classes()[name] == 2
        client.rename(name, "other")
        assert client.undo()["labels"] == ["other"]
        client.undo()
        with pytest.raises(ServerError, match="no teaching to undo") as refused:
            client.undo()
        assert refused.value.status == 409
        assert client.classes() == {}
    assert {path.name for path in tmp_path.iterdir()} == {"state"}


@pytest.mark.parametrize("name", ["", " ", "x" * 10_000, "a\nb", "\u202e\u0000"])
def test_a_name_that_is_no_name_is_refused(name: str, tmp_path: Path) -> None:
    with running(Service(tmp_path / "state")) as client:
        client.learn(X[:4], Y[:4])
        for path, content in [
            ("learn", {"vectors": [[1.0] * 4], "label": name}),
            ("rename", {"label": "low", "new_label": name}),
            ("forget-class", {"label": name}),
        ]:
            status, answer = ask_json(client, f"/v1/{path}", content)
            assert status == 422
            assert len(answer["error"]) < 200
        assert set(client.classes()) == {"low", "high"}


def test_undo_after_two_classes_became_one(tmp_path: Path) -> None:
    service = Service(tmp_path)
    learn(service, X[:10], ["low", "high"] * 5)
    learn(service, X[10:14], ["other"] * 4)
    service.submit(Operation("rename", names={"other": "low"})).result(60)
    assert service.model.counts() == {"high": 5, "low": 9}
    assert service.submit(Operation("undo")).result(60)["counts"] == {"high": 5, "low": 5}
    service.close()


def test_a_class_that_is_deleted_while_it_is_taught_is_a_new_one(tmp_path: Path) -> None:
    with running(Service(tmp_path / "state")) as client:
        client.learn(X[:6], ["low", "high"] * 3)
        client.forget_class("low")
        client.learn(X[6:8], ["low"] * 2)
        assert client.classes() == {"high": 3, "low": 2}
        with pytest.raises(ServerError, match="nothing"):
            client.forget_class("nothing")


def test_a_wrong_token_is_one_sentence(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-enough-letters\n")  # as echo writes it
    with running(Service(tmp_path / "state"), token=server.read_token(token)) as client:
        client.learn(X[:4], Y[:4])
        wrong = Client(client.address, "another-token-of-letters")
        for call in (wrong.classes, wrong.undo, lambda: wrong.learn(X[:1], ["low"])):
            with pytest.raises(ServerError, match="a token is needed") as refused:
                call()
            assert refused.value.status == 401
        assert sum(client.classes().values()) == 4


def test_connections_without_a_request_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than the server has, with and without the beginning of a request: it answers again soon."""
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.5)
    with running(Service(tmp_path / "state")) as client:
        host, port = urlsplit(client.address).netloc.split(":")
        idle = [socket.create_connection((host, int(port)), 60) for _ in range(server.CONNECTIONS + 50)]
        for connection in idle[::2]:
            connection.sendall(HEAD_OF_REQUEST)
        for connection in idle:
            while connection.recv(1000):  # too many connections are told so
                pass
            connection.close()
        assert client.health()["status"] == "ok"
        with socket.create_connection((host, int(port)), 60) as used:  # and begins a second request
            used.sendall(HEAD_OF_REQUEST + b"\r\n")
            assert b" 200 " in used.recv(10_000)
            used.sendall(HEAD_OF_REQUEST)
            while used.recv(1000):
                pass


@pytest.mark.slow
def test_sigterm_while_it_learns_loses_nothing(tmp_path: Path) -> None:
    process = Process(tmp_path / "state")
    acknowledged: list[int] = []
    begun = threading.Event()

    def teach(client: Client) -> None:
        try:
            for position in range(1000):
                client.learn(X[position % 50 : position % 50 + 2], ["low", "high"])
                acknowledged.append(2)
                if len(acknowledged) > 5:
                    begun.set()
        except ServerError:
            pass

    threads = [threading.Thread(target=teach, args=(Client(process.address),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    code, errors = process.stop()
    for thread in threads:
        thread.join(60)
    assert (code, errors) == (0, "")
    again = Service(tmp_path / "state")
    assert sum(acknowledged) <= sum(again.model.counts().values()) <= sum(acknowledged) + 8
    again.close()


def test_a_connection_that_is_reset_in_an_answer_is_one_sentence() -> None:
    """The client of a server that is killed in the middle of an answer, of success or of an error."""
    for status in (b"200 OK", b"409 Conflict"):
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()

            def answer(listening: socket.socket = listening, status: bytes = status) -> None:
                connection, _ = listening.accept()
                connection.recv(10_000)
                connection.sendall(b"HTTP/1.1 %s\r\nContent-Length: 100\r\n\r\n{" % status)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
                connection.close()

            thread = threading.Thread(target=answer)
            thread.start()
            with pytest.raises(ServerError):
                Client(f"http://127.0.0.1:{listening.getsockname()[1]}").classes()
            thread.join()


def test_a_random_file_is_refused_everywhere(tmp_path: Path) -> None:
    """It is no model, no image and no JSON. The server goes on."""
    with running(Service(tmp_path / "state")) as client:
        junk = os.urandom(5000)
        (tmp_path / "junk").write_bytes(junk)
        with pytest.raises(ServerError, match="not a saved classifier"):
            client.merge(tmp_path / "junk")
        with pytest.raises(ServerError, match="is no image"):
            client.learn([junk], ["a"])
        assert ask(client, "POST", "/v1/learn", junk, {"Content-Type": "application/json"})[0] == 422
        assert json.loads(ask(client, "GET", "/openapi.json")[2])["paths"]
