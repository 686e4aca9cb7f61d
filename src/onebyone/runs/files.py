"""The folder of a run or of records: used by one process at a time; and a run leaves a word about what went wrong."""

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
    """Lock a folder while the block runs, so that no two processes work in it; a process that dies unlocks it.

    While another process has the lock, ``wait`` for it or raise ``NotNow``.

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
    with suppress(UsageError), atomic_write(folder / ERROR) as temporary:  # the disk may be what has failed
        temporary.write_text(text)


def forget_error(folder: Path) -> None:
    for path in folder.glob(f"*{ERROR}*"):
        path.unlink(missing_ok=True)
