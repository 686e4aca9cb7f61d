"""Bodies of requests: read within limits, and decoded to samples and labels."""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import json
import unicodedata
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import Message
from typing import Any

import numpy as np
import numpy.typing as npt
from starlette.requests import ClientDisconnect, Request

from onebyone.data.images import Mode, UnreadableImage, pillow, pixels
from onebyone.serve.errors import Refused, busy

Array = npt.NDArray[Any]
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")  # by content; the decoders of others are used by few and tested less
INVISIBLE = ("Cc", "Cs", "Zl", "Zp")  # categories of Unicode that a label must not have
NO_IMAGE = "is no image of the formats PNG, JPEG, WebP, GIF or BMP, or is damaged"


@dataclass(frozen=True)
class Limits:
    """What one request may ask for."""

    body: int = 32_000_000  # bytes
    json: int = 8_000_000  # bytes; a parser of JSON lets nothing else run meanwhile
    pixels: int = 16_000_000  # of an image, after the decoder has reduced a JPEG
    samples: int = 256
    features: int = 65_536  # values of a vector
    label: int = 100  # characters
    bodies: int = 128_000_000  # bytes of all requests at the same time
    seconds: float = 30.0  # to send a body


class Reader:
    """Reads bodies. All requests together take a bounded amount of memory."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.held = limits, 0

    async def read(self, request: Request) -> bytes:
        """The body. The caller calls ``release`` with its length when it is done.

        Raises
        ------
        Refused
            413 if it is too large, 408 if it arrives too slowly, 415 if it is compressed, 503 if other requests take
            the memory.
        """
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        limit = self.limits.json if kind == "application/json" else self.limits.body
        too_large = Refused(413, f"the body has more than {limit:,} bytes; send fewer or smaller samples per request")
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise Refused(415, "the body is compressed; send it as it is")
        announced = request.headers.get("content-length", "0")
        if announced.isascii() and announced.isdigit() and int(announced[:20]) > limit:
            raise too_large
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    self.held += len(chunk)
                    if size > limit:
                        raise too_large
                    if self.held > self.limits.bodies:
                        raise busy()
                    chunks.append(chunk)
        except BaseException as error:
            self.release(size)
            if isinstance(error, TimeoutError):
                raise Refused(408, f"the body took longer than {self.limits.seconds:g} seconds; send less") from None
            if isinstance(error, ClientDisconnect):
                raise Refused(400, "the connection was closed before the end of the body") from None
            raise
        return b"".join(chunks)

    def release(self, size: int) -> None:
        self.held -= size


@dataclass(frozen=True)
class Content:
    """What a body contains."""

    images: tuple[bytes, ...] = ()
    vectors: tuple[Any, ...] = ()
    labels: tuple[str, ...] = ()


def parse(body: bytes, content_type: str, limits: Limits) -> Content:
    """The images or vectors, and the labels, of a body of JSON or multipart/form-data, or of a single image."""
    header = Message()
    header["content-type"] = content_type
    kind = header.get_content_type() if content_type else ""
    if kind == "application/json":
        content = from_json(body)
    elif kind == "multipart/form-data":
        content = from_form(body, str(header.get_param("boundary", "")))
    elif kind.startswith("image/") or kind == "application/octet-stream":
        content = Content(images=(body,))
    else:
        raise Refused(415, "the body must be application/json, multipart/form-data or image/*")
    count = len(content.images) + len(content.vectors)
    if count > limits.samples:
        raise Refused(413, f"the request has {count} samples, and the limit is {limits.samples}; send several requests")
    if content.images and content.vectors:
        raise Refused(422, "the request has images and vectors; send samples of one kind")
    return Content(content.images, content.vectors, tuple(label_in(label, limits) for label in content.labels))


def json_object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(422, f"the body is not JSON ({str(error)[:100]})") from None
    if not isinstance(found, dict):
        raise Refused(422, "the body must be a JSON object")
    return found


def from_json(body: bytes) -> Content:
    found = json_object(body)
    images, vectors = listed(found, "images"), listed(found, "vectors")
    labels = listed(found, "labels")
    if "label" in found and labels:
        raise Refused(422, "the request has label and labels; send label for all samples, or labels, one per sample")
    if "label" in found:
        labels = [found["label"]] * (len(images) + len(vectors))
    decoded = []
    for position, text in enumerate(images):
        if not isinstance(text, str):
            raise Refused(422, f"image {position} is not text; give images as base64")
        try:
            decoded.append(base64.b64decode(text.split(",", 1)[1] if text.startswith("data:") else text, validate=True))
        except (binascii.Error, ValueError, IndexError):
            raise Refused(422, f"image {position} is not base64") from None
    return Content(tuple(decoded), tuple(vectors), tuple(labels))


def listed(found: dict[str, Any], name: str) -> list[Any]:
    value = found.get(name, [])
    if not isinstance(value, list):
        raise Refused(422, f"{name} must be a list")
    return value


def from_form(body: bytes, boundary: str) -> Content:
    """The parts ``image`` and ``label`` of a form, in order. One label is for all images."""
    if not 0 < len(boundary) <= 70 or not boundary.isascii():
        raise Refused(422, "multipart/form-data needs a boundary")
    mark = b"\r\n--" + boundary.encode()
    pieces = (b"\r\n" + body).split(mark, 1026)
    if len(pieces) < 3 or not pieces[-1].startswith(b"--"):
        raise Refused(422, "the form has no parts, more than a thousand, or no end")
    images: list[bytes] = []
    labels: list[Any] = []
    for piece in pieces[1:-1]:
        head, separator, content = piece.lstrip(b" \t").removeprefix(b"\r\n").partition(b"\r\n\r\n")
        if not separator or len(head) > 4096:
            raise Refused(422, "a part of the form has no head")
        match name_of(head):
            case "image" | "images":
                images.append(content)
            case "label" | "labels":
                labels.append(text_of(content))
            case other:
                raise Refused(422, f"the form has a part {other[:50]!r}; expected image and label")
    if len(labels) == 1:
        labels = labels * len(images)
    return Content(tuple(images), (), tuple(labels))


def name_of(head: bytes) -> str:
    """The name of a part. The name of its file is never used."""
    for line in head.decode("latin-1").split("\r\n"):
        key, _, value = line.partition(":")
        if key.strip().lower() == "content-disposition":
            message = Message()
            message["content-disposition"] = value.strip()
            return str(message.get_param("name", "", header="content-disposition"))
    return ""


def text_of(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Refused(422, "a label is not UTF-8") from None


def label_in(label: Any, limits: Limits) -> str:
    """A label as it is stored: composed Unicode without characters that cannot be seen."""
    if not isinstance(label, str):
        raise Refused(422, f"a label is {str(label)[:50]!r}; labels are text")
    if len(label) > 4 * limits.label:  # before it is composed, which takes time
        raise Refused(422, f"a label has {len(label)} characters, and the limit is {limits.label}")
    name = unicodedata.normalize("NFC", label).strip()
    if not 0 < len(name) <= limits.label or any(unicodedata.category(each) in INVISIBLE for each in name):
        raise Refused(422, f"a label must have 1 to {limits.label} characters, and no control characters")
    return name


def image_array(content: bytes, shape: tuple[int, ...], limits: Limits) -> Array:
    """An encoded image as [height, width] or [height, width, 3] bytes."""
    height, width = shape[:2]
    mode: Mode = "L" if len(shape) == 2 else "RGB"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about images larger than the limit below
            image = pillow().open(io.BytesIO(content), formats=FORMATS)
        image.draft(None, (2 * width, 2 * height))
    except pillow().DecompressionBombError:
        raise Refused(413, f"an image has more pixels than the limit of {limits.pixels:,}; reduce it") from None
    except Exception:  # a damaged image can raise anything
        raise Refused(422, f"a sample {NO_IMAGE}") from None
    if image.width * image.height > limits.pixels:
        raise Refused(
            413, f"an image has {image.width} x {image.height} pixels, and the limit is {limits.pixels:,}; reduce it"
        )
    try:
        found: Array = pixels(image, mode, (height, width))
        return found
    except (UnreadableImage, MemoryError):
        raise Refused(422, f"a sample {NO_IMAGE}") from None


def vector_array(vectors: Sequence[Any], limits: Limits) -> Array:
    """Vectors [n, features] in float32."""
    if not all(isinstance(vector, list) and 0 < len(vector) <= limits.features for vector in vectors):
        raise Refused(422, f"a vector must be a list of 1 to {limits.features} numbers")
    if len({len(vector) for vector in vectors}) > 1:
        raise Refused(422, "vectors have different lengths; send vectors of one length")
    if not all(type(value) in (int, float) for vector in vectors for value in vector):
        raise Refused(422, "a vector has values that are no numbers")
    try:
        with np.errstate(over="ignore"):
            array = np.array(vectors, dtype=np.float32)
    except (ValueError, OverflowError):
        raise Refused(422, "a vector has numbers that are too large") from None
    if not np.isfinite(array).all():
        raise Refused(422, "a vector has NaN, infinity or a number too large for float32")
    return array


def samples_array(content: Content, shape: tuple[int, ...], dtype: str, fitted: bool, limits: Limits) -> Array:
    """The samples of a request in the layout of the classifier."""
    if content.images:
        if len(shape) == 1 or dtype != "uint8":
            raise Refused(409, f"this classifier learns vectors of {shape[0]} numbers, not images")
        return np.stack([image_array(image, shape, limits) for image in content.images])
    if content.vectors:
        array = vector_array(content.vectors, limits)
        if fitted and array.shape[1:] != shape:
            kind = f"vectors of {shape[0]} numbers" if len(shape) == 1 else "images"
            raise Refused(409, f"a vector has {array.shape[1]} numbers, but this classifier learns {kind}")
        with np.errstate(invalid="ignore"):
            kept = array.astype(dtype) if fitted else array
        if not np.array_equal(kept, array):
            raise Refused(422, "a vector has a number that is not a byte; this classifier learns numbers from 0 to 255")
        return kept
    raise Refused(422, "the request has no samples; send images or vectors")
