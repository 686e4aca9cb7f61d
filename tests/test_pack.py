"""Runs of a sweep in one process give the same results as alone."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from onebyone import Dataset
from onebyone.evaluation import Result
from onebyone.executors import Failed, LocalExecutor, Status
from onebyone.runs import RunConfig, run
from onebyone.runs.claim import sole_use
from onebyone.runs.grid import expand, plan
from onebyone.runs.listener import Listener
from onebyone.runs.sweep import DoRun
from run_folders import FILES, names, numbers, steps


def pack(do_run: DoRun, runs: Mapping[str, RunConfig], width: int, progressed: Any = print) -> Iterator[Any]:
    items = {name: (config, {}) for name, config in runs.items()}
    return LocalExecutor().map(do_run, items, jobs=width, gpu=True, progressed=progressed)


def pack_of(
    width: int, configs: list[RunConfig], data: Dataset, out: Path, stopped: threading.Event | None = None
) -> dict[str, Result | Failed]:
    do_run = DoRun(out, None, "cpu", 500, data={("digits", False): data})
    moved: dict[str, Status] = {}
    runs = plan(configs, "cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onebyone.executors.local.stop_signal", lambda: nullcontext(stopped or threading.Event()))
        outcomes = dict(pack(do_run, runs, width, moved.__setitem__))
    assert all(0 <= status.done <= status.samples for status in moved.values())
    return {name: outcomes[name] for name in runs if name in outcomes}


def test_a_pack_equals_its_single_runs(few: Dataset, tmp_path: Path) -> None:
    good = expand({"method": ["er", "icarl", "ccp"], "seed": [0, 1], "classes_per_task": 5})
    wild = expand({"method": "er", "options": {"learning_rate": 1e30}})
    configs = [*good[:2], *wild, *good[2:]]
    alone, four = (pack_of(width, configs, few, tmp_path / str(width)) for width in (1, 4))
    assert list(alone) == list(four)
    (bad,) = plan(wild, "cpu")
    for name in alone:
        one, other = alone[name], four[name]
        if name == bad:
            assert isinstance(one, Failed)
            assert str(one) == str(other)
            assert (tmp_path / "4" / name / "error.txt").exists()
        else:
            assert isinstance(one, Result)
            assert isinstance(other, Result)
            assert numbers(one) == numbers(other)
            assert names(tmp_path / "4" / name) == FILES
    direct = run(replace(good[0], device="cpu"), data=few)
    first = next(iter(four.values()))
    assert isinstance(first, Result)
    assert numbers(first) == numbers(direct)


@pytest.mark.parametrize("batch_size", [10, 1000])
def test_a_step_has_the_same_number_of_threads_in_a_run_and_a_sweep(
    batch_size: int, few: Dataset, tmp_path: Path
) -> None:
    """The number of threads changes the order of sums, and small steps are slow with more than one."""

    class Count(Listener):
        def stepped(self, task: int, samples: int) -> None:
            seen.append(torch.get_num_threads())

    seen: list[int] = []
    config = RunConfig(method="er", classes_per_task=5, batch_size=batch_size, device="cpu")
    torch.set_num_threads(2)
    try:
        run(config, data=few, listener=Count())
        alone = seen.copy()
        seen.clear()
        do_run = DoRun(tmp_path, None, "cpu", 500, data={("digits", False): few})
        for _ in do_run.steps("one", config, Count(), threading.Event()):
            pass
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert seen == alone
    assert set(seen) == {1 if batch_size == 10 else 2}


def test_a_success_removes_the_error_file(few: Dataset, tmp_path: Path) -> None:
    configs = expand({"method": "er", "classes_per_task": 5})
    (name,) = plan(configs, "cpu")
    (tmp_path / name).mkdir()
    (tmp_path / name / "error.txt").write_text("of an earlier failure")
    (tmp_path / name / ".error.txt.xyz").write_text("of a killed process")
    pack_of(1, configs, few, tmp_path)
    assert names(tmp_path / name) == FILES


def test_a_stopped_pack_is_resumed(few: Dataset, tmp_path: Path) -> None:
    configs = expand({"method": "ccp", "seed": [0, 1, 2], "classes_per_task": 5})
    complete = pack_of(2, configs, few, tmp_path / "complete")

    class Stop(threading.Event):
        """Set after a number of checks: two runs have begun, the third waits."""

        asked = 0

        def is_set(self) -> bool:
            self.asked += 1
            return self.asked > 12

    out = tmp_path / "stopped"
    assert pack_of(2, configs, few, out, Stop()) == {}
    assert [steps(out / name) > 0 for name in complete] == [True, True, False]
    rest = pack_of(2, configs, few, out)
    assert [asdict(one) | {"seconds": 0} for one in rest.values()] == [
        asdict(one) | {"seconds": 0} for one in complete.values()
    ]


def test_a_run_of_another_process_is_done_after_it_ends(tmp_path: Path, few: Dataset) -> None:
    configs = expand({"method": "er", "seed": [0, 1], "classes_per_task": 5})
    first, second = plan(configs, "cpu")
    order: list[str] = []
    with ExitStack() as other:
        other.enter_context(sole_use(tmp_path / first))

        do_run = DoRun(tmp_path, None, "cpu", 500, data={("digits", False): few})
        for name, outcome in pack(do_run, plan(configs, "cpu"), 2):
            assert isinstance(outcome, Result)
            order.append(name)
            if name == second:
                assert names(tmp_path / first) == {".claim-1"}  # nothing is written to a folder of another process
                other.close()
    assert order == [second, first]


def test_a_pack_that_waits_for_other_processes_can_be_stopped(tmp_path: Path, few: Dataset) -> None:
    configs = expand({"method": "er", "classes_per_task": 5})
    (name,) = plan(configs, "cpu")
    stopped = threading.Event()
    threading.Timer(0.2, stopped.set).start()
    with sole_use(tmp_path / name):
        assert pack_of(1, configs, few, tmp_path, stopped) == {}
        assert stopped.is_set()


def test_a_folder_that_cannot_be_created_is_a_failure(tmp_path: Path, few: Dataset) -> None:
    (tmp_path / "file").write_text("")
    (outcome,) = pack_of(1, expand({"method": "er", "classes_per_task": 5}), few, tmp_path / "file").values()
    assert isinstance(outcome, Failed)
    assert "cannot be written" in str(outcome)
