"""Random processes learn, fail, save, close and are killed. Acknowledged samples are saved exactly once."""

import errno
import os
import signal
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from classifiers import learner_of
from onebyone import OnlineClassifier
from onebyone.methods import Learner

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
SAMPLES = 400  # each with a value of its own, so that it is recognised in the memory
CLASSES = 5

Action = Literal["learn", "learn in threads", "full disk", "missing folder", "divergence", "interrupt", "close", "load"]
End = Literal["closed", "collected", "killed", "killed in a call"]


@dataclass(frozen=True)
class Life:
    """The actions of one process."""

    actions: list[tuple[Action, int]]  # and the samples per call
    every: int
    end: End
    delay: float  # seconds from the last action to the kill


def lives() -> st.SearchStrategy[list[Life]]:
    action = st.sampled_from(get_args(Action))
    end = st.sampled_from(get_args(End))
    life = st.builds(
        Life,
        st.lists(st.tuples(action, st.integers(1, 25)), min_size=1, max_size=6),
        st.sampled_from([1, 1, 30, 1000]),
        end,
        st.floats(0, 0.05),
    )
    return st.lists(life, min_size=1, max_size=4)


def samples(ids: list[int]) -> tuple[Any, list[int]]:
    x = np.zeros((len(ids), 3), np.float32)
    x[:, 0] = ids
    return x, [number % CLASSES for number in ids]


def found(clf: OnlineClassifier) -> Counter[int]:
    """How often each sample is in the memory, which can hold all, or held back. Checks the counts per class."""
    learner: Any = learner_of(clf)
    state = clf._state
    assert state is not None
    rows = learner.memory.x[:-1][learner.memory.filled]
    kept = Counter(int(row[0]) for row in (*rows, *state.held_back.x))
    by_class = Counter(number % CLASSES for number in kept.elements())
    counts = {label: int(state.counts[slot]) for label, slot in state.slots.items() if state.counts[slot]}
    assert counts == dict(by_class)
    assert clf.n_samples_seen_ == sum(kept.values()) == int(learner.memory.seen) + len(state.held_back)
    return kept


def failing(kind: Action, folder: Path) -> Any:
    """A context in which a call fails, after it has changed the learner."""
    original = Learner.count

    def count(learner: Any, y: Any) -> None:
        original(learner, y)
        if kind == "interrupt":
            raise KeyboardInterrupt
        if kind == "divergence":
            learner.encoder.layers[-2].weight.data.fill_(float("nan"))

    if kind in ("interrupt", "divergence"):
        return mock.patch.object(Learner, "count", count)
    number = errno.ENOSPC if kind == "full disk" else errno.ENOENT
    return mock.patch.object(Path, "touch", side_effect=OSError(number, os.strerror(number)))


class Process:
    """A forked process that executes a plan and reports every call that has returned."""

    def __init__(self, life: Life, folder: Path, todo: list[int]) -> None:
        self.life, self.folder, self.todo = life, folder, todo
        self.reports, self.pipe = os.pipe()

    def run(self) -> tuple[list[list[int]], list[list[int]]]:
        """The calls that have returned, and those of them that must be on disk."""
        child = os.fork()
        if child == 0:
            try:
                os.close(self.reports)
                self.live()
            except BaseException as error:
                os.write(self.pipe, f"error {error!r}\n".replace("\n", " ").encode() + b"\n")
            finally:
                os._exit(0)
        os.close(self.pipe)
        with os.fdopen(self.reports) as reports:
            lines = reports.read().splitlines()
        os.waitpid(child, 0)
        returned: list[list[int]] = []
        on_disk: list[list[int]] = []
        for line in lines:
            word, *numbers = line.split()
            assert word != "error", line
            if word == "closed":
                on_disk = list(returned)
            else:
                returned.append([int(number) for number in numbers])
        return returned, returned if self.life.every == 1 else on_disk

    def report(self, word: str, ids: list[int] | None = None) -> None:
        os.write(self.pipe, (" ".join([word, *map(str, ids or [])]) + "\n").encode())

    def open(self) -> OnlineClassifier:
        if (self.folder / "classifier.safetensors").exists():
            return OnlineClassifier.load(self.folder).set_params(every=self.life.every)
        return OnlineClassifier("er", memory=SAMPLES, autosave=self.folder, every=self.life.every, encoder="mlp")

    def call(self, ids: list[int]) -> None:
        self.clf.partial_fit(*samples(ids))
        self.report("learnt", ids)

    def live(self) -> None:
        self.clf = self.open()
        if self.life.end == "killed in a call":
            threading.Timer(self.life.delay, os.kill, [os.getpid(), signal.SIGKILL]).start()
        for action, size in self.life.actions:
            ids, self.todo = self.todo[:size], self.todo[size:]
            match action:
                case "learn":
                    self.call(ids)
                case "learn in threads":
                    with ThreadPoolExecutor(3) as threads:
                        list(threads.map(self.call, [part for part in (ids[0::3], ids[1::3], ids[2::3]) if part]))
                case "close":
                    self.call(ids)
                    self.clf.close()
                    self.report("closed")
                case "load":
                    self.clf.close()
                    self.report("closed")
                    self.clf = self.open()
                    self.call(ids)
                case _:
                    before = found(self.clf) if hasattr(self.clf, "classes_") else None
                    with failing(action, self.folder), suppress(ValueError, KeyboardInterrupt):
                        self.clf.set_params(every=1).partial_fit(*samples(ids))
                        raise AssertionError(f"{action} went unnoticed")
                    self.clf.set_params(every=self.life.every)
                    assert (found(self.clf) if hasattr(self.clf, "classes_") else None) == before
                    self.call(ids)  # the caller tries again
        if self.life.end == "closed":
            self.clf.close()
            self.report("closed")
        elif self.life.end == "collected":
            del self.clf
            self.report("closed")
        else:
            os.kill(os.getpid(), signal.SIGKILL)


def check(plan: list[Life]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        present: Counter[int] = Counter()
        for life in plan:
            todo = [number for number in range(SAMPLES) if number not in present]
            returned, on_disk = Process(life, Path(folder), todo).run()
            there = (Path(folder) / "classifier.safetensors").exists()
            kept = found(OnlineClassifier.load(folder)) if there else Counter()
            assert all(times == 1 for times in kept.values()), "a sample was learnt twice"
            lost = {number for call in on_disk for number in call} | set(present)
            assert lost <= kept.keys(), f"{lost - kept.keys()} were acknowledged and are lost"
            for call in returned:
                assert len({number in kept for number in call}) == 1, f"a part of the call {call} is there"
            present = kept


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(lives())
def test_acknowledged_samples_are_saved_exactly_once(plan: list[Life]) -> None:
    check(plan)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(lives())
def test_acknowledged_samples_are_saved_exactly_once_in_many_processes(plan: list[Life]) -> None:
    check(plan)
