"""The interface of executors, with one that runs everything in this process, and what needs no cluster."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from onebyone import Dataset, UsageError
from onebyone.engine.pack import Steps, pack
from onebyone.evaluation import Result
from onebyone.runs.executors import (
    Assignment,
    Executor,
    Failed,
    LocalExecutor,
    Lost,
    RayExecutor,
    SlurmExecutor,
    Status,
    executor_named,
)
from onebyone.runs.executors.interface import Worker, attempt, remote_device
from onebyone.runs.executors.ray_node import MARK, Mailbox, read_files, sees, write_files
from onebyone.runs.grid import expand
from onebyone.runs.job import Arrays, Setup
from onebyone.runs.run import Interrupted
from onebyone.runs.sweep import SweepListener, sweep
from run_folders import FILES, names, numbers

CONFIGS = expand({"method": ["finetune", "er"], "seed": [0, 1], "batch_size": 100})


class Backwards(Executor):
    """Does the last item first, on data that are sent, and pretends to be two machines."""

    def __init__(self, stop_after: int = 100) -> None:
        self.entered, self.stop_after = 0, stop_after

    def __enter__(self) -> "Backwards":
        self.entered += 1
        return self

    def device(self, name: str) -> str:
        return remote_device(name, gpus=False)

    def execute(self, assignment: Assignment) -> None:
        work = assignment.work.with_data(assignment.kept)

        def progressed(name: str, status: Status) -> None:
            assignment.progressed(name, replace(status, node=f"node{hash(name) % 2}"))

        for count, (name, item) in enumerate(reversed(assignment.items.items())):
            if count == self.stop_after:
                assignment.stopping()
                return
            worker = Worker(progressed, assignment.stopped)
            assignment.ended(name, attempt(lambda n=name, i=item, w=worker: work.start(n, i, w)))  # type: ignore[misc]


class Watch(SweepListener):
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


@pytest.mark.slow
def test_a_sweep_by_another_executor_equals_a_local_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    watch, executor = Watch(), Backwards()
    done = sweep(CONFIGS, Path("there"), executor=executor, listener=watch)
    here = sweep(CONFIGS, Path("here"), device="cpu", jobs=1)
    assert {name: numbers(one) for name, one in done.items() if isinstance(one, Result)} == {
        name: numbers(one) for name, one in here.items() if isinstance(one, Result)
    }
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
        assert f"pip install 'onebyone[{name}]'" in refuse(*words, "--executor", name)
    assert "unknown executor 'cloud'" in refuse("sweep", "grid.yaml", "--executor", "cloud")
    assert "--executor" in refuse("reproduce", "table1", "--from", ".", "--executor", name)


def test_devices_of_other_machines() -> None:
    assert remote_device("auto", gpus=True) == "cuda"
    assert remote_device("auto", gpus=False) == "cpu"
    with pytest.raises(UsageError, match="use cpu, cuda or auto"):
        remote_device("cuda:1", gpus=True)
    assert SlurmExecutor(gpus_per_node=1).device("auto") == "cuda"
    assert SlurmExecutor().device("auto") == "cpu"


def test_data_that_are_sent_are_the_same(digits: Dataset, tmp_path: Path) -> None:
    for array in (arrays := Arrays.of(digits)).tensors:
        array.flags.writeable = False  # as in the memory that processes share
    assert arrays.dataset() == digits
    setup = Setup(tmp_path, tmp_path / "nothing", "cpu", None).with_data({("digits", False): digits})
    assert setup.load("digits", False) == digits


def test_files_are_sent_and_written(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    sent = {"config.yaml": b"a", "checkpoint.safetensors": b"b"}
    write_files(here, sent)
    (here / ".lock").touch()
    assert read_files(here) == sent
    write_files(there, read_files(here))
    write_files(there, {"config.yaml": b"a", "result.json": b"c"}, complete=True)
    assert read_files(there) == {"config.yaml": b"a", "result.json": b"c"}
    assert not sees(tmp_path, "mine")
    (tmp_path / MARK).write_text("other")
    assert not sees(tmp_path, "mine")
    (tmp_path / MARK).write_text("mine")
    assert sees(tmp_path, "mine")


def test_a_mailbox_hands_out_every_item_once() -> None:
    mailbox = Mailbox()
    mailbox.give([("a", 1, None), ("b", 2, None), ("c", 3, None)])
    taken = mailbox.take("pack 0", 2) + mailbox.take("pack 1", 2)
    assert [name for name, *_ in taken] == ["a", "b", "c"]
    assert mailbox.take("pack 0", 2) == []
    told = [("taken", "a", "pack 0"), ("taken", "b", "pack 0"), ("taken", "c", "pack 1")]
    assert mailbox.collect(stop=True) == told
    assert mailbox.collect(stop=True) == []
    assert mailbox.send([("status", "a", None)])


def test_a_pack_asks_for_more_when_there_is_room() -> None:
    def count(steps: int) -> Steps[int]:
        for _ in range(steps):
            yield
        return steps

    left: list[int] = [30, 5, 5, 5, 5]
    asked: list[int] = []
    done: dict[str, int] = {}

    def more(room: int) -> dict[str, Callable[[], Steps[int]]] | None:
        asked.append(room)
        taken = [left.pop(0) for _ in range(min(room, len(left)))]
        if not taken:
            return None
        return {f"{len(left)} {n}": lambda steps=steps: count(steps) for n, steps in enumerate(taken)}  # type: ignore[misc]

    def failed(name: str, error: Exception) -> None:
        raise error

    pack({}, 2, done=done.__setitem__, failed=failed, more=more)
    assert sorted(done.values()) == [5, 5, 5, 5, 30]
    assert asked == [2, 1, 1, 1, 1]


def test_an_item_that_is_stopped_has_no_outcome() -> None:
    def start() -> Any:
        raise Interrupted("enough")

    assert attempt(start) is None


@dataclass(frozen=True)
class KilledHalfway:
    """Work whose item number ``killed`` ends its process when half of the outcome is sent."""

    killed: int

    def start(self, name: str, item: int, worker: Worker) -> Steps[bytes]:
        if item == self.killed:
            Connection._send = self.half  # type: ignore[attr-defined]
        yield
        return bytes([item]) * 1_000_000

    @staticmethod
    def half(connection: Connection, content: Any) -> None:
        os.write(connection.fileno(), content[: len(content) // 2] if len(content) > 1000 else content)
        if len(content) > 1000:  # the head of the message was sent before
            os.kill(os.getpid(), signal.SIGKILL)

    def folder(self, name: str) -> Path | None:
        return None

    def moved(self, out: Path) -> "KilledHalfway":
        return self

    def with_data(self, kept: Any) -> "KilledHalfway":
        return self


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="it counts on SIGKILL and on file descriptors")
@pytest.mark.parametrize("killed", [0, 3])
def test_a_worker_killed_while_it_sends_its_outcome_is_lost(killed: int) -> None:
    """The executor does not wait for the other half, and does the other items."""
    outcomes: dict[str, Any] = {}
    items = {f"item {number}": number for number in range(4)}
    asked = Assignment(KilledHalfway(killed), items, lambda name, status: None, outcomes.__setitem__, jobs=1)
    LocalExecutor().execute(asked)
    assert isinstance(outcomes.pop(f"item {killed}"), Lost)
    assert outcomes == {name: bytes([item]) * 1_000_000 for name, item in items.items() if item != killed}
