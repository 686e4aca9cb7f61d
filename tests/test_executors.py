"""The interface of executors, with one that runs everything in this process, and what needs no cluster."""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from onebyone import Dataset, UsageError
from onebyone.engine.pack import Steps
from onebyone.evaluation import Result
from onebyone.executors import (
    Executor,
    Failed,
    LocalExecutor,
    Lost,
    RayExecutor,
    SlurmExecutor,
    Status,
    Worker,
    executor_named,
)
from onebyone.executors.executor import attempt, remote_device
from onebyone.runs import run
from onebyone.runs.grid import expand, plan
from onebyone.runs.listener import Listener
from onebyone.runs.run import Interrupted
from onebyone.runs.sweep import read_files, sweep, write_files
from run_folders import FILES, names, numbers

CONFIGS = expand({"method": ["finetune", "er"], "seed": [0, 1], "batch_size": 100})


class Backwards(Executor):
    """Does the last item first, in this process but on data that are sent, and pretends to be two machines."""

    shares_disk = False

    def __init__(self, stop_after: int = 100) -> None:
        self.entered, self.stop_after = 0, stop_after

    def __enter__(self) -> "Backwards":
        self.entered += 1
        return self

    def device(self, name: str) -> str:
        return remote_device(name, gpus=False)

    def map(self, function: Any, items: Mapping[str, Any], **given: Any) -> Generator[tuple[str, Any]]:
        there = pickle.loads(pickle.dumps(function))
        assert there.data

        def progressed(name: str, status: Status) -> None:
            given["progressed"](name, replace(status, node=f"node{hash(name) % 2}"))

        for count, (name, item) in enumerate(reversed(items.items())):
            if count == self.stop_after:
                given["stopping"]()
                return
            worker = Worker(progressed, threading.Event())
            yield name, attempt(partial(there, name, item, worker), worker.stopped)


class Watch(Listener):
    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}
        self.order: list[str] = []
        self.stops = 0

    def progressed(self, name: str, status: Status) -> None:
        self.nodes[name] = status.node

    def ended(self, name: str, outcome: Result | Failed) -> None:
        self.order.append(name)

    def stopping(self) -> None:
        self.stops += 1


def test_a_sweep_by_another_executor_equals_its_single_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    watch, executor = Watch(), Backwards()
    done = sweep(CONFIGS, Path("there"), executor=executor, listener=watch)
    alone = {name: numbers(run(config)) for name, config in plan(CONFIGS, "cpu").items()}
    assert {name: numbers(one) for name, one in done.items() if isinstance(one, Result)} == alone
    assert executor.entered == 1
    assert watch.order == list(reversed(done))
    assert set(watch.nodes) == set(done)
    assert {names(tmp_path / "there" / name) == FILES for name in done} == {True}


def test_what_is_left_by_an_executor_that_stops_is_done_by_the_next(tmp_path: Path) -> None:
    watch = Watch()
    with pytest.raises(Interrupted, match="stopped with 3 of 4 runs finished"):
        sweep(CONFIGS, tmp_path, executor=Backwards(stop_after=3), listener=watch)
    assert watch.stops == 1
    rest = Watch()
    assert len(sweep(CONFIGS, tmp_path, executor=Backwards(), listener=rest)) == 4
    assert set(rest.order).isdisjoint(watch.order)


def test_executors_by_name() -> None:
    ray = executor_named("ray", "auto")
    assert isinstance(ray, RayExecutor)
    assert ray.address == "auto"
    slurm = executor_named("slurm:timeout_min=60,slurm_partition=gpu")
    assert isinstance(slurm, SlurmExecutor)
    assert slurm.parameters == {"timeout_min": 60, "slurm_partition": "gpu"}
    for given, address, said in [
        ("rai", None, "unknown executor 'rai'.*ray"),
        ("local", "auto", "an address is for the executor ray"),
        ("local:x=1", None, "takes no parameters"),
        ("slurm:timeout_min", None, "NAME=VALUE"),
    ]:
        with pytest.raises(UsageError, match=said):
            executor_named(given, address)


@pytest.mark.parametrize("name", ["ray", "slurm"])
def test_an_executor_whose_package_is_missing(
    name: str, refuse: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, {"ray": "ray", "slurm": "submitit"}[name], None)
    Path("grid.yaml").write_text("method: er\n")
    for words in (["sweep", "grid.yaml"], ["tune", "--dataset", "digits"], ["reproduce", "table1", "--quick"]):
        assert "pip install 'onebyone[cluster]'" in refuse(*words, "--executor", name)
    assert "unknown executor 'cloud'" in refuse("sweep", "grid.yaml", "--executor", "cloud")
    assert "--executor" in refuse("reproduce", "table1", "--from", ".", "--executor", name)


