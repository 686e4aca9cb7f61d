"""Runs in worker processes: on a CPU, several at once are faster than one on all cores."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch

from onebyone.data import Dataset, SkippedFilesWarning, load
from onebyone.engine import torch_settings
from onebyone.engine.pack import WAIT_SECONDS, NotNow, Steps
from onebyone.errors import UsageError
from onebyone.evaluation import Result
from onebyone.methods import load as load_methods
from onebyone.runs.config import RunConfig
from onebyone.runs.files import forget_error, leave_error, sole_use
from onebyone.runs.run import Interrupted, Listener, Run

TELL_SECONDS = 0.3  # between two reports of one run


class Failed(Exception):
    """Why a run failed, in a sentence; the traceback is in ``error.txt`` in its folder."""


@dataclass
class Standing:
    """How far a run is."""

    samples: int  # of the whole stream
    done: int  # of these, learnt so far
    accuracy: float | None = None  # over the classes met so far, if it was examined in this sitting


@dataclass(frozen=True)
class Task:
    """What the runs of a sweep have in common; sent to worker processes."""

    out: Path
    data_dir: Path | None
    device: str
    checkpoint_every: int | None
    places: frozenset[str] = frozenset()  # what registers the methods
    strict: bool = False  # whether files of an image folder that cannot be read are refused

    def data(self, dataset: str, held_out: bool) -> Dataset:
        """The data as they are to be learnt, on the device."""
        whole_set = load(dataset, self.data_dir, strict=self.strict)
        return (whole_set.held_out() if held_out else whole_set).to(self.device)

    def steps(
        self, name: str, config: RunConfig, data: Data, listener: Listener, stopped: threading.Event
    ) -> Steps[Result]:
        """A run in a folder that is its own meanwhile, in which a failure leaves its traceback until a success.

        Raises ``NotNow`` where another process has made the folder its own.
        """
        if stopped.is_set():
            raise Interrupted("stopped before the first step")
        folder = self.out / name
        with sole_use(folder):
            try:
                current = Run(replace(config, device=self.device), data(config.dataset, config.held_out), folder)
                # As in a run by itself, so that small steps have one thread and the same bits however they are started.
                # Large ones keep what the worker has, its share of the cores, so that all together take no more than
                # there are: their last bits are those of as many jobs. In a pack that is one thread already.
                with torch_settings(current.cost.flops * config.batch_size):
                    result = yield from current.steps(self.checkpoint_every, listener, stopped)
            except Interrupted:
                raise
            except Exception:
                leave_error(folder, traceback.format_exc())
                raise
            forget_error(folder)
            return result


Data = Callable[[str, bool], Dataset]  # by name, and whether a part is held out


Moved = Callable[[str, Standing], None]


Ended = Callable[[str, Result | Failed], None]


class Teller(Listener):
    """Tells how far a run is, a few times a second."""

    def __init__(self, tell: Callable[[Standing], None]) -> None:
        self.tell = tell
        self.last = 0.0

    def started(self, title: str, samples: int, done: int, tasks: int) -> None:
        self.standing = Standing(samples, done)
        self.tell(self.standing)

    def stepped(self, task: int, samples: int) -> None:
        self.standing.done += samples
        now = time.monotonic()
        if now - self.last >= TELL_SECONDS:
            self.last = now
            self.tell(self.standing)

    def examined(self, task: int, accuracy: float) -> None:
        self.standing.accuracy = accuracy


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(
    runs: Mapping[str, RunConfig], task: Task, jobs: int, stopped: threading.Event, moved: Moved, ended: Ended
) -> None:
    """The runs in ``jobs`` worker processes: on a CPU, several at once are faster than one on all cores.

    Each worker has a pipe of its own, so that one that is killed leaves no lock behind that others wait for.
    """
    waiting = deque(runs)
    workers: dict[Connection, tuple[multiprocessing.process.BaseProcess, str]] = {}  # and what each is at
    told = False
    try:
        while waiting or workers:
            if stopped.is_set() and not told:
                told = True
                waiting.clear()
                for connection in workers:
                    _send(connection, None)
            while waiting and len(workers) < jobs:
                connection, process = _hire(task, max(1, cores() // jobs))
                workers[connection] = process, _next(connection, waiting, runs)
            for connection in wait(list(workers), timeout=0.2):  # type: ignore[assignment]
                process, name = workers[connection]
                try:
                    message = connection.recv()
                except (EOFError, OSError):
                    process.join()
                    del workers[connection]
                    if name:
                        code = process.exitcode
                        error = f"its process ended with code {code}; if there was not enough memory, use fewer --jobs"
                        leave_error(task.out / name, error + "\n")
                        ended(name, Failed(error))
                    continue
                if isinstance(message, Standing):
                    moved(name, message)
                    continue
                if isinstance(message, NotNow):
                    if not told:
                        waiting.append(name)
                elif message is not None:  # as of a run that was stopped
                    ended(name, message)
                workers[connection] = process, _next(connection, waiting, runs)
    finally:
        for process, _ in workers.values():
            process.terminate()


def _hire(task: Task, threads: int) -> tuple[Connection, multiprocessing.process.BaseProcess]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=work, args=(there, task, threads), daemon=True)
    with _deaf():
        process.start()
    there.close()
    return here, process


@contextmanager
def _deaf() -> Iterator[None]:
    """What is started here never hears of Ctrl-C, not even while it imports: the parent tells it to stop."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # started with the first process, it would undo the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _next(connection: Connection, waiting: deque[str], runs: Mapping[str, RunConfig]) -> str:
    """Send a worker the next run, or home; gives the name of the run, or none."""
    name = waiting.popleft() if waiting else ""
    _send(connection, (name, runs[name]) if name else None)
    return name


def _send(connection: Connection, message: object) -> None:
    with suppress(OSError):  # a worker that is gone; the end of its pipe is noticed where it is read
        connection.send(message)


def work(connection: Connection, task: Task, threads: int) -> None:
    """A worker process: does the runs it is sent until it is told to stop, and ends at once if its parent is gone."""
    torch.set_num_threads(min(threads, torch.get_num_threads()))  # never more than OMP_NUM_THREADS allows
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore", SkippedFilesWarning)  # the parent process has read the data and warned
    stopped = threading.Event()
    jobs: queue.SimpleQueue[tuple[str, RunConfig] | None] = queue.SimpleQueue()

    def listen() -> None:
        try:
            while (job := connection.recv()) is not None:
                jobs.put(job)
        except (EOFError, OSError):
            os._exit(1)  # the sweep was killed, and may be started again any moment
        stopped.set()
        jobs.put(None)

    def tell(message: object) -> None:
        try:
            connection.send(message)
        except OSError:
            os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    for place in task.places:
        load_methods(place)
    data = cache(task.data)
    while (job := jobs.get()) is not None:
        outcome: Result | Failed | NotNow | None = None  # of a run that was stopped
        steps = task.steps(*job, data, Teller(tell), stopped)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            outcome = end.value
        except Interrupted:
            pass
        except NotNow as busy:
            outcome = busy
            stopped.wait(WAIT_SECONDS)  # it may be all that is left
        except Exception as error:  # one run's failure is not the others'
            outcome = Failed(sentence(error))
        tell(outcome)


def sentence(error: Exception) -> str:
    """An error in one line.

    >>> sentence(UsageError("too fast")), sentence(KeyError("a"))
    ('too fast', "KeyError: 'a'")
    """
    first = str(error).strip().split("\n")[0]
    return first if isinstance(error, UsageError) else f"{type(error).__name__}: {first}"
