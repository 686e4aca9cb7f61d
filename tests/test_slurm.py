"""Sweeps by submitit: with its local executor, and with a fake sbatch on the path."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onebyone import UsageError
from onebyone.evaluation import Result
from onebyone.executors import Failed, Lost, SlurmExecutor, Status
from onebyone.executors.slurm import Jobs
from onebyone.runs.grid import expand, plan
from onebyone.runs.listener import Listener
from onebyone.runs.sweep import sweep
from run_folders import GRID, check_results, numbers, steps

SWEEP = """
import sys
from onebyone.executors import SlurmExecutor
from onebyone.runs.grid import expand
from onebyone.runs.sweep import sweep
from run_folders import GRID

if __name__ == "__main__":
    sweep(expand(GRID)[::2], sys.argv[1], device="cpu", jobs=2, checkpoint_every=5, executor=SlurmExecutor("local"))
"""


def test_without_a_cluster_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "submitit", object())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="there is no srun here"):
        sweep(expand(GRID), tmp_path / "out", executor="slurm")


def test_a_job_that_is_lost_after_a_stop_has_not_failed(tmp_path: Path) -> None:
    """It was stopped, so the next sweep resumes it."""

    class UncompletedJobError(Exception):
        pass

    class Job:
        def done(self) -> bool:
            return True

        def result(self) -> None:
            raise UncompletedJobError

    errors = SimpleNamespace(UncompletedJobError=UncompletedJobError, FailedJobError=KeyError)
    executor = SimpleNamespace(
        submitit=SimpleNamespace(core=SimpleNamespace(utils=errors)),
        submitter=lambda *_: SimpleNamespace(cluster="local"),
    )
    jobs = Jobs(executor, len, 1, None, False, tmp_path)  # type: ignore[arg-type]
    for stopped in (False, True):
        future = Future[Any]()
        jobs.busy = {Job(): (future, ["one"])}
        assert list(jobs.statuses(stopped)) == []
        assert isinstance(future.result().get("one"), Lost) == (not stopped)


@pytest.mark.slow
def test_a_killed_driver_and_its_jobs(
    tmp_path: Path, undisturbed: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With submitit's local executor: jobs outlive the driver, and those of the next one wait for their runs."""
    runs = [tmp_path / name for name in plan(expand(GRID)[::2], "cpu")]

    def progress() -> int:
        return sum(121 if (run / "result.json").exists() else steps(run) for run in runs)

    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(Path(__file__).parent)])
    environment = os.environ | {"PYTHONPATH": path}
    monkeypatch.chdir(tmp_path)
    words = [sys.executable, "-c", SWEEP, str(tmp_path)]
    with subprocess.Popen(words, env=environment, start_new_session=True) as process:
        deadline = time.monotonic() + 300
        while progress() < 20:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
    before = progress()
    subprocess.run(words, env=environment, check=True, timeout=600)
    assert progress() == 2 * 121 > before
    check_results(tmp_path, {run.name: undisturbed[run.name] for run in runs})


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The commands of a cluster on the path; gives the folder of what is known about its jobs."""
    commands, known = tmp_path / "bin", tmp_path / "slurm"
    for folder in (commands, known):
        folder.mkdir()
    text = (Path(__file__).parent / "fake_slurm.py").read_text()
    for name in ("sbatch", "srun", "scontrol", "scancel"):
        (commands / name).write_text(f"#!{sys.executable}\n{text}")
        (commands / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(known))
    monkeypatch.chdir(tmp_path)
    return known


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # those of submitit
def test_an_array_of_jobs_one_of_which_is_preempted(
    slurm: Path, tmp_path: Path, undisturbed: Mapping[str, Any]
) -> None:
    runs = expand(GRID)[::2]
    wanted = {name: undisturbed[name] for name in plan(runs, "cpu")}
    preempted: list[str] = []
    nodes: set[str] = set()
    ends: list[str] = []

    class Preempt(Listener):
        def progressed(self, name: str, status: Status) -> None:
            nodes.add(status.node)
            if status.done == 0 or preempted:
                return
            job = list(wanted).index(name)
            # To the process of submitit only: bash, its parent, would end.
            found = subprocess.run(
                ["pgrep", "-P", (slurm / f"100_{job}.pid").read_text()], capture_output=True, text=True
            )
            for child in found.stdout.split():  # none if the job has ended meanwhile; then the other is preempted
                os.kill(int(child), signal.SIGUSR2)
                preempted.append(name)

        def ended(self, name: str, outcome: Result | Failed) -> None:
            ends.append(name)

    out = tmp_path / "out"
    executor = SlurmExecutor(timeout_min=10, slurm_partition="test")
    done = sweep(runs, out, device="cpu", checkpoint_every=1000, executor=executor, listener=Preempt())
    assert {name: numbers(one) for name, one in done.items() if isinstance(one, Result)} == wanted
    check_results(out, wanted)
    assert (slurm / "100.array").read_text() == "2"  # one array, and nothing was submitted again
    assert not (slurm / "101.array").exists()
    assert len(list(slurm.glob("*.requeued"))) == len(preempted) == 1
    assert nodes == {os.uname().nodename}
    assert sorted(ends) == sorted(wanted)
