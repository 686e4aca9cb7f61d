"""Download and unpack an archive: resumed after a broken connection, checked, and unpacked completely or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from onebyone.errors import UsageError

Progress = Callable[[str, int, int | None], object]  # what is being done, how much of it is done, and of how much

TIMEOUT = 30.0  # seconds without a byte
BLOCK = 1 << 18


def cache_folder() -> Path:
    """The folder for downloads: ``ONEBYONE_CACHE``, or else the user's cache folder of the system.

    >>> isinstance(cache_folder(), Path)
    True
    """
    if chosen := os.environ.get("ONEBYONE_CACHE"):
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("onebyone")


def fetch(address: str, destination: Path, md5: str, *, progress: Progress | None = None) -> None:
    """Download ``address`` to ``destination``, unless it exists; either way its MD5 must be ``md5``.

    Received bytes are kept in ``<name>.part``, so that a broken download resumes where it stopped. This is why it is
    not done by pooch, which starts again from the first byte. The environment variable ``ONEBYONE_MIRROR`` is an
    address that replaces everything before the file name. ``progress`` is called with the number of bytes received so
    far.
    """
    from filelock import FileLock  # here, as learners and streams need torch and numpy only

    if base := os.environ.get("ONEBYONE_MIRROR"):
        address = f"{base.rstrip('/')}/{address.rsplit('/', 1)[-1]}"
    part = destination.with_name(f"{destination.name}.part")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        # Processes that are started together would otherwise write to the same part.
        with FileLock(destination.with_name(f"{destination.name}.lock")):
            if destination.exists():
                if (found := _md5(destination)) != md5:
                    raise UsageError(
                        f"{destination} has MD5 {found}; expected {md5}: it is damaged or another file; "
                        "delete it and run again, which downloads it again"
                    )
                return
            if not part.exists() or _md5(part) != md5:
                _download(address, part, destination, progress)
            if (found := _md5(part)) != md5:
                part.unlink()
                raise UsageError(
                    f"what {address} sent has MD5 {found}; expected {md5}; it has been deleted: run "
                    "again, or set ONEBYONE_MIRROR to the address of a mirror"
                )
            part.replace(destination)
    except OSError as error:
        raise unwritable(error, destination.parent) from error


def _download(address: str, part: Path, destination: Path, progress: Progress | None) -> None:
    """Append the missing bytes to ``part``. Errors of the network become UsageErrors, errors of the disk do not."""

    def failed(reason: object) -> UsageError:
        kept = f"what was received is kept in {part}, and running again resumes there; "
        return UsageError(
            f"could not download {address}: {reason}; {kept if part.exists() else 'run again later; '}"
            f"or set ONEBYONE_MIRROR to the address of a mirror, or put the archive at {destination} (or its "
            "unpacked folder beside it), or give the path of the data as root (data_dir)"
        )

    have = part.stat().st_size if part.exists() else 0
    try:
        request = Request(address, headers={"Range": f"bytes={have}-"} if have else {})
        response = urlopen(request, timeout=TIMEOUT)
    except HTTPError as error:
        with error:
            if error.code != 416 or not have:
                raise failed(f"HTTP error {error.code} {error.reason}") from error
        part.unlink()  # 416: nothing is missing, but the checksum is wrong
        _download(address, part, destination, progress)
        return
    except (OSError, HTTPException, ValueError) as error:  # ValueError: not an address
        raise failed(getattr(error, "reason", error)) from error
    with response:
        if response.status != 206:
            have = 0  # the server ignores the range and sends all of the file
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        with part.open("ab" if have else "wb") as file:
            while True:
                try:
                    block = response.read(BLOCK)
                except (OSError, HTTPException) as error:
                    raise failed(error) from error
                if not block:
                    break
                file.write(block)
                have += len(block)
                if progress is not None:
                    progress(f"downloading {destination.name}", have, total)
    if total is not None and have < total:  # read(n) raises nothing when the connection ends
        raise failed(f"the connection broke off after {have:,} of {total:,} bytes")


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive, which contains a folder of that name, to ``folder``: completely or not at all."""

    def broken(error: object) -> UsageError:
        reason = str(error).partition("\n")[0]  # tarfile adds a line for every format it has tried
        return UsageError(
            f"{archive} could not be unpacked ({reason}); delete it and run again, which downloads it again"
        )

    try:
        # Beside its destination, so that the last step is a rename and nobody sees an incomplete folder.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
            try:
                with tarfile.open(archive) as tar:
                    tar.extractall(temporary, filter="data")
            except (tarfile.TarError, EOFError, zlib.error) as error:
                raise broken(error) from error
            except OSError as error:
                if error.errno is None:  # raised by gzip; errors of the disk have a number
                    raise broken(error) from error
                raise
            unpacked = Path(temporary) / folder.name
            if not unpacked.is_dir():
                raise broken(f"it contains no folder {folder.name}")
            try:
                unpacked.rename(folder)
            except OSError:
                if not folder.is_dir():  # otherwise another process has unpacked it meanwhile
                    raise
    except OSError as error:
        raise unwritable(error, folder.parent) from error


def unwritable(error: OSError, folder: Path) -> UsageError:
    """The error for a folder that cannot be written to."""
    reason = "the disk is full" if error.errno == errno.ENOSPC else str(error)
    return UsageError(
        f"could not write to {folder}: {reason}; free space or get write access there and run again, which resumes, "
        "or choose another folder with ONEBYONE_CACHE"
    )


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
