"""Claims of folders: one holder at a time, also after processes that died."""

import errno
import json
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from onebyone import UsageError
from onebyone.engine import NotNow
from onebyone.runs.claim import STALE_SECONDS, Claim, forget_dead, sole_use

ELSEWHERE = {"attempt": 1, "machine": "another", "pid": 1, "started": "1"}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_has_one_holder(tmp_path: Path) -> None:
    with sole_use(tmp_path / "run"):
        with pytest.raises(NotNow, match="another process works in"):
            Claim(tmp_path / "run")
        assert names(tmp_path / "run") == [".claim-1"]
    assert names(tmp_path / "run") == []
    with sole_use(tmp_path / "run"):
        pass


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP])
def test_it_needs_no_locks_of_the_file_system(error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any) -> None:
        raise OSError(error, "no locks")

    for name in ("flock", "lockf", "fcntl"):
        monkeypatch.setattr(f"fcntl.{name}", refuses)
    with sole_use(tmp_path), pytest.raises(NotNow):
        Claim(tmp_path)


def test_one_of_many_gets_a_folder(tmp_path: Path) -> None:
    """At the same time, also where a dead process is to be followed: never two holders, and each gets its turn."""
    holders, most, done = 0, 0, 0
    guard = threading.Lock()

    def work(number: int) -> None:
        nonlocal holders, most, done
        for _ in range(10):
            with sole_use(tmp_path, wait=True):
                with guard:
                    holders += 1
                    most = max(most, holders)
                with guard:
                    holders -= 1
                    done += 1

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert (most, done) == (1, 40)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it counts on SIGKILL")
@pytest.mark.filterwarnings("ignore:.*multi-threaded")
def test_a_dead_process_is_followed_at_once_and_the_third_is_the_last(tmp_path: Path) -> None:
    for attempt in (1, 2, 3):
        if not (process := os.fork()):
            with suppress(BaseException):
                Claim(tmp_path)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(process, 0)
        (left,) = tmp_path.iterdir()
        assert json.loads(left.read_text())["attempt"] == attempt
    with pytest.raises(UsageError, match=r"3 processes that worked in .* were killed or crashed"):
        Claim(tmp_path)
    with sole_use(tmp_path) as claim:  # the user has been told, and tries again
        assert claim.attempt == 1


def test_a_checkpoint_makes_the_next_attempt_the_first(tmp_path: Path) -> None:
    (tmp_path / ".claim-1").write_text(json.dumps(ELSEWHERE | {"attempt": 2}))
    os.utime(tmp_path / ".claim-1", (0, 0))
    with sole_use(tmp_path) as claim:
        assert (claim.attempt, names(tmp_path)) == (3, [".claim-2"])
        claim.progressed()
        assert json.loads((tmp_path / ".claim-2").read_text())["attempt"] == 1


@pytest.mark.parametrize("text", [json.dumps(ELSEWHERE), "", "[]"])
def test_a_process_of_another_machine_is_dead_when_its_claim_is_old(text: str, tmp_path: Path) -> None:
    path = tmp_path / ".claim-1"
    path.write_text(text)
    now = path.stat().st_mtime
    os.utime(path, (now, now - STALE_SECONDS + 30))
    with pytest.raises(NotNow):
        Claim(tmp_path)
    forget_dead(tmp_path)
    assert names(tmp_path) == [".claim-1"]
    os.utime(path, (now, now - STALE_SECONDS))
    with sole_use(tmp_path):
        assert names(tmp_path) == [".claim-2"]


def test_a_process_that_lost_its_folder_notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was suspended, and another process has taken the folder over."""
    suspended = Claim(tmp_path)
    (tmp_path / ".claim-2").write_text(json.dumps(ELSEWHERE))
    (tmp_path / ".claim-1").unlink()
    with pytest.raises(NotNow):
        suspended.check()
    suspended.release()
    assert names(tmp_path) == [".claim-2"]


@pytest.mark.parametrize("other", [".claim-1", ".claim-2", ".claim-3"])
def test_a_process_that_was_slow_to_look_backs_off(other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its look and its claim, another process has begun: never both of them."""
    (tmp_path / ".claim-1").write_text(json.dumps(ELSEWHERE))
    os.utime(tmp_path / ".claim-1", (0, 0))
    real = os.open

    def slow(path: Any, *given: Any) -> int:
        if str(path).endswith(".claim-2"):
            (tmp_path / ".claim-1").unlink()
            (tmp_path / other).write_text(json.dumps(ELSEWHERE))
        return real(path, *given)

    monkeypatch.setattr("os.open", slow)
    with pytest.raises(NotNow):
        Claim(tmp_path)
    assert names(tmp_path) == [other]


def test_it_is_renewed_while_the_process_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onebyone.runs.claim.BEAT_SECONDS", 0.01)
    with sole_use(tmp_path) as claim:
        os.utime(claim.path, (0, 0))
        renewed: Callable[[], bool] = lambda: claim.path.stat().st_mtime > 1  # noqa: E731
        for _ in range(1000):
            if renewed():
                break
            threading.Event().wait(0.01)
        assert renewed()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        Claim(tmp_path / "file" / "run")
