"""The executor of this machine: worker processes on a CPU, a pack in this process on a GPU."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import queue
import signal
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

import torch

from onebyone.engine import choose_device, more_queues, torch_settings
from onebyone.errors import UsageError
from onebyone.executors.executor import (
    PACK_WIDTH,
    Executor,
    Function,
    Lost,
    Status,
    Worker,
    attempt,
    pack_of,
    stop_signal,
)

STOP, EXIT = 1, 2  # for all workers: write a checkpoint and stop; or exit at once
KILLED = "its process was killed or crashed; if there was not enough memory, use fewer jobs"


class LocalExecutor(Executor):
    """Worker processes on a CPU, because several items at once are faster than one on all cores; packs on a GPU."""

    shares_paths = True

    def device(self, name: str) -> str:
        with more_queues():
            return str(choose_device(name))

    @contextmanager
    def pool(self, function: Function, count: int, total: int, jobs: int | None, gpu: bool) -> Iterator[Processes]:
        # By the number of all items, not of those left: the number of threads can change the last bits of a sum.
        jobs = min(jobs or available_cores(), total)
        processes = Processes(function, min(jobs, count), max(1, available_cores() // jobs))
        try:
            yield processes
        except BaseException:  # such as a second Ctrl-C
            processes.stop.value = EXIT
            raise
        finally:
            processes.close()

    def map(
        self, function: Function, items: Mapping[str, Any], *, gpu: bool = False, **given: Any
    ) -> Generator[tuple[str, Any]]:
        if not gpu:
            yield from super().map(function, items, **given)
            return
        ignored = lambda name, status: None  # noqa: E731
        with stop_signal() as stopped, torch_settings(flops=0):  # CPU threads would only wait for each other
            worker = Worker(given.get("progressed", ignored), stopped)
            yield from pack_of(function, items, given.get("jobs") or PACK_WIDTH, worker)


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def packed(what: Any) -> bytes:
    try:
        return pickle.dumps(what)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            f"a worker process cannot be sent this ({error}); use functions and classes that are defined at the top of "
            "a module"
        ) from error


class Processes:
    """Worker processes, each with a thread here that sends it items and waits for the outcomes."""

    width = 1

    def __init__(self, function: Function, size: int, threads: int) -> None:
        self.room = size
        self.stop = multiprocessing.get_context("spawn").RawValue("b", 0)
        self.slots = [Slot(packed(function), threads, self.stop) for _ in range(size)]
        self.idle = queue.SimpleQueue[Slot]()
        self.threads = ThreadPoolExecutor(size)
        for slot in self.slots:
            self.idle.put(slot)

    def submit(self, batches: Sequence[Mapping[str, Any]]) -> list[Future[dict[str, Any]]]:
        return [self.threads.submit(self.do, *items.items()) for items in batches]

    def do(self, item: tuple[str, Any]) -> dict[str, Any]:
        slot = self.idle.get()
        try:
            return {item[0]: slot.outcome(*item)}
        finally:
            self.idle.put(slot)

    def statuses(self, stopped: bool) -> Iterator[tuple[str, Status]]:
        if stopped:
            self.stop.value = STOP
        for slot in self.slots:
            name, (samples, done, accuracy) = slot.name, slot.status
            if samples:
                yield name, Status(int(samples), int(done), None if math.isnan(accuracy) else accuracy)

    def close(self) -> None:
        if self.stop.value == EXIT:  # the processes end, and so do the threads that wait for them
            self.threads.shutdown(cancel_futures=True)
        for slot in self.slots:
            slot.close()
        self.threads.shutdown()


class Slot:
    """One worker process, and where it writes the status of its item.

    Item and outcome are sent through a pipe whose other end only the worker holds, so a worker that is killed ends it,
    also in the middle of a message. The pool of the standard library keeps both ends of its pipes open in this
    process, and waits forever for the rest of an outcome. Status and stop flag are plain shared memory: a process that
    is killed leaves no lock behind that others wait for. Function, items and outcomes are sent as bytes, because torch
    would pass every tensor as an open file, of which a process has few.
    """

    def __init__(self, function: bytes, threads: int, stop: Any) -> None:
        self.context = multiprocessing.get_context("spawn")
        self.name, self.status = "", self.context.RawArray("d", 3)
        self.arguments = function, threads, stop, self.status
        self.connection: Connection | None = None

    def open(self) -> Connection:
        self.connection, other = self.context.Pipe()
        self.process = self.context.Process(target=_serve_items, args=(other, *self.arguments))
        with interrupts_blocked():  # the worker process inherits this
            self.process.start()
        other.close()
        return self.connection

    def outcome(self, name: str, item: Any) -> Any:
        """What the process returns; ``Lost`` if it ended before."""
        self.status[0], self.name = 0, name  # in this order, as another thread reads them
        message = packed((name, item))
        try:
            connection = self.connection or self.open()
            connection.send_bytes(message)
            return pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            self.close()  # the next item gets another process
            return Lost(KILLED)

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.process.join()
            self.connection = None


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Processes that are started here never receive Ctrl-C, not even while they import; the parent stops them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # started with the first process, it would undo the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve_items(connection: Connection, function: bytes, threads: int, stop: Any, status: Any) -> None:
    """A worker process. It does items until the other end of the connection is closed.

    ``status`` is shared memory: samples, samples done, accuracy.
    """
    torch.set_num_threads(min(threads, torch.get_num_threads()))  # never more than OMP_NUM_THREADS allows
    stopped = threading.Event()

    def report(name: str, now: Status) -> None:
        status[:] = now.samples, now.done, math.nan if now.accuracy is None else now.accuracy

    def watch_parent() -> None:
        parent = multiprocessing.parent_process()
        while parent is not None and parent.is_alive() and stop.value != EXIT:
            parent.join(0.1)
            if stop.value == STOP:
                stopped.set()
        os._exit(1)  # the parent was killed, and may be started again any moment

    threading.Thread(target=watch_parent, daemon=True).start()
    worker = Worker(report, stopped)
    with suppress(EOFError, OSError):  # there is nothing more to do
        done: Any = pickle.loads(function)
        while True:
            message = connection.recv_bytes()
            outcome = attempt(lambda: done(*pickle.loads(message), worker), stopped)  # noqa: B023
            connection.send_bytes(pickle.dumps(outcome))
