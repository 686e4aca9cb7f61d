"""`onebyone learn` in two processes at once, interrupted and killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from classifiers import learner_of
from onebyone import OnlineClassifier, UsageError
from onebyone.estimator import folders
from onebyone.estimator.folders import (
    file_lock,
    find_images,
    learn_files,
    learn_folder,
)
from photo_folders import ENCODER, encoder, new, same, write_images  # noqa: F401  # a fixture

Call = Callable[..., tuple[int, str, str]]


def test_a_file_has_one_writer(tmp_path: Path) -> None:
    root = write_images(tmp_path / "photos", count=1)

    def meanwhile(*_: int) -> None:
        with pytest.raises(UsageError, match="another process is learning into"):
            learn_folder(root, tmp_path / "model", new())

    learn_folder(root, tmp_path / "model", new(), progress=meanwhile)
    assert OnlineClassifier.load(tmp_path / "model").n_samples_seen_ == 3


def test_the_lock_is_taken_before_the_file_is_read(
    tmp_path: Path, onebyone: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A classifier that was read earlier would overwrite what another process learns in between."""
    root = write_images(tmp_path / "photos", count=2)
    learn_folder(root, tmp_path / "model", new())
    monkeypatch.setattr(OnlineClassifier, "load", lambda *_: pytest.fail("read without the lock"))
    with file_lock(tmp_path / "model"):
        code, out, err = onebyone("learn", root, "--into", tmp_path / "model")
    assert (code, out) == (2, "")
    assert "another process is learning into" in err


@pytest.mark.slow
def test_of_two_processes_at_once_none_loses_what_the_other_learnt(tmp_path: Path) -> None:
    """One is refused, or it waited long enough and learns what is left; the file holds every image once."""
    root = write_images(tmp_path / "photos", count=30)
    command = [sys.executable, "-m", "onebyone", "learn", str(root), "--into", "model", "--encoder", ENCODER]
    both = [subprocess.Popen([*command, "--memory", "60KB"], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate(timeout=300)[1] for process in both]
    codes = [process.returncode for process in both]
    assert sorted(codes) in ([0, 0], [0, 2])
    assert all("another process" in error for code, error in zip(codes, errors, strict=True) if code)
    whole = new()
    learn_files(whole, find_images(root)[0])
    assert same(OnlineClassifier.load("model"), whole)


def test_an_interruption_keeps_what_was_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "BATCH", 4)
    root = write_images(tmp_path / "photos")

    def stop(done: int, total: int) -> None:
        if done > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn_folder(root, tmp_path / "model", new(), progress=stop)
    clf = OnlineClassifier.load(tmp_path / "model")
    assert 10 < clf.n_samples_seen_ < 24
    learn_folder(root, tmp_path / "model", clf)
    whole = new()
    learn_files(whole, find_images(root)[0])
    assert same(clf, whole)
    assert int(learner_of(clf).counts.sum()) == 24


def test_ctrl_c_ends_the_command_as_it_ends_a_run(
    tmp_path: Path, onebyone: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(folders, "learn_folder", stop)
    code, _, said = onebyone("learn", write_images(tmp_path / "photos"), "--into", "model", "--encoder", "none")
    assert (code, said) == (130, "onebyone: stopped; run the same command again to continue model\n")


KILLED = """
import sys
from pathlib import Path
from onebyone import OnlineClassifier
from onebyone.estimator import folders
folders.BATCH, folders.SECONDS, folders.SAVING = 4, 0.0, 1e9
root, into = map(Path, sys.argv[1:])
clf = OnlineClassifier.load(into) if into.exists() else OnlineClassifier(
    encoder="onnx:net.onnx", memory="60KB", batch_size=64
)
folders.learn_folder(root, into, clf, progress=lambda done, total: print(done, flush=True))
"""


@pytest.mark.slow
def test_killed_at_any_moment_no_file_is_learnt_twice_or_lost(tmp_path: Path) -> None:
    root = write_images(tmp_path / "photos", count=40)
    into = tmp_path / "model"
    command = [sys.executable, "-c", KILLED, str(root), str(into)]
    random = np.random.default_rng(0)
    for _ in range(6):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(int(random.integers(1, 5))):
                process.stdout.readline()
            time.sleep(float(random.uniform(0, 0.05)))
            os.kill(process.pid, signal.SIGKILL)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    whole = new()
    learn_files(whole, find_images(root)[0])
    assert same(OnlineClassifier.load(into), whole)
