"""The part of the Ray executor that runs on the nodes: a task per item on CPUs, a pack of items per GPU."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from onebyone.engine import more_queues, pack, torch_settings
from onebyone.engine.pack import WAIT_SECONDS, NotNow, Steps
from onebyone.files import atomic_write
from onebyone.runs.executors.interface import REPORT_SECONDS, Failed, Status, Work, Worker, attempt, one_line
from onebyone.runs.run import Interrupted

FILES_SECONDS = 1.0  # between two looks for new files of items whose folders the driver does not see
MARK = ".shared"  # a file that is the same on all nodes whose disk is shared
Files = Mapping[str, bytes]


class Unshared(Exception):
    """This node does not see the folder of the driver, so the files have to be sent."""


class Mailbox:
    """An actor between the driver, which cannot be called, and the processes on the nodes."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.stopped = False
        self.waiting: deque[Any] = deque()

    def send(self, messages: list[Any]) -> bool:
        """From a worker: tell the driver something. Returns whether to stop."""
        self.messages += messages
        return self.stopped

    def collect(self, stop: bool) -> list[Any]:
        """From the driver: what was told since the last call."""
        self.stopped = stop
        taken, self.messages = self.messages, []
        return taken

    def give(self, items: list[Any]) -> None:
        """From the driver: items for the packs."""
        self.waiting.extend(items)

    def take(self, pack: str, count: int) -> list[Any]:
        """From a pack: at most ``count`` items to do now."""
        taken = [self.waiting.popleft() for _ in range(min(count, len(self.waiting)))]
        self.messages += [("taken", name, pack) for name, *_ in taken]
        return taken


@dataclass(frozen=True)
class Terms:
    """What the workers of one sweep are told."""

    mark: str | None  # what MARK holds if this node shares the disk of the driver; None if no folder is used
    width: int  # items at once in a pack


