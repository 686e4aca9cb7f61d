"""Many runs at once in worker processes: the same results as one by one; a failure does not affect other runs."""

import multiprocessing
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from onebyone import UsageError
from onebyone.evaluation import Result
from onebyone.executors import Failed, Status
from onebyone.runs import RunConfig
from onebyone.runs.grid import expand, plan
from onebyone.runs.listener import Listener
from onebyone.runs.sweep import sweep
from run_folders import FILES, GRID, InThisProcess, check_results, names

Call = Callable[..., tuple[int, str, str]]


@pytest.mark.slow
def test_a_sweep_equals_its_single_runs_and_survives_a_failure(
    onebyone: Call, undisturbed: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as many as these tests have
    wild = {"method": "er", "options": {"learning_rate": 1e30}}
    Path("mine.yaml").write_text(yaml.safe_dump([wild, GRID, GRID]))
    code, out, err = onebyone("sweep", "mine.yaml", "--jobs", 2)
    (bad,) = plan(expand(wild), "cpu")
    folder = Path("runs") / "mine"
    assert names(folder) == {bad, *undisturbed}
    assert code == 1
    assert err == f"onebyone: 1 of 5 runs failed, see error.txt in {bad}\n"
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[:5]] == [f"[{n}/5]" for n in range(1, 6)]
    assert {line.split()[1] for line in lines[:5]} == {bad, *undisturbed}
    failed = r"\[./5\] er\S+  failed: the weights are not finite after \d+ steps; lower learning_rate"
    assert sum(bool(re.fullmatch(failed, line)) for line in lines) == 1
    assert lines[5:] == [f"4 of 5 runs are finished; see: onebyone table {folder}"]
    assert names(folder / bad) == {"config.yaml", "error.txt"}
    trace = (folder / bad / "error.txt").read_text()
    assert trace.startswith("Traceback")
    assert trace.endswith("lower learning_rate\n")
    check_results(folder, undisturbed)

    # Finished runs are found, and no process is started for them.
    results = [folder / name / "result.json" for name in undisturbed]
    before = [path.stat().st_mtime_ns for path in results]
    (folder / next(iter(undisturbed)) / "error.txt").write_text("of an earlier failure")
    Path("mine.yaml").write_text(yaml.safe_dump(GRID))
    monkeypatch.setattr(multiprocessing, "get_context", None)
    assert onebyone("sweep", "mine.yaml") == (0, f"4 of 4 runs are finished; see: onebyone table {folder}\n", "")
    assert [path.stat().st_mtime_ns for path in results] == before
    check_results(folder, undisturbed)


@pytest.mark.slow
def test_a_killed_worker_costs_a_part_of_its_own_run_and_three_of_them_fail_it(tmp_path: Path) -> None:
    """As a run does that uses all memory: it ends itself, and not the sweep. A worker that waits may be killed too."""
    times = {"ccp": 1000, "er": 1, "finetune": 0}  # that the worker of each run is killed
    killed: dict[str, set[int | None]] = {name: set() for name in times}

    class Killer(Listener):
        def progressed(self, name: str, status: Status) -> None:
            method = name.split("-")[0]
            for worker in multiprocessing.active_children():
                if len(killed[method] | {worker.pid}) <= times[method]:
                    killed[method].add(worker.pid)
                    worker.kill()

        def ended(self, name: str, outcome: Result | Failed) -> None:
            for worker in multiprocessing.active_children():  # between two runs
                worker.kill()
                worker.join()

    configs = expand({"method": list(times), "batch_size": 10})
    done = sweep(configs, tmp_path, jobs=1, listener=Killer())
    assert [len(each) for each in killed.values()] == [3, 1, 0]
    first, *others = done
    for name in others:
        assert isinstance(done[name], Result)
        assert names(tmp_path / name) == FILES
    assert isinstance(done[first], Failed)
    assert str(done[first]).startswith("its process was killed or crashed; if there was not enough memory")
    assert names(tmp_path / first) == {"config.yaml", "error.txt"}
    assert "was killed" in (tmp_path / first / "error.txt").read_text()
    assert isinstance(sweep(configs, tmp_path, jobs=1, executor=InThisProcess())[first], Result)  # it is tried again


@pytest.mark.slow
def test_two_processes_share_a_sweep(tmp_path: Path) -> None:
    """Both return all results, and every run was done once."""
    configs = expand({"method": "finetune", "seed": list(range(6)), "batch_size": 100})

    def share() -> dict[str, Result | Failed]:
        return sweep(configs, tmp_path, device="cpu", jobs=1)  # each has a process of its own

    with ThreadPoolExecutor(2) as threads:
        one, other = [each.result() for each in [threads.submit(share), threads.submit(share)]]
    assert all(isinstance(outcome, Result) for outcome in one.values())
    assert one == other  # with the same seconds: no run was done twice


def test_an_empty_sweep(tmp_path: Path) -> None:
    assert sweep([], tmp_path / "out") == {}
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="unknown method"):
        sweep([RunConfig(method="er"), RunConfig(method="re")], tmp_path / "out")
