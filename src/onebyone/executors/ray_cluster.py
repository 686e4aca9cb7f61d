"""The executor of Ray clusters: a task per item on CPUs, and per pack of items on GPUs."""

from __future__ import annotations

import logging
import math
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from onebyone.engine import more_queues, torch_settings
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
    attempt,
    one_line,
    pack_of,
    remote_device,
)

KILLED = "its process or its node ended ({}); if there was not enough memory, use fewer jobs"
HEAD = "node:__internal_head__"  # a resource that only the head has


class RayExecutor(Executor):
    """Work on a Ray cluster: a task per item on CPUs, and a task per pack of items on GPUs.

    Parameters
    ----------
    address
        Address of the cluster: ``"auto"``, ``"HOST:PORT"`` or ``"ray://HOST:PORT"``. None uses the environment
        variable ``RAY_ADDRESS``, and without it starts Ray on this machine. A connection that exists is used.
    shared
        Whether the nodes see the folder of a sweep at the same path. None lets every node find out. Nodes that do not
        see it send the folders of their runs to this process.
    """

    def __init__(self, address: str | None = None, *, shared: bool | None = None) -> None:
        self.address, self.shares_disk = address, shared
        self.connected: list[bool] = []  # by each block that is entered: whether it made the connection

    def __enter__(self) -> Self:
        try:
            import ray
        except ImportError as error:
            raise UsageError(f"the executor ray needs Ray ({error}); pip install 'onebyone[cluster]'") from None
        self.ray = ray
        connects = not ray.is_initialized()
        if connects:
            try:
                ray.init(self.address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, TimeoutError) as error:
                raise UsageError(
                    f"no Ray cluster at {self.address!r} ({one_line(error)}); start one with `ray start --head`, or "
                    "leave address out to start Ray on this machine"
                ) from None
        self.connected.append(connects)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.connected.pop():
            self.ray.shutdown()

    def device(self, name: str) -> str:
        gpus = self.ray.cluster_resources().get("GPU", 0)
        found = remote_device(name, gpus=gpus >= 1)
        if found == "cuda" and gpus < 1:
            raise UsageError("the Ray cluster has no GPU; use device cpu, or add a node with a GPU")
        return found

    @contextmanager
    def pool(self, function: Function, count: int, total: int, jobs: int | None, gpu: bool) -> Iterator[Tasks]:
        if not gpu and self.ray.cluster_resources().get("CPU", 0) < 1:
            raise UsageError("the Ray cluster has no CPU for runs; start its nodes with at least one")
        tasks = Tasks(self.ray, function, count, jobs, gpu)
        try:
            yield tasks
        except self.ray.exceptions.RayError as error:
            raise UsageError(
                f"the Ray cluster was lost ({one_line(error)}); the same command resumes on another"
            ) from error
        finally:
            tasks.close()


class Tasks:
    """The tasks of one map."""

    def __init__(self, ray: Any, function: Function, count: int, jobs: int | None, gpu: bool) -> None:
        self.ray, self.gpu = ray, gpu
        self.jobs = None if gpu else jobs
        self.width = min(jobs or PACK_WIDTH, math.ceil(count / self.room)) if gpu else 1
        # On the head, without which there is no cluster: a node that is removed must not take all reports with it.
        self.board = ray.remote(Board).options(num_cpus=0, resources={HEAD: 0.001}).remote()
        self.function = ray.put(function)
        # A task that is lost is submitted again by ``map`` and not by Ray.
        needs = {"num_cpus": 0, "num_gpus": 1} if gpu else {"num_cpus": 1}
        self.task = ray.remote(do_items).options(max_retries=0, scheduling_strategy="SPREAD", **needs)
        self.busy = set[Any]()

    @property
    def room(self) -> int:
        resources = self.ray.cluster_resources()
        # On CPUs a few more than there are, so that none of them waits for this process.
        return max(1, int(resources.get("GPU", 0))) if self.gpu else self.jobs or int(resources.get("CPU", 1)) + 2

    def submit(self, batches: Sequence[Mapping[str, Any]]) -> list[Future[dict[str, Any]]]:
        return [self.start(items) for items in batches]

    def start(self, items: Mapping[str, Any]) -> Future[dict[str, Any]]:
        reference, found = self.task.remote(self.function, items, self.gpu, self.board), Future[dict[str, Any]]()

        def ended(done: Future[dict[str, Any]]) -> None:
            self.busy.discard(reference)
            try:
                found.set_result(done.result())
            except self.ray.exceptions.RayTaskError as error:
                found.set_result(dict.fromkeys(items, Failed(one_line(error.cause or error))))
            except self.ray.exceptions.RayError as error:
                found.set_result(dict.fromkeys(items, Lost(KILLED.format(one_line(error)))))

        self.busy.add(reference)
        reference.future().add_done_callback(ended)
        return found

    def statuses(self, stopped: bool) -> Iterator[tuple[str, Status]]:
        yield from self.ray.get(self.board.read.remote(stopped)).items()

    def close(self) -> None:
        for reference in list(self.busy):  # after a second Ctrl-C or an error; else there are none
            self.ray.cancel(reference, force=True)
        self.ray.kill(self.board)


class Board:
    """An actor on which tasks write their statuses, and this process that they are to stop."""

    def __init__(self) -> None:
        self.statuses: dict[str, Status] = {}
        self.stopped = False

    def write(self, statuses: Mapping[str, Status]) -> bool:
        """Returns whether to stop."""
        self.statuses |= statuses
        return self.stopped

    def read(self, stop: bool) -> dict[str, Status]:
        """What was written since the last call."""
        self.stopped, found, self.statuses = stop, self.statuses, {}
        return found


def do_items(function: Function, items: Mapping[str, Any], gpu: bool, board: Any) -> dict[str, Any]:
    """A task. Its reports are written to the board in a thread while it works."""
    import ray

    node = f"{socket.gethostname()}/{ray.get_runtime_context().get_node_id()[:4]}"
    statuses: dict[str, Status] = {}
    worker = Worker(lambda name, status: statuses.update({name: replace(status, node=node)}), threading.Event())
    ended = threading.Event()

    def report() -> None:
        if ray.get(board.write.remote(dict(statuses))):
            worker.stopped.set()

    def keep_reporting() -> None:
        while not ended.wait(REPORT_SECONDS):
            report()

    report()  # to find out whether to stop before anything is started
    thread = threading.Thread(target=keep_reporting, daemon=True)
    thread.start()
    try:
        if gpu:
            with more_queues(), torch_settings(flops=0):
                return dict(pack_of(function, items, len(items), worker))
        return {name: attempt(partial(function, name, item, worker), worker.stopped) for name, item in items.items()}
    finally:
        ended.set()
        thread.join()
