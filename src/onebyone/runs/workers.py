"""The runs of a sweep in worker processes: on a CPU, several at once are faster than one on all cores."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import resource_tracker
from typing import Any

import torch

from onebyone.data import SkippedFilesWarning
from onebyone.engine.pack import WAIT_SECONDS, NotNow
from onebyone.evaluation import Result
from onebyone.methods import load as load_methods
from onebyone.runs.config import RunConfig
from onebyone.runs.files import leave_error
from onebyone.runs.job import (
    REPORT_SECONDS,
    Ended,
    Failed,
    LoadData,
    Progressed,
    Setup,
    Status,
    StatusListener,
    one_line,
)
from onebyone.runs.run import Interrupted, finish

STOP, EXIT = 1, 2  # for all workers: write a checkpoint and stop; or exit at once
KILLED = "its process was killed or crashed; if there was not enough memory, use fewer jobs"
Outcome = Result | Failed | NotNow | None  # NotNow: another process works in the folder; None: it was stopped


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Slot:
    """One worker process, and where it writes the status of its run.

    A pool with one process each, because a pool whose process is killed ends all runs in it. Status and stop flag are
    plain shared memory: a process that is killed leaves no lock behind that others wait for.
    """

    def __init__(self, setup: Setup, threads: int, stop: Any) -> None:
        self.context = multiprocessing.get_context("spawn")
        self.status = self.context.RawArray("d", 3)
        self.arguments = setup, threads, stop, self.status
        self.open()

    def open(self) -> None:
        self.pool = ProcessPoolExecutor(1, self.context, _initialize, self.arguments)

    def submit(self, name: str, config: RunConfig) -> Future[Outcome]:
        self.status[0] = 0
        with _interrupts_blocked():  # the worker process inherits this
            return self.pool.submit(_work, name, config)

    def report(self, name: str, progressed: Progressed) -> None:
        samples, done, accuracy = self.status
        if samples:
            progressed(name, Status(int(samples), int(done), None if math.isnan(accuracy) else accuracy))


def run_in_processes(
    runs: Mapping[str, RunConfig],
    setup: Setup,
    jobs: int,
    stopped: threading.Event,
    progressed: Progressed,
    ended: Ended,
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Do the runs in ``jobs`` worker processes."""
    waiting = deque(runs)
    stop = multiprocessing.get_context("spawn").RawValue("b", 0)
    threads = max(1, available_cores() // jobs)
    free = [Slot(setup, threads, stop) for _ in range(min(jobs, len(runs)))]
    slots, busy = tuple(free), dict[Future[Any], tuple[Slot, str]]()
    try:
        while waiting or busy:
            if stopped.is_set() and not stop.value:
                stop.value = STOP
                stopping()
            if stop.value:
                waiting.clear()  # also of runs that were put back
            while waiting and free:
                slot, name = free.pop(), waiting.popleft()
                busy[slot.submit(name, runs[name])] = slot, name
            finished, _ = wait(busy, timeout=REPORT_SECONDS, return_when=FIRST_COMPLETED)
            for future, (slot, name) in list(busy.items()):
                slot.report(name, progressed)
                if future not in finished:
                    continue
                del busy[future]
                free.append(slot)
                try:
                    outcome = future.result()
                except BrokenProcessPool:
                    outcome = Failed(
                        "its process was killed or crashed; if there was not enough memory, use fewer jobs"
                    )
                    leave_error(setup.out / name, f"{outcome}\n")
                    slot.open()
                if isinstance(outcome, NotNow):
                    waiting.append(name)
                elif outcome is not None:  # as of a run that was stopped
                    ended(name, outcome)
    except BaseException:  # as of a second Ctrl-C
        stop.value = EXIT
        raise
    finally:
        for slot in slots:
            slot.pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
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


@dataclass(frozen=True)
class Worker:
    """What a worker process needs for its runs."""

    setup: Setup
    load_data: LoadData
    stopped: threading.Event
    status: Any  # shared memory: samples, samples done, accuracy

    def report(self, status: Status) -> None:
        accuracy = math.nan if status.accuracy is None else status.accuracy
        self.status[:] = status.samples, status.done, accuracy


_worker: Worker  # in a worker process


def _initialize(setup: Setup, threads: int, stop: Any, status: Any) -> None:
    """Begin a worker process."""
    torch.set_num_threads(min(threads, torch.get_num_threads()))  # never more than OMP_NUM_THREADS allows
    warnings.simplefilter("ignore", SkippedFilesWarning)  # the parent process has read the data and warned
    stopped = threading.Event()
    global _worker
    _worker = Worker(setup, cache(setup.load), stopped, status)

    def watch_parent() -> None:
        parent = multiprocessing.parent_process()
        while parent is not None and parent.is_alive() and stop.value != EXIT:
            parent.join(0.1)
            if stop.value == STOP:
                stopped.set()
        os._exit(1)  # the sweep was killed, and may be started again any moment

    threading.Thread(target=watch_parent, daemon=True).start()


def _work(name: str, config: RunConfig) -> Outcome:
    """Do a run in a worker process; None if it was stopped."""
    try:
        for source in _worker.setup.sources:
            load_methods(source)
        listener = StatusListener(_worker.report)
        return finish(_worker.setup.steps(name, config, _worker.load_data, listener, _worker.stopped))
    except Interrupted:
        return None
    except NotNow as busy:
        _worker.stopped.wait(WAIT_SECONDS)  # it may be all that is left
        return busy
    except Exception as error:  # one run's failure is not the others'
        return Failed(one_line(error))
