"""Saving a classifier while it learns, to a folder that no other classifier writes to."""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import BaseFileLock
from torch.utils._python_dispatch import _disable_current_modes

from onebyone import files
from onebyone.errors import UsageError
from onebyone.estimator import persistence
from onebyone.estimator.locking import lock_of
from onebyone.estimator.model import State, changeable

FILE = "classifier.safetensors"  # in the folder
SECONDS = 5.0  # longest time between the return of a call and its save

Version = tuple[int, int, int]  # of a file; changes with every write

_all: weakref.WeakSet[Autosave] = weakref.WeakSet()


def version_of(file: Path) -> Version | None:
    """The version of the file, or None if it does not exist."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


class Autosave:
    """Saves the state of ``owner`` to ``folder``: by number of samples, by time, and on close, collection and exit.

    The folder is locked from the first call that learns until ``close``. The owner is referenced weakly.

    Parameters
    ----------
    owner
        The classifier. Its lock is held while saving.
    folder
        The folder to save to. A relative path is resolved once, here.
    version
        The version of the file that the owner was loaded from, or None.
    """

    def __init__(self, owner: object, folder: str | Path, version: Version | None = None) -> None:
        if folder == "":
            raise UsageError("autosave is an empty text; give a folder, '.' for the current one, or None")
        self.given = str(folder)
        self.folder = Path(folder).resolve()
        self.file = self.folder / FILE
        self._version = version  # of the file that this object wrote, or that its owner was loaded from
        self._folder_lock: BaseFileLock | None = None
        self._writing = False
        self._learnt: tuple[State, Mapping[str, Any]] | None = None  # the state after the last call that returned
        self._unsaved = 0  # number of its samples that are not in the file
        self._unsaved_since = 0.0
        self._timer: threading.Timer | None = None
        self._owner = weakref.ref(owner)
        self._lock = lock_of(owner)
        self._finalizer = weakref.finalize(owner, self._finalize)  # also runs at exit
        _all.add(self)

    def is_for(self, folder: str | Path | None) -> bool:
        """Whether ``folder`` is this folder, even if the working directory has changed."""
        return folder is not None and (str(folder) == self.given or Path(folder).resolve() == self.folder)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Lock the folder for a call. If the block raises anything, restore the file and the lock."""
        was_locked = self._folder_lock is not None
        self._take_folder()
        try:
            yield
        except BaseException:
            self._restore_file()
            if not was_locked:
                self._release_folder()
            raise

    def record(self, state: State, parameters: Mapping[str, Any], samples: int, every: int) -> None:
        """Record the state after a call. Save it if there are ``every`` unsaved samples, or if a save is due by time.

        Raises
        ------
        UsageError
            If it could not be saved, or is not finite. Then nothing is recorded.
        """
        unsaved, now = self._unsaved + samples, time.monotonic()
        late = bool(self._unsaved) and now - self._unsaved_since >= SECONDS
        if self._learnt is None or unsaved >= every or late or not self._start_timer():
            self._write(state, parameters)
            unsaved = 0
        else:
            persistence.check_finite(changeable(state.learner))  # as a write does
            persistence.describe(state, parameters)
            self._unsaved_since = self._unsaved_since if self._unsaved else now
        self._learnt, self._unsaved = (state, parameters), unsaved

    def close(self) -> None:
        """Save what is unsaved and release the folder. The next call that learns locks it again."""
        with self._lock:
            self._save()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._release_folder()
            self._learnt = None

    def detach(self) -> None:
        """Close for the last time, because the owner now has another folder."""
        self.close()
        self._finalizer.detach()

    def _take_folder(self) -> None:
        if self._folder_lock is None:
            self._check_version()
            self._folder_lock = files.lock(self.folder)
            if self._folder_lock is None:
                raise UsageError(
                    f"another classifier, in this or another process, saves to {self.folder}, and a folder has one "
                    "writer; close that one first, or choose another folder for autosave"
                )
            try:
                self._check_version()  # another process may have written it before this one had the lock
            except BaseException:
                self._release_folder()
                raise
            for temporary in self.folder.glob(f".{FILE}.*"):  # left by a process that was killed
                temporary.unlink(missing_ok=True)

    def _check_version(self) -> None:
        found = version_of(self.file)
        if found is None or found == self._version:
            return
        if self._version is None:
            raise UsageError(
                f"{self.folder} holds the state of another classifier; continue it with OnlineClassifier.load, or "
                "choose another folder for autosave"
            )
        raise UsageError(
            f"another classifier has saved to {self.folder} since this one was loaded or closed; load the folder "
            "again, or choose another one for autosave"
        )

    def _release_folder(self) -> None:
        if self._folder_lock is not None:
            self._folder_lock.release()
            self._folder_lock = None

    def _write(self, state: State, parameters: Mapping[str, Any]) -> None:
        self._check_version()  # another process may have deleted the folder and written to it
        self._writing = True
        persistence.write(self.file, state, parameters)
        self._version = version_of(self.file)
        self._writing = False

    def _save(self) -> None:
        if self._unsaved and self._learnt is not None:
            self._write(*self._learnt)
            self._unsaved = 0

    def _restore_file(self) -> None:
        """Undo a write that was interrupted, in case it had replaced the file already."""
        if not self._writing:
            return
        self._writing = False
        found = version_of(self.file)
        if found in (None, self._version):
            return
        self._version = found
        with suppress(UsageError, OSError):
            if self._learnt is None:
                self.file.unlink()
            else:
                self._unsaved = max(1, self._unsaved)  # so that a later save writes it if this one fails
                self._save()

    def _start_timer(self) -> bool:
        """Save later, in a thread. Returns False if no thread can be started, as at the exit of the interpreter."""
        if self._timer is None:
            self._timer = threading.Timer(SECONDS, self._save_in_background)
            self._timer.daemon = True
            try:
                self._timer.start()
            except RuntimeError:
                self._timer = None
                return False
        return True

    def _save_in_background(self) -> None:
        owner = self._owner()  # a strong reference, so that the owner is not collected during the save
        if owner is None:
            return
        with self._lock:
            self._timer = None
            try:
                self._save()
            except UsageError as error:
                warnings.warn(f"autosave failed and will be tried again: {error}", stacklevel=2)
                self._start_timer()

    def _finalize(self) -> None:
        # Garbage may be collected while PyTorch computes with tensors that have no values.
        with _disable_current_modes():
            self._close_or_warn()

    def _close_or_warn(self) -> None:
        try:
            self.close()
        except UsageError as error:
            warnings.warn(f"the last {self._unsaved} samples were not saved to {self.folder}: {error}", stacklevel=2)
            self._release_folder()

    def _abandon(self) -> None:
        """Called in a forked process. The folder, its lock and the timer belong to the parent.

        A thread of the parent may hold the thread lock, so the owner gets a new one.
        """
        self._version = self._folder_lock = self._learnt = self._timer = None
        self._unsaved = 0
        self._lock = threading.RLock()
        owner = self._owner()
        if owner is not None:
            vars(owner)["_lock"] = self._lock


def _abandon_all() -> None:
    for autosave in list(_all):
        autosave._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
