"""The executor of this machine: worker processes on a CPU, a pack in this process on a GPU."""

from __future__ import annotations

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

STOP = b"stop"  # a message to a worker, beside items: write a checkpoint and stop
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
            for worker in processes.workers:
                worker.kill()  # which ends the thread that waits for it
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
        self.workers = [Process(packed(function), threads) for _ in range(size)]
        self.idle = queue.SimpleQueue[Process]()
        self.threads = ThreadPoolExecutor(size)
        for worker in self.workers:
            self.idle.put(worker)

    def submit(self, batches: Sequence[Mapping[str, Any]]) -> list[Future[dict[str, Any]]]:
        return [self.threads.submit(self.do, *items.items()) for items in batches]

    def do(self, item: tuple[str, Any]) -> dict[str, Any]:
        worker = self.idle.get()
        try:
            return {item[0]: worker.outcome(*item)}
        finally:
            self.idle.put(worker)

    def statuses(self, stopped: bool) -> Iterator[tuple[str, Status]]:
        for worker in self.workers:
            if stopped:
                worker.stop()
            if worker.report is not None:
                yield worker.report

    def close(self) -> None:
        self.threads.shutdown()
        for worker in self.workers:
            worker.close()


class Process:
    """A worker process, which is started for the first item, and again after it was killed.

    All messages go through a pipe whose other end only the worker holds, so either process notices the end of the
    other, also in the middle of a message. The pool of the standard library keeps both ends of its pipes open in this
    process, and waits forever for the rest of an outcome. Function, items and outcomes are sent as bytes, because torch
    would pass every tensor as an open file, of which a process has few.
    """

    def __init__(self, function: bytes, threads: int) -> None:
        self.arguments = function, threads
        self.report: tuple[str, Status] | None = None  # the last one
        self.connection: Connection | None = None
        self.sending = threading.Lock()
        self.ended = False  # no more items are wanted

    def open(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve_items, args=(other, *self.arguments))
        with interrupts_blocked():  # the worker process inherits this
            self.process.start()
        other.close()
        return self.connection

    def outcome(self, name: str, item: Any) -> Any:
        """What the process returns; ``Lost`` if it ended before."""
        message = packed((name, item))
        try:
            with self.sending:
                if self.ended:
                    return None
                if self.connection is not None and not self.process.is_alive():
                    self.close()  # it was killed while it waited
                connection = self.connection or self.open()
                connection.send_bytes(message)
            while isinstance(said := pickle.loads(connection.recv_bytes()), Status):
                self.report = name, said
            return said
        except (EOFError, OSError):
            self.close()  # the next item gets another process
            return Lost(KILLED)

    def stop(self) -> None:
        """Tell the process to write a checkpoint and stop."""
        with self.sending, suppress(OSError):
            if self.connection is not None and not self.ended:
                self.connection.send_bytes(STOP)
            self.ended = True

    def kill(self) -> None:
        with self.sending:
            self.ended = True
            if self.connection is not None:
                self.process.kill()

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


def _serve_items(connection: Connection, function: bytes, threads: int) -> None:
    """A worker process. It does items until the other end of the connection is closed."""
    torch.set_num_threads(min(threads, torch.get_num_threads()))  # never more than OMP_NUM_THREADS allows
    stopped, items = threading.Event(), queue.SimpleQueue[bytes]()

    def listen() -> None:
        with suppress(EOFError, OSError):
            while True:
                if (message := connection.recv_bytes()) == STOP:
                    stopped.set()
                else:
                    items.put(message)
        os._exit(1)  # the other process has done all, or was killed, and may be started again any moment

    threading.Thread(target=listen, daemon=True).start()
    worker = Worker(lambda name, status: connection.send(status), stopped)
    with suppress(OSError):  # the other process was killed
        done: Any = pickle.loads(function)
        while True:
            message = items.get()
            outcome = attempt(lambda: done(*pickle.loads(message), worker), stopped)  # noqa: B023
            connection.send_bytes(pickle.dumps(outcome))
