"""A file of entries that survive a crash: appended, flushed, and each with a sequence number and a checksum."""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from onebyone.errors import UsageError
from onebyone.files import FULL, atomic_write

Fsync = Literal["every", "second", "never"]
POLICIES: tuple[Fsync, ...] = ("every", "second", "never")
MAGIC = b"1by1"
HEAD = struct.Struct("<4sIQI")  # magic, bytes of the payload, sequence number, CRC-32 of both and of the payload
DELAY = 1.0  # seconds between a write and its flush, with the policy "second"


class CannotStore(UsageError):
    """Nothing was changed, because the disk is full or failed."""


def cannot_store(error: OSError) -> CannotStore:
    """The error to raise when a write failed."""
    reason = "the disk is full" if error.errno in FULL else error.strerror or str(error)
    return CannotStore(f"nothing was changed, because {reason}; free some space and try again")


class Entry(NamedTuple):
    """One entry of a journal."""

    sequence: int
    payload: bytes


class Found(NamedTuple):
    """The content of a journal file."""

    entries: list[Entry]
    size: int  # bytes of the complete entries
    dropped: int  # bytes after them: an entry that was being written when the process or the machine stopped


def encoded(entry: Entry) -> bytes:
    return HEAD.pack(MAGIC, len(entry.payload), entry.sequence, checksum(entry)) + entry.payload


def checksum(entry: Entry) -> int:
    return zlib.crc32(entry.payload, zlib.crc32(struct.pack("<IQ", len(entry.payload), entry.sequence)))


def entry_at(content: bytes, start: int) -> Entry | None:
    """The entry that begins at ``start``, or None if there is no complete one."""
    if start + HEAD.size > len(content):
        return None
    magic, size, sequence, expected = HEAD.unpack_from(content, start)
    end = start + HEAD.size + size
    if magic != MAGIC or end > len(content):
        return None
    entry = Entry(sequence, content[start + HEAD.size : end])
    return entry if checksum(entry) == expected else None


def read(path: Path) -> Found:
    """Read a journal. An incomplete last entry is left out.

    Raises
    ------
    UsageError
        If an entry is damaged and complete ones follow it: then more than the last write was lost.
    """
    content, entries, position = path.read_bytes(), [], 0
    while (entry := entry_at(content, position)) is not None:
        entries.append(entry)
        position += HEAD.size + len(entry.payload)
    if any_entry_after(content, position):
        raise UsageError(
            f"{path} is damaged at byte {position}, before other entries; restore a copy of the state folder, or "
            f"give up what was taught after that byte with: truncate -s {position} '{path}'"
        )
    return Found(entries, position, len(content) - position)


def any_entry_after(content: bytes, start: int) -> bool:
    """Whether a complete entry follows the incomplete one at ``start``.

    If the head of that one is readable, the next begins where it says. Its payload, which a client chose, may look like
    an entry.
    """
    while start + HEAD.size <= len(content):
        magic, size, _, _ = HEAD.unpack_from(content, start)
        start = start + HEAD.size + size if magic == MAGIC else content.find(MAGIC, start + 1)
        if start < 0:
            return False
        if entry_at(content, start) is not None:
            return True
    return False


def create(path: Path, first: Entry) -> None:
    """Write a new journal with one entry, atomically."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(encoded(first))


class Journal:
    """A journal file that is open for writing.

    Parameters
    ----------
    path
        The file, which exists.
    size
        Bytes of its complete entries. What follows them is cut off.
    sequence
        The last sequence number in use.
    fsync
        When an entry is flushed to the disk: ``"every"`` before ``append`` returns, ``"second"`` within a second,
        ``"never"`` when the operating system does. A killed process loses nothing with any of them. A power failure
        can cost the entries that were not flushed.
    """

    def __init__(self, path: Path, size: int, sequence: int, fsync: Fsync = "every") -> None:
        self.path, self.size, self.sequence, self.fsync = path, size, sequence, fsync
        self._file = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._broken = ""
        os.ftruncate(self._file, size)

    def append(self, payloads: Sequence[bytes]) -> list[int]:
        """Write one entry per payload, and flush them once.

        Returns
        -------
        Their sequence numbers.

        Raises
        ------
        CannotStore
            If the disk is full, or failed. Then none of them is in the file.
        """
        with self._lock:
            if self._broken:
                raise CannotStore(self._broken)
            numbers = list(range(self.sequence + 1, self.sequence + 1 + len(payloads)))
            content = b"".join(encoded(Entry(*pair)) for pair in zip(numbers, payloads, strict=True))
            try:
                self._write(content)
            except OSError as error:
                self._cut()
                raise cannot_store(error) from error
            self.size += len(content)
            self.sequence += len(payloads)
            return numbers

    def _write(self, content: bytes) -> None:
        os.lseek(self._file, self.size, os.SEEK_SET)
        left = memoryview(content)
        while left:
            left = left[os.write(self._file, left) :]
        if self.fsync == "every":
            flush(self._file)
        elif self.fsync == "second" and self._timer is None:
            self._timer = threading.Timer(DELAY, self._flush_later)
            self._timer.daemon = True
            self._timer.start()

    def _cut(self) -> None:
        """Remove what was written of entries that failed. If that fails too, nothing more is accepted."""
        with self._refusing_more():
            os.ftruncate(self._file, self.size)

    def _flush_later(self) -> None:
        with self._lock, self._refusing_more():
            self._timer = None
            flush(self._file)

    @contextmanager
    def _refusing_more(self) -> Iterator[None]:
        """Accept no more entries if the block fails."""
        try:
            yield
        except OSError as error:
            self._broken = f"{self.path} cannot be written ({error.strerror or error}); restart the server"

    def close(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            with suppress(OSError):
                flush(self._file)
            os.close(self._file)


def flush(file: int) -> None:
    """Flush the content of a file to the disk."""
    getattr(os, "fdatasync", os.fsync)(file)
