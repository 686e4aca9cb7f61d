"""The executor of SLURM clusters, by submitit: job arrays, which all see the disk of the process that submits them."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from onebyone.engine import more_queues
from onebyone.errors import UsageError
from onebyone.executors.executor import (
    PACK_WIDTH,
    REPORT_SECONDS,
    Executor,
    Failed,
    Function,
    Lost,
    Status,
    Worker,
    one_line,
    pack_of,
    remote_device,
)
from onebyone.executors.local import available_cores, interrupts_blocked

CONTROL = ".slurm"  # folder for what this process and its jobs tell each other
STOP = "stop"
EXIT = "exit"  # in the file STOP: at once, without a checkpoint
CHECKPOINT_SECONDS = 60.0  # that a job which is preempted has for its checkpoints
KILLED = "its job ended without a result; see its log in {}"


class SlurmExecutor(Executor):
    """Jobs of a SLURM cluster: one per item on CPUs, one per pack of items on GPUs, submitted as arrays.

    A job that is preempted or reaches its time limit writes checkpoints, and SLURM starts it again. Jobs continue if
    this process ends. Logs are in ``.slurm`` in the current folder, which all nodes see.

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
            raise UsageError(f"the executor slurm needs submitit ({error}); pip install 'onebyone[cluster]'") from None
        self.submitit = submitit
        if self.cluster is None and shutil.which("srun") is None:
            raise UsageError("there is no srun here, so this is no SLURM cluster; use the executor local or ray")
        return self

    def device(self, name: str) -> str:
        gpus = any("gpus" in parameter or "gres" in parameter for parameter in self.parameters)
        return remote_device(name, gpus=gpus)

    @contextmanager
    def pool(self, function: Function, count: int, total: int, jobs: int | None, gpu: bool) -> Iterator[Jobs]:
        control = Path(CONTROL).absolute() / secrets.token_hex(4)
        control.mkdir(parents=True)
        made = Jobs(self, function, count, jobs, gpu, control)
        try:
            yield made
        except BaseException:  # such as a second Ctrl-C
            (control / STOP).write_text(EXIT)
            made.cancel(made.busy)
            raise
        if not made.lost:  # the logs of a lost job say why
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


class Jobs:
    """The jobs of one map."""

    def __init__(
        self, executor: SlurmExecutor, function: Function, count: int, jobs: int | None, gpu: bool, control: Path
    ) -> None:
        self.errors, self.function, self.control = executor.submitit.core.utils, function, control
        self.width = (jobs or PACK_WIDTH) if gpu else 1
        at_once = None if gpu else jobs
        self.submitter = executor.submitter(control / "%j", at_once)
        self.on_slurm = self.submitter.cluster == "slurm"  # else submitit would start all processes at once
        self.room = count if self.on_slurm else at_once or available_cores()
        self.busy: dict[Any, tuple[Future[dict[str, Any]], list[str]]] = {}  # by job
        self.lost = False

    def submit(self, batches: Sequence[Mapping[str, Any]]) -> list[Future[dict[str, Any]]]:
        for items in batches:
            started(self.control, next(iter(items))).unlink(missing_ok=True)  # of a job that was lost
        with interrupts_blocked(), self.submitter.batch():  # one array; jobs on this machine inherit this
            jobs = [self.submitter.submit(Job(self.function, items, self.width, self.control)) for items in batches]
        self.busy |= {job: (Future(), list(items)) for job, items in zip(jobs, batches, strict=True)}
        return [self.busy[job][0] for job in jobs]

    def statuses(self, stopped: bool) -> Iterator[tuple[str, Status]]:
        if stopped and not (self.control / STOP).exists():
            (self.control / STOP).touch()
            self.cancel([job for job, (_, names) in self.busy.items() if not started(self.control, names[0]).exists()])
        for job, (future, names) in list(self.busy.items()):
            for name in names:
                with suppress(OSError, ValueError):
                    yield name, Status(**json.loads((self.control / f"{name}.json").read_text()))
            if job.done():
                del self.busy[job]
                future.set_result(self.outcomes(job, names))

    def outcomes(self, job: Any, names: Sequence[str]) -> dict[str, Any]:
        """The outcomes of a job that has ended."""
        try:
            found: dict[str, Any] = job.result()
        except self.errors.UncompletedJobError:
            if (self.control / STOP).exists():
                return {}  # the next map resumes it
            self.lost = True
            return dict.fromkeys(names, Lost(KILLED.format(self.control)))
        except self.errors.FailedJobError as error:
            last = str(error).strip().split("\n")
            return dict.fromkeys(names, Failed(f"its job failed: {last[-4] if len(last) > 3 else last[-1]}"))
        return found

    def cancel(self, jobs: Any) -> None:
        """Cancel jobs of a cluster, such as those that wait in its queue."""
        for job in list(jobs) if self.on_slurm else ():
            job.cancel(check=False)
            self.busy.pop(job)[0].set_result({})


def started(control: Path, name: str) -> Path:
    """A file that says that the job whose first item this is has started."""
    return control / f"{name}.started"


@dataclass
class Job:
    """What a job does: its items, in a thread, so that the signal of a preemption can wait for their checkpoints."""

    function: Function
    items: Mapping[str, Any]
    width: int
    control: Path

    def __call__(self) -> dict[str, Any]:
        self.stopped, outcomes = threading.Event(), dict[str, Any]()
        with suppress(OSError):  # the process that waits for it has ended
            started(self.control, next(iter(self.items))).touch()

        def work() -> None:
            with more_queues():
                outcomes.update(pack_of(self.function, self.items, self.width, Worker(self.progressed, self.stopped)))

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()
        while self.thread.is_alive():
            self.thread.join(REPORT_SECONDS)
            with suppress(OSError):
                if (self.control / STOP).read_text() == EXIT:
                    os._exit(1)
                self.stopped.set()
        return outcomes

    def progressed(self, name: str, status: Status) -> None:
        path = self.control / f"{name}.json"
        temporary = path.with_suffix(".part")
        with suppress(OSError):  # the process that waits for it has ended
            temporary.write_text(json.dumps(vars(replace(status, node=socket.gethostname()))))
            temporary.replace(path)

    def checkpoint(self) -> Any:
        """Called by submitit when the job is preempted or reaches its time limit; returns what to start again."""
        import submitit

        self.stopped.set()
        self.thread.join(CHECKPOINT_SECONDS)
        return submitit.helpers.DelayedSubmission(Job(self.function, self.items, self.width, self.control))
