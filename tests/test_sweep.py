"""Grids, and many runs at once: what one by one would give, whatever happens to the sweep."""

import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from onebyone import Dataset, UsageError
from onebyone.cli.sweep_view import LiveTable
from onebyone.evaluation import Result
from onebyone.runs import RunConfig, run
from onebyone.runs.files import sole_use
from onebyone.runs.grid import expand, plan, read_grid
from onebyone.runs.run import Listener
from onebyone.runs.sweep import Watcher, packed, sweep
from onebyone.runs.workers import Failed, Standing, Task
from test_resume import names, numbers, steps

FILES = {".lock", "config.yaml", "curve.csv", "result.json"}
# 241 steps each, in five tasks
GRID = {"method": ["icarl", "ccp"], "seed": [0, 1], "classes_per_task": 2, "batch_size": 6, "prequential": True}
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def undisturbed(digits: Dataset) -> dict[str, dict[str, Any]]:
    """The runs of the grid, one by one, without a folder."""
    return {name: numbers(run(config, data=digits)) for name, config in plan(expand(GRID), "cpu").items()}


# --- grids


values = st.lists(st.integers(0, 9), min_size=1, max_size=3)


@given(seed=values, batch_size=values.map(lambda some: [n + 1 for n in some]), rates=st.lists(st.floats(0.1, 1)))
def test_a_grid_is_every_combination(seed: list[int], batch_size: list[int], rates: list[float]) -> None:
    grid: dict[str, Any] = {"method": "er", "seed": seed, "batch_size": batch_size}
    if rates:
        grid["options"] = {"learning_rate": rates, "augment": False}
    found = [(c.seed, c.batch_size, c.options.get("learning_rate")) for c in expand(grid)]
    assert found == list(product(seed, batch_size, rates or [None]))
    assert len(plan(expand(grid), "cpu")) == len(set(found))


def test_values_that_are_no_lists_and_lists_of_options() -> None:
    (only,) = expand({"method": "er"})
    assert only == RunConfig(method="er")
    assert expand({"method": "er", "options": None}) == [only]
    two = expand({"method": "er", "options": [{"learning_rate": [1, 2]}, {"augment": False}]})
    assert [config.options for config in two] == [{"learning_rate": 1}, {"learning_rate": 2}, {"augment": False}]


def test_what_comes_to_the_same_run_is_one() -> None:
    grid = {"method": ["finetune", "iid", "er"], "memory_per_class": [5, 20], "seed": [0, 1, 1]}
    runs = plan(expand(grid), "cpu")
    assert [name.split("-digits")[0] for name in runs] == ["finetune"] * 2 + ["iid"] * 2 + ["er"] * 4
    default = plan(expand({"method": "er"}), "cpu")
    assert plan(expand({"method": "er", "options": {"learning_rate": "1e-1", "augment": "yes"}}), "cpu") == default
    assert plan(expand({"method": "finetune", "memory_per_class": 7}), "cpu") == plan(
        expand({"method": "finetune"}), "cpu"
    )
    assert plan([RunConfig(method="er", device="cuda")], "cpu") == default
    texts = ["auto", "class-incremental", "blurry", "blurry:share=0.1", "blurry:share=0.2"]
    assert len(plan(expand({"method": "er", "stream": texts}), "cpu")) == 3
    assert plan(expand({"method": "er"}), "cuda") != default


