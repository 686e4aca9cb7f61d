"""The journal: what was appended is read again, and a crash costs at most the last, incomplete entry."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebyone import UsageError
from onebyone.serve import journal
from onebyone.serve.journal import HEAD, CannotStore, Entry, Journal
from onebyone.serve.operations import Operation, decode

PAYLOADS = [b"first", b"", b"third" * 100]


def filled(path: Path, payloads: list[bytes], fsync: journal.Fsync = "every") -> Journal:
    journal.create(path, Entry(0, b"base"))
    opened = Journal(path, path.stat().st_size, 0, fsync)
    assert opened.append(payloads) == list(range(1, len(payloads) + 1))
    return opened


@pytest.mark.parametrize("fsync", journal.POLICIES)
def test_entries_are_read_as_they_were_appended(fsync: journal.Fsync, tmp_path: Path) -> None:
    filled(tmp_path / "journal", PAYLOADS, fsync).close()
    found = journal.read(tmp_path / "journal")
    assert [entry.payload for entry in found.entries] == [b"base", *PAYLOADS]
    assert [entry.sequence for entry in found.entries] == [0, 1, 2, 3]
    assert found.dropped == 0


def test_every_incomplete_end_is_dropped(tmp_path: Path) -> None:
    """Cut at any byte: all entries before are there, and the next append continues after them."""
    path = tmp_path / "journal"
    filled(path, PAYLOADS).close()
    content = path.read_bytes()
    ends = [len(content)]
    for payload in reversed(PAYLOADS):
        ends.insert(0, ends[0] - HEAD.size - len(payload))
    for cut in range(ends[0], len(content)):
        path.write_bytes(content[:cut])
        found = journal.read(path)
        complete = sum(end <= cut for end in ends)
        assert len(found.entries) == complete
        assert found.size + found.dropped == cut
        opened = Journal(path, found.size, found.entries[-1].sequence, "never")
        opened.append([b"next"])
        opened.close()
        assert journal.read(path).entries[-1] == Entry(complete, b"next")


@given(position=st.integers(0, 600), bit=st.integers(0, 7))
def test_a_damaged_entry_is_never_returned(position: int, bit: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any flipped bit: the entries before it are read, or the file is refused because others follow."""
    path = tmp_path_factory.mktemp("journal") / "journal"
    filled(path, PAYLOADS).close()
    content = bytearray(path.read_bytes())
    position %= len(content)
    whole = journal.read(path).entries
    content[position] ^= 1 << bit
    path.write_bytes(content)
    try:
        found = journal.read(path)
    except UsageError:  # complete entries follow
        assert position < len(content) - HEAD.size - len(PAYLOADS[-1])
    else:
        assert found.entries == whole[: len(found.entries)]
        assert len(found.entries) < len(whole)


def test_a_payload_that_looks_like_an_entry_does_not_stop_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    inner = journal.encoded(Entry(9, b"inner"))
    filled(path, [inner * 3]).close()
    os.truncate(path, path.stat().st_size - 3)
    found = journal.read(path)
    assert [entry.payload for entry in found.entries] == [b"base"]
    assert found.dropped == HEAD.size + 3 * len(inner) - 3


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    opened = filled(path, PAYLOADS)
    before = path.read_bytes()
    write = os.write

    def half(file: int, content: bytes) -> int:
        if len(content) < 30:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, content[: len(content) // 2])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", half)
        with pytest.raises(CannotStore, match="the disk is full"):
            opened.append([b"x" * 100])
    assert path.read_bytes() == before
    assert opened.append([b"later"]) == [4]
    opened.close()
    assert journal.read(path).entries[-1] == Entry(4, b"later")


OPERATIONS = [
    Operation("learn", ("a", "ü\u200d💥"), np.arange(24, dtype=np.uint8).reshape(2, 3, 4), (True, None)),
    Operation("forget", ("a",), np.array([[1.5, -0.0, 1e-30]], np.float32)),
    Operation("undo"),
    Operation("forget-class", ("../../etc",)),
    Operation("rename", names={"a": "b\\c"}),
    Operation("merge", content=b"\x00\xff" * 7),
    Operation("void", sequence=7),
    Operation("base", about={"fitted": True}, content=b"x"),
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.kind)
def test_an_operation_is_decoded_as_it_was(operation: Operation) -> None:
    again = decode(operation.encode())
    for name in ("kind", "labels", "right", "names", "content", "sequence", "about"):
        assert getattr(again, name) == getattr(operation, name)
    if operation.samples is not None:
        assert again.samples is not None
        assert again.samples.dtype == operation.samples.dtype
        assert again.samples.tobytes() == operation.samples.tobytes()


@given(st.binary(max_size=60))
def test_any_other_payload_is_refused_with_a_sentence(payload: bytes) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        decode(payload)
