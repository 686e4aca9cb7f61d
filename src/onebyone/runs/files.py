"""The folder of a run or of records: used by one process at a time; and a run leaves a word about what went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onebyone.engine import NotNow
from onebyone.errors import UsageError
from onebyone.files import cannot_write, whole

try:
    import fcntl
except ImportError:  # not there on Windows, where folders are not locked
    fcntl = None  # type: ignore[assignment]

ERROR = "error.txt"


@contextmanager
def sole_use(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a folder, so that no two processes work in it; the kernel unlocks it when a process dies.

    Where another is at work, ``wait`` for it or raise ``NotNow``.

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
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise NotNow(f"another process works in {folder}") from None
            except OSError:  # a file system without locks
                pass
        yield


def leave_error(folder: Path, text: str) -> None:
    with suppress(UsageError), whole(folder / ERROR) as place:  # the disk may be what has failed
        place.write_text(text)


def forget_error(folder: Path) -> None:
    for path in folder.glob(f"*{ERROR}*"):
        path.unlink(missing_ok=True)
