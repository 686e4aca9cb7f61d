"""A sweep that is killed or stopped with Ctrl-C, and started again."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from onebyone.engine.pack import NotNow
from onebyone.runs.claim import sole_use
from onebyone.runs.grid import expand, plan
from run_folders import GRID, check_results, steps

Call = Callable[..., tuple[int, str, str]]


class Command:
    """`onebyone sweep` on the grid, in a process group of its own, with a checkpoint after every fifth step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "grid.yaml").write_text(yaml.safe_dump(GRID))
        self.runs = [folder / "out" / name for name in plan(expand(GRID), "cpu")]
        self.words = [sys.executable, "-m", "onebyone", "sweep", str(folder / "grid.yaml")]
        self.words += ["--out", str(folder / "out"), "--jobs", "2", "--checkpoint-every", "5"]

    @contextmanager
    def start(self) -> Iterator["subprocess.Popen[bytes]"]:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}  # as many threads as these tests have
        # Not to pipes, which stay open until the last worker has closed them.
        with (self.folder / "stdout").open("w") as out, (self.folder / "stderr").open("w") as err:
            process = subprocess.Popen(self.words, stdout=out, stderr=err, env=environment, start_new_session=True)
        try:
            yield process
            process.wait(300)
        finally:
            process.kill()
            process.wait()

    @property
    def errors(self) -> str:
        return (self.folder / "stderr").read_text()

    def progress(self) -> int:
        """Steps that are on the disk, of 484."""
        return sum(121 if (run / "result.json").exists() else steps(run) for run in self.runs)

    def stop(self, send: Callable[["subprocess.Popen[bytes]"], None], after: int) -> tuple[int, str]:
        """Start it, and call this at a random time once this many steps are on disk. Returns exit code and stderr."""
        with self.start() as process:
            while self.progress() < after:
                assert process.poll() is None, self.errors
                time.sleep(0.005)
            time.sleep(random.uniform(0, 0.2))
            send(process)
        assert not all((run / "result.json").exists() for run in self.runs)
        return process.returncode, self.errors

    def finish(self, undisturbed: Mapping[str, Any]) -> None:
        with self.start() as process:
            process.wait(300)
        assert (process.returncode, self.errors) == (0, "")
        check_results(self.runs[0].parent, undisturbed)


@pytest.mark.slow
def test_killed_and_started_again(tmp_path: Path, undisturbed: Mapping[str, Any]) -> None:
    command = Command(tmp_path)
    code, errors = command.stop(subprocess.Popen.kill, 200)  # some runs are finished, and others have begun
    assert (code, errors) == (-signal.SIGKILL, "")
    for folder in command.runs:  # the workers exit, which unlocks their folders
        deadline = time.monotonic() + 60
        while folder.exists():
            with suppress(NotNow), sole_use(folder):
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
    command.finish(undisturbed)


@pytest.mark.slow
def test_ctrl_c_leaves_a_checkpoint_of_every_run(tmp_path: Path, undisturbed: Mapping[str, Any]) -> None:
    command = Command(tmp_path)
    command.words[-1] = "1000"  # no checkpoints but those of the stop
    with command.start() as process:
        while not (tmp_path / "stdout").read_text():  # one run has ended
            assert process.poll() is None, command.errors
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    finished = sum((run / "result.json").exists() for run in command.runs)
    sentence = f"stopped with {finished} of 4 runs finished; the same command resumes from there"
    assert (process.returncode, command.errors) == (130, f"onebyone: {sentence}\n")
    left = [run for run in command.runs if run.exists() and not (run / "result.json").exists()]
    assert left
    assert all(steps(run) > 0 for run in left)
    assert not any((run / "error.txt").exists() for run in left)
    command.finish(undisturbed)