def test_a_file_is_a_grid_or_a_list_of_grids(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text("method: er\nseed: [0, 1]\n")
    assert read_grid(path) == [RunConfig(method="er", seed=0), RunConfig(method="er", seed=1)]
    path.write_text("- method: er\n- method: ccp\n  options:\n    temperature: [1e-1, 0.2]\n")
    assert [config.method for config in read_grid(path)] == ["er", "ccp", "ccp"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "grid.yaml holds no grid, which is a list of names with values; write for example: method: [er, ccp]"),
        ("[]", "grid.yaml holds no grid"),
        ("[{method: er}, {}]", "grid.yaml holds no grid"),
        ("er", "grid.yaml holds no grid"),
        ("method: [er", "grid.yaml is not YAML (while parsing a flow sequence"),
        ("\x00", "grid.yaml is not YAML ("),
        ("methud: er", "grid.yaml: unknown name in a grid 'methud'; did you mean 'method'? Known: batch_size,"),
        ("1: 2", "grid.yaml: unknown name in a grid '1'; Known: "),
        ("device: cpu", "grid.yaml: device belongs to the sweep, not to its runs; remove it and use --device"),
        ("seed: []", "grid.yaml: seed is an empty list; give it a value"),
        ("options: {learning_rate: []}", "grid.yaml: learning_rate is an empty list; give it a value"),
        ("options: fast", "grid.yaml: options is 'fast'; it must hold names with values"),
        ("seed: [0, x]", "grid.yaml: seed is 'x'; it must be a whole number"),
        ("seed: {a: 1}", "grid.yaml: seed is {'a': 1}; it must be a whole number"),
        ("batch_size: 0", "grid.yaml: batch_size is 0; it must be at least 1"),
        ("method: [er, cpc]", "unknown method 'cpc'; did you mean 'ccp'?"),
        ("stream: [blurry, blury]", "unknown stream 'blury'; did you mean 'blurry'?"),
        ("stream: 3", "grid.yaml: stream is 3; it must be a name"),
        ("{method: [er, iid], stream: gaussian}", "iid learns a shuffled stream, not gaussian; leave --stream out or"),
        ("dataset: digit", "unknown data set 'digit'; did you mean 'digits'?"),
        ("{method: er, options: {temperatur: 1}}", "unknown option of er 'temperatur'; "),
        ("options: {learning_rate: [0.1, -1]}", "learning_rate is -1.0; it must be above 0"),
        ("options: {memory_per_class: 5}", "memory_per_class is an option of the run, not of the method"),
        ("{dataset: arrays}", "arrays"),
    ],
)
def test_a_bad_file_is_refused_before_anything_is_written(text: str, sentence: str, onebyone: Call) -> None:
    Path("grid.yaml").write_text(text)
    code, out, err = onebyone("sweep", "grid.yaml")
    assert (code, out) == (2, "")
    assert re.fullmatch(r"onebyone: [^\n]+\n", err)
    assert sentence in err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere.yaml",), "nowhere.yaml cannot be used (No such file or directory)"),
        (("grid.yaml", "--jobs", 0), "jobs is 0; it must be at least 1"),
        (("grid.yaml", "--checkpoint-every", 0), "checkpoint_every is 0; it must be at least 1"),
        (("grid.yaml", "--device", "gpu"), "device 'gpu' cannot be used"),
        (("grid.yaml", "--data-dir", "here"), "digits is inside the package; leave --data-dir out"),
    ],
)
def test_bad_words_are_refused(words: tuple[object, ...], sentence: str, onebyone: Call) -> None:
    Path("grid.yaml").write_text("method: er")
    code, out, err = onebyone("sweep", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"onebyone: {sentence}")
    assert not Path("runs").exists()


# --- worker processes


