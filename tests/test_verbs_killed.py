"""A process that is killed during a change: the autosave folder has the state before it or after it, never between."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from classifiers import state_of, vectors
from onebyone import OnlineClassifier
from onebyone.estimator.storage import FILE
from tiers import mostly_slow

X, Y = vectors(200)
VERBS: dict[str, Callable[[OnlineClassifier], Any]] = {
    "forget": lambda clf: clf.forget(X[:40], Y[:40]),
    "forget_class": lambda clf: clf.forget_class("class 1"),
    "rename": lambda clf: clf.rename({"class 0": "zero", "class 2": "class 1"}),
    "merge": lambda clf: clf.merge(clf),
    "partial_fit": lambda clf: clf.set_params(every=1).partial_fit(X[:40], Y[:40], sample_weight=range(40)),
}
CASES = [(name, verb) for name in ("patch-lda", "er") for verb in VERBS if (name, verb) != ("er", "merge")]


def observed(clf: OnlineClassifier) -> dict[str, Any]:
    return {name: state_of(clf)[name] for name in ("tensors", "slots", "evidence")}


def kill(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def replace_and_kill(temporary: Path, target: Path, replace: Callable[..., Any] = Path.replace) -> None:
    replace(temporary, target)
    kill()


def killed(verb: str, folder: Path, arrange: Callable[[], Any]) -> None:
    """Do ``verb`` in a child process that is killed at the moment that ``arrange`` sees to, or at the end."""
    child = os.fork()
    if child == 0:
        try:
            clf = OnlineClassifier.load(folder)
            arrange()
            VERBS[verb](clf)
        finally:
            kill()
    os.waitpid(child, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("times", mostly_slow([2, 20], fast=[2]))
@pytest.mark.parametrize(("name", "verb"), CASES)
def test_killed_during_a_change(name: str, verb: str, times: int, tmp_path: Path) -> None:
    """Just before and just after the new file replaces the old one, and otherwise at random moments."""
    with OnlineClassifier(name, memory=100, autosave=tmp_path) as clf:
        clf.partial_fit(X, Y)
    content = (tmp_path / FILE).read_bytes()
    before = observed(OnlineClassifier.load(tmp_path))
    started = time.monotonic()
    with OnlineClassifier.load(tmp_path) as clf:
        VERBS[verb](clf)
    seconds = time.monotonic() - started
    after = observed(OnlineClassifier.load(tmp_path))
    assert before != after

    def left(arrange: Callable[[], Any]) -> dict[str, Any]:
        (tmp_path / FILE).write_bytes(content)
        killed(verb, tmp_path, arrange)
        return observed(OnlineClassifier.load(tmp_path))

    assert left(lambda: setattr(Path, "replace", kill)) == before
    assert left(lambda: setattr(Path, "replace", replace_and_kill)) == after
    chance = random.Random(verb)
    for _ in range(times - 2):
        delay = chance.uniform(0, 1.5 * seconds)
        assert left(threading.Timer(delay, kill).start) in (before, after)