def test_devices_of_other_machines() -> None:
    assert remote_device("auto", gpus=True) == "cuda"
    assert remote_device("auto", gpus=False) == "cpu"
    with pytest.raises(UsageError, match="use cpu, cuda or auto"):
        remote_device("cuda:1", gpus=True)
    assert SlurmExecutor(gpus_per_node=1).device("auto") == "cuda"
    assert SlurmExecutor().device("auto") == "cpu"


def test_data_that_are_sent_are_the_same(digits: Dataset) -> None:
    restore, (name, arrays, *others) = digits.__reduce__()
    for array in arrays:
        array.flags.writeable = False  # as in the memory that processes share
    assert restore(name, arrays, *others) == digits


def test_files_are_sent_and_written(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    sent = {"config.yaml": b"a", "checkpoint.safetensors": b"b"}
    write_files(here, sent)
    (here / ".claim-1").touch()
    assert read_files(here) == sent
    write_files(there, read_files(here))
    write_files(there, {"config.yaml": b"a", "result.json": b"c"})
    assert read_files(there) == {"config.yaml": b"a", "result.json": b"c"}


def test_an_item_that_is_stopped_has_no_outcome() -> None:
    def start() -> Any:
        raise Interrupted("enough")

    assert attempt(start, threading.Event()) is None


@dataclass(frozen=True)
class KilledHalfway:
    """Item number ``killed`` ends its process when half of the outcome is sent, each time or only once."""

    killed: int
    once: Path | None = None

    def __call__(self, name: str, item: int, worker: Worker) -> Steps[bytes]:
        if item == self.killed and not (self.once is not None and self.once.exists()):
            if self.once is not None:
                self.once.touch()
            Connection._send = self.half  # type: ignore[attr-defined]
        yield
        return bytes([item]) * 1_000_000

    @staticmethod
    def half(connection: Connection, content: Any) -> None:
        os.write(connection.fileno(), content[: len(content) // 2] if len(content) > 1000 else content)
        if len(content) > 1000:  # the head of the message was sent before
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="it counts on SIGKILL and on file descriptors")
def test_a_worker_killed_while_it_sends_its_outcome_is_lost(tmp_path: Path) -> None:
    """The executor does not wait for the other half, and does the other items; the lost one is done by up to three."""
    items = {f"item {number}": number for number in range(4)}
    wanted = {name: bytes([item]) * 1_000_000 for name, item in items.items()}
    assert dict(LocalExecutor().map(KilledHalfway(3, tmp_path / "once"), items, jobs=2)) == wanted
    outcomes = dict(LocalExecutor().map(KilledHalfway(0), items, jobs=2))
    assert isinstance(outcomes["item 0"], Lost)
    assert outcomes == wanted | {"item 0": outcomes["item 0"]}


class Sixty:
    """Takes sixty steps, or none if nobody works on it now."""

    def __call__(self, name: str, item: int, worker: Worker) -> Steps[int]:
        for step in range(60):
            worker.progressed(name, Status(60, step + 1))
            if worker.stopped.is_set():
                raise Interrupted("stopped")
            time.sleep(0.05)
            yield
        return item


@pytest.mark.slow
def test_ctrl_c_ends_a_map_early_and_a_second_one_at_once() -> None:
    told: list[str] = []
    others = set(multiprocessing.active_children())  # joblib keeps the workers of an earlier test

    def interrupt(name: str, status: Status) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    items = {str(number): number for number in range(10)}
    asked = LocalExecutor().map(Sixty(), items, jobs=2, progressed=interrupt, stopping=lambda: told.append("stopping"))
    with pytest.raises(KeyboardInterrupt):
        dict(asked)
    assert told == []  # both came before it looked
    begin = True

    def once(name: str, status: Status) -> None:
        nonlocal begin
        if begin:
            begin = False
            signal.raise_signal(signal.SIGINT)

    stopping = LocalExecutor().map(Sixty(), items, jobs=2, progressed=once, stopping=lambda: told.append("stopping"))
    assert dict(stopping) == {}
    assert told == ["stopping"]
    assert set(multiprocessing.active_children()) <= others
