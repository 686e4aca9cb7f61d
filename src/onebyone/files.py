"""Files that are written whole or not at all, and folders that one process uses at a time."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from onebyone.errors import UsageError

FULL = (errno.ENOSPC, errno.EDQUOT)
WRITING = (*FULL, errno.EFBIG, errno.EIO)  # errors of a write to an open file, which name no file
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)  # of a file system that has none


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary path to write to, beside ``path``, which replaces it when the block ends without an error.

    Raises UsageError if the file cannot be written. Any other error of the block is left as it is.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, atomic_write(Path(folder) / "note") as temporary:
    ...     _ = temporary.write_text("hello")
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)  # created here, so that the umask decides who may read it
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        yield temporary
        with temporary.open("r+b") as written:  # Windows flushes only handles that may write
            os.fsync(written.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and _is_of_writing(error, temporary):
            raise cannot_write(path, error) from error
        raise
    _flush_folder(path.parent)


def _is_of_writing(error: OSError, temporary: Path) -> bool:
    """Whether an error comes from writing ``temporary``, and not from anything else that happened meanwhile."""
    if error.filename is None:
        return error.errno in WRITING
    return error.filename in (str(temporary), os.fsencode(temporary))


def _flush_folder(folder: Path) -> None:
    """Make a rename in ``folder`` survive a loss of power, on platforms where a folder can be opened."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def cannot_write(path: Path, error: OSError) -> UsageError:
    """The error to raise when ``path`` cannot be written."""
    if error.errno in FULL:
        return UsageError(f"the disk is full, so {path} was not written; free some space or choose another path")
    return UsageError(f"{path} cannot be written ({error.strerror or error}); choose another path")


def lock(folder: Path, *, wait: bool = False) -> BaseFileLock | None:
    """Lock ``folder``, which is created if it is missing, for one user at a time.

    Parameters
    ----------
    folder
        The folder. Its file ``.lock`` is what is locked.
    wait
        Whether to wait while another has the lock.

    Returns
    -------
    The lock, to be released by its ``release``; a process that dies releases it too. None if another has it.

    Raises
    ------
    UsageError
        If the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = FileLock(folder / ".lock", thread_local=False)
        held.acquire(blocking=wait)
    except Timeout:
        return None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise cannot_write(folder, error) from error
    return held
