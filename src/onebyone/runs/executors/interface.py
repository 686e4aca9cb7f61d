"""The interface of executors: they are given items of work, and report progress and outcomes as these come."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from onebyone.engine.pack import NotNow, Steps
from onebyone.errors import UsageError
from onebyone.runs.run import Interrupted, finish

REPORT_SECONDS = 0.3  # between two reports of one item
PACK_WIDTH = 16  # items at once on a GPU
ATTEMPTS = 3  # for an item whose process or node ends; one that uses all memory would end every process it gets


class Failed(Exception):
    """Why an item failed, in a sentence; for a run, the traceback is in ``error.txt`` in its folder."""


class Lost(Failed):
    """The process that worked on an item ended before the item did."""


@dataclass
class Status:
    """How far an item is."""

    samples: int  # of the stream
    done: int  # of these, learnt so far
    accuracy: float | None = None  # over the classes seen so far, if it was evaluated since it was started
    node: str = ""  # the machine; empty for this one


Progressed = Callable[[str, Status], None]
Ended = Callable[[str, Any], None]  # with the result, or with why it failed


@dataclass(frozen=True)
class Worker:
    """What a process that does the work offers to it."""

    progressed: Progressed
    stopped: threading.Event  # set when the item is to write a checkpoint and raise ``Interrupted``
    kept: dict[Any, Any] = field(default_factory=dict)  # what several items use, such as data sets


class Work(Protocol):
    """What to do with each item. It is sent to other processes, so it can be pickled."""

    def start(self, name: str, item: Any, worker: Worker) -> Steps[Any]:
        """The steps of an item, which return its result. Raises ``NotNow`` if another process works on it."""

    def folder(self, name: str) -> Path | None:
        """The folder that an item writes to, on a disk that all nodes share if there is one; None if it needs none."""

    def moved(self, out: Path) -> Work:
        """The same work with all its folders below ``out``."""

    def with_data(self, kept: Mapping[Any, Any]) -> Work:
        """The same work that takes its data from ``kept``, and not from the disk of the node."""


@dataclass(frozen=True)
class Assignment:
    """Items to do, and who is called about them."""

    work: Work
    items: Mapping[str, Any]
    progressed: Progressed
    ended: Ended
    stopping: Callable[[], None] = lambda: None  # called once, when the items write their checkpoints
    stopped: threading.Event = field(default_factory=threading.Event)
    jobs: int | None = None  # items at once; on GPUs, items at once per GPU
    total: int | None = None  # items, with those that were done before
    on_gpu: bool = False
    kept: dict[Any, Any] = field(default_factory=dict)  # data that this process has loaded

    @property
    def width(self) -> int:
        """Items at once in one process: a pack on a GPU, one on a CPU."""
        return (self.jobs or PACK_WIDTH) if self.on_gpu else 1


class Executor(ABC):
    """Does items of work somewhere. It knows nothing about them; what is finished or resumed is up to the work.

    It is used in a ``with`` block, in which it is connected to what it uses.
    """

    shares_paths = False  # whether a relative path means the same to its workers

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    @abstractmethod
    def device(self, name: str) -> str:
        """The device that the workers use if the user asks for ``name``, which may be ``auto``."""

    @abstractmethod
    def execute(self, assignment: Assignment) -> None:
        """Do all items, or return early with ``ended`` not called for some, if ``stopped`` is set."""


def attempt(start: Callable[[], Steps[Any]]) -> Any:
    """Do an item. Returns its result, why it failed, None if it was stopped, or ``NotNow`` to try it again later."""
    try:
        return finish(start())
    except Interrupted:
        return None
    except NotNow as busy:
        return busy
    except Exception as error:  # one item's failure is not the others'
        return Failed(one_line(error))


def one_line(error: Exception) -> str:
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
