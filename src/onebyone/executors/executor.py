"""An executor maps a function over named items in other processes, and gives results as they end."""

from __future__ import annotations

import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from onebyone.engine.pack import WAIT_SECONDS, NotNow, Pack, Steps
from onebyone.errors import Interrupted, UsageError

T = TypeVar("T")
REPORT_SECONDS = 0.3  # between two reports of one item
PACK_WIDTH = 16  # items at once on a GPU
ATTEMPTS = 3  # for an item whose process or node ends; one that uses all memory would end every process it gets


class Failed(Exception):
    """Why an item failed, in a sentence."""


class Lost(Failed):
    """The process that worked on an item ended before the item did."""


@dataclass
class Status:
    """How far an item is."""

    samples: int  # of the item
    done: int  # of these, learnt so far
    accuracy: float | None = None  # over the classes seen so far, if it was evaluated since it was started
    node: str = ""  # the machine; empty for this one


Progressed = Callable[[str, Status], None]


@dataclass(frozen=True)
class Worker:
    """Passed to the function by the process that calls it."""

    progressed: Progressed
    stopped: threading.Event  # set when the item is to write a checkpoint and raise ``Interrupted``


# Called with the name of an item, the item and a worker. It returns a generator that yields after every step, so that
# a GPU can advance several items in turn, and returns the result. It raises ``NotNow`` if another process works on the
# item. It is sent to other processes, so it can be pickled.
Function = Callable[[str, Any, Worker], Steps[Any]]


class Pool(Protocol):
    """The processes of one map."""

    width: int  # items that a process is given at a time

    @property
    def room(self) -> int:
        """How many processes there may be."""

    def submit(self, batches: Sequence[Mapping[str, Any]]) -> list[Future[dict[str, Any]]]:
        """Each batch of items for a process, which gives their outcomes."""

    def statuses(self, stopped: bool) -> Iterable[tuple[str, Status]]:
        """Reports since the last call. Tells the processes to stop if ``stopped``."""


class Executor(ABC):
    """Does work somewhere. It is used in a ``with`` block, in which it is connected to what it uses."""

    shares_disk: bool | None = True  # whether its processes see the disk of this one; None if that is not known
    shares_paths = False  # whether a relative path means the same to its processes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    @abstractmethod
    def device(self, name: str) -> str:
        """The device that the function uses if the user asks for ``name``, which may be ``auto``."""

    def pool(
        self, function: Function, count: int, total: int, jobs: int | None, gpu: bool
    ) -> AbstractContextManager[Pool]:
        """Processes for ``count`` items of ``total``. After an exception, they end at once."""
        raise NotImplementedError("an executor has a pool, or a map of its own")

    def map(
        self,
        function: Function,
        items: Mapping[str, Any],
        *,
        jobs: int | None = None,
        total: int | None = None,
        gpu: bool = False,
        progressed: Progressed = lambda name, status: None,
        stopping: Callable[[], None] = lambda: None,
    ) -> Generator[tuple[str, Any]]:
        """Call a function for each item.

        An item whose process ends is done again, by up to ``ATTEMPTS`` processes. After Ctrl-C, items write checkpoints
        and stop, and have no outcome.

        Parameters
        ----------
        function, items
            The function, and the items by name.
        jobs
            Items at once; on GPUs, items at once on each of them.
        total
            Number of all items, with those that were done before: threads per process do not depend on the rest.
        gpu
            Whether the function uses a GPU, where one process advances several items.
        progressed
            Called with reports of items.
        stopping
            Called once, when items write their checkpoints.

        Yields
        ------
        The name of an item that has ended, and its result or a ``Failed``.
        """
        waiting, busy, lost, told = deque(items), dict[Future[dict[str, Any]], list[str]](), Counter[str](), False
        with stop_signal() as stopped, self.pool(function, len(items), total or len(items), jobs, gpu) as pool:
            while waiting or busy:
                if stopped.is_set() and not told:
                    told = True
                    stopping()
                if told:
                    waiting.clear()  # also of items that were put back
                batches = list[list[str]]()
                while waiting and len(busy) + len(batches) < pool.room:
                    batches.append([waiting.popleft() for _ in range(min(pool.width, len(waiting)))])
                futures = pool.submit([{name: items[name] for name in names} for names in batches]) if batches else []
                busy |= zip(futures, batches, strict=True)
                finished, _ = wait(busy, REPORT_SECONDS, FIRST_COMPLETED)
                active = {name for names in busy.values() for name in names}
                for name, status in pool.statuses(told):
                    if name in active:
                        progressed(name, status)
                for future in finished:
                    outcomes = future.result()
                    for name in busy.pop(future):
                        outcome = outcomes.get(name)
                        lost[name] += isinstance(outcome, Lost)
                        if isinstance(outcome, NotNow) or (isinstance(outcome, Lost) and lost[name] < ATTEMPTS):
                            waiting.append(name)
                        elif outcome is not None:  # None: it was stopped
                            yield name, outcome


def outcome_of(start: Callable[[], Steps[Any]]) -> Steps[Any]:
    """The steps of an item, which return its result, why it failed, or None if it was stopped."""
    try:
        return (yield from start())
    except Interrupted:
        return None
    except NotNow:
        raise
    except Exception as error:  # one item's failure is not the others'
        return Failed(one_line(error))


def attempt(start: Callable[[], Steps[Any]], stopped: threading.Event) -> Any:
    """Do an item. Returns its outcome, or ``NotNow`` to try it again later."""
    if stopped.is_set():
        return None
    try:
        return finish(outcome_of(start))
    except NotNow as busy:
        stopped.wait(WAIT_SECONDS)  # it may be all that is left
        return busy


def pack_of(function: Function, items: Mapping[str, Any], width: int, worker: Worker) -> Iterator[tuple[str, Any]]:
    """Do items in this process, several in turn. Yields outcomes; items that were stopped have none."""
    ended = deque[tuple[str, Any]]()

    def begin(name: str) -> Steps[Any]:
        if worker.stopped.is_set():
            raise Interrupted("stopped before the first step")
        return function(name, items[name], worker)

    def failed(name: str, error: Exception) -> None:
        if not isinstance(error, Interrupted):
            ended.append((name, Failed(one_line(error))))

    say = partial(print, file=sys.stderr)  # standard output is for results
    pack = Pack[Any](width, lambda name, result: ended.append((name, result)), failed, say)
    pack.add({name: partial(begin, name) for name in items})
    while pack.waiting or pack.live:
        pack.turn()
        while ended:
            yield ended.popleft()


def finish(steps: Steps[T]) -> T:
    """Do all steps, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def one_line(error: BaseException) -> str:
    """An error in one line.

    >>> one_line(UsageError("too fast")), one_line(KeyError("a"))
    ('too fast', "KeyError: 'a'")
    """
    first = str(error).strip().split("\n")[0]
    return first if isinstance(error, UsageError) else f"{type(error).__name__}: {first}"


def remote_device(name: str, *, gpus: bool) -> str:
    """The device of workers on other machines, of which it is known whether they have GPUs."""
    if name == "auto":
        return "cuda" if gpus else "cpu"
    if name not in ("cpu", "cuda"):
        raise UsageError(f"device is {name!r}; for workers on other machines, use cpu, cuda or auto")
    return name


@contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets, so that work stops after its step; the second Ctrl-C raises as usual."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped  # signals belong to the main thread
        return
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: Any) -> None:
        stopped.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)
