"""Atomic writes of files, and locks of folders."""

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
WRITING = (*FULL, errno.EFBIG, errno.EIO)  # errors of a write to an open file, which have no file name
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)  # errors of file systems without locks


def given_path(path: str | Path) -> Path:
    """A path as it was given. An empty text, of a setting that is missing, would be the current folder.

    >>> given_path("")
    Traceback (most recent call last):
        ...
    onebyone.errors.UsageError: the path is empty; give a path, or '.' for the current folder
    """
    if path == "":
        raise UsageError("the path is empty; give a path, or '.' for the current folder")
    return Path(path)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Write a file completely or not at all.

    The block writes to a temporary path in the same folder, which replaces ``path`` if the block raises no error. If
    ``path`` is a symbolic link, the file that it leads to is replaced, and the link stays.

    Parameters
    ----------
    path
        The file to write. Its folder is created if it is missing.

    Yields
    ------
    The temporary path.

    Raises
    ------
    UsageError
        If the file cannot be written. Other errors of the block are not changed.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, atomic_write(Path(folder) / "note") as temporary:
    ...     _ = temporary.write_text("hello")
    """
    if not path.name:
        raise UsageError(f"{path} is a folder; give the path of a file")
    path = without_link(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)  # created with the permissions of the umask
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        yield temporary
        with temporary.open("r+b") as written:  # Windows flushes only handles that are open for writing
            os.fsync(written.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and _is_of_writing(error, temporary):
            raise cannot_write(path, error) from error
        raise
    _flush_folder(path.parent)


def without_link(path: Path) -> Path:
    """The file that a symbolic link leads to; any other path as it is."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _is_of_writing(error: OSError, temporary: Path) -> bool:
    """Whether an error comes from writing ``temporary``, and not from anything else in the block."""
    if error.filename is None:
        return error.errno in WRITING
    return error.filename in (str(temporary), os.fsencode(temporary))


def _flush_folder(folder: Path) -> None:
    """Flush a rename in ``folder`` to disk, on platforms where a folder can be opened."""
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
    """Lock ``folder``. It is created if it is missing.

    Parameters
    ----------
    folder
        The folder. The lock is on its file ``.lock``.
    wait
        Whether to wait while another process or thread has the lock.

    Returns
    -------
    The lock, to be released with ``release`` or by the end of the process. None if the folder is locked already.

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
