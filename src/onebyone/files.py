"""Files that are either whole or not there."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onebyone.errors import UsageError


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary place to write to, beside ``path``, that takes its place when the block ends well.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, whole(Path(folder) / "note") as place:
    ...     _ = place.write_text("hello")
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        place = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        place.touch(exist_ok=False)  # made by the system, for those whom the umask lets read
        try:
            yield place
            with place.open("rb") as written:
                os.fsync(written.fileno())
            place.replace(path)
        except BaseException:
            with suppress(OSError):
                place.unlink()
            raise
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> UsageError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UsageError(f"the disk is full, so {path} was not written; free some space or choose another place")
    return UsageError(f"{path} cannot be written ({error.strerror or error}); choose another place")
