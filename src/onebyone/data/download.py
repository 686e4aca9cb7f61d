"""Getting an archive here, whole: resumed where it broke off, checked, and unpacked all or nothing."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from onebyone.errors import UsageError

TIMEOUT = 30.0  # seconds without a byte
BLOCK = 1 << 18


def cache_folder() -> Path:
    """Where downloads go: ``ONEBYONE_CACHE``, or else the system's place for a user's caches.

    >>> isinstance(cache_folder(), Path)
    True
    """
    if chosen := os.environ.get("ONEBYONE_CACHE"):
        return Path(chosen).expanduser()
    try:
        from platformdirs import user_cache_path
    except ImportError:
        raise UsageError(
            "finding the cache folder needs platformdirs, which is not installed; run "
            "`pip install 'onebyone[cli]'`, or set ONEBYONE_CACHE, or say where the data are (--data-dir)"
        ) from None
    return user_cache_path("onebyone")


def fetch(address: str, destination: Path, md5: str, *, mirror: str | None = None) -> None:
    """Download ``address`` to ``destination``, unless it is there; either way its MD5 must be ``md5``.

    What has come so far lies in ``<name>.part``, so a broken download goes on where it stopped. (That is why
    this is not pooch, which starts again from the first byte.) ``mirror``, or the environment variable
    ``ONEBYONE_MIRROR``, is an address that takes the place of everything before the file name.
    """
    if base := mirror or os.environ.get("ONEBYONE_MIRROR"):
        address = f"{base.rstrip('/')}/{address.rsplit('/', 1)[-1]}"
    part = destination.with_name(f"{destination.name}.part")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with _alone(destination.with_name(f"{destination.name}.lock")):
            if destination.exists():
                if (found := _md5(destination)) != md5:
                    raise UsageError(
                        f"{destination} has MD5 {found}; expected {md5}: it is damaged or another file; "
                        "delete it and run again, which downloads it anew"
                    )
                return
            if not part.exists() or _md5(part) != md5:
                _download(address, part, destination)
            if (found := _md5(part)) != md5:
                part.unlink()
                raise UsageError(
                    f"what {address} sent has MD5 {found}; expected {md5}; it has been deleted: run "
                    "again, or set ONEBYONE_MIRROR to the address of a mirror"
                )
            part.replace(destination)
    except OSError as error:
        raise unwritable(error, destination.parent) from error


def _download(address: str, part: Path, destination: Path) -> None:
    """Add to ``part`` what it still lacks. Errors of the network are told from errors of the disk."""

    def failed(reason: object) -> UsageError:
        kept = f"what came so far is kept in {part} and the same command goes on from there; "
        return UsageError(
            f"could not download {address}: {reason}; {kept if part.exists() else 'run again later; '}"
            f"or set ONEBYONE_MIRROR to the address of a mirror, or put the archive at {destination} (or its "
            "unpacked folder beside it), or say where the data are (--data-dir)"
        )

    have = part.stat().st_size if part.exists() else 0
    try:
        request = Request(address, headers={"Range": f"bytes={have}-"} if have else {})
        response = urlopen(request, timeout=TIMEOUT)
    except HTTPError as error:
        with error:
            if error.code != 416 or not have:
                raise failed(f"HTTP error {error.code} {error.reason}") from error
        part.unlink()  # 416: there is no more to come, but the checksum of what is here is wrong
        _download(address, part, destination)
        return
    except (OSError, HTTPException, ValueError) as error:  # ValueError: not an address at all
        raise failed(getattr(error, "reason", error)) from error
    with response:
        if response.status != 206:
            have = 0  # the server sends the whole file, whatever was asked for
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        with (
            part.open("ab" if have else "wb") as file,
            progress(f"downloading {destination.name}", total, start=have, size=True) as advance,
        ):
            while True:
                try:
                    block = response.read(BLOCK)
                except (OSError, HTTPException) as error:
                    raise failed(error) from error
                if not block:
                    break
                file.write(block)
                have += len(block)
                advance(len(block))
    if total is not None and have < total:  # read(n) ends in silence when the connection does
        raise failed(f"the connection broke off after {have:,} of {total:,} bytes")


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive, which holds a folder of that name, to ``folder``: all of it or nothing."""

    def broken(error: object) -> UsageError:
        reason = str(error).partition("\n")[0]  # tarfile adds a line for every format it has tried
        return UsageError(
            f"{archive} could not be unpacked ({reason}); delete it and run again, which downloads it anew"
        )

    try:
        # Beside its destination, so that the last step is a rename: no one ever sees half a folder.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
            try:
                with tarfile.open(archive) as tar:
                    tar.extractall(temporary, filter="data")
            except (tarfile.TarError, EOFError, zlib.error) as error:
                raise broken(error) from error
            except OSError as error:
                if error.errno is None:  # gzip's own complaints; those of the disk have a number
                    raise broken(error) from error
                raise
            unpacked = Path(temporary) / folder.name
            if not unpacked.is_dir():
                raise broken(f"it holds no folder {folder.name}")
            try:
                unpacked.rename(folder)
            except OSError:
                if not folder.is_dir():  # otherwise another process was faster, which is as good
                    raise
    except OSError as error:
        raise unwritable(error, folder.parent) from error


def unwritable(error: OSError, folder: Path) -> UsageError:
    """The error for a folder that cannot be written to, or not any more."""
    reason = "the disk is full" if error.errno == errno.ENOSPC else str(error)
    return UsageError(
        f"could not write to {folder}: {reason}; make room or give yourself access there and run again, "
        "which resumes, or choose another folder (--data-dir or ONEBYONE_CACHE)"
    )


@contextmanager
def progress(what: str, total: int | None, *, start: int = 0, size: bool = False) -> Iterator[Callable[[int], object]]:
    """A bar on the terminal; yields the function that moves it on. Silent without a terminal or without rich.

    ``size`` says that the steps are bytes.

    >>> with progress("reading", total=2) as advance:
    ...     for _ in range(2):
    ...         _ = advance(1)
    """
    if not (sys.stderr and sys.stderr.isatty() and find_spec("rich")):
        yield lambda steps: None
        return
    from rich import progress as bars
    from rich.console import Console

    amount = [bars.DownloadColumn(), bars.TransferSpeedColumn()] if size else [bars.MofNCompleteColumn()]
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), *amount, bars.TimeRemainingColumn())
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total, completed=start)
        yield lambda steps: bar.advance(task, steps)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time: runs started together would otherwise write into the same ``.part``."""
    with lock.open("a") as file:
        if sys.platform != "win32":
            import fcntl

            with suppress(OSError):  # some network file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
