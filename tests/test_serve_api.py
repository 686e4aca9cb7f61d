"""The HTTP API, over a socket: every endpoint, every limit, and who may ask."""

import http.client
import io
import json
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

from onebyone import OnlineClassifier
from onebyone.client import Client, ServerError
from onebyone.serve import batching
from onebyone.serve.bodies import Limits
from onebyone.serve.server import is_loopback, read_token, serve
from onebyone.serve.service import Service
from serving import SMALL, png, running, vectors

TOKEN = "a-token-of-enough-letters"
FEW = Limits(body=200_000, json=100_000, pixels=10_000, samples=8, features=16, label=20, bodies=300_000, seconds=1.0)
X, Y = vectors(200)


def ask(
    client: Client, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """A request as it is, without a client that helps."""
    connection = http.client.HTTPConnection(urlsplit(client.address).netloc, timeout=30)
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


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server that has learnt nothing, for tests that change nothing."""
    with running(Service(tmp_path_factory.mktemp("state"), **SMALL), limits=FEW) as client:
        yield client


@pytest.fixture
def vector_server(tmp_path: Path) -> Iterator[Client]:
    with running(Service(tmp_path / "state")) as client:
        client.learn(X[:100], Y[:100])
        yield client


def test_teach_ask_and_change_by_vectors(vector_server: Client, tmp_path: Path) -> None:
    client = vector_server
    found = client.predict([*X[100:120], [99.0] * 4])
    right = [each["nearest"] == label for each, label in zip(found[:-1], Y[100:120], strict=True)]
    assert np.mean(right) > 0.9
    assert found[-1]["label"] is None
    assert found[-1]["unknown"]
    assert sum(found[0]["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    counts = client.classes()
    assert sum(counts.values()) == 100
    assert client.report()["samples"] > 20

    assert client.learn(X[100:110], ["Ärger 🦊"] * 10)["new_classes"] == ["Ärger 🦊"]
    assert client.undo()["counts"] == counts
    client.forget(X[:1], Y[:1])
    assert client.classes()[Y[0]] == counts[Y[0]] - 1
    client.rename("low", "../../etc/passwd")
    assert set(client.classes()) == {"../../etc/passwd", "high"}
    client.download(tmp_path / "model")
    saved = OnlineClassifier.load(tmp_path / "model")
    assert saved.n_samples_seen_ == 99
    assert client.merge(tmp_path / "model")["merged"] == 99
    client.forget_class("high")
    assert set(client.classes()) == {"../../etc/passwd"}
    client.forget_class("../../etc/passwd")
    assert client.classes() == {}
    with pytest.raises(ServerError, match="nothing was learnt yet") as refused:
        client.predict(X[:1])
    assert refused.value.status == 409


def test_teach_by_form_and_show_pictures(tmp_path: Path) -> None:
    with running(Service(tmp_path / "state", **SMALL)) as client:
        for label in ("Ü", "b"):
            body, headers = form(("label", label.encode()), *(("image", each) for each in pictures(ord(label))))
            status, _, answer = ask(client, "POST", "/v1/learn", body, headers)
            assert status == 200, answer
        found = json.loads(answer)
        assert found["counts"] == {"b": 4, "Ü": 4}
        url = f"/v1/predict?top=1&after={found['sequence']}"
        status, _, answer = ask(client, "POST", url, pictures(ord("b"))[0], {"Content-Type": "image/png"})
        assert status == 200, answer
        assert json.loads(answer)["predictions"][0]["nearest"] == "b"
        assert len(json.loads(answer)["predictions"][0]["probabilities"]) == 1
        classes = json.loads(ask(client, "GET", "/v1/classes?pictures=1")[2])
        assert [len(each["pictures"]) for each in classes["classes"]] == [4, 4]
        assert classes["undo"] == {"samples": 4, "labels": ["b"]}
        assert client._json("samples")["classes"][0]["pictures"][0].startswith("data:image/png;base64,")
        metrics = ask(client, "GET", "/v1/metrics")[2].decode()
        assert 'onebyone_requests_total{route="/v1/learn",status="200"} 2' in metrics
        assert 'onebyone_samples_total{kind="learnt"} 8' in metrics


BAD = [
    (b"", "not JSON"),
    (b"[" * 5000, "not JSON"),
    ([1], "must be a JSON object"),
    ({}, "no samples"),
    ({"vectors": 1}, "must be a list"),
    ({"vectors": [[]], "label": "a"}, "a list of 1 to 16 numbers"),
    ({"vectors": [[1.0] * 17], "label": "a"}, "a list of 1 to 16 numbers"),
    ({"vectors": [["1"]], "label": "a"}, "no numbers"),
    ({"vectors": [[True]], "label": "a"}, "no numbers"),
    ({"vectors": [[1e300]], "label": "a"}, "too large for float32"),
    ({"vectors": [[10**400]], "label": "a"}, "too large"),
    ({"vectors": [[float("nan")]], "label": "a"}, "NaN"),
    ({"vectors": [[1], [1, 2]], "label": "a"}, "different lengths"),
    ({"vectors": [[1]], "labels": ["a", "b"]}, "1 samples and 2 labels"),
    ({"vectors": [[1]]}, "1 samples and 0 labels"),
    ({"vectors": [[1]], "label": ""}, "1 to 20 characters"),
    ({"vectors": [[1]], "label": "x" * 21}, "1 to 20 characters"),
    ({"vectors": [[1]], "label": "a\x00b"}, "control characters"),
    ({"vectors": [[1]], "label": "\ud800"}, "control characters"),
    ({"vectors": [[1]], "label": 3}, "labels are text"),
    ({"images": [3], "label": "a"}, "not text"),
    ({"images": ["?"], "label": "a"}, "not base64"),
    ({"images": ["data:nothing"], "label": "a"}, "not base64"),
    ({"images": ["AAAA"], "label": "a"}, "no image"),
    ({"images": ["AAAA"], "vectors": [[1]], "label": "a"}, "images and vectors"),
    ({"vectors": [[1]] * 9, "label": "a"}, "9 samples, and the limit is 8"),
]


@pytest.mark.parametrize(("content", "sentence"), BAD, ids=[sentence for _, sentence in BAD])
def test_a_bad_request_is_refused_with_a_sentence(api: Client, content: Any, sentence: str) -> None:
    status, answer = ask_json(api, "/v1/learn", content)
    assert status in (413, 422)
    assert sentence in answer["error"]
    assert api.classes() == {}


def bomb(width: int, height: int) -> bytes:
    """A PNG whose head announces this size, with a few bytes of content."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1_000_000))) + chunk(b"IEND", b"")


REQUESTS: list[tuple[str, bytes, dict[str, str], int]] = [
    ("too many pixels", *form(("label", b"a"), ("image", bomb(60_000, 60_000))), 413),
    ("unfinished image", *form(("label", b"a"), ("image", bomb(90, 90)[:60])), 422),
    ("unknown part", *form(("other", b"a")), 422),
    ("no end", form(("label", b"a"))[0][:-4], form()[1], 422),
    ("no boundary", b"", {"Content-Type": "multipart/form-data"}, 422),
    ("label of other bytes", *form(("label", b"\xff"), ("image", b"x")), 422),
    ("another type", b"PK\x03\x04", {"Content-Type": "application/zip"}, 415),
    ("no type", b"x", {}, 415),
    ("compressed", b"x", {"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415),
    ("too much JSON", b"[" + b"1," * 50_000 + b"1]", {"Content-Type": "application/json"}, 413),
    ("too large", b"x" * 200_001, {"Content-Type": "image/png"}, 413),
]


@pytest.mark.parametrize(("body", "headers", "status"), [each[1:] for each in REQUESTS], ids=[r[0] for r in REQUESTS])
def test_bodies_have_limits(api: Client, body: bytes, headers: dict[str, str], status: int) -> None:
    found, _, answer = ask(api, "POST", "/v1/learn", body, headers)
    assert found == status, answer
    assert "error" in json.loads(answer)


def head_of(host: str, length: int) -> bytes:
    fields = f"Host: {host}\r\nContent-Type: image/png\r\nContent-Length: {length}"
    return f"POST /v1/learn HTTP/1.1\r\n{fields}\r\n\r\n".encode()


def test_a_body_of_gigabytes_is_refused_before_it_is_sent(api: Client) -> None:
    host, port = urlsplit(api.address).netloc.split(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        started = time.monotonic()
        connection.sendall(head_of(host, 5 * 2**30) + b"x" * 1000)
        assert b" 413 " in connection.recv(1000)
        assert time.monotonic() - started < 5  # beside other tests; no gigabyte is sent in that time


def test_a_slow_body_is_given_up(api: Client) -> None:
    host, port = urlsplit(api.address).netloc.split(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(head_of(host, 100) + b"x")
        assert b" 408 " in connection.recv(1000)


@pytest.mark.parametrize(("size", "mode"), [((20, 10), "RGB"), ((7, 7), "L"), ((90, 80), "RGBA"), ((64, 64), "P")])
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_images_of_any_size_mode_and_format(api: Client, kind: str, size: tuple[int, int], mode: str) -> None:
    content = io.BytesIO()
    image = Image.new(mode, size)
    (image.convert("RGB") if kind == "JPEG" else image).save(content, kind)
    body, headers = form(("image", content.getvalue()))
    status, _, answer = ask(api, "POST", "/v1/predict", body, headers)
    assert status == 409, answer  # it was decoded, and nothing is learnt


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1/../settings.json", "/..%2f..%2fetc/passwd", "/page/app.js", "//"])
def test_no_other_address_answers(api: Client, path: str) -> None:
    assert ask(api, "GET", path)[0] in (404, 405)


def test_methods_and_queries_are_checked(api: Client) -> None:
    assert ask(api, "GET", "/v1/learn")[0] == 405
    assert ask(api, "DELETE", "/v1/classes")[0] == 405
    for query in ("top=x", "top=-1", "after=" + "9" * 20, "after=99"):
        assert ask_json(api, f"/v1/predict?{query}", {"vectors": [[1]]})[0] == 422


def test_headers_protect_the_page(api: Client) -> None:
    for path in ("/", "/docs", "/v1/health", "/v1/nothing"):
        _, headers, _ = ask(api, "GET", path)
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers or "onebyone" not in headers["server"]


def test_without_a_token_nothing_but_health_answers(tmp_path: Path) -> None:
    with running(Service(tmp_path / "state"), token=TOKEN) as client:
        assert client.classes() == {}
        paths = list(json.loads(ask(client, "GET", "/openapi.json")[2])["paths"])
        assert len(paths) == 13
        for path in paths:
            for method in ("GET", "POST"):
                for header in ({}, {"Authorization": TOKEN}, {"Authorization": "Bearer x"}, {"Authorization": "é"}):
                    headers = {name: value.encode("latin-1").decode("latin-1") for name, value in header.items()}
                    status = ask(client, method, f"{path}?token={TOKEN}", b"", headers)[0]
                    assert status == (401 if path != "/v1/health" else {"GET": 200, "POST": 405}[method]), path


def test_other_sites_and_other_names_are_refused(tmp_path: Path) -> None:
    with running(Service(tmp_path / "state"), hosts={"127.0.0.1"}) as client:
        own = client.address
        assert ask(client, "GET", "/v1/classes", headers={"Origin": own})[0] == 200
        for origin in (
            "http://evil.example",
            "null",
            "http://127.0.0.1:1",
            "https://127.0.0.1.evil.example",
            "http://[::1",
        ):
            assert ask(client, "POST", "/v1/undo", headers={"Origin": origin})[0] == 403, origin
        for host in ("evil.example", "127.0.0.1.evil.example", "", "[::1"):
            assert ask(client, "GET", "/v1/classes", headers={"Host": host})[0] in (400, 421), host


def test_predictions_are_gathered(vector_server: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "WINDOW", 0.05)

    def batches() -> int:
        text = ask(vector_server, "GET", "/v1/metrics")[2].decode()
        return int(text.split("\nonebyone_batches ")[1].split("\n")[0])

    before, found = batches(), []
    threads = [
        threading.Thread(target=lambda each=each: found.append((each, vector_server.predict(X[each : each + 1]))))  # type: ignore[misc]
        for each in range(30)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= batches() - before < 15
    alone = {each: vector_server.predict(X[each : each + 1])[0]["nearest"] for each in range(30)}
    assert {each: answer[0]["nearest"] for each, answer in found} == alone


def test_too_many_predictions_are_refused(vector_server: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "WAITING", 2)
    status, headers, answer = ask(
        vector_server,
        "POST",
        "/v1/predict",
        json.dumps({"vectors": X[:3].tolist()}),
        {"Content-Type": "application/json"},
    )
    assert (status, headers["retry-after"]) == (503, "1"), answer


def test_the_description_is_what_the_server_does(api: Client) -> None:
    found = json.loads(ask(api, "GET", "/openapi.json")[2])
    assert found["openapi"].startswith("3.1")
    for path, verbs in found["paths"].items():
        for verb, about in verbs.items():
            assert ask(api, verb.upper(), path)[0] not in (404, 405), path
            assert about["summary"]
            assert "200" in about["responses"]


@pytest.mark.parametrize("content", ["", "short", "with spaces in the middle", "ünïcödé-ünïcödé-ünïcödé"])
def test_a_bad_token_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(content)
    with pytest.raises(ValueError, match="at least 16 letters"):
        read_token(tmp_path / "token")


def test_an_open_address_needs_a_token(tmp_path: Path) -> None:
    assert not is_loopback("0.0.0.0")
    with pytest.raises(ValueError, match="a token is needed"):
        serve(tmp_path / "state", host="0.0.0.0")
    assert not (tmp_path / "state").exists()


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ValueError, match="choose another port"):
            serve(tmp_path / "state", port=taken.getsockname()[1])
    assert not (tmp_path / "state").exists()


def test_the_client_says_what_is_wrong_before_it_sends(api: Client) -> None:
    with pytest.raises(ValueError, match="2 samples and 1 labels"):
        api.learn(pictures()[:2], ["a"])
    with pytest.raises(ServerError, match=r"perhaps because the request is too large|more than 200,000 bytes"):
        api.learn([bytes(30_000_000)], ["a"])


def test_no_server_is_one_sentence() -> None:
    with pytest.raises(ServerError, match="start it with: onebyone serve"):
        Client("http://127.0.0.1:1").health()


@pytest.mark.parametrize("change", [lambda content: content[:-1], lambda content: b"", lambda content: b"PK" + content])
def test_a_bad_upload_is_refused(change: Any, vector_server: Client, tmp_path: Path) -> None:
    vector_server.download(tmp_path / "model")
    (tmp_path / "model").write_bytes(change((tmp_path / "model").read_bytes()))
    before = vector_server.classes()
    with pytest.raises(ServerError, match="not a saved classifier"):
        vector_server.merge(tmp_path / "model")
    assert vector_server.classes() == before


def test_an_upload_never_builds_another_encoder(vector_server: Client, tmp_path: Path) -> None:
    """A file names its encoder, which may be a path: it is compared with the server's before anything is built."""
    other = OnlineClassifier("replay", memory=20, encoder="mlp").partial_fit(X, Y)
    other.save(tmp_path / "model")
    with pytest.raises(ServerError, match="this server needs encoder='auto', memory='3MB', method='auto'"):
        vector_server.merge(tmp_path / "model")
    numbers = OnlineClassifier(memory="3MB").partial_fit(X, [len(label) for label in Y])
    numbers.save(tmp_path / "model")
    with pytest.raises(ServerError, match="labels that are no text"):
        vector_server.merge(tmp_path / "model")
