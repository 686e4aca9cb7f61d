"""Many runs, several at a time, each in its own folder and resumable."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from onebyone.errors import UsageError
from onebyone.evaluation import Result
from onebyone.files import atomic_write
from onebyone.methods import find
from onebyone.runs.config import RunConfig
from onebyone.runs.executors import Assignment, Executor, Failed, Status, executor_named
from onebyone.runs.files import forget_error
from onebyone.runs.folder import CONFIG
from onebyone.runs.formats import configuration
from onebyone.runs.grid import plan
from onebyone.runs.job import LoadData, Setup
from onebyone.runs.run import CURVE, RESULT, Interrupted, at_least_one, remove_leftovers, stop_signal


class SweepListener:
    """Receives the progress of a sweep. Override the methods that you need; by default they do nothing.

    All methods are called in the thread of the sweep. A live table, for example, overrides ``progressed``.
    """

    def reading(self, what: str, done: int, total: int | None) -> None:
        """The data are being downloaded or read; ``total`` is None if it is not known."""

    def planned(self, waiting: Sequence[str], found: Mapping[str, Result]) -> None:
        """The runs in ``waiting`` will be done; those in ``found`` were finished before."""

    def progressed(self, name: str, status: Status) -> None:
        """How far a run is, a few times a second."""

    def ended(self, name: str, outcome: Result | Failed) -> None:
        """A run has finished or failed."""

    def stopping(self) -> None:
        """The user has asked to stop, and the worker processes write checkpoints."""

    def closed(self) -> None:
        """The sweep has ended, with or without an error."""


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
    listener: SweepListener | None = None,
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
        A :class:`SweepListener`, whose methods are called with the progress of the sweep.

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
    with executor_named(executor) as chosen:
        device = chosen.device(device)
        runs = plan(configs, device.partition(":")[0])
        setup = _setup(runs, chosen, Path(out), data_dir, device, checkpoint_every, strict)
        outcomes = _outcomes(runs, setup, chosen, jobs, listener or SweepListener())
    if len(outcomes) < len(runs):
        done = sum(isinstance(outcome, Result) for outcome in outcomes.values())
        raise Interrupted(f"stopped with {done} of {len(runs)} runs finished; the same command resumes from there")
    return {name: outcomes[name] for name in runs}


def _outcomes(
    runs: Mapping[str, RunConfig], setup: Setup, executor: Executor, jobs: int | None, listener: SweepListener
) -> dict[str, Result | Failed]:
    """Do the runs that are not finished. Returns the outcomes of all that have ended."""
    kept: dict[Any, Any] = {}
    found = _finished_runs(runs, setup.out, partial(setup.load, kept=kept, progress=listener.reading))
    outcomes: dict[str, Result | Failed] = {**found}
    waiting = {name: config for name, config in runs.items() if name not in found}
    listener.planned(list(waiting), found)

    def ended(name: str, outcome: Result | Failed) -> None:
        outcomes[name] = outcome
        listener.ended(name, outcome)

    try:
        if waiting:
            with stop_signal() as stopped:
                assignment = Assignment(
                    setup, waiting, listener.progressed, ended, listener.stopping, stopped, jobs=jobs, total=len(runs)
                )
                executor.execute(replace(assignment, on_gpu=setup.device != "cpu", kept=kept))
    finally:
        listener.closed()
    return outcomes


def _setup(
    runs: Mapping[str, RunConfig],
    executor: Executor,
    out: Path,
    data_dir: str | Path | None,
    device: str,
    checkpoint_every: int | None,
    strict: bool,
) -> Setup:
    data_path = Path(data_dir) if data_dir is not None else None
    if not executor.shares_paths:
        out, data_path = out.absolute(), data_path.absolute() if data_path is not None else None
    sources = frozenset(find(config.method).learner.__module__ for config in runs.values())
    codes = {name: config.code() for name, config in runs.items()}
    return Setup(out, data_path, device, checkpoint_every, sources, strict, codes)


def _finished_runs(runs: Mapping[str, RunConfig], out: Path, load_data: LoadData) -> dict[str, Result]:
    """The results of the runs that are finished, by folder name.

    This reads all data, also if only workers use them: missing data are downloaded or refused once.
    """
    found = {}
    for name, config in runs.items():
        recorded = config.resolved(config.device, load_data(config.dataset, config.held_out).fingerprint)
        if (result := _finished(out, name, recorded)) is not None:
            found[name] = result
    return found


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
