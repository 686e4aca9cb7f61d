"""Files that are either whole or not there."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onebyone.errors import UsageError


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
        return UsageError(f"the disk is full, so {path} was not written; free some space or choose another place")
    return UsageError(f"{path} cannot be written ({error.strerror or error}); choose another place")