def test_a_sweep_is_its_runs_one_by_one_and_a_failure_is_its_own(
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
    assert names(folder / bad) == {".lock", "config.yaml", "error.txt"}
    trace = (folder / bad / "error.txt").read_text()
    assert trace.startswith("Traceback")
    assert trace.endswith("lower learning_rate\n")
    check(folder, undisturbed)

    # Finished runs are found again, and nothing is started for them.
    results = [folder / name / "result.json" for name in undisturbed]
    before = [path.stat().st_mtime_ns for path in results]
    (folder / next(iter(undisturbed)) / "error.txt").write_text("of long ago")
    Path("mine.yaml").write_text(yaml.safe_dump(GRID))
    monkeypatch.setattr(multiprocessing, "get_context", None)
    assert onebyone("sweep", "mine.yaml") == (0, f"4 of 4 runs are finished; see: onebyone table {folder}\n", "")
    assert [path.stat().st_mtime_ns for path in results] == before
    check(folder, undisturbed)


def check(folder: Path, undisturbed: Mapping[str, Any]) -> None:
    for name, expected in undisturbed.items():
        assert numbers(Result.read(folder / name / "result.json")) == expected
        assert names(folder / name) == FILES


def test_a_worker_that_is_killed_takes_only_its_run_with_it(tmp_path: Path) -> None:
    class Killer(Watcher):
        killed = False

        def moved(self, name: str, standing: Standing) -> None:
            if not self.killed:
                self.killed = True
                (worker,) = multiprocessing.active_children()
                worker.kill()

    configs = expand({"method": ["ccp", "finetune"], "batch_size": 50})
    first, second = sweep(configs, tmp_path, jobs=1, watcher=Killer()).items()
    assert isinstance(first[1], Failed)
    assert str(first[1]).startswith("its process ended with code -9; if there was not enough memory")
    assert "code -9" in (tmp_path / first[0] / "error.txt").read_text()
    assert isinstance(second[1], Result)
    assert names(tmp_path / second[0]) == FILES


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
        # Not to pipes, whose end would come only when the last worker has closed them.
        with (self.folder / "said").open("w") as out, (self.folder / "complaint").open("w") as err:
            process = subprocess.Popen(self.words, stdout=out, stderr=err, env=environment, start_new_session=True)
        try:
            yield process
            process.wait(60)
        finally:
            process.kill()
            process.wait()

    @property
    def complaint(self) -> str:
        return (self.folder / "complaint").read_text()

    def progress(self) -> int:
        """Steps that are on the disk, of 964."""
        return sum(241 if (run / "result.json").exists() else steps(run) for run in self.runs)

    def stop(self, send: Callable[["subprocess.Popen[bytes]"], None], after: int) -> tuple[int, str]:
        """Start it, do this to it at a random moment once it is so far; its exit code and what it complained of."""
        with self.start() as process:
            while self.progress() < after:
                assert process.poll() is None, self.complaint
                time.sleep(0.005)
            time.sleep(random.uniform(0, 0.2))
            send(process)
        assert not all((run / "result.json").exists() for run in self.runs)
        return process.returncode, self.complaint

    def finish(self, undisturbed: Mapping[str, Any]) -> None:
        with self.start() as process:
            process.wait(120)
        assert (process.returncode, self.complaint) == (0, "")
        check(self.runs[0].parent, undisturbed)


def test_killed_again_and_again(tmp_path: Path, undisturbed: Mapping[str, Any]) -> None:
    command = Command(tmp_path)
    for after in (10, 300, 600):
        assert command.stop(subprocess.Popen.kill, after) == (-signal.SIGKILL, "")
    time.sleep(1)  # by now no worker may have outlived the sweep
    for folder in command.runs:
        if folder.exists():
            with sole_use(folder):
                pass
    command.finish(undisturbed)


def test_ctrl_c_leaves_a_checkpoint_of_every_run(tmp_path: Path, undisturbed: Mapping[str, Any]) -> None:
    command = Command(tmp_path)
    command.words[-1] = "1000"  # no checkpoints but those of the stop
    with command.start() as process:
        while not (tmp_path / "said").read_text():  # one run has ended
            assert process.poll() is None, command.complaint
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    finished = sum((run / "result.json").exists() for run in command.runs)
    sentence = f"stopped with {finished} of 4 runs finished; the same command goes on from there"
    assert (process.returncode, command.complaint) == (130, f"onebyone: {sentence}\n")
    left = [run for run in command.runs if run.exists() and not (run / "result.json").exists()]
    assert left
    assert all(steps(run) > 0 for run in left)
    assert not any((run / "error.txt").exists() for run in left)

    command.words[-1] = "5"
    code, complaint = command.stop(lambda process: process.send_signal(signal.SIGINT), command.progress() + 50)
    assert code == 130
    assert re.fullmatch(r"onebyone: stopped with \d of 4 runs finished; [^\n]+\n", complaint)
    command.finish(undisturbed)


# --- one process


def pack_of(
    width: int, configs: list[RunConfig], data: Dataset, out: Path, stopped: threading.Event | None = None
) -> dict[str, Result | Failed]:
    outcomes: dict[str, Result | Failed] = {}
    task = Task(out, None, "cpu", 500)
    moved: dict[str, Standing] = {}
    runs = plan(configs, "cpu")
    packed(runs, task, lambda *_: data, width, stopped or threading.Event(), moved.__setitem__, outcomes.__setitem__)
    assert all(0 <= standing.done <= standing.samples for standing in moved.values())
    return {name: outcomes[name] for name in runs if name in outcomes}


def test_a_pack_gives_what_its_runs_give_alone(few: Dataset, tmp_path: Path) -> None:
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
def test_a_step_has_as_many_threads_as_in_a_run_by_itself(batch_size: int, few: Dataset, tmp_path: Path) -> None:
    """Another number of threads adds in another order, and small steps are slow with more than one."""

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
        task = Task(tmp_path, None, "cpu", 500)
        for _ in task.steps("one", config, lambda *_: few, Count(), threading.Event()):
            pass
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert seen == alone
    assert set(seen) == {1 if batch_size == 10 else 2}


def test_a_success_removes_what_a_failure_left(few: Dataset, tmp_path: Path) -> None:
    configs = expand({"method": "er", "classes_per_task": 5})
    (name,) = plan(configs, "cpu")
    (tmp_path / name).mkdir()
    (tmp_path / name / "error.txt").write_text("of long ago")
    (tmp_path / name / ".error.txt.xyz").write_text("of a kill")
    pack_of(1, configs, few, tmp_path)
    assert names(tmp_path / name) == FILES


def test_a_pack_that_is_stopped_goes_on(few: Dataset, tmp_path: Path) -> None:
    configs = expand({"method": "ccp", "seed": [0, 1, 2], "classes_per_task": 5})
    whole = pack_of(2, configs, few, tmp_path / "whole")

    class Stop(threading.Event):
        """Set once it was asked often enough: two runs have begun, the third waits."""

        asked = 0

        def is_set(self) -> bool:
            self.asked += 1
            return self.asked > 22

    out = tmp_path / "stopped"
    assert pack_of(2, configs, few, out, Stop()) == {}
    assert [steps(out / name) > 0 for name in whole] == [True, True, False]
    rest = pack_of(2, configs, few, out)
    assert [asdict(one) | {"seconds": 0} for one in rest.values()] == [
        asdict(one) | {"seconds": 0} for one in whole.values()
    ]


def test_what_another_process_is_at_is_left_to_it_and_taken_up_if_it_ends(tmp_path: Path, few: Dataset) -> None:
    configs = expand({"method": "er", "seed": [0, 1], "classes_per_task": 5})
    first, second = plan(configs, "cpu")
    order: list[str] = []
    stopped = threading.Event()
    with ExitStack() as other:
        other.enter_context(sole_use(tmp_path / first))

        def ended(name: str, outcome: Result | Failed) -> None:
            assert isinstance(outcome, Result)
            order.append(name)
            if name == second:
                assert names(tmp_path / first) == {".lock"}  # nothing of ours in a folder of another
                other.close()

        task = Task(tmp_path, None, "cpu", 500)
        packed(plan(configs, "cpu"), task, lambda *_: few, 2, stopped, lambda *_: None, ended)
    assert order == [second, first]


def test_two_processes_share_a_sweep(tmp_path: Path) -> None:
    """Each has all results in the end, and every run was done once."""
    configs = expand({"method": "finetune", "seed": list(range(6)), "batch_size": 100})
    begun: list[str] = []

    class Note(Watcher):
        def moved(self, name: str, standing: Standing) -> None:
            if standing.done == 0:
                begun.append(name)

    def share() -> dict[str, Result | Failed]:
        return sweep(configs, tmp_path, device="cpu", jobs=1, watcher=Note())

    with ThreadPoolExecutor(2) as threads:
        one, other = [each.result() for each in [threads.submit(share), threads.submit(share)]]
    assert sorted(begun) == sorted(one)
    assert all(isinstance(outcome, Result) for outcome in one.values())
    assert one == other


def test_a_stop_is_heard_while_others_are_at_all_that_is_left(tmp_path: Path, few: Dataset) -> None:
    configs = expand({"method": "er", "classes_per_task": 5})
    (name,) = plan(configs, "cpu")
    stopped = threading.Event()
    threading.Timer(0.2, stopped.set).start()
    with sole_use(tmp_path / name):
        assert pack_of(1, configs, few, tmp_path, stopped) == {}
        assert stopped.is_set()


def test_a_folder_that_cannot_be_is_a_failure(tmp_path: Path, few: Dataset) -> None:
    (tmp_path / "file").write_text("")
    (outcome,) = pack_of(1, expand({"method": "er"}), few, tmp_path / "file").values()
    assert isinstance(outcome, Failed)
    assert "cannot be written" in str(outcome)


def test_a_sweep_of_nothing(tmp_path: Path) -> None:
    assert sweep([], tmp_path / "out") == {}
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="unknown method"):
        sweep([RunConfig(method="er"), RunConfig(method="re")], tmp_path / "out")


