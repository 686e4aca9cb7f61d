"""A classifier in a state folder: every change is in a journal before it is acknowledged."""

from __future__ import annotations

import logging
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from onebyone import files
from onebyone.errors import UsageError
from onebyone.serve import journal
from onebyone.serve.answers import Answer
from onebyone.serve.journal import CannotStore, Entry, Fsync, Journal
from onebyone.serve.model import Model
from onebyone.serve.operations import Operation
from onebyone.serve.settings import check_usable, settings_of
from onebyone.serve.stored import journal_path, newest_journal, number_of, replay, snapshot_path

T = TypeVar("T")
log = logging.getLogger("onebyone.serve")

WAITING = 64  # operations that wait to be made
GROUP = 16  # operations that are flushed together
LOWER = 10  # priority of the thread that computes solutions
LONGEST_REST = 1.0  # seconds between two solutions
NAMES = r"journal-\d+|snapshot-\d+\.safetensors"
OWN = re.compile(rf"{NAMES}|\.({NAMES}|settings\.json|download\.safetensors)\.[0-9a-f]{{8}}")  # and temporary ones
SNAPSHOT_OPERATIONS = 2000
SNAPSHOT_BYTES = 64_000_000  # of the journal


class Busy(Exception):
    """Too much is waiting already."""


class Waiting(NamedTuple):
    """Something for the thread that owns the model."""

    work: Operation | Callable[[Model], Any]
    done: Future[Any]


