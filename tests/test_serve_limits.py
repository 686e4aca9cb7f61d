"""What a request may contain: every limit, every malformed body, and every kind of image."""

import io
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from PIL import Image

from onebyone.client import Client
from onebyone.serve.service import Service
from serving import FEW, SMALL, ask, ask_json, bomb, form, head_of, running


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server that has learnt nothing, for tests that change nothing."""
    with running(Service(tmp_path_factory.mktemp("state"), **SMALL), limits=FEW) as client:
        yield client


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


def test_a_body_of_gigabytes_is_refused_before_it_is_sent(api: Client) -> None:
    host, port = urlsplit(api.address).netloc.split(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(head_of(host, 5 * 2**30) + b"x" * 1000)
        assert b" 413 " in connection.recv(1000)


def test_a_slow_body_is_given_up(tmp_path: Path) -> None:
    with running(Service(tmp_path / "state"), limits=replace(FEW, seconds=0.2)) as client:
        host, port = urlsplit(client.address).netloc.split(":")
        with socket.create_connection((host, int(port)), 60) as connection:
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
