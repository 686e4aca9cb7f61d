"""Predictions of concurrent requests, computed together."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from onebyone.serve.answers import Predictions
from onebyone.serve.errors import Refused, busy
from onebyone.serve.service import Service

Array = npt.NDArray[Any]
WINDOW = 0.002  # seconds that the first request waits for others
TOGETHER = 64  # samples of one forward pass; more would make the first wait for the last
WAITING = 1024  # samples


class Waiting(NamedTuple):
    samples: Array
    found: asyncio.Future[Predictions]


class Batcher:
    """Gathers the samples of concurrent requests into one forward pass."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.waiting = 0  # samples
        self._queue: list[Waiting] = []
        self._task: asyncio.Task[None] | None = None  # computes until nothing waits
        self._thread = ThreadPoolExecutor(1, "predictions")
        self.batches = 0

    async def predict(self, samples: Array) -> Predictions:
        """Answers from the last solution.

        Raises
        ------
        Refused
            503 if too many samples are waiting, 409 if nothing was learnt or the samples have another shape.
        """
        if self.waiting + len(samples) > WAITING:
            raise busy()
        found: asyncio.Future[Predictions] = asyncio.get_running_loop().create_future()
        self._queue.append(Waiting(samples, found))
        self.waiting += len(samples)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await found

    async def _run(self) -> None:
        """Compute until nothing waits. During a forward pass, the next requests gather."""
        while self._queue:
            if len(self._queue) == 1:
                await asyncio.sleep(WINDOW)
            batch: list[Waiting] = []
            count = 0
            while self._queue and (not batch or count + len(self._queue[0].samples) <= TOGETHER):
                batch.append(self._queue.pop(0))
                count += len(batch[-1].samples)
            loop = asyncio.get_running_loop()
            results = await loop.run_in_executor(self._thread, self._compute, [each.samples for each in batch])
            self.waiting -= count
            self.batches += 1
            for each, result in zip(batch, results, strict=True):
                if each.found.done():  # the client has gone
                    continue
                if isinstance(result, Predictions):
                    each.found.set_result(result)
                else:
                    each.found.set_exception(result)

    def _compute(self, parts: list[Array]) -> list[Predictions | Exception]:
        answer = self.service.answer
        if answer is None:
            return [Refused(409, "nothing was learnt yet; teach something first")] * len(parts)
        shape = answer.layout.shape
        fits = [part.shape[1:] == shape for part in parts]
        other: Exception = Refused(409, f"the samples have another shape than {shape}, which was learnt")
        whole = None
        if any(fits):
            try:
                whole = answer.predict(np.concatenate([part for part, fit in zip(parts, fits, strict=True) if fit]))
            except Exception as error:
                other = error
        results: list[Predictions | Exception] = []
        start = 0
        for part, fit in zip(parts, fits, strict=True):
            if not fit or whole is None:
                results.append(other)
                continue
            rows = slice(start, start := start + len(part))
            results.append(whole._replace(probabilities=whole.probabilities[rows], unknown=whole.unknown[rows]))
        return results

    def close(self) -> None:
        self._thread.shutdown()
