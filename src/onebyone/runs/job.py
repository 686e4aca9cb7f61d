"""One run of a sweep: how it is started, how it reports its status, and its outcome."""

from __future__ import annotations

import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from onebyone.data import Dataset, load
from onebyone.data.augmentation import CropFlip
from onebyone.data.download import Progress
from onebyone.engine.pack import NotNow, Steps
from onebyone.errors import UsageError
from onebyone.evaluation import Result
from onebyone.methods import load as load_methods
from onebyone.runs.config import RunConfig
from onebyone.runs.executors.interface import REPORT_SECONDS, Status, Worker
from onebyone.runs.files import leave_error
from onebyone.runs.listener import Listener
from onebyone.runs.run import Interrupted, steps_in_folder

LoadData = Callable[[str, bool], Dataset]  # by name, and whether a part is held out


@dataclass(frozen=True)
class Arrays:
    """A data set as arrays, which processes on one node can share; torch's tensors would be copied."""

    name: str
    tensors: tuple[Any, ...]  # training samples and labels, test samples and labels
    classes: tuple[str, ...]
    augmentation: CropFlip

    @classmethod
    def of(cls, data: Dataset) -> Arrays:
        tensors = (data.train_x, data.train_y, data.test_x, data.test_y)
        return cls(data.name, tuple(tensor.cpu().numpy() for tensor in tensors), data.classes, data.augmentation)

    def dataset(self) -> Dataset:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nobody writes to data
            train_x, train_y, test_x, test_y = (torch.from_numpy(array) for array in self.tensors)
        return Dataset(self.name, train_x, train_y, test_x, test_y, self.classes, self.augmentation)


@dataclass(frozen=True)
class Setup:
    """The work of a sweep (see :class:`onebyone.runs.executors.Work`): what its runs have in common."""

    out: Path
    data_dir: Path | None
    device: str
    checkpoint_every: int | None
    sources: frozenset[str] = frozenset()  # modules and files that register the methods
    strict: bool = False  # whether files of an image folder that cannot be read are refused
    codes: Mapping[str, str] = field(default_factory=dict)  # by run: the hash of its code that its folder is named by

    data: Mapping[tuple[str, bool], Arrays] | None = None  # where they are sent to the workers

    def load(
        self, dataset: str, held_out: bool, kept: dict[Any, Any] | None = None, progress: Progress | None = None
    ) -> Dataset:
        """The data as they are to be learnt. They are read once and then found in ``kept``."""
        kept = {} if kept is None else kept
        key = dataset, held_out
        if key not in kept:
            if self.data is not None:
                kept[key] = self.data[key].dataset()
            else:
                complete = load(dataset, self.data_dir, strict=self.strict, progress=progress)
                kept[key] = complete.held_out() if held_out else complete
        return kept[key]  # type: ignore[no-any-return]

    def start(self, name: str, config: RunConfig, worker: Worker) -> Steps[Result]:
        for source in self.sources:
            load_methods(source)
        listener = StatusListener(partial(worker.progressed, name))

        def load_data(dataset: str, held_out: bool) -> Dataset:
            key = dataset, held_out, self.device
            if key not in worker.kept:
                worker.kept[key] = self.load(dataset, held_out, worker.kept).to(self.device)
            return worker.kept[key]  # type: ignore[no-any-return]

        return self.steps(name, config, load_data, listener, worker.stopped)

    def folder(self, name: str) -> Path:
        return self.out / name

    def moved(self, out: Path) -> Setup:
        return replace(self, out=out)

    def with_data(self, kept: Mapping[Any, Any]) -> Setup:
        """The same runs on data in memory. Ray sends these once to each node, and its processes share them."""
        return replace(self, data={key: Arrays.of(data) for key, data in kept.items() if len(key) == 2})

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
            if config.code() != self.codes.get(name, config.code()):  # this process imported it later
                raise UsageError(f"the code of {config.method} was changed after the sweep was started; start it again")
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
