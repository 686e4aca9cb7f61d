"""Many runs, several at a time, each in its own folder and resumable: "do this run" is mapped over configurations."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from onebyone.data import Dataset, SkippedFilesWarning, load
from onebyone.data.download import Progress
from onebyone.engine.pack import NotNow, Steps
from onebyone.errors import Interrupted, UsageError
from onebyone.evaluation import Result
from onebyone.executors import Executor, Failed, Lost, Status, Worker, executor_named
from onebyone.executors.executor import REPORT_SECONDS, outcome_of
from onebyone.files import atomic_write
from onebyone.methods import find
from onebyone.methods import load as load_methods
from onebyone.options import at_least_one
from onebyone.runs.claim import forget_dead, sole_use
from onebyone.runs.config import RunConfig
from onebyone.runs.folder import CONFIG, CURVE, RESULT, forget_error, leave_error
from onebyone.runs.formats import configuration
from onebyone.runs.grid import plan
from onebyone.runs.listener import Listener
from onebyone.runs.run import remove_leftovers, steps_in_folder

Files = Mapping[str, bytes]


def sweep(
    configs: Iterable[RunConfig],
    out: str | Path,
    *,
    data_dir: str | Path | None = None,
    strict: bool = False,
    device: str = "auto",
    jobs: int | None = None,
    checkpoint_every: int | None = None,
    executor: str | Executor = "local",
    listener: Listener | None = None,
) -> dict[str, Result | Failed]:
    """Do many runs, or resume them. Finished runs are not repeated.

    Several processes can do the same sweep at the same time: they share the runs, and each returns all outcomes. Worker
    processes import the calling script, so call this function under ``if __name__ == "__main__":``.

    Parameters
    ----------
    configs, out
        Configurations of the runs, and the folder of the sweep, in which each run has its own folder.
    data_dir, strict, checkpoint_every
        As in :func:`run`.
    device
        Device to use instead of those in the configurations.
    jobs
        Number of runs at the same time. On Ray, this is the number on all CPUs together, or on each GPU. None chooses
        it for the machine.
    executor
        Where runs are done: ``"local"``, ``"ray"``, ``"slurm"``, or an object such as ``RayExecutor(address="auto")``.
    listener
        A :class:`Listener`, whose methods are called with the progress of the sweep.

    Returns
    -------
    dict of str to Result or Failed
        The outcome of each run by the name of its folder.

    Raises
    ------
    UsageError
        A configuration is wrong, or the executor cannot work here.
    Interrupted
        After Ctrl-C. The same call resumes the sweep.

    >>> import tempfile
    >>> from onebyone.runs.grid import expand
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     outcomes = sweep(expand({"method": "finetune", "batch_size": 200, "seed": [0, 0]}), folder)
    >>> [outcome.samples for outcome in outcomes.values()]
    [1438]
    """
    at_least_one(checkpoint_every=checkpoint_every, jobs=jobs)
    listener = listener or Listener()
    with executor_named(executor) as chosen:
        device = chosen.device(device)
        runs = plan(configs, device.partition(":")[0])
        located = Path if chosen.shares_paths else Path.absolute  # messages name folders as they were given
        do_run = DoRun(
            located(Path(out)),
            located(Path(data_dir)) if data_dir is not None else None,
            device,
            checkpoint_every,
            sources=frozenset(find(config.method).learner.__module__ for config in runs.values()),
            strict=strict,
            codes={name: config.code() for name, config in runs.items()},
        )
        found = do_run.finished(runs, listener)
        outcomes: dict[str, Result | Failed] = {**found}
        waiting = {name: config for name, config in runs.items() if name not in found}
        listener.planned(list(waiting), found)
        try:
            for name, outcome in do_run.map(waiting, chosen, jobs, len(runs), listener) if waiting else ():
                outcomes[name] = outcome
                listener.ended(name, outcome)
        finally:
            listener.closed()
    if len(outcomes) < len(runs):
        done = sum(isinstance(outcome, Result) for outcome in outcomes.values())
        raise Interrupted(f"stopped with {done} of {len(runs)} runs finished; the same command resumes from there")
    return {name: outcomes[name] for name in runs}


@dataclass
class DoRun:
    """Does one run of a sweep in its folder. It is called in worker processes, and has what the runs share."""

    out: Path
    data_dir: Path | None
    device: str
    checkpoint_every: int | None
    sources: frozenset[str] = frozenset()  # modules and files that register the methods
    strict: bool = False  # whether files of an image folder that cannot be read are refused
    codes: Mapping[str, str] = field(default_factory=dict)  # by run: the hash of its code that its folder is named by
    mark: str | None = None  # a file in ``out`` that nodes find where they see the same folder; None if all do
    data: dict[tuple[str, bool], Dataset] = field(default_factory=dict)  # by name, and whether a part is held out

    def load(self, dataset: str, held_out: bool, progress: Progress | None = None) -> Dataset:
        """The data as they are to be learnt. They are read once."""
        if (dataset, held_out) not in self.data:
            complete = load(dataset, self.data_dir, strict=self.strict, progress=progress)
            self.data[dataset, held_out] = complete.held_out() if held_out else complete
        return self.data[dataset, held_out]

    def finished(self, runs: Mapping[str, RunConfig], listener: Listener) -> dict[str, Result]:
        """The results of the runs that are finished, by folder name.

        This reads all data, also if only workers use them: missing data are downloaded or refused once.
        """
        found = {}
        for name, config in runs.items():
            data = self.load(config.dataset, config.held_out, listener.reading)
            if (result := _finished(self.out, name, config.resolved(config.device, data.fingerprint))) is not None:
                found[name] = result
        return found

    def map(
        self, runs: Mapping[str, RunConfig], executor: Executor, jobs: int | None, total: int, listener: Listener
    ) -> Iterator[tuple[str, Result | Failed]]:
        """Do runs by an executor. Yields outcomes as they come, when all that belongs to them is in the folders."""
        if executor.shares_disk is not True:
            self.mark = f".shared-{secrets.token_hex(8)}"
        if self.mark and executor.shares_disk is None:
            with atomic_write(self.out / self.mark):
                pass
        gpu = self.device != "cpu"
        in_this_process = gpu and executor.shares_paths
        if executor.shares_disk is True and not in_this_process:
            self.data.clear()  # the workers read the data themselves
        # Nodes that do not see the folder begin with the files that there are.
        items = {name: (config, read_files(self.out / name) if self.mark else {}) for name, config in runs.items()}
        outcomes = executor.map(
            self,
            items,
            jobs=jobs,
            total=total,
            gpu=gpu,
            progressed=listener.progressed,
            stopping=listener.stopping,
        )
        try:
            with closing(outcomes):
                for name, outcome in outcomes:
                    folder = self.out / name
                    if isinstance(outcome, Brought):
                        with sole_use(folder, wait=True):
                            write_files(folder, outcome.files)
                        outcome = outcome.outcome
                    if isinstance(outcome, Lost):
                        leave_error(folder, f"{outcome}\n")
                        forget_dead(folder)
                    if outcome is not None:
                        yield name, outcome
        finally:
            if self.mark:
                (self.out / self.mark).unlink(missing_ok=True)

    def __call__(self, name: str, item: tuple[RunConfig, Files], worker: Worker) -> Steps[Any]:
        """The steps of a run, which return its result; or a ``Brought`` on a node that does not see the folder."""
        config, files = item
        for source in self.sources:
            load_methods(source)
        listener = StatusListener(partial(worker.progressed, name))
        if self.mark is None or (self.out / self.mark).exists():
            return self.steps(name, config, listener, worker.stopped)
        return self.elsewhere(name, config, files, listener, worker.stopped)

    def elsewhere(
        self, name: str, config: RunConfig, files: Files, listener: Listener, stopped: threading.Event
    ) -> Steps[Brought]:
        """A run in a temporary folder, whose files are brought back however it ends."""
        with tempfile.TemporaryDirectory(prefix="onebyone-") as parent:
            there = replace(self, out=Path(parent))
            write_files(there.out / name, files)
            outcome = yield from outcome_of(partial(there.steps, name, config, listener, stopped))
            return Brought(outcome, read_files(there.out / name))

    def steps(self, name: str, config: RunConfig, listener: Listener, stopped: threading.Event) -> Steps[Result]:
        """A run in its folder, in which a failure leaves its traceback until the run succeeds.

        Raises ``NotNow`` where another process works in the folder.
        """
        folder = self.out / name
        try:
            if config.code() != self.codes.get(name, config.code()):  # this process imported it later
                raise UsageError(f"the code of {config.method} was changed after the sweep was started; start it again")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SkippedFilesWarning)  # the sweep has read the data and warned
                data = self.load(config.dataset, config.held_out).to(self.device)
            self.data[config.dataset, config.held_out] = data  # on the device once
            config = replace(config, device=self.device)
            return (yield from steps_in_folder(config, data, folder, self.checkpoint_every, listener, stopped))
        except (Interrupted, NotNow):
            raise
        except Exception:
            leave_error(folder, traceback.format_exc())
            raise


@dataclass(frozen=True)
class Brought:
    """An outcome with the files of the run, from a node that does not see the folder of the sweep."""

    outcome: Result | Failed | None
    files: Files


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


def visible(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if not path.name.startswith(".")]


def read_files(folder: Path) -> Files:
    """The files of a run, without its claim and temporary files."""
    found = {}
    for path in visible(folder):
        with suppress(FileNotFoundError):  # another process works on this run
            found[path.name] = path.read_bytes()
    return found


def write_files(folder: Path, files: Files) -> None:
    """Make these the files of a run."""
    for name, content in sorted(files.items()):  # config.yaml first, result.json last
        with atomic_write(folder / name) as temporary:
            temporary.write_bytes(content)
    for path in visible(folder):
        if path.name not in files:
            path.unlink()


def _finished(out: Path, name: str, recorded: Mapping[str, Any]) -> Result | None:
    """The result of a finished run of this configuration; None if there is none, or if it cannot be read.

    It is in its folder under ``out``, or ``onebyone run`` left it beside ``out``, from where it is copied.
    """
    own, other = out / name, out.parent / name
    for folder in (own,) if own.exists() else (own, other):
        try:
            result = Result.read(folder / RESULT)
        except (OSError, UsageError):
            continue
        if configuration(result.config) == recorded:
            if folder == other:
                for file in (CONFIG, CURVE, RESULT):
                    with atomic_write(own / file) as path:
                        shutil.copyfile(other / file, path)
            remove_leftovers(own)
            forget_error(own)
            return result
    return None
