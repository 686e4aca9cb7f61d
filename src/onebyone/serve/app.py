"""The HTTP API over a service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from onebyone import __version__
from onebyone.errors import UsageError
from onebyone.serve import views
from onebyone.serve.answers import Predictions
from onebyone.serve.batching import Batcher
from onebyone.serve.bodies import Limits, Reader, json_object, label_in, parse, samples_array
from onebyone.serve.errors import Refused, busy
from onebyone.serve.guard import Guard
from onebyone.serve.journal import CannotStore
from onebyone.serve.metrics import Metrics
from onebyone.serve.openapi import openapi
from onebyone.serve.operations import Operation
from onebyone.serve.service import Busy, Service

Array = npt.NDArray[Any]
T = TypeVar("T")
log = logging.getLogger("onebyone.serve")
DECODING = 64  # requests that wait for a thread
PATIENCE = 15.0  # seconds that a prediction with ``after`` waits


class Api:
    """The endpoints. Each reads its body within limits, decodes it in another thread, and asks the service."""

    def __init__(self, service: Service, limits: Limits) -> None:
        self.service, self.limits = service, limits
        self.reader, self.batcher, self.metrics = Reader(limits), Batcher(service), Metrics()
        self.threads = ThreadPoolExecutor(2, "decoding")
        self.decoding = 0
        self.built_in: list[dict[str, Any]] | None = None
        self.started = time.monotonic()

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        if self.decoding >= DECODING:
            raise busy()
        self.decoding += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.threads, function, *arguments)
        finally:
            self.decoding -= 1

    async def change(self, work: Any) -> Any:
        try:
            return await asyncio.wrap_future(self.service.submit(work))
        except Busy:
            raise busy() from None

    # Samples

    @contextlib.asynccontextmanager
    async def body(self, request: Request) -> AsyncIterator[bytes]:
        body = await self.reader.read(request)
        try:
            yield body
        finally:
            self.reader.release(len(body))

    def decoded(self, body: bytes, content_type: str) -> tuple[Array, tuple[str, ...]]:
        """The samples and labels in a body, in a thread."""
        content = parse(body, content_type, self.limits)
        shape, dtype, fitted = self.service.look(lambda model: (model.shape, model.dtype, model.state is not None))
        return samples_array(content, shape, dtype, fitted, self.limits), content.labels

    async def labelled(self, request: Request) -> tuple[Array, tuple[str, ...]]:
        async with self.body(request) as body:
            samples, labels = await self.in_thread(self.decoded, body, request.headers.get("content-type", ""))
        if len(labels) != len(samples):
            raise Refused(422, f"the request has {len(samples)} samples and {len(labels)} labels; send one per sample")
        return samples, labels

    async def learn(self, request: Request) -> Response:
        samples, labels = await self.labelled(request)
        predicted: list[str | None] = [None] * len(labels)
        known: list[str] = []
        with contextlib.suppress(Refused):  # nothing learnt yet, or too busy
            found = await self.batcher.predict(samples)
            predicted, known = [found.labels[best] for best in found.probabilities.argmax(1)], found.labels
        right = tuple(
            guess == label if label in known else None for guess, label in zip(predicted, labels, strict=True)
        )
        result = await self.change(Operation("learn", labels, samples, right))
        self.metrics.samples["learnt"] += len(labels)
        return JSONResponse(result | {"predicted": predicted})

    async def predict(self, request: Request) -> Response:
        top = max(number(request, "top", 1000), 1)
        await self._wait_for(max(number(request, "after", 0), self._first()))
        async with self.body(request) as body:
            samples, _ = await self.in_thread(self.decoded, body, request.headers.get("content-type", ""))
        found = await self.batcher.predict(samples)
        self.metrics.samples["predicted"] += len(samples)
        return JSONResponse(described(found, top))

    def _first(self) -> int:
        """The operation to wait for because there is no answer before it, or 0."""
        return self.service.sequence if self.service.answer is None else 0

    async def _wait_for(self, sequence: int) -> None:
        """Wait until answers take an operation into account."""
        if sequence > self.service.sequence:
            raise Refused(422, f"after is {sequence}, but the last operation is {self.service.sequence}")
        end = time.monotonic() + PATIENCE
        while self.service.solved < sequence:
            if time.monotonic() > end:
                raise busy()
            await asyncio.sleep(0.005)

    async def forget(self, request: Request) -> Response:
        samples, labels = await self.labelled(request)
        return JSONResponse(await self.change(Operation("forget", labels, samples)))

    # Classes

    async def fields(self, request: Request, *names: str) -> list[str]:
        """Labels from a JSON object."""
        async with self.body(request) as body:
            found = json_object(body)
        missing = [name for name in names if name not in found]
        if missing:
            raise Refused(422, f"the request needs {', '.join(missing)}")
        return [label_in(found[name], self.limits) for name in names]

    async def undo(self, request: Request) -> Response:
        return JSONResponse(await self.change(Operation("undo")))

    async def forget_class(self, request: Request) -> Response:
        (label,) = await self.fields(request, "label")
        return JSONResponse(await self.change(Operation("forget-class", (label,))))

    async def rename(self, request: Request) -> Response:
        old, new = await self.fields(request, "label", "new_label")
        return JSONResponse(await self.change(Operation("rename", names={old: new})))

    async def classes(self, request: Request) -> Response:
        with_pictures = number(request, "pictures", 0) > 0
        return JSONResponse(await self.in_thread(views.classes, self.service, with_pictures))

    async def report(self, request: Request) -> Response:
        await self._wait_for(self._first())
        answer = self.service.answer
        if answer is None:
            raise Refused(409, "nothing was learnt yet; teach something first")
        if answer.report is None:
            raise Refused(409, answer.why_no_report)
        return JSONResponse(answer.report | {"sequence": answer.sequence})

    async def samples(self, request: Request) -> Response:
        if self.built_in is None:
            self.built_in = await self.in_thread(views.built_in, self.service.settings.samples)
        return JSONResponse({"kind": self.service.settings.samples, "classes": self.built_in})

    # The model

    async def model(self, request: Request) -> Response:
        content = await self.change(views.saved)
        name = 'attachment; filename="model.onebyone"'
        return Response(content, media_type="application/octet-stream", headers={"content-disposition": name})

    async def merge(self, request: Request) -> Response:
        async with self.body(request) as body:
            return JSONResponse(await self.change(Operation("merge", content=body)))

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__})

    async def metrics_text(self, request: Request) -> Response:
        service = self.service
        gauges = [
            ("onebyone_sequence", "Last operation.", service.sequence),
            ("onebyone_solved", "Last operation that answers take into account.", service.solved),
            ("onebyone_waiting_changes", "Changes that wait.", service.waiting),
            ("onebyone_waiting_predictions", "Samples that wait to be predicted.", self.batcher.waiting),
            ("onebyone_batches", "Forward passes.", self.batcher.batches),
            ("onebyone_journal_bytes", "Size of the journal.", service.journal_bytes),
            ("onebyone_body_bytes", "Bytes of bodies in memory.", self.reader.held),
            ("onebyone_up_seconds", "Time since the start.", time.monotonic() - self.started),
        ]
        return PlainTextResponse(self.metrics.text(gauges), media_type="text/plain; version=0.0.4")

    def routes(self) -> list[Route]:
        post = {
            "learn": self.learn,
            "predict": self.predict,
            "forget": self.forget,
            "undo": self.undo,
            "forget-class": self.forget_class,
            "rename": self.rename,
            "merge": self.merge,
        }
        get = {
            "classes": self.classes,
            "report": self.report,
            "samples": self.samples,
            "model": self.model,
            "health": self.health,
            "metrics": self.metrics_text,
        }
        found = [Route(f"/v1/{name}", endpoint, methods=["POST"]) for name, endpoint in post.items()]
        return found + [Route(f"/v1/{name}", endpoint, methods=["GET"]) for name, endpoint in get.items()]

    def close(self) -> None:
        self.batcher.close()
        self.threads.shutdown()


def described(found: Predictions, top: int) -> dict[str, Any]:
    """Predictions as JSON. An unknown sample has no label."""
    if not np.isfinite(found.probabilities).all():
        raise Refused(422, "a sample has values so large that it cannot be scored; scale it as in training")
    rows = []
    for row, unknown in zip(found.probabilities, found.unknown, strict=True):
        order = (-row).argsort(kind="stable")[:top]
        best = found.labels[order[0]]
        rows.append(
            {
                "label": None if unknown else best,
                "unknown": bool(unknown),
                "nearest": best,
                "probabilities": {found.labels[each]: round(float(row[each]), 6) for each in order},
            }
        )
    return {"predictions": rows, "sequence": found.sequence}


def number(request: Request, name: str, default: int) -> int:
    """A whole number in the query."""
    text = request.query_params.get(name, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise Refused(422, f"{name} is {text[:50]!r}; it must be a whole number")
    return int(text)


def error_response(request: Request, error: Exception) -> Response:
    status, sentence = 500, "the server failed; its log says why"
    match error:
        case Refused():
            status, sentence = error.status, error.sentence
        case CannotStore():
            status, sentence = 507, str(error)
        case UsageError():
            status, sentence = 409, str(error)
        case HTTPException():
            status, sentence = (
                error.status_code,
                {404: "there is no such address; see /docs"}.get(error.status_code, str(error.detail)),
            )
        case _:
            log.error("a request failed", exc_info=error)
    headers = {"retry-after": "1"} if status == 503 else dict(getattr(error, "headers", None) or {})
    return JSONResponse({"error": sentence}, status, headers)


def create_app(
    service: Service,
    *,
    token: str | None = None,
    hosts: Collection[str] | None = None,
    limits: Limits | None = None,
) -> Starlette:
    """The application. Closing it closes the service.

    Parameters
    ----------
    service
        The classifier.
    token
        What clients have to send. None: nobody needs one.
    hosts
        Names that requests may use for this server. None: any.
    limits
        What one request may ask for.
    """
    api = Api(service, limits or Limits())
    pages = views.pages()

    async def page(request: Request) -> Response:
        content, kind = pages[request.url.path]
        return Response(content, media_type=kind)

    async def schema(request: Request) -> Response:
        return JSONResponse(openapi(api.limits))

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.get_running_loop().run_in_executor(None, service.close)
            api.close()

    routes = [*(Route(path, page) for path in pages), Route("/openapi.json", schema), *api.routes()]
    public = {*pages, "/openapi.json", "/v1/health"}
    guard = Middleware(Guard, token=token, public=public, hosts=hosts, metrics=api.metrics)
    handlers = dict.fromkeys((Refused, UsageError, HTTPException, Exception), error_response)
    return Starlette(routes=routes, middleware=[guard], exception_handlers=handlers, lifespan=lifespan)