class Service:
    """A classifier in a state folder. Threads may share it.

    One thread makes the changes, in the order in which they were submitted. Another computes an answer after each of
    them, or after the last of several, and puts it in ``answer``. Predictions use that one and never wait.

    The folder holds ``settings.json``, a saved classifier ``snapshot-N.safetensors`` after operation N, and
    ``journal-N`` with the operations after it.

    Parameters
    ----------
    folder
        The state folder. It is created if it is missing, and has one service at a time.
    fsync
        When an operation is flushed to the disk, as for :class:`~onebyone.serve.journal.Journal`.
    given
        Values of :class:`~onebyone.serve.settings.Settings`. None: the value of the folder, or the default.

    Raises
    ------
    UsageError
        If another process uses the folder, or if the folder is damaged or was created with other settings.
    """

    def __init__(self, folder: Path, fsync: Fsync = "every", **given: Any) -> None:
        self.folder, self.fsync = folder, fsync
        if folder.is_file():
            raise UsageError(
                f"{folder} is a file, and the state is a folder; to serve a saved classifier, give a new folder, and "
                "the encoder and memory of the file, then send the file to /v1/merge"
            )
        self._folder_lock = files.lock(folder)
        if self._folder_lock is None:
            raise UsageError(f"another process serves {folder}; stop that one, or choose another folder")
        self._lock = threading.Lock()  # of the model
        self._waiting: queue.Queue[Waiting | None] = queue.Queue(WAITING)
        self._changed, self._closed = threading.Event(), threading.Event()
        self._closing = False
        self._broken: str | None = None
        try:
            self.settings = settings_of(folder, given)
            self.model = Model(folder, self.settings)
            self.dropped = 0  # bytes of an incomplete last entry
            self._journal = self._recovered()
            self.sequence = self._journal.sequence
            self._solve()
        except BaseException:
            self._folder_lock.release()
            raise
        self._threads = [
            threading.Thread(target=target, daemon=True, name=name)
            for target, name in ((self._change, "changes"), (self._keep_solving, "solutions"))
        ]
        for thread in self._threads:
            thread.start()

    # For all threads

    def submit(self, work: Operation | Callable[[Model], Any]) -> Future[Any]:
        """Make a change, or call a function that reads the model, after everything that was submitted before.

        Returns
        -------
        A future. It has a result when the change is in the journal, flushed as ``fsync`` says, and made. Its exception
        is a UsageError if the change is impossible, and CannotStore if the disk is full.

        Raises
        ------
        Busy
            If too many changes are waiting.
        """
        done: Future[Any] = Future()
        done.set_running_or_notify_cancel()  # a change cannot be withdrawn, even if nobody waits for it any more
        if self._closing:
            raise Busy
        try:
            self._waiting.put_nowait(Waiting(work, done))
        except queue.Full:
            raise Busy from None
        return done

    def prepare(self) -> None:
        """Import and compute now what the first teaching of a process needs, which takes some seconds."""
        if self.model.state is None:
            self.submit(lambda model: check_usable(model.settings))

    def look(self, function: Callable[[Model], T]) -> T:
        """Call a function that reads the model, between two changes. It must be fast."""
        with self._lock:
            return function(self.model)

    @property
    def waiting(self) -> int:
        """How many changes are waiting."""
        return self._waiting.qsize()

    @property
    def journal_bytes(self) -> int:
        return self._journal.size

    def close(self) -> None:
        """Make the changes that are waiting, write a snapshot, and release the folder."""
        if self._closing:
            return
        self._closing = True
        self._waiting.put(None)
        self._threads[0].join()
        self._closed.set()
        self._changed.set()
        self._threads[1].join()
        self._snapshot()
        self._journal.close()
        assert self._folder_lock is not None
        self._folder_lock.release()

    # The thread of changes

    def _change(self) -> None:
        last = False
        while not last:
            group = [self._waiting.get()]
            while len(group) < GROUP:
                try:
                    group.append(self._waiting.get_nowait())
                except queue.Empty:
                    break
            last = None in group
            self._make([job for job in group if job is not None])
            if self._is_snapshot_due():
                self._snapshot()

    def _make(self, group: list[Waiting]) -> None:
        """Write the operations of a group to the journal, flush once, and make them."""
        operations = [job for job in group if isinstance(job.work, Operation)]
        payloads = [job.work.encode() for job in operations if isinstance(job.work, Operation)]
        numbers: list[int] = []
        try:
            numbers = self._journal.append(payloads) if payloads else []
        except CannotStore as error:
            for job in operations:
                job.done.set_exception(error)
            group = [job for job in group if not isinstance(job.work, Operation)]
        remaining, void = iter(numbers), []
        for job in group:
            number = next(remaining) if isinstance(job.work, Operation) else 0
            try:
                result = self._made(job.work, number)
            except BaseException as error:
                if number:
                    void.append(Operation("void", sequence=number).encode())
                    self.sequence = number
                job.done.set_exception(error)
            else:
                job.done.set_result(result)
        if void:
            try:
                self.sequence = self._journal.append(void)[-1]
            except CannotStore:  # a replay refuses the same operations again
                log.warning("the disk is full; refused operations stay in the journal")
        if numbers:
            self._changed.set()

    def _made(self, work: Operation | Callable[[Model], Any], number: int) -> Any:
        if not isinstance(work, Operation):
            return work(self.model)  # without the lock, because only this thread changes the model
        with self._lock:
            result = self.model.apply(work)
            self.sequence = number
        counts = self.model.counts()
        return result | {"sequence": number, "samples": sum(counts.values()), "counts": counts}

    # The thread of solutions

    def _keep_solving(self) -> None:
        lower_priority()
        while True:
            self._changed.wait()
            self._changed.clear()
            if self._closed.is_set():
                return
            started = time.monotonic()
            try:
                self._solve()
                self._broken = None
            except Exception as error:  # the last answer stays; the next change tries again
                if str(error) != self._broken:
                    log.exception("no answer could be computed")
                self._broken = str(error)
            # While changes keep coming, most of the time is left to predictions.
            self._closed.wait(min(2 * (time.monotonic() - started), LONGEST_REST))

    def _solve(self) -> None:
        """Compute the answer for the present state. The model is locked only while its statistics are copied."""
        with self._lock:
            sequence, state, classifier = self.sequence, self.model.state, self.model.classifier
            state = None if state is None else state.copied()
        self.answer = None if state is None else Answer(state, sequence, classifier.prior, classifier.unknown_rate)
        self.solved = sequence  # last operation that the answer takes into account, even if there is no answer

    # Snapshots and recovery

    def _is_snapshot_due(self) -> bool:
        since = self._journal.sequence - number_of(self._journal.path)
        return since >= SNAPSHOT_OPERATIONS or (since > 0 and self._journal.size >= SNAPSHOT_BYTES)

    def _snapshot(self) -> None:
        """Save the classifier and start a new journal. If that fails, the present journal goes on."""
        number = self._journal.sequence
        if number == number_of(self._journal.path):
            return
        path = journal_path(self.folder, number)
        try:
            with self._lock:
                if self.model.state is not None:
                    self.model.save(snapshot_path(self.folder, number))
                journal.create(path, Entry(number, self.model.base().encode()))
            opened = Journal(path, path.stat().st_size, number, self.fsync)
        except Exception as error:  # the thread of changes must not end
            path.unlink(missing_ok=True)  # the present journal goes on, so this one must not be found
            snapshot_path(self.folder, number).unlink(missing_ok=True)
            log.warning("no snapshot was written: %s", error)
            return
        self._journal.close()
        self._journal = opened
        self._remove_all_but(number)

    def _remove_all_but(self, number: int) -> None:
        """Remove older journals and snapshots, and temporary files of a process that was killed."""
        kept = (journal_path(self.folder, number), snapshot_path(self.folder, number))
        for path in self.folder.iterdir():
            if OWN.fullmatch(path.name) and path not in kept:  # files of other programs stay
                path.unlink(missing_ok=True)

    def _recovered(self) -> Journal:
        """Load the last snapshot and make the operations after it again."""
        newest = newest_journal(self.folder)
        if newest is None:
            newest = 0
            journal.create(journal_path(self.folder, 0), Entry(0, self.model.base().encode()))
        found = replay(self.model, self.folder, newest)
        self.dropped = found.dropped
        self._remove_all_but(newest)
        return Journal(journal_path(self.folder, newest), found.size, found.entries[-1].sequence, self.fsync)


def lower_priority() -> None:
    """Let other threads run first, where the operating system has priorities of threads."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWER)