class Side:
    """The side of a worker process: reports to the mailbox in a thread while items are worked on."""

    def __init__(self, work: Work, terms: Terms, mailbox: Any) -> None:
        import ray

        self.ray, self.work, self.terms, self.mailbox = ray, work, terms, mailbox
        self.node = ray.get_runtime_context().get_node_id()
        self.worker = Worker(self.progressed, threading.Event())
        self.statuses: dict[str, Status] = {}
        self.folders: dict[str, Path] = {}  # of items whose files the driver writes
        self.sent: dict[Path, int] = {}  # modification times
        self.looked = time.monotonic()
        self.ended = threading.Event()

    def __enter__(self) -> Self:
        self.tell([])  # to find out whether to stop before anything is started
        self.thread = threading.Thread(target=self.talk, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        self.thread.join()

    def progressed(self, name: str, status: Status) -> None:
        self.statuses[name] = replace(status, node=self.node)

    def needs_files(self, name: str, files: Files | None) -> bool:
        """Whether this node does not see the folder of an item, and was not sent its files either."""
        folder = self.work.folder(name)
        return folder is not None and files is None and not sees(folder.parent, self.terms.mark)

    def start(self, name: str, item: Any, files: Files | None) -> Steps[Any]:
        """The steps of an item; with ``files``, in a temporary folder that has these."""
        if self.worker.stopped.is_set():
            raise Interrupted("stopped before it was started")
        work, folder = self.work, self.work.folder(name)
        if folder is not None and files is not None:
            temporary = Path(tempfile.mkdtemp(prefix="onebyone-"))
            work = work.moved(temporary)
            self.folders[name] = temporary / folder.name
            write_files(self.folders[name], files)
        return work.start(name, item, self.worker)

    def leave(self, name: str) -> Files | None:
        """End an item. Returns its files if the driver is to write them."""
        self.statuses.pop(name, None)
        folder = self.folders.pop(name, None)
        if folder is None:
            return None
        found = read_files(folder)
        shutil.rmtree(folder.parent, ignore_errors=True)
        return found

    def talk(self) -> None:
        while not self.ended.wait(REPORT_SECONDS):
            messages: list[Any] = [("status", name, status) for name, status in list(self.statuses.items())]
            if time.monotonic() - self.looked >= FILES_SECONDS:
                self.looked = time.monotonic()
                messages += [
                    ("files", name, new) for name, path in list(self.folders.items()) if (new := self.new(path))
                ]
            self.tell(messages)

    def tell(self, messages: list[Any]) -> None:
        if self.ray.get(self.mailbox.send.remote(messages)):
            self.worker.stopped.set()

    def new(self, folder: Path) -> Files:
        """The files of a folder that have changed since they were sent."""
        times = {path: path.stat().st_mtime_ns for path in visible(folder) if path.exists()}
        changed = [path for path, modified in times.items() if self.sent.get(path) != modified]
        self.sent.update(times)
        return {path.name: path.read_bytes() for path in changed if path.exists()}


def do_item(work: Work, terms: Terms, mailbox: Any, name: str, item: Any, files: Files | None) -> Any:
    """A task: one item in a process of its own. Returns the outcome, and files if the driver is to write them."""
    with Side(work, terms, mailbox) as side:
        if side.needs_files(name, files):
            return Unshared(), None
        outcome = attempt(partial(side.start, name, item, files))
        if isinstance(outcome, NotNow):
            side.worker.stopped.wait(WAIT_SECONDS)  # it may be all that is left
    return outcome, side.leave(name)


class PackActor:
    """An actor with a GPU of its own, which advances several items and asks for the next when one ends."""

    def __init__(self, work: list[Any], terms: Terms, mailbox: Any, pack: str) -> None:
        import ray

        # In a list, Ray passes the reference and not the object, which a restart of the actor needs again.
        self.work: Work = ray.get(work[0])
        self.terms, self.mailbox, self.pack = terms, mailbox, pack

    def advance(self) -> None:
        """Do items until there are no more."""
        with more_queues(), torch_settings(flops=0), Side(self.work, self.terms, self.mailbox) as side:
            active: set[str] = set()
            asked = 0.0

            def ended(name: str, outcome: Any) -> None:
                active.discard(name)
                side.tell([("ended", name, (outcome, side.leave(name)))])

            def failed(name: str, error: Exception) -> None:
                ended(name, None if isinstance(error, Interrupted) else Failed(one_line(error)))

            def more(room: int) -> Mapping[str, Callable[[], Steps[Any]]] | None:
                nonlocal asked
                if side.worker.stopped.is_set():
                    return None
                if (now := time.monotonic()) - asked < REPORT_SECONDS:
                    if not active:
                        time.sleep(REPORT_SECONDS)
                    return {}
                taken = side.ray.get(side.mailbox.take.remote(self.pack, room))
                asked = asked if taken else now
                able = {}
                for name, item, files in taken:
                    if side.needs_files(name, files):
                        ended(name, Unshared())
                    else:
                        able[name] = partial(side.start, name, item, files)
                active.update(able)
                return able

            pack({}, self.terms.width, done=ended, failed=failed, more=more)


def sees(parent: Path, mark: str | None) -> bool:
    """Whether this node sees the folder of the driver, and not one of its own with the same path."""
    try:
        return (parent / MARK).read_text() == mark
    except OSError:
        return False


def visible(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if not path.name.startswith(".")]


def read_files(folder: Path) -> Files:
    """The files of an item, without its lock and temporary files."""
    return {path.name: path.read_bytes() for path in visible(folder)}


def write_files(folder: Path, files: Files, *, complete: bool = False) -> None:
    """Write files of an item. If they are ``complete``, others are removed."""
    for name, content in sorted(files.items()):  # config.yaml first, result.json last
        with atomic_write(folder / name) as temporary:
            temporary.write_bytes(content)
    for path in visible(folder) if complete else ():
        if path.name not in files:
            path.unlink(missing_ok=True)
