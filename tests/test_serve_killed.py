"""kill -9 under load: every acknowledged sample is there after the restart, and the state is that of a replay."""

import os
import random
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onebyone.client import Client, ServerError
from onebyone.serve import journal
from onebyone.serve.model import Model
from onebyone.serve.operations import decode
from onebyone.serve.service import Service
from serving import Process, png, state

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("ONEBYONE_SERIES" not in os.environ, reason="takes half an hour; set ONEBYONE_SERIES=1"),
]
LEARNERS, PREDICTORS = 4, 16
OPTIONS = ("--memory", "300KB")


def sample(seed: int) -> tuple[Any, str]:
    chance = np.random.default_rng(seed)
    label = int(chance.integers(3))
    return chance.integers(0, 200, (32, 32, 3), dtype=np.uint8) + np.uint8(20 * label), f"class {label}"


class Load:
    """Clients that learn and predict until the server is gone, and remember what was acknowledged."""

    def __init__(self, address: str, seed: int) -> None:
        self.acknowledged: dict[int, tuple[Any, str]] = {}  # by sequence number
        self.sent: Counter[str] = Counter()
        self.predicted = 0
        self.stopped = False
        targets = [self.learn] * LEARNERS + [self.predict] * PREDICTORS
        self.threads = [
            threading.Thread(target=target, args=(Client(address), 1000 * (seed * LEARNERS + number)))
            for number, target in enumerate(targets)
        ]
        for thread in self.threads:
            thread.start()

    def learn(self, client: Client, seed: int) -> None:
        with suppress(ServerError, OSError, ValueError):  # the server was killed in the middle of an answer
            while not self.stopped:
                seed += 1
                array, label = sample(seed)
                self.sent[label] += 1
                answer = client.learn([png(array)], [label])
                self.acknowledged[answer["sequence"]] = array, label

    def predict(self, client: Client, seed: int) -> None:
        content = png(sample(seed)[0])
        while not self.stopped:
            try:
                client.predict([content])
                self.predicted += 1
            except ServerError as error:
                if error.status not in (409, 503):
                    return
                time.sleep(0.05)
            except (OSError, ValueError):
                return

    def stop(self) -> None:
        self.stopped = True
        for thread in self.threads:
            thread.join(60)


def test_killed_50_times_under_load(tmp_path: Path) -> None:
    """After each kill, the journal has every acknowledged sample, and a start gives the bits of a model that has made
    the operations of the journal without interruption."""
    folder, chance = tmp_path / "state", random.Random(0)
    uninterrupted: Model | None = None
    last, predicted, dropped = 0, 0, 0
    for number in range(50):
        process = Process(folder, *OPTIONS, snapshot_operations=10**9)  # so that the journal has everything
        load = Load(process.address, number)
        time.sleep(chance.uniform(0.2, 1.0))
        process.kill()
        load.stop()
        predicted += load.predicted
        found = journal.read(folder / "journal-0")
        entries = {entry.sequence: decode(entry.payload) for entry in found.entries}
        for sequence, (array, label) in load.acknowledged.items():
            assert entries[sequence].labels == (label,)
            assert entries[sequence].samples is not None
            np.testing.assert_array_equal(entries[sequence].samples, array[None])
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(".lock"))
        service = Service(copy)
        uninterrupted = uninterrupted or Model(tmp_path, service.settings)
        for sequence in range(last + 1, max(entries) + 1):
            uninterrupted.apply(entries[sequence])
        last, dropped = max(entries), dropped + (service.dropped > 0)
        assert state(service.model) == state(uninterrupted)
        service.close()
        shutil.rmtree(copy)
    assert uninterrupted is not None
    print(f"{last} samples, {predicted} predictions, {dropped} incomplete entries")
    assert last > 100
    assert predicted > 100


def test_killed_while_snapshots_are_written(tmp_path: Path) -> None:
    """With a snapshot after every few operations, a kill can come at any point of one."""
    folder, chance = tmp_path / "state", random.Random(1)
    acknowledged: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    for number in range(15):
        process = Process(folder, *OPTIONS, snapshot_operations=3)
        load = Load(process.address, 500 + number)
        time.sleep(chance.uniform(0.3, 2.0))
        process.kill()
        load.stop()
        acknowledged.update(label for _, label in load.acknowledged.values())
        sent.update(load.sent)
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(".lock"))
        service = Service(copy)
        for label, count in service.model.counts().items():
            assert acknowledged[label] <= count <= sent[label]
        service.close()
        shutil.rmtree(copy)
    assert len(list(folder.glob("journal-*"))) <= 2
    assert sum(acknowledged.values()) > 30


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
    process = Process(small_disk / "state", *OPTIONS)
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
    again = Process(small_disk / "state", *OPTIONS)
    assert sum(again.client.classes().values()) == acknowledged
    code, errors = again.stop()
    assert code == 0, errors
