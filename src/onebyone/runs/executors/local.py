"""The executor of this machine: worker processes on a CPU, a pack in this process on a GPU."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from onebyone.data import SkippedFilesWarning
from onebyone.engine import choose_device, more_queues, pack, torch_settings
from onebyone.engine.pack import WAIT_SECONDS, NotNow
from onebyone.errors import UsageError
from onebyone.runs.executors.interface import (
    REPORT_SECONDS,
    Assignment,
    Executor,
    Failed,
    Lost,
    Progressed,
    Status,
    Work,
    Worker,
    attempt,
    one_line,
)
from onebyone.runs.files import leave_error
from onebyone.runs.run import Interrupted

STOP, EXIT = 1, 2  # for all workers: write a checkpoint and stop; or exit at once
KILLED = "its process was killed or crashed; if there was not enough memory, use fewer jobs"


class LocalExecutor(Executor):
    """Worker processes on a CPU, because several items at once are faster than one on all cores; packs on a GPU."""

    shares_paths = True

    def device(self, name: str) -> str:
        with more_queues():
            return str(choose_device(name))

    def execute(self, assignment: Assignment) -> None:
        if assignment.on_gpu:
            with torch_settings(flops=0):  # the work is on the GPU; CPU threads would only wait for each other
                run_in_pack(assignment)
        else:
            assignment.kept.clear()  # the workers read the data themselves
            run_in_processes(assignment)


def run_in_pack(assignment: Assignment) -> None:
    """Do the items in this process, some at a time, on data that are on the device once."""
    worker = Worker(assignment.progressed, assignment.stopped, assignment.kept)

    def failed(name: str, error: Exception) -> None:
        if not isinstance(error, Interrupted):
            assignment.ended(name, Failed(one_line(error)))

    say = partial(print, file=sys.stderr)  # standard output is for results
    begin = {name: partial(assignment.work.start, name, item, worker) for name, item in assignment.items.items()}
    pack(begin, assignment.width, done=assignment.ended, failed=failed, say=say)


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


class Slot:
    """One worker process, and where it writes the status of its item.

    Item and outcome are sent through a pipe whose other end only the worker holds, so a worker that is killed ends it,
    also in the middle of a message. The pool of the standard library keeps both ends of its pipes open in this
    process, and waits forever for the rest of an outcome. Status and stop flag are plain shared memory: a process that
    is killed leaves no lock behind that others wait for. Work, items and outcomes are sent as bytes, because torch
    would pass every tensor as an open file, of which a process has few.
    """

    def __init__(self, work: Work, threads: int, stop: Any) -> None:
        self.context = multiprocessing.get_context("spawn")
        self.status = self.context.RawArray("d", 3)
        self.work, self.arguments = packed(work), (threads, stop, self.status)
        self.open()

    def open(self) -> None:
        """Start the process. It imports torch first, so all slots are opened before the first item is sent."""
        self.connection, other = self.context.Pipe()
        self.process = self.context.Process(target=_serve_items, args=(other, *self.arguments))
        with interrupts_blocked():  # the worker process inherits this
            self.process.start()
        other.close()
        self.informed = False

    def submit(self, name: str, item: Any) -> None:
        self.status[0] = 0
        sent = packed(item)
        try:
            self._send(name, sent)
        except OSError:  # the process was killed
            self.connection.close()
            self.process.join()
            self.open()
            with suppress(OSError):  # and again: ``outcome`` says so
                self._send(name, sent)

    def _send(self, name: str, item: bytes) -> None:
        if not self.informed:
            self.connection.send_bytes(self.work)
            self.informed = True
        self.connection.send((name, item))

    def outcome(self) -> Any:
        """What the process returns; ``Lost`` if it ended before."""
        try:
            return pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            self.connection.close()  # so that ``submit`` starts another process
            return Lost(KILLED)

    def report(self, name: str, progressed: Progressed) -> None:
        samples, done, accuracy = self.status
        if samples:
            progressed(name, Status(int(samples), int(done), None if math.isnan(accuracy) else accuracy))


def run_in_processes(assignment: Assignment) -> None:
    """Do the items in worker processes."""
    work, items = assignment.work, assignment.items
    # By the number of all items, not of those left: the number of threads can change the last bits of a sum.
    jobs = min(assignment.jobs or available_cores(), assignment.total or len(items))
    waiting = deque(items)
    stop = multiprocessing.get_context("spawn").RawValue("b", 0)
    threads = max(1, available_cores() // jobs)
    slots: list[Slot] = []
    busy: dict[Any, tuple[Slot, str]] = {}  # by connection
    try:
        slots += [Slot(work, threads, stop) for _ in range(min(jobs, len(items)))]
        free = list(slots)
        while waiting or busy:
            if assignment.stopped.is_set() and not stop.value:
                stop.value = STOP
                assignment.stopping()
            if stop.value:
                waiting.clear()  # also of items that were put back
            while waiting and free:
                slot, name = free.pop(), waiting.popleft()
                slot.submit(name, items[name])
                busy[slot.connection] = slot, name
            finished = wait(list(busy), REPORT_SECONDS)
            for connection, (slot, name) in list(busy.items()):
                slot.report(name, assignment.progressed)
                if connection not in finished:
                    continue
                del busy[connection]
                free.append(slot)
                outcome = slot.outcome()
                if isinstance(outcome, Lost) and (folder := work.folder(name)) is not None:
                    leave_error(folder, f"{outcome}\n")
                if isinstance(outcome, NotNow):
                    waiting.append(name)
                elif outcome is not None:  # None: it was stopped
                    assignment.ended(name, outcome)
    except BaseException:  # such as a second Ctrl-C
        stop.value = EXIT
        raise
    finally:
        for slot in slots:
            slot.connection.close()
        for slot in slots:  # now that all of them exit at the same time
            slot.process.join()


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Processes that are started here never receive Ctrl-C, not even while they import; the parent stops them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    _start_resource_tracker()  # started with the first process, it would undo the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_resource_tracker() -> None:
    """Start the process that removes semaphores of a killed process, without its warning that it had to."""
    sys.warnoptions.append("ignore:resource_tracker")
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.pop()


def _serve_items(connection: Connection, threads: int, stop: Any, status: Any) -> None:
    """A worker process. It does items until the other end of the connection is closed.

    ``status`` is shared memory: samples, samples done, accuracy.
    """
    torch.set_num_threads(min(threads, torch.get_num_threads()))  # never more than OMP_NUM_THREADS allows
    warnings.simplefilter("ignore", SkippedFilesWarning)  # the parent process has read the data and warned
    stopped = threading.Event()

    def report(name: str, now: Status) -> None:
        status[:] = now.samples, now.done, math.nan if now.accuracy is None else now.accuracy

    def watch_parent() -> None:
        parent = multiprocessing.parent_process()
        while parent is not None and parent.is_alive() and stop.value != EXIT:
            parent.join(0.1)
            if stop.value == STOP:
                stopped.set()
        os._exit(1)  # the sweep was killed, and may be started again any moment

    threading.Thread(target=watch_parent, daemon=True).start()
    worker = Worker(report, stopped)
    with suppress(EOFError, OSError):  # there is nothing more to do
        work: Work = pickle.loads(connection.recv_bytes())
        while True:
            name, item = connection.recv()
            outcome = attempt(lambda: work.start(name, pickle.loads(item), worker))  # noqa: B023
            if isinstance(outcome, NotNow):
                stopped.wait(WAIT_SECONDS)  # it may be all that is left
            connection.send_bytes(pickle.dumps(outcome))
