"""The executor of Ray clusters: the driver, which hands out items and writes what nodes without its disk send."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from filelock import BaseFileLock

from onebyone.engine.pack import WAIT_SECONDS, NotNow
from onebyone.errors import UsageError
from onebyone.files import atomic_write, lock
from onebyone.runs.executors.interface import (
    ATTEMPTS,
    REPORT_SECONDS,
    Assignment,
    Executor,
    Failed,
    Lost,
    one_line,
    remote_device,
)
from onebyone.runs.executors.ray_node import (
    MARK,
    Files,
    Mailbox,
    PackActor,
    Terms,
    Unshared,
    do_item,
    read_files,
    write_files,
)
from onebyone.runs.files import leave_error

KILLED = "its process or its node ended {} times; if there was not enough memory, use fewer jobs"
HEAD = "node:__internal_head__"  # a resource that only the head has
Event = tuple[str, Any, Files | None]  # an item, its outcome, and its files if the driver is to write them


class RayExecutor(Executor):
    """Runs on a Ray cluster: a task per run on CPUs, and on GPUs an actor per GPU that advances a pack of runs.

    Parameters
    ----------
    address
        Address of the cluster: ``"auto"``, ``"HOST:PORT"`` or ``"ray://HOST:PORT"``. None uses the environment
        variable ``RAY_ADDRESS``, and without it starts Ray on this machine. A connection that exists is used.
    shared
        Whether the nodes see the folder of the sweep at the same path. None lets every node find out. If they do
        not, checkpoints and results are sent to this process, which writes them.
    """

    def __init__(self, address: str | None = None, *, shared: bool | None = None) -> None:
        self.address, self.shared = address, shared
        self.connected: list[bool] = []  # by each block that is entered: whether it made the connection

    def __enter__(self) -> Self:
        try:
            import ray
        except ImportError as error:
            raise UsageError(f"the executor ray needs Ray ({error}); pip install 'onebyone[ray]'") from None
        self.ray = ray
        self.connected.append(not ray.is_initialized())
        if not ray.is_initialized():
            try:
                ray.init(self.address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, TimeoutError) as error:
                reason = one_line(error)
                self.connected.pop()
                raise UsageError(
                    f"no Ray cluster at {self.address!r} ({reason}); start one with `ray start --head`, or leave "
                    "address out to start Ray on this machine"
                ) from None
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

    def execute(self, assignment: Assignment) -> None:
        if not assignment.on_gpu and self.ray.cluster_resources().get("CPU", 0) < 1:
            raise UsageError("the Ray cluster has no CPU for runs; start its nodes with at least one")
        try:
            Dispatch(self.ray, assignment, self.shared).run()
        except self.ray.exceptions.RayError as error:
            reason = one_line(error)
            raise UsageError(f"the Ray cluster was lost ({reason}); the same command resumes on another") from error


class Dispatch:
    """The items of one assignment, from the first to the last."""

    def __init__(self, ray: Any, assignment: Assignment, shared: bool | None) -> None:
        self.ray, self.assignment = ray, assignment
        self.work, self.waiting = assignment.work, deque(assignment.items)
        self.sends_files = shared is False
        self.attempts: Counter[str] = Counter()
        self.locks: dict[str, BaseFileLock] = {}  # of folders that this process writes to
        self.told = False
        self.node_names: dict[str, str] = {}
        # On the head, without which there is no cluster: a node that is removed must not take all messages with it.
        self.mailbox = ray.remote(Mailbox).options(num_cpus=0, resources={HEAD: 0.001}).remote()
        terms = Terms(self.mark(), assignment.width)
        sent = ray.put(self.work.with_data(assignment.kept))
        kind = Packs if assignment.on_gpu else Tasks
        self.channel: Packs | Tasks = kind(self, sent, terms)

    def mark(self) -> str | None:
        """What the file holds by which nodes recognise the folder of this process."""
        folders = [self.work.folder(name) for name in self.assignment.items]
        if not folders or folders[0] is None:
            return None
        path = folders[0].parent / MARK
        if not path.exists():
            with atomic_write(path) as temporary:
                temporary.write_text(secrets.token_hex(8))
        return path.read_text()

    def run(self) -> None:
        try:
            while self.waiting or self.channel.flying:
                if self.assignment.stopped.is_set():
                    if not self.told:
                        self.told = True
                        self.assignment.stopping()
                    self.waiting.clear()
                for _ in range(min(len(self.waiting), self.channel.room())):
                    self.submit(self.waiting.popleft())
                if not self.channel.flying and self.waiting:
                    time.sleep(WAIT_SECONDS)  # other processes work in all folders that are left
                for event in list(self.channel.events()):
                    self.settle(*event)
        finally:
            self.channel.close()
            self.ray.kill(self.mailbox)
            for name in list(self.locks):
                self.locks.pop(name).release()

    def submit(self, name: str) -> None:
        files, folder = None, self.work.folder(name)
        if self.sends_files and folder is not None:
            if (held := lock(folder)) is None:
                self.waiting.append(name)
                return
            self.locks[name], files = held, read_files(folder)
        self.channel.submit(name, self.assignment.items[name], files)

    def settle(self, name: str, outcome: Any, files: Files | None) -> None:
        """An item has ended, or its process has."""
        folder = self.work.folder(name)
        if files is not None and folder is not None:
            write_files(folder, files, complete=True)
        if isinstance(outcome, Lost):
            self.attempts[name] += 1
            if self.attempts[name] >= ATTEMPTS:
                outcome = Lost(KILLED.format(ATTEMPTS))
                if folder is not None:
                    leave_error(folder, f"{outcome}\n")
                self.assignment.ended(name, outcome)
            else:
                self.waiting.append(name)
        elif isinstance(outcome, Unshared):
            self.sends_files = True
            self.waiting.appendleft(name)
        elif isinstance(outcome, NotNow):
            self.waiting.append(name)
        elif outcome is not None:  # None: it was stopped
            self.assignment.ended(name, outcome)
        if name in self.locks:
            self.locks.pop(name).release()

    def messages(self) -> Iterator[tuple[str, str, Any]]:
        """Deal with what workers have sent, and give what only the channel understands."""
        for kind, name, content in self.ray.get(self.mailbox.collect.remote(self.assignment.stopped.is_set())):
            if kind == "status" and name in self.channel.flying:
                self.assignment.progressed(name, replace(content, node=self.node_name(content.node)))
            elif kind == "files" and name in self.locks:
                folder = self.work.folder(name)
                assert folder is not None
                write_files(folder, content)
            elif kind in ("taken", "ended"):
                yield kind, name, content

    def node_name(self, node: str) -> str:
        """The name of a node; with a part of its number if several nodes have the same name."""
        if node not in self.node_names:
            self.node_names = {each["NodeID"]: each["NodeName"] for each in self.ray.nodes()}
        own = self.node_names.get(node, "")
        return own if list(self.node_names.values()).count(own) == 1 else f"{own}/{node[:4]}"


class Tasks:
    """On CPUs: a task per item. Ray queues those that no node has room for."""

    def __init__(self, dispatch: Dispatch, work: Any, terms: Terms) -> None:
        self.dispatch, self.ray = dispatch, dispatch.ray
        self.limit = dispatch.assignment.jobs
        self.arguments = work, terms, dispatch.mailbox
        # Repeated by the driver and not by Ray, with the newest checkpoint.
        self.task = self.ray.remote(do_item).options(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")
        self.busy: dict[Any, str] = {}

    @property
    def flying(self) -> set[str]:
        return set(self.busy.values())

    def room(self) -> int:
        # A few more than there are CPUs, so that none of them waits for this process.
        limit = self.limit or int(self.ray.cluster_resources().get("CPU", 1)) + 2
        return max(0, limit - len(self.busy))

    def submit(self, name: str, item: Any, files: Files | None) -> None:
        self.busy[self.task.remote(*self.arguments, name, item, files)] = name

    def events(self) -> Iterator[Event]:
        finished, _ = self.ray.wait(list(self.busy), num_returns=1, timeout=REPORT_SECONDS) if self.busy else ([], [])
        for _ in self.dispatch.messages():  # before the outcomes, which have newer files
            pass
        for reference in finished:
            name = self.busy.pop(reference)
            try:
                outcome, files = self.ray.get(reference)
            except self.ray.exceptions.RayTaskError as error:
                outcome, files = Failed(one_line(error.cause or error)), None
            except self.ray.exceptions.RayError as error:
                outcome, files = Lost(one_line(error)), None
            yield name, outcome, files

    def close(self) -> None:
        for reference in self.busy:  # after a second Ctrl-C or an error; else there are none
            self.ray.cancel(reference, force=True)


class Packs:
    """On GPUs: an actor per GPU, which is started again when it dies. It takes the next item when one has ended."""

    def __init__(self, dispatch: Dispatch, work: Any, terms: Terms) -> None:
        self.dispatch, self.ray = dispatch, dispatch.ray
        self.arguments = work, terms, dispatch.mailbox
        self.total = len(dispatch.assignment.items)
        self.actors: dict[str, Any] = {}
        self.working: dict[Any, str] = {}  # what the actors have been asked for
        self.owner: dict[str, str | None] = {}  # the pack that has an item; None while it waits

    @property
    def flying(self) -> set[str]:
        return set(self.owner)

    def room(self) -> int:
        return self.total

    def submit(self, name: str, item: Any, files: Files | None) -> None:
        self.owner[name] = None
        self.ray.get(self.dispatch.mailbox.give.remote([(name, item, files)]))

    def start(self) -> None:
        """Start an actor for every GPU, also of nodes that were added, but for no more than there are items."""
        gpus = min(int(self.ray.cluster_resources().get("GPU", 0)), self.total)
        work, terms, mailbox = self.arguments
        terms = replace(terms, width=min(terms.width, math.ceil(self.total / max(1, gpus))))
        kind = self.ray.remote(PackActor).options(num_gpus=1, num_cpus=0, max_restarts=-1)
        for _ in range(gpus - len(self.actors)):
            name = f"pack {len(self.actors)}"
            self.actors[name] = kind.remote([work], terms, mailbox, name)
            self.working[self.actors[name].advance.remote()] = name

    def events(self) -> Iterator[Event]:
        self.start()
        finished, _ = self.ray.wait(list(self.working), num_returns=1, timeout=REPORT_SECONDS)
        for kind, name, content in self.dispatch.messages():
            if kind == "taken":
                self.owner[name] = content
            elif self.owner.pop(name, ...) is not ...:
                yield name, *content
        if self.dispatch.assignment.stopped.is_set():  # what no pack has taken is not started any more
            self.owner = {name: owner for name, owner in self.owner.items() if owner is not None}
        for reference in finished:
            pack = self.working.pop(reference)
            try:
                self.ray.get(reference)
                why = "its pack has ended"
            except self.ray.exceptions.RayError as error:
                why = one_line(error)
            if self.dispatch.assignment.stopped.is_set():
                self.owner = {name: owner for name, owner in self.owner.items() if owner != pack}
            else:
                self.working[self.actors[pack].advance.remote()] = pack
                for name in [name for name, owner in self.owner.items() if owner == pack]:
                    del self.owner[name]
                    yield name, Lost(why), None

    def close(self) -> None:
        for actor in self.actors.values():
            self.ray.kill(actor)