# --- the live table


@pytest.fixture(scope="module")
def result(few: Dataset) -> Result:
    return run(RunConfig(method="finetune", classes_per_task=10), data=few)


@pytest.mark.parametrize("ended", [0, 3, 40])
def test_the_live_table_fits_the_screen(ended: int, result: Result) -> None:
    now = 0.0
    view = LiveTable(clock=lambda: now)
    screen = Console(file=StringIO(), width=80, height=24)

    def lines() -> list[str]:
        with screen.capture() as shown:
            screen.print(view)
        return shown.get().splitlines()

    assert lines() == ["reading the data"]
    done = [f"er-cifar100-s1-m20-seed{n}-01234567" for n in range(ended)]
    view.planned(["supbyol-cifar100-s10-m100-seed11-76543210", "ccp", "er", "wild"], dict.fromkeys(done, result))
    assert lines()[-1] == f"{ended} of {ended + 4} finished"
    view.moved("supbyol-cifar100-s10-m100-seed11-76543210", Standing(1000, 100))
    view.moved("ccp", Standing(1000, 0))
    view.ended("wild", Failed("too fast"))
    now = 10.0
    view.moved("ccp", Standing(1000, 400, 0.25))
    shown = lines()
    assert len(shown) == min(ended, 18) + 5
    assert max(map(len, shown)) <= 80
    assert [line.split() for line in shown[-4:-1]] == [
        ["wild", "failed", "–", "–"],
        ["supbyol-cifar100-s10-m100-seed11-76543210", "running", "10", "%", "–"],
        ["ccp", "running", "40", "%", "25.0", "%"],
    ]
    known = 2000 + ended * result.samples
    left = 900 + 600 + known / (2 + ended)  # and one that waits
    seconds = round(left / 40)
    footer = f"{ended} of {ended + 4} finished, 1 failed, 40 samples/s, 0:{seconds // 60:02}:{seconds % 60:02} left"
    assert shown[-1] == footer
    view.ended("ccp", result)
    assert ["ccp", "finished", "100", "%"] in [line.split()[:4] for line in lines()]
