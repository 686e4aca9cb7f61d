"""Many runs, several at a time, each in its own folder and resumable."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from onebyone.engine import choose_device, more_queues, pack, torch_settings
from onebyone.engine.pack import Steps
from onebyone.errors import UsageError
from onebyone.evaluation import Result
from onebyone.files import atomic_write
from onebyone.methods import find
from onebyone.runs.config import RunConfig
from onebyone.runs.files import forget_error
from onebyone.runs.folder import CONFIG
from onebyone.runs.grid import plan
from onebyone.runs.job import Ended, Failed, LoadData, Progressed, Setup, Status, StatusListener, one_line
from onebyone.runs.run import CURVE, RESULT, Interrupted, at_least_one, remove_leftovers, stop_signal
from onebyone.runs.workers import available_cores, run_in_processes

PACK_WIDTH = 16  # runs at once on a GPU


class SweepListener:
    """Called by a sweep, in its own thread, about its progress; a live table overrides these methods."""

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


def sweep(
    configs: Iterable[RunConfig],
    out: str | Path,
    *,
    data_dir: str | Path | None = None,
    strict: bool = False,
    device: str = "auto",
    jobs: int | None = None,
    checkpoint_every: int | None = None,
    listener: SweepListener | None = None,
) -> dict[str, Result | Failed]:
    """Do all these runs, or resume them, each in its own folder under ``out``. Returns the outcomes by folder name.

    ``jobs`` is the number of runs at the same time: in this process on a GPU, in worker processes on a CPU. Workers
    import the script that calls this function, so the call has to be under ``if __name__ == "__main__":``. They also
    import the methods, which have to be registered in a module or file. ``device`` replaces that of the configurations.

    Several processes may do the same sweep, for example one per GPU: they share the runs, and each of them returns all
    outcomes. Raises ``Interrupted`` after Ctrl-C.

    >>> import tempfile
    >>> from onebyone.runs.grid import expand
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     outcomes = sweep(expand({"method": "finetune", "batch_size": 200, "seed": [0, 0]}), folder)
    >>> [outcome.samples for outcome in outcomes.values()]
    [1438]
    """
    at_least_one(checkpoint_every=checkpoint_every, jobs=jobs)
    with more_queues():
        chosen = choose_device(device)
    runs = plan(configs, chosen.type)
    listener = listener or SweepListener()
    data_path = Path(data_dir) if data_dir is not None else None
    sources = frozenset(find(config.method).learner.__module__ for config in runs.values())
    setup = Setup(Path(out), data_path, str(chosen), checkpoint_every, sources, strict)
    load_data = cache(partial(setup.load, progress=listener.reading))
    found = _finished_runs(runs, setup.out, load_data)
    outcomes: dict[str, Result | Failed] = {**found}
    waiting = {name: config for name, config in runs.items() if name not in found}
    listener.planned(list(waiting), found)

    def ended(name: str, outcome: Result | Failed) -> None:
        outcomes[name] = outcome
        listener.ended(name, outcome)

    if waiting and chosen.type == "cpu":
        load_data.cache_clear()
        # By the number of all runs, not of those left: the number of threads can change the last bits of a sum.
        width = min(jobs or available_cores(), len(runs))
        with stop_signal() as stopped:
            run_in_processes(waiting, setup, width, stopped, listener.progressed, ended, listener.stopping)
    elif waiting:  # the work is on the GPU; CPU threads would only wait for each other
        with stop_signal() as stopped, torch_settings(flops=0):
            run_in_pack(waiting, setup, load_data, jobs or PACK_WIDTH, stopped, listener.progressed, ended)
    if len(outcomes) < len(runs):
        done = sum(isinstance(outcome, Result) for outcome in outcomes.values())
        raise Interrupted(f"stopped with {done} of {len(runs)} runs finished; the same command goes on from there")
    return {name: outcomes[name] for name in runs}


def run_in_pack(
    runs: Mapping[str, RunConfig],
    setup: Setup,
    load_data: LoadData,
    width: int,
    stopped: threading.Event,
    progressed: Progressed,
    ended: Ended,
) -> None:
    """Do the runs in this process, ``width`` at a time, on data that are on the device once."""

    def failed(name: str, error: Exception) -> None:
        if not isinstance(error, Interrupted):
            ended(name, Failed(one_line(error)))

    def start(name: str, config: RunConfig) -> Steps[Result]:
        return setup.steps(name, config, load_data, StatusListener(partial(progressed, name)), stopped)

    say = partial(print, file=sys.stderr)  # standard output is for results
    begin = {name: partial(start, name, config) for name, config in runs.items()}
    pack(begin, width, done=ended, failed=failed, say=say)


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
        if result.config == recorded:
            if folder == other:
                for file in (CONFIG, CURVE, RESULT):
                    with atomic_write(own / file) as path:
                        shutil.copyfile(other / file, path)
            remove_leftovers(own)
            forget_error(own)
            return result
    return None
