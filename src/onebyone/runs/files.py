"""Locks of the folders of runs and records, and the file that says why a run failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onebyone.engine import NotNow
from onebyone.errors import UsageError
from onebyone.files import atomic_write, lock

ERROR = "error.txt"


@contextmanager
def sole_use(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a folder while the block runs, so that no two processes work in it. A process that dies releases the lock.

    Parameters
    ----------
    folder
        The folder. It is created if it is missing.
    wait
        Whether to wait while another process has the lock.

    Raises
    ------
    NotNow
        If another process has the lock, and ``wait`` is false.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, sole_use(Path(folder)):
    ...     pass
    """
    held = lock(folder, wait=wait)
    if held is None:
        raise NotNow(f"another process works in {folder}")
    try:
        yield
    finally:
        held.release()


def leave_error(folder: Path, text: str) -> None:
    """Write why a run failed."""
    with suppress(UsageError), atomic_write(folder / ERROR) as temporary:  # the disk may be what has failed
        temporary.write_text(text)


def forget_error(folder: Path) -> None:
    """Remove what earlier attempts of a run wrote about their failures."""
    for path in folder.glob(f"*{ERROR}*"):
        path.unlink(missing_ok=True)
