"""The HTTP API, over a socket: every endpoint, every limit, and who may ask."""

import errno
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onebyone import OnlineClassifier
from onebyone.client import Client, ServerError
from onebyone.serve import batching
from onebyone.serve.openapi import ERRORS
from onebyone.serve.server import is_loopback, read_token, serve
from onebyone.serve.service import Service
from serving import FEW, SMALL, ask, ask_json, form, pictures, running, vectors

TOKEN = "a-token-of-enough-letters"
X, Y = vectors(200)


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


def test_a_download_on_a_full_disk_is_answered_as_described(
    vector_server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        status, _, body = ask(vector_server, "GET", "/v1/model")
    assert status == 507
    assert json.loads(body) == {"error": "nothing was changed, because the disk is full; free some space and try again"}
    assert ask(vector_server, "GET", "/v1/model")[0] == 200


def test_one_label_and_several_are_refused_together(vector_server: Client) -> None:
    before = vector_server.classes()
    status, answer = ask_json(vector_server, "/v1/learn", {"vectors": [[1] * 4], "labels": ["low"], "label": "high"})
    assert status == 422
    assert "send label for all samples, or labels, one per sample" in answer["error"]
    assert vector_server.classes() == before


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


def test_what_was_just_taught_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first prediction waits for the first answer; it is not told that nothing was learnt."""
    solve = Service._solve

    def slowly(service: Service) -> None:
        time.sleep(0.3)
        solve(service)

    monkeypatch.setattr(Service, "_solve", slowly)
    with running(Service(tmp_path / "state", **SMALL)) as client:
        assert ask_json(client, "/v1/predict", {"vectors": [[1.0]]})[0] == 409
        assert ask_json(client, "/v1/learn", {"vectors": [[1.0]], "label": "one"})[0] == 200
        assert ask_json(client, "/v1/predict", {"vectors": [[1.0]]})[0] == 200
        status, _, body = ask(client, "GET", "/v1/report")
        assert status == 409
        assert b"there is nothing to report yet; learn more samples" in body


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
    """All that arrive during a forward pass are computed together by the next one."""
    compute, sizes = batching.Batcher._compute, []

    def when_all_wait(batcher: batching.Batcher, parts: list[Any]) -> Any:
        sizes.append(len(parts))
        end = time.monotonic() + 60
        while len(sizes) == 1 and batcher.waiting < 30:
            assert time.monotonic() < end
            time.sleep(0.005)
        return compute(batcher, parts)

    with monkeypatch.context() as patched, ThreadPoolExecutor(30) as threads:
        patched.setattr(batching.Batcher, "_compute", when_all_wait)
        found = list(threads.map(lambda each: vector_server.predict(X[each : each + 1])[0]["nearest"], range(30)))
    assert sum(sizes) == 30
    assert len(sizes) <= 2  # one, if all have arrived before the first pass
    assert found == [vector_server.predict(X[each : each + 1])[0]["nearest"] for each in range(30)]


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
    assert "repeated forgets them twice" in found["paths"]["/v1/forget"]["post"]["description"]
    for path, verbs in found["paths"].items():
        for verb, about in verbs.items():
            assert ask(api, verb.upper(), path)[0] not in (404, 405), path
            assert about["summary"]
            assert "200" in about["responses"]
    described = {
        status for verbs in found["paths"].values() for about in verbs.values() for status in about["responses"]
    }
    assert described == {"200", *map(str, ERRORS)}


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


def test_a_classifier_of_bytes_learns_nothing_else(tmp_path: Path) -> None:
    """Only a merge gives a server such a classifier. Numbers that are no bytes would become other ones."""
    OnlineClassifier(memory="3MB").partial_fit(np.array([[0, 9], [255, 7]], np.uint8), ["a", "b"]).save(
        tmp_path / "model"
    )
    with running(Service(tmp_path / "state")) as client:
        client.merge(tmp_path / "model")
        for vector in ([256.0, 0.0], [-1.0, 0.0], [0.5, 0.0]):
            with pytest.raises(ServerError, match="numbers from 0 to 255"):
                client.learn([vector], ["a"])
        assert client.learn([[255.0, 0.0]], ["b"])["counts"] == {"a": 1, "b": 2}
