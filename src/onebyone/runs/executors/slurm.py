"""The executor of SLURM clusters, by submitit: job arrays, which all see the folder of the sweep."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from onebyone.data import SkippedFilesWarning
from onebyone.engine import more_queues, pack
from onebyone.errors import UsageError
from onebyone.files import lock
from onebyone.runs.executors.interface import (
    ATTEMPTS,
    REPORT_SECONDS,
    Assignment,
    Executor,
    Failed,
    Lost,
    Status,
    Work,
    Worker,
    one_line,
    remote_device,
)
from onebyone.runs.executors.local import available_cores, interrupts_blocked
from onebyone.runs.files import leave_error
from onebyone.runs.run import Interrupted

CONTROL = ".slurm"
STOP, JOBS = "stop", "jobs"
EXIT = "exit"  # in the file STOP: at once, without a checkpoint
CHECKPOINT_SECONDS = 60.0  # that a job which is preempted has for its checkpoints
KILLED = "its job ended {} times without a result; see its log in {}"


class SlurmExecutor(Executor):
    """Jobs of a SLURM cluster: one per run on CPUs, one per pack of runs on GPUs, submitted as arrays.

    A job that is preempted or reaches its time limit writes checkpoints, and SLURM starts it again. Jobs continue if
    this process ends. If the sweep is started again, it stops the remaining jobs and resumes their runs.

    Parameters
    ----------
    cluster
        ``"slurm"``, or ``"local"`` for processes on this machine. None finds out.
    parameters
        For submitit, such as ``timeout_min=60``, ``slurm_partition="gpu"``, ``gpus_per_node=1``, ``mem_gb=8``.
    """

    def __init__(self, cluster: str | None = None, **parameters: Any) -> None:
        self.cluster, self.parameters = cluster, parameters

    def __enter__(self) -> Self:
        try:
            import submitit
        except ImportError as error:
            raise UsageError(f"the executor slurm needs submitit ({error}); pip install 'onebyone[slurm]'") from None
        self.submitit = submitit
        if self.cluster is None and shutil.which("srun") is None:
            raise UsageError("there is no srun here, so this is no SLURM cluster; use the executor local or ray")
        return self

    def device(self, name: str) -> str:
        gpus = any("gpus" in parameter or "gres" in parameter for parameter in self.parameters)
        return remote_device(name, gpus=gpus)

    def execute(self, assignment: Assignment) -> None:
        folders = [assignment.work.folder(name) for name in assignment.items]
        parent = folders[0].parent if folders and folders[0] is not None else Path.cwd()
        take_over(parent / CONTROL, self.submitit)
        control = parent / CONTROL / secrets.token_hex(4)
        held = lock(control)
        try:
            lost = Dispatch(self, assignment, control).run()
        finally:
            if held is not None:
                held.release()
        if not lost:  # the logs of a lost job say why
            shutil.rmtree(control, ignore_errors=True)
            with suppress(OSError):  # others may use it
                control.parent.rmdir()

    def submitter(self, folder: Path, jobs: int | None) -> Any:
        """An executor of submitit."""
        made = self.submitit.AutoExecutor(folder, cluster=self.cluster, slurm_max_num_timeout=1000)
        timeouts = {} if "timeout_min" in self.parameters else {"timeout_min": 24 * 60}
        parallel = {"slurm_array_parallelism": jobs} if jobs is not None and made.cluster == "slurm" else {}
        try:
            made.update_parameters(name="onebyone", **timeouts, **parallel, **self.parameters)
        except (NameError, ValueError, TypeError) as error:
            raise UsageError(f"submitit refuses these parameters: {one_line(error)}") from None
        return made


class Dispatch:
    """The items of one assignment, from the first job to the last."""

    def __init__(self, executor: SlurmExecutor, assignment: Assignment, control: Path) -> None:
        self.assignment, self.control, self.submitit = assignment, control, executor.submitit
        self.work, self.waiting = assignment.work, deque(assignment.items)
        self.attempts: Counter[str] = Counter()
        at_once = assignment.jobs if not assignment.on_gpu else None
        self.submitter = executor.submitter(control / "%j", at_once)
        local = self.submitter.cluster != "slurm"  # submitit would start all processes at once
        self.limit = (at_once or available_cores()) if local else len(assignment.items)
        self.busy: dict[Any, list[str]] = {}  # the items of each job
        self.lost = False

    def run(self) -> bool:
        """Do all items. Returns whether a job was lost."""
        told = False
        try:
            while self.waiting or self.busy:
                if self.assignment.stopped.is_set():
                    if not told:
                        told = True
                        self.stop()
                    self.waiting.clear()
                if self.waiting and len(self.busy) < self.limit:
                    self.submit()
                time.sleep(REPORT_SECONDS)
                self.report()
                for job in [job for job in self.busy if job.done()]:
                    self.settle(job, self.busy.pop(job))
        except BaseException:  # such as a second Ctrl-C
            (self.control / STOP).write_text(EXIT)
            if self.submitter.cluster == "slurm":
                for job in self.busy:
                    job.cancel(check=False)
            raise
        return self.lost

    def submit(self) -> None:
        """Submit as many jobs as there may be, as one array."""
        width = self.assignment.width
        jobs: list[Job] = []
        while self.waiting and len(jobs) < self.limit - len(self.busy):
            names = [self.waiting.popleft() for _ in range(min(width, len(self.waiting)))]
            jobs.append(Job(self.work, {name: self.assignment.items[name] for name in names}, self.control, width))
        with interrupts_blocked(), self.submitter.batch():  # jobs on this machine inherit this
            submitted = [self.submitter.submit(job) for job in jobs]
        self.busy |= {job: list(asked.items) for job, asked in zip(submitted, jobs, strict=True)}
        with (self.control / JOBS).open("a") as file:  # for a process that takes over after this one was killed
            file.writelines(f"{job.job_id} {self.busy[job][0]}\n" for job in submitted)

    def report(self) -> None:
        for names in self.busy.values():
            for name in names:
                try:
                    found = json.loads((self.control / f"{name}.json").read_text())
                except (OSError, ValueError):
                    continue
                self.assignment.progressed(name, Status(**found))

    def settle(self, job: Any, names: list[str]) -> None:
        """A job has ended."""
        try:
            outcomes = job.result()
        except self.submitit.core.utils.UncompletedJobError:
            outcomes = dict.fromkeys(names, Lost())
        except self.submitit.core.utils.FailedJobError as error:
            last = str(error).strip().split("\n")
            outcomes = dict.fromkeys(names, Failed(f"its job failed: {last[-4] if len(last) > 3 else last[-1]}"))
        for name in names:
            outcome = outcomes.get(name)
            if isinstance(outcome, Lost):
                self.lost = True
                if self.assignment.stopped.is_set():
                    continue  # the next sweep resumes it
                self.attempts[name] += 1
                if self.attempts[name] < ATTEMPTS:
                    self.waiting.append(name)
                    continue
                outcome = Lost(KILLED.format(ATTEMPTS, self.control))
                if (folder := self.work.folder(name)) is not None:
                    leave_error(folder, f"{outcome}\n")
            if outcome is not None:  # None: it was stopped
                self.assignment.ended(name, outcome)

    def stop(self) -> None:
        """Ask running jobs for checkpoints; those that wait in the queue are cancelled."""
        self.assignment.stopping()
        (self.control / STOP).touch()
        if self.submitter.cluster == "slurm":
            for job in [job for job, names in self.busy.items() if not started(self.control, names[0]).exists()]:
                job.cancel(check=False)
                del self.busy[job]


def take_over(control: Path, submitit: Any) -> None:
    """Stop the jobs of processes that were killed. Their items have checkpoints, and are submitted again."""
    for folder in control.glob("*"):
        if not folder.is_dir() or (held := lock(folder)) is None:  # None: that process is alive, and shares the items
            continue
        (folder / STOP).touch()
        if (folder / JOBS).exists() and shutil.which("scancel"):
            for line in (folder / JOBS).read_text().splitlines():
                number, name = line.split()
                if not started(folder, name).exists():  # it waits in the queue
                    submitit.SlurmJob(folder / "%j", number).cancel(check=False)
        held.release()


def started(control: Path, name: str) -> Path:
    """A file that says that the job whose first item this is has started."""
    return control / f"{name}.started"


class Job:
    """What a job does: its items, in a thread, so that the signal of a preemption can wait for their checkpoints."""

    def __init__(
        self, work: Work, items: Mapping[str, Any], control: Path, width: int, outcomes: Mapping[str, Any] | None = None
    ) -> None:
        self.work, self.items, self.control, self.width = work, items, control, width
        self.outcomes = dict(outcomes or {})  # before the job was preempted

    def __call__(self) -> dict[str, Any]:
        warnings.simplefilter("ignore", SkippedFilesWarning)  # the sweep has read the data and warned
        self.stopped = threading.Event()
        with suppress(OSError):  # the sweep has ended
            started(self.control, next(iter(self.items))).touch()
        self.thread = threading.Thread(target=self.advance, daemon=True)
        self.thread.start()
        while self.thread.is_alive():
            self.thread.join(REPORT_SECONDS)
            self.obey()
        return self.outcomes

    def obey(self) -> None:
        """Stop if the sweep was stopped."""
        try:
            asked = (self.control / STOP).read_text()
        except OSError:
            return
        if asked == EXIT:
            os._exit(1)
        self.stopped.set()

    def advance(self) -> None:
        worker = Worker(self.progressed, self.stopped)
        left = {name: item for name, item in self.items.items() if name not in self.outcomes}

        def failed(name: str, error: Exception) -> None:
            if not isinstance(error, Interrupted):
                self.outcomes[name] = Failed(one_line(error))

        begin = {name: partial(self.start, name, item, worker) for name, item in left.items()}
        with more_queues():
            pack(begin, self.width, done=self.outcomes.__setitem__, failed=failed)

    def start(self, name: str, item: Any, worker: Worker) -> Any:
        if worker.stopped.is_set():
            raise Interrupted("stopped before it was started")
        return self.work.start(name, item, worker)

    def progressed(self, name: str, status: Status) -> None:
        path = self.control / f"{name}.json"
        temporary = path.with_suffix(".part")
        with suppress(OSError):  # the sweep that looks at it has ended
            temporary.write_text(json.dumps(vars(replace(status, node=socket.gethostname()))))
            temporary.replace(path)

    def checkpoint(self) -> Any:
        """Called by submitit when the job is preempted or reaches its time limit; returns what to start again."""
        import submitit

        self.stopped.set()
        self.thread.join(CHECKPOINT_SECONDS)
        return submitit.helpers.DelayedSubmission(Job(self.work, self.items, self.control, self.width, self.outcomes))
