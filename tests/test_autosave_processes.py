"""Autosave folders of processes that are killed or forked, and of copies."""

import os
import pickle
import signal
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
from sklearn.base import clone

from classifiers import learn, saved
from onebyone import OnlineClassifier, UsageError
from onebyone.estimator.storage import FILE


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    ready, say = os.pipe()
    child = os.fork()
    if child == 0:
        clf = learn(OnlineClassifier(autosave=tmp_path), 0, 10)
        os.write(say, b"x")
        time.sleep(60)
        os._exit(clf.n_samples_seen_)
    try:
        os.read(ready, 1)
        clf = OnlineClassifier.load(tmp_path)
        with pytest.raises(UsageError, match="another classifier"):
            learn(clf, 10, 20)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert learn(clf, 10, 20).n_samples_seen_ == 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_leaves_the_folder_to_its_parent(tmp_path: Path) -> None:
    clf = learn(learn(OnlineClassifier(autosave=tmp_path), 0, 10), 10, 20)
    child = os.fork()
    if child == 0:
        try:
            learn(clf, 20, 40)
        except UsageError:
            clf.close()
            del clf
            os._exit(17)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    assert saved(tmp_path) == 10  # what the parent had saved
    with pytest.raises(UsageError, match="another classifier"):  # whose lock is still there
        learn(OnlineClassifier.load(tmp_path), 10, 20)
    learn(clf, 20, 30).close()
    assert saved(tmp_path) == 30


@pytest.mark.parametrize(
    "copied", [deepcopy, lambda clf: pickle.loads(pickle.dumps(clf)), clone], ids=["copy", "pickle", "clone"]
)
def test_a_copy_does_not_own_the_folder(copied: Callable[[OnlineClassifier], OnlineClassifier], tmp_path: Path) -> None:
    clf = learn(learn(OnlineClassifier(autosave=tmp_path / "one"), 0, 10), 10, 20)
    other = copied(clf)
    before = (tmp_path / "one" / FILE).read_bytes()
    with pytest.raises(UsageError, match=r"holds the state of another .* choose another folder"):
        learn(other, 20, 40)
    other.close()
    learn(other.set_params(autosave=tmp_path / "other"), 20, 40).close()
    assert saved(tmp_path / "other") == other.n_samples_seen_
    del other
    assert (tmp_path / "one" / FILE).read_bytes() == before
    learn(clf, 20, 30).close()  # the original goes on there
    assert saved(tmp_path / "one") == 30
