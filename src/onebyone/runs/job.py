"""One run of a sweep: how it is started, how it reports its status, and its outcome."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from onebyone.data import Dataset, load
from onebyone.data.download import Progress
from onebyone.engine.pack import NotNow, Steps
from onebyone.errors import UsageError
from onebyone.evaluation import Result
from onebyone.runs.config import RunConfig
from onebyone.runs.files import leave_error
from onebyone.runs.run import Interrupted, Listener, steps_in_folder

REPORT_SECONDS = 0.3  # between two reports of one run


class Failed(Exception):
    """Why a run failed, in a sentence; the traceback is in ``error.txt`` in its folder."""


@dataclass
class Status:
    """How far a run is."""

    samples: int  # of the whole stream
    done: int  # of these, learnt so far
    accuracy: float | None = None  # over the classes seen so far, if it was evaluated since it was started


LoadData = Callable[[str, bool], Dataset]  # by name, and whether a part is held out
Progressed = Callable[[str, Status], None]
Ended = Callable[[str, Result | Failed], None]


@dataclass(frozen=True)
class Setup:
    """What the runs of a sweep have in common; sent to worker processes."""

    out: Path
    data_dir: Path | None
    device: str
    checkpoint_every: int | None
    sources: frozenset[str] = frozenset()  # modules and files that register the methods
    strict: bool = False  # whether files of an image folder that cannot be read are refused

    def load(self, dataset: str, held_out: bool, progress: Progress | None = None) -> Dataset:
        """The data as they are to be learnt, on the device."""
        whole_set = load(dataset, self.data_dir, strict=self.strict, progress=progress)
        return (whole_set.held_out() if held_out else whole_set).to(self.device)

    def steps(
        self, name: str, config: RunConfig, load_data: LoadData, listener: Listener, stopped: threading.Event
    ) -> Steps[Result]:
        """A run in its folder, in which a failure leaves its traceback until the run succeeds.

        Raises ``NotNow`` where another process works in the folder.
        """
        if stopped.is_set():
            raise Interrupted("stopped before the first step")
        folder = self.out / name
        try:
            data = load_data(config.dataset, config.held_out)
            config = replace(config, device=self.device)
            return (yield from steps_in_folder(config, data, folder, self.checkpoint_every, listener, stopped))
        except (Interrupted, NotNow):
            raise
        except Exception:
            leave_error(folder, traceback.format_exc())
            raise


class StatusListener(Listener):
    """Reports the status of a run a few times a second."""

    def __init__(self, report: Callable[[Status], None]) -> None:
        self.report = report
        self.last = 0.0

    def started(self, title: str, samples: int, done: int, tasks: int) -> None:
        self.status = Status(samples, done)
        self.report(self.status)

    def stepped(self, task: int, samples: int) -> None:
        self.status.done += samples
        now = time.monotonic()
        if now - self.last >= REPORT_SECONDS:
            self.last = now
            self.report(self.status)

    def evaluated(self, task: int, accuracy: float) -> None:
        self.status.accuracy = accuracy


def one_line(error: Exception) -> str:
    """An error in one line.

    >>> one_line(UsageError("too fast")), one_line(KeyError("a"))
    ('too fast', "KeyError: 'a'")
    """
    first = str(error).strip().split("\n")[0]
    return first if isinstance(error, UsageError) else f"{type(error).__name__}: {first}"
