"""Claims: a folder belongs to one process at a time, on every disk that processes share.

A claim is a file ``.claim-N`` that is created only if it does not exist, which needs no locks of the file system. Its
time is renewed while its process lives. If a process dies, the next one takes claim N + 1: only one process can create
it. Times are compared with that of a new file, because clocks of machines differ.
"""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from onebyone.engine import NotNow
from onebyone.errors import UsageError
from onebyone.files import cannot_write

BEAT_SECONDS = 5.0  # between two renewals of a claim
STALE_SECONDS = 60.0  # without a renewal, after which the process is taken for dead
ATTEMPTS = 3  # processes that may die in a row, after which their work has failed
WAIT_SECONDS = 0.1


class Claim:
    """The claim of this process to a folder.

    Parameters
    ----------
    folder
        The folder. It is created if it is missing.

    Raises
    ------
    NotNow
        Another process has it.
    UsageError
        ``ATTEMPTS`` processes have died one after another, or the folder cannot be written. The next attempt is the
        first again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path, self.released = folder, folder, threading.Event()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.take()
        except OSError as error:
            raise cannot_write(self.path, error) from error
        threading.Thread(target=self.renew, daemon=True).start()

    def take(self) -> None:
        dead, busy = claims(self.folder), NotNow(f"another process works in {self.folder}")
        if any(is_alive(path) for path in dead):
            raise busy
        self.attempt = 1 + (int(content(dead[-1]).get("attempt", 1)) if dead else 0)
        if self.attempt > ATTEMPTS:
            for path in dead:
                path.unlink(missing_ok=True)
            raise UsageError(
                f"{ATTEMPTS} processes that worked in {self.folder} were killed or crashed; if there was not enough "
                "memory, use fewer jobs, then start it again"
            )
        self.path = self.folder / f".claim-{1 + (number_of(dead[-1]) if dead else 0)}"
        try:
            descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            raise busy from None
        os.close(descriptor)
        try:
            self.write()
        except OSError:  # such as a full disk
            self.path.unlink()
            raise
        # Another process may have begun while this one looked, even with the number of one that was dead.
        if any(is_alive(path) for path in claims(self.folder) if path != self.path):
            self.path.unlink()
            time.sleep(random.uniform(0, WAIT_SECONDS))
            raise busy
        for path in dead:
            path.unlink(missing_ok=True)

    def write(self) -> None:
        machine, started = identity(os.getpid())
        text = json.dumps({"attempt": self.attempt, "machine": machine, "pid": os.getpid(), "started": started})
        self.path.write_text(text)

    def renew(self) -> None:
        while not self.released.wait(BEAT_SECONDS):
            with suppress(OSError):  # the disk may be away for a while
                os.utime(self.path)

    def progressed(self) -> None:
        """Note that a checkpoint was written: a process that dies later has not died at the same place."""
        if self.attempt > 1:
            self.attempt = 1
            with suppress(OSError):  # a full disk stops the run at its next checkpoint
                self.write()

    def check(self) -> None:
        """Raise ``NotNow`` if this process seemed dead, perhaps because it was suspended, and has lost the folder."""
        if claims(self.folder)[-1:] != [self.path]:
            raise NotNow(f"another process works in {self.folder}")

    def release(self) -> None:
        """Let others have the folder."""
        self.released.set()
        self.path.unlink(missing_ok=True)


def claims(folder: Path) -> list[Path]:
    """The claims to a folder, the newest one last. There is more than one only while one is taken over."""
    return sorted((path for path in folder.glob(".claim-*") if re.search(r"-\d+$", path.name)), key=number_of)


def number_of(path: Path) -> int:
    return int(path.name.rpartition("-")[2])


def content(path: Path) -> dict[str, Any]:
    """What a claim says; nothing if its process died before it had written it, or is about to write it.

    A network file system then also knows the present time of the file, because it is opened.
    """
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def is_alive(path: Path) -> bool:
    """Whether the process that has this claim lives, as far as can be seen from this machine."""
    found = content(path)
    if found.get("started"):
        machine, started = identity(found["pid"])
        if machine == found["machine"]:
            return bool(started == found["started"])
    new = path.with_name(f".time-{secrets.token_hex(4)}")
    try:
        new.touch()
        return new.stat().st_mtime - path.stat().st_mtime < STALE_SECONDS
    except FileNotFoundError:  # it was released meanwhile
        return True
    finally:
        new.unlink(missing_ok=True)


def identity(pid: int) -> tuple[str, str]:
    """This machine, and when its process with this number started; empty where that is not known, as for dead ones."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        machine = f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"  # containers number their processes
    except OSError:
        return "", ""
    try:
        state, *values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return machine, ""
    return machine, "" if state in "ZX" else values[18]


def forget_dead(folder: Path) -> None:
    """Remove claims of processes that have died, so that the next attempt is the first again."""
    for path in claims(folder):
        if not is_alive(path):
            path.unlink(missing_ok=True)


@contextmanager
def sole_use(folder: Path, *, wait: bool = False) -> Iterator[Claim]:
    """Claim a folder while the block runs, so that no two processes work in it.

    Parameters
    ----------
    folder
        The folder. It is created if it is missing.
    wait
        Whether to wait while another process has it.

    Raises
    ------
    NotNow
        If another process has it, and ``wait`` is false.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, sole_use(Path(folder)):
    ...     pass
    """
    while True:
        try:
            claim = Claim(folder)
            break
        except NotNow:
            if not wait:
                raise
            time.sleep(WAIT_SECONDS)
    try:
        yield claim
    finally:
        claim.release()
