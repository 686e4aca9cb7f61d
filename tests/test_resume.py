"""A run that is stopped in any way and started again gives the same bits as an uninterrupted one."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from onebyone import Dataset, methods
from onebyone.evaluation import Result
from onebyone.runs import Listener, RunConfig, run
from onebyone.runs.run import Interrupted, finish, steps_in_folder
from run_folders import FILES, names, numbers, steps


class Crash(Exception):
    pass


class After(Listener):
    """Acts after a number of steps since the run was started."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def stepped(self, task: int, samples: int) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()

    def act(self) -> None:
        raise Crash


class CtrlC(After):
    def act(self) -> None:
        signal.raise_signal(signal.SIGINT)


class CtrlCTwice(After):
    def act(self) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("name", methods())
def test_crashes_do_not_change_the_result(name: str, digits: Dataset, tmp_path: Path) -> None:
    """24 steps in two tasks; steps after the last checkpoint are repeated."""
    config = RunConfig(method=name, classes_per_task=5, batch_size=61, prequential=True, memory_per_class=5)
    # The last of these checkpoints is between the last step of the first task and its evaluation.
    for steps_done, checkpoint in ((1, 0), (5, 3), (10, 12)):
        with pytest.raises(Crash):
            run(config, data=digits, out=tmp_path, checkpoint_every=3, listener=After(steps_done))
        assert steps(tmp_path) == checkpoint
    resumed = run(config, data=digits, out=tmp_path, checkpoint_every=3)
    assert numbers(resumed) == numbers(run(config, data=digits))
    assert names(tmp_path) == FILES


def test_a_resumed_run_reports_the_samples_done_before(digits: Dataset, tmp_path: Path) -> None:
    calls = []

    class Recorder(Listener):
        def started(self, title: str, samples: int, done: int, tasks: int) -> None:
            calls.append((samples, done))

    config = RunConfig(method="finetune", batch_size=61, classes_per_task=5)
    with pytest.raises(Crash):
        run(config, data=digits, out=tmp_path, checkpoint_every=4, listener=After(14))
    first_task = int((digits.train_y < 5).sum())  # twelve batches, the last one shorter
    run(config, data=digits, out=tmp_path, listener=Recorder())
    assert calls == [(1438, first_task)]


@pytest.mark.parametrize("step", [1, 12, 13, 24], ids=["first", "end of a task", "begin of a task", "last"])
def test_ctrl_c_stops_between_two_steps(step: int, digits: Dataset, tmp_path: Path) -> None:
    config = RunConfig(method="icarl", classes_per_task=5, batch_size=61, prequential=True)
    with pytest.raises(Interrupted, match=f"stopped after {step} steps; the same command resumes"):
        run(config, data=digits, out=tmp_path, listener=CtrlC(step))
    assert steps(tmp_path) == step
    assert numbers(run(config, data=digits, out=tmp_path)) == numbers(run(config, data=digits))


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """SIGINT reaches this process, also if it was started in the background, where it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_a_second_ctrl_c_stops_at_once(digits: Dataset, tmp_path: Path) -> None:
    config = RunConfig(method="er", classes_per_task=5, batch_size=61)
    with pytest.raises(KeyboardInterrupt):
        run(config, data=digits, out=tmp_path, checkpoint_every=4, listener=CtrlCTwice(6))
    assert steps(tmp_path) == 4
    assert numbers(run(config, data=digits, out=tmp_path)) == numbers(run(config, data=digits))


class SetBetweenTwoLooks(threading.Event):
    """Is not set the first eleven times that it is asked, and set from then on, as by a signal at that moment."""

    asked = 0

    def is_set(self) -> bool:
        self.asked += 1
        return self.asked > 11


def test_a_run_that_says_it_has_stopped_has_a_checkpoint_of_that_step(digits: Dataset, tmp_path: Path) -> None:
    config = RunConfig(method="er", classes_per_task=5, batch_size=100, device="cpu")
    with pytest.raises(Interrupted) as stop:
        finish(steps_in_folder(config, digits, tmp_path, None, Listener(), SetBetweenTwoLooks()))
    assert f"stopped after {steps(tmp_path)} steps" in str(stop.value)


class Command:
    """`onebyone run` in a process of its own: 241 steps in five tasks, a checkpoint after every fifth."""

    def __init__(self, method: str, out: Path) -> None:
        self.out = out
        self.config = RunConfig(method=method, classes_per_task=2, batch_size=6, prequential=True)
        self.words = [sys.executable, "-m", "onebyone", "run", "--method", method, "--out", str(out)]
        self.words += ["--classes-per-task", "2", "--batch-size", "6", "--prequential", "--checkpoint-every", "5"]

    def start(self) -> "subprocess.Popen[str]":
        environment = os.environ | {"OMP_NUM_THREADS": "1"}  # as many threads as these tests have
        pipe = subprocess.PIPE
        return subprocess.Popen(self.words, stdout=pipe, stderr=pipe, text=True, env=environment)

    def stop(self, number: int, after: int) -> tuple[int, str]:
        """Start it and send it a signal once its checkpoint has this many steps; its exit code and its errors."""
        process = self.start()
        try:
            while steps(self.out) < after:
                assert process.poll() is None, process.communicate()
                time.sleep(0.002)
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        assert after <= steps(self.out) < 241
        assert not (self.out / "result.json").exists()
        return process.returncode, said

    def check(self) -> None:
        """The result is, bit for bit, that of a run which was never stopped."""
        uninterrupted = run(self.config)
        assert numbers(Result.read(self.out / "result.json")) == numbers(uninterrupted)
        assert names(self.out) == FILES


@pytest.mark.slow
def test_killed_twice_and_resumed(tmp_path: Path) -> None:
    command = Command("icarl", tmp_path)
    for after in (5, 100):
        assert command.stop(signal.SIGKILL, after) == (-signal.SIGKILL, "")
    done = command.start()
    out, said = done.communicate(timeout=120)
    assert (done.returncode, said) == (0, "")
    assert out.startswith("accuracy  ")
    command.check()


def test_killed_once_and_resumed(tmp_path: Path) -> None:
    command = Command("er", tmp_path)
    assert command.stop(signal.SIGKILL, 120) == (-signal.SIGKILL, "")
    run(command.config, out=tmp_path)
    command.check()


@pytest.mark.slow
def test_ctrl_c_on_the_command_line(tmp_path: Path) -> None:
    command = Command("ccp", tmp_path)
    code, said = command.stop(signal.SIGINT, 60)
    assert code == 130
    assert said == f"onebyone: stopped after {steps(tmp_path)} steps; the same command resumes from there\n"
    run(command.config, out=tmp_path)
    command.check()
