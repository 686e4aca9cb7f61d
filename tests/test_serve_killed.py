"""kill -9 under load: every acknowledged sample is there after the restart, and the state is that of a replay."""

import multiprocessing
import os
import random
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from onebyone.client import Client, ServerError
from onebyone.serve import journal
from onebyone.serve import service as service_module
from onebyone.serve.model import Model
from onebyone.serve.operations import decode
from onebyone.serve.server import serve
from onebyone.serve.service import Service
from serving import Process, png, state

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="servers are forked, which saves the time of 65 imports"),
]
LEARNERS, PREDICTORS = 4, 16
MEMORY = "100KB"


def sample(seed: int) -> tuple[Any, str]:
    chance = np.random.default_rng(seed)
    label = int(chance.integers(3))
    return chance.integers(0, 200, (32, 32, 3), dtype=np.uint8) + np.uint8(20 * label), f"class {label}"


FORK = multiprocessing.get_context("forkserver") if hasattr(os, "fork") else multiprocessing.get_context()


class Forked:
    """A server in a process of its own, forked from one that has imported what it needs."""

    def __init__(self, folder: Path, snapshot_operations: int) -> None:
        FORK.set_forkserver_preload(["warm_server"])
        here, there = FORK.Pipe()
        self.process = FORK.Process(target=serve_and_announce, args=(folder, snapshot_operations, there), daemon=True)
        path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(Path(__file__).parent)])
        # For the process from which servers are forked, which the first of them starts.
        with mock.patch.dict(os.environ, PYTHONPATH=path, WARM_SERVER=MEMORY):
            self.process.start()
        there.close()
        self.address = here.recv()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


def serve_and_announce(folder: Path, snapshot_operations: int, parent: Any) -> None:
    service_module.SNAPSHOT_OPERATIONS = snapshot_operations
    serve(folder, port=0, memory=MEMORY, ready=lambda address, service: parent.send(address))


class Load:
    """Clients that learn and predict until the server is gone, and remember what was acknowledged."""

    def __init__(self, address: str, seed: int) -> None:
        self.acknowledged: dict[int, tuple[Any, str]] = {}  # by sequence number
        self.sent: list[str] = []
        self.predicted: list[str] = []
        self.stopped = False
        targets = [self.learn] * LEARNERS + [self.predict] * PREDICTORS
        self.threads = [
            threading.Thread(target=target, args=(Client(address), 1000 * (seed * LEARNERS + number)))
            for number, target in enumerate(targets)
        ]
        for thread in self.threads:
            thread.start()

    def learn(self, client: Client, seed: int) -> None:
        while not self.stopped:
            seed += 1
            array, label = sample(seed)
            self.sent.append(label)
            try:
                answer = client.learn([png(array)], [label])
            except ServerError:  # the server was killed in the middle of an answer
                return
            self.acknowledged[answer["sequence"]] = array, label

    def predict(self, client: Client, seed: int) -> None:
        content = png(sample(seed)[0])
        while not self.stopped:
            try:
                self.predicted.append(client.predict([content])[0]["nearest"])
            except ServerError as error:
                if error.status not in (409, 503):  # before the first sample; too busy
                    return
                time.sleep(0.01)

    def wait(self, samples: int, predictions: int) -> None:
        """Wait until this many samples are acknowledged, and predictions answered."""
        end = time.monotonic() + 120
        while len(self.acknowledged) < samples or len(self.predicted) < predictions:
            assert time.monotonic() < end, (len(self.acknowledged), len(self.predicted))
            time.sleep(0.001)

    def stop(self) -> None:
        self.stopped = True
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


def killed_under_load(folder: Path, seed: int, snapshot_operations: int) -> Load:
    """Kill a server at a random moment after some samples and predictions. Returns what its clients have seen."""
    chance = random.Random(seed)
    server = Forked(folder, snapshot_operations)
    load = Load(server.address, seed)
    try:
        load.wait(chance.randint(2, 5), chance.randint(1, 20))
        time.sleep(chance.uniform(0, 0.03))  # at any point of the next requests
    finally:
        server.kill()
        load.stop()
    return load


@contextmanager
def restarted(folder: Path, copy: Path) -> Iterator[Service]:
    """A service that starts from what is on the disk, in a copy of the folder."""
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(".lock"))
    service = Service(copy)
    yield service
    service.close()
    shutil.rmtree(copy)


@pytest.mark.parametrize("part", range(5))
def test_killed_50_times_under_load(part: int, tmp_path: Path) -> None:
    """After each kill, the journal has every acknowledged sample, and a start gives the bits of a model that has made
    the operations of the journal without interruption. Ten kills per state folder, so that a replay is short."""
    folder = tmp_path / "state"
    uninterrupted: Model | None = None
    last = 0
    for number in range(10 * part, 10 * part + 10):
        load = killed_under_load(folder, number, snapshot_operations=10**9)  # so that the journal has everything
        entries = {entry.sequence: decode(entry.payload) for entry in journal.read(folder / "journal-0").entries}
        for sequence, (array, label) in load.acknowledged.items():
            assert entries[sequence].labels == (label,)
            np.testing.assert_array_equal(entries[sequence].samples, array[None])
        with restarted(folder, tmp_path / "copy") as service:
            uninterrupted = uninterrupted or Model(tmp_path, service.settings)
            for sequence in range(last + 1, max(entries) + 1):
                uninterrupted.apply(entries[sequence])
            last = max(entries)
            assert state(service.model) == state(uninterrupted)


def test_killed_while_snapshots_are_written(tmp_path: Path) -> None:
    """With a snapshot after every third operation, a kill can come at any point of one."""
    folder = tmp_path / "state"
    acknowledged: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    for number in range(15):
        load = killed_under_load(folder, 500 + number, snapshot_operations=3)
        acknowledged.update(label for _, label in load.acknowledged.values())
        sent.update(load.sent)
        with restarted(folder, tmp_path / "copy") as service:
            found = service.model.counts()
            assert set(acknowledged) <= set(found)
            for label, count in found.items():
                assert acknowledged[label] <= count <= sent[label]
    assert len(list(folder.glob("journal-*"))) <= 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("mounting a small disk needs root")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_a_full_disk_loses_nothing_acknowledged(small_disk: Path, tmp_path: Path) -> None:
    process = Process(small_disk / "state", "--memory", MEMORY)
    acknowledged, statuses = 0, Counter[int]()
    for seed in range(600):
        array, label = sample(seed)
        try:
            process.client.learn([png(array)], [label])
            acknowledged += 1
        except ServerError as error:
            statuses[error.status] += 1
            if statuses[507] > 5:
                break
    assert set(statuses) == {507}
    assert process.client.predict([png(sample(0)[0])])[0]["nearest"]
    assert sum(process.client.classes().values()) == acknowledged
    process.kill()
    again = Process(small_disk / "state", "--memory", MEMORY)
    assert sum(again.client.classes().values()) == acknowledged
    code, errors = again.stop()
    assert code == 0, errors
