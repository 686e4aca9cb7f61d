"""Files that are either whole or not there."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onebyone.errors import UsageError

try:
    import fcntl
except ImportError:  # not there on Windows, where folders are not locked
    fcntl = None  # type: ignore[assignment]

ERROR = "error.txt"
LOCK_SECONDS = 10.0  # an orphan of a killed sweep is gone long before


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary place to write to, beside ``path``, that takes its place when the block ends well.

    >>> with tempfile.TemporaryDirectory() as folder, whole(Path(folder) / "note") as place:
    ...     _ = place.write_text("hello")
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        place = Path(name)
        try:
            yield place
            with place.open("rb") as written:
                os.fsync(written.fileno())
            place.chmod(0o644)  # mkstemp is private; a result is for everyone who may read the folder
            place.replace(path)
        except BaseException:
            with suppress(OSError):
                place.unlink()
            raise
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> UsageError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UsageError(f"the disk is full, so {path} was not written; free some space or choose another --out")
    return UsageError(f"{path} cannot be written ({error.strerror or error}); choose another --out")


@contextmanager
def sole_use(folder: Path) -> Iterator[None]:
    """Lock a run's folder, so that no two processes work in it; the kernel unlocks it when a process dies.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, sole_use(Path(folder)):
    ...     pass
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("a")
    except OSError as error:
        raise cannot_write(folder, error) from error
    with file:
        give_up = time.monotonic() + LOCK_SECONDS
        while fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise UsageError(f"another process works in {folder}; wait for it or end it") from None
                time.sleep(0.05)
            except OSError:  # a file system without locks
                break
        yield


def leave_error(folder: Path, text: str) -> None:
    with suppress(UsageError), whole(folder / ERROR) as place:  # the disk may be what has failed
        place.write_text(text)


def forget_error(folder: Path) -> None:
    for path in folder.glob(f"*{ERROR}*"):
        path.unlink(missing_ok=True)
