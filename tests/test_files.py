"""Atomic writes and locks of folders, also on simulated platforms."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import SoftFileLock

from onebyone import UsageError
from onebyone.files import atomic_write, lock


def fail_while_writing(path: Path, error: BaseException) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text("half")
        raise error


@pytest.fixture
def windows_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """``os.fsync`` as on Windows, where a handle that is open for reading only cannot be flushed."""
    fcntl = pytest.importorskip("fcntl")
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.usefixtures("windows_fsync")
def test_a_file_is_flushed_through_a_handle_that_may_write(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "note") as temporary:
        temporary.write_text("hello")
    assert (tmp_path / "note").read_text() == "hello"


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file or directory", "elsewhere.csv"),
        PermissionError(errno.EACCES, "Permission denied", "elsewhere.csv"),
        OSError(errno.ENOSPC, "No space left on device", "elsewhere.csv"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        TimeoutError("timed out"),
        OSError("anything"),
        ValueError("anything"),
        KeyboardInterrupt(),
    ],
    ids=repr,
)
def test_errors_that_are_not_of_writing_do_not_name_the_file(error: BaseException, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("before")
    with pytest.raises(type(error)) as caught:
        fail_while_writing(tmp_path / "note", error)
    assert caught.value is error
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full, so .*note was not written"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "the disk is full"),
        (OSError(errno.EIO, "Input/output error"), r"note cannot be written \(Input/output error\)"),
    ],
    ids=repr,
)
def test_an_error_of_writing_names_the_file(error: OSError, message: str, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("before")
    with pytest.raises(UsageError, match=message):
        fail_while_writing(tmp_path / "note", error)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


def test_a_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "note" / "inside").mkdir(parents=True)
    with pytest.raises(UsageError, match="note cannot be written"), atomic_write(tmp_path / "note") as temporary:
        temporary.write_text("hello")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"), atomic_write(tmp_path / "file" / "note"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "note"]


@pytest.mark.parametrize("soft", [False, True], ids=["this platform", "a platform without file locks"])
def test_a_folder_has_one_user(soft: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if soft:
        monkeypatch.setattr("onebyone.files.FileLock", SoftFileLock, raising=False)
    for _ in range(2):
        held = lock(tmp_path / "model")
        assert held is not None
        assert lock(tmp_path / "model") is None
        held.release()


WITHOUT_FCNTL = """
import sys, warnings
sys.modules["fcntl"] = None
warnings.simplefilter("ignore")
from pathlib import Path
from onebyone.files import lock

held = lock(Path(sys.argv[1]))
print("refused" if lock(Path(sys.argv[1])) is None else "two at once")
"""


def test_folders_are_locked_where_there_is_no_fcntl(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_FCNTL, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("refused\n", 0), done.stderr


@pytest.mark.parametrize("error", [RuntimeError("oh"), KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
def test_a_file_is_written_completely_or_not_at_all(error: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "note"
    with atomic_write(path) as temporary:
        temporary.write_text("old")
    assert path.read_text() == "old"
    expected = UsageError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected), atomic_write(path) as temporary:  # noqa: PT012
        temporary.write_text("half of the new")
        assert path.read_text() == "old"
        raise error
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["note"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)], ids=oct)
def test_permissions_follow_the_umask(umask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        with atomic_write(tmp_path / "note") as temporary:
            temporary.write_text("hello")
    finally:
        os.umask(before)
    assert (tmp_path / "note").stat().st_mode & 0o777 == mode
