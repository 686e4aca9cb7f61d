"""Sweeps on real Ray clusters of two nodes on this machine, with nodes and drivers that are killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from onebyone import Dataset, OnlineClassifier
from onebyone.distributed import fit
from onebyone.evaluation import Result
from onebyone.runs.executors import Assignment, Failed, RayExecutor, Status
from onebyone.runs.executors.interface import Worker
from onebyone.runs.grid import expand, plan
from onebyone.runs.job import Setup
from onebyone.runs.run import Interrupted
from onebyone.runs.sweep import SweepListener, sweep
from run_folders import FILES, GRID, check_results, names, numbers, steps

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # those of Ray
RUNS = {"method": ["finetune", "er"], "seed": list(range(12)), "batch_size": 40}  # 24 runs of 36 steps


class Nodes(SweepListener):
    """The runs that each node has worked on."""

    def __init__(self) -> None:
        self.of: dict[str, set[str]] = {}
        self.ends: list[str] = []

    def progressed(self, name: str, status: Status) -> None:
        self.of.setdefault(status.node, set()).add(name)

    def ended(self, name: str, outcome: Result | Failed) -> None:
        self.ends.append(name)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster with a head and one more node, each with one CPU and one simulated GPU."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 1})
    made.add_node(num_cpus=1, num_gpus=1)
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The numbers of a local sweep."""
    done = sweep(expand(RUNS), tmp_path_factory.mktemp("local"), device="cpu", jobs=2)
    assert all(isinstance(outcome, Result) for outcome in done.values())
    return {name: numbers(outcome) for name, outcome in done.items() if isinstance(outcome, Result)}


class Driver:
    """`onebyone sweep --executor ray`, in a process of its own."""

    def __init__(self, folder: Path, grid: Mapping[str, Any], address: str) -> None:
        self.out, self.log = folder / "out", folder / "log"
        (folder / "grid.yaml").write_text(yaml.safe_dump(grid))
        self.runs = [self.out / name for name in plan(expand(grid), "cpu")]
        self.words = [sys.executable, "-m", "onebyone", "sweep", str(folder / "grid.yaml"), "--out", str(self.out)]
        self.words += ["--executor", "ray", "--address", address, "--device", "cpu", "--checkpoint-every", "5"]

    def start(self) -> "subprocess.Popen[bytes]":
        with self.log.open("w") as log:
            return subprocess.Popen(self.words, stdout=log, stderr=log, start_new_session=True)

    def finished(self) -> dict[Path, int]:
        """The finished runs, and when they were."""
        return {run: (run / "result.json").stat().st_mtime_ns for run in self.runs if (run / "result.json").exists()}

    def wait(self, process: "subprocess.Popen[bytes]", until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 300
        while not until():
            assert process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)


def test_a_sweep_survives_a_node_and_a_driver(cluster: Any, tmp_path: Path, local: Mapping[str, Any]) -> None:
    """The first acceptance test of issue 19: 24 runs, one node removed, the driver killed, the same bits."""
    driver = Driver(tmp_path, RUNS, cluster.address)
    extra = cluster.add_node(num_cpus=1)
    process = driver.start()
    driver.wait(process, lambda: len(driver.finished()) >= 4)
    cluster.remove_node(extra, allow_graceful=False)
    driver.wait(process, lambda: len(driver.finished()) >= 9)
    process.kill()
    process.wait()
    before = driver.finished()
    assert len(before) < 24
    process = driver.start()
    assert process.wait(600) == 0, driver.log.read_text()
    assert "24 of 24 runs are finished" in driver.log.read_text()
    after = driver.finished()
    # A run in flight when the driver died may have finished after this process looked.
    assert {run: after[run] for run in before} == before
    check_results(driver.out, local)


def test_both_nodes_work_and_nothing_is_shared_but_ray(
    cluster: Any, tmp_path: Path, undisturbed: Mapping[str, Any]
) -> None:
    """Nodes that do not see the folder send files to the driver, which locks the folders and writes them."""
    watch, executor = Nodes(), RayExecutor(cluster.address, shared=False)
    done = sweep(expand(GRID), tmp_path, device="cpu", executor=executor, listener=watch)
    assert len(watch.of) == 2  # Ray spreads the tasks, and each lasts longer than the time between two reports
    assert all(names(tmp_path / name) == FILES for name in done)
    assert {name: numbers(one) for name, one in done.items() if isinstance(one, Result)} == dict(undisturbed)


def test_a_stop_leaves_checkpoints_that_the_driver_wrote(
    cluster: Any, tmp_path: Path, undisturbed: Mapping[str, Any]
) -> None:
    """Ctrl-C in a sweep whose nodes do not see its folder, then the same sweep again."""

    class Stop(Nodes):
        asked = False

        def progressed(self, name: str, status: Status) -> None:
            if status.done > 100 and not self.asked:
                self.asked = True
                os.kill(os.getpid(), signal.SIGINT)

    executor = RayExecutor(cluster.address, shared=False)
    with pytest.raises(Interrupted, match=r"stopped with \d of 4 runs finished"):
        sweep(expand(GRID), tmp_path, device="cpu", executor=executor, listener=Stop())
    left = [name for name in undisturbed if (tmp_path / name / "config.yaml").exists()]
    assert any(steps(tmp_path / name) > 0 for name in left)
    sweep(expand(GRID), tmp_path, device="cpu", executor=executor)
    check_results(tmp_path, undisturbed)


def test_a_parallel_fit_on_ray(cluster: Any, digits: Dataset, tmp_path: Path) -> None:
    """Shards of a ray.data.Dataset, and a worker process that is killed once: the scores of one pass."""
    import ray.data

    x, y = digits.train_x.numpy(), digits.train_y.numpy()
    single = OnlineClassifier().partial_fit(x, y)
    mark, driver = tmp_path / "killed", os.getpid()

    def kill_once() -> Iterator[tuple[Any, Any]]:
        yield x[1000:], y[1000:].tolist()
        if os.getpid() != driver and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    with RayExecutor(cluster.address) as executor:
        rows = [{"image": image, "label": label} for image, label in zip(x[:1000], y[:1000].tolist(), strict=True)]
        data = ray.data.from_items(rows, override_num_blocks=3)
        clf = fit(OnlineClassifier(device="cpu"), data, columns=("image", "label"), executor=executor)
        assert clf.n_samples_seen_ == 1000
        fit(clf, [kill_once], executor=executor)
    assert mark.exists()
    scores = clf.decision_function(digits.test_x)
    np.testing.assert_allclose(scores, single.decision_function(digits.test_x), rtol=1e-9, atol=1e-9)


def all_is_free(resource: str) -> bool:
    """Whether Ray has got all of a resource back: nothing runs any more."""
    import ray

    deadline = time.monotonic() + 120
    while ray.available_resources().get(resource) != ray.cluster_resources()[resource]:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_ctrl_c_in_a_terminal_stops_all_of_it(cluster: Any, tmp_path: Path) -> None:
    import ray

    driver = Driver(tmp_path, GRID, cluster.address)
    driver.words[-1] = "1000"  # no checkpoints but those of the stop
    process = driver.start()
    driver.wait(process, lambda: sum((run / "config.yaml").exists() for run in driver.runs) >= 2)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(300) == 130
    assert "the same command resumes from there" in driver.log.read_text()
    left = [run for run in driver.runs if run.exists() and not (run / "result.json").exists()]
    assert left
    assert all(steps(run) > 0 for run in left)
    ray.init(cluster.address, log_to_driver=False)
    try:
        assert all_is_free("CPU")
    finally:
        ray.shutdown()


def actors(cluster: Any) -> list[int]:
    """The processes of the packs."""
    raylets = [str(node.all_processes["raylet"][0].process.pid) for node in cluster.list_all_nodes()]
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title, parent = (folder / "cmdline").read_text(), (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
        except OSError:
            continue
        if "ray::PackActor" in title and parent in raylets:
            found.append(int(folder.name))
    return found


def test_on_gpus_an_actor_per_gpu_advances_a_pack(
    cluster: Any, digits: Dataset, tmp_path: Path, undisturbed: Mapping[str, Any]
) -> None:
    """Ray believes that both nodes have a GPU; the runs are on the CPU. One of the two actors is killed."""
    runs, processes = plan(expand(GRID), "cpu"), tmp_path / "processes"

    class Together(Setup):
        def start(self, name: str, config: Any, worker: Worker) -> Any:
            """Wait for the other actor, which may need longer to start than this one for all runs."""
            processes.mkdir(exist_ok=True)
            (processes / str(os.getpid())).touch()
            while len(list(processes.iterdir())) < 2:
                time.sleep(0.05)
            return Setup.start(self, name, config, worker)

    setup = Together(tmp_path / "out", None, "cpu", 5)
    at_once: list[int] = []
    running: dict[str, str] = {}
    outcomes: dict[str, Any] = {}
    killed: list[int] = []

    def progressed(name: str, status: Status) -> None:
        running[name] = status.node
        at_once.append(list(running.values()).count(status.node))
        if len(set(running.values())) == 2 and not killed:
            assert len(actors(cluster)) == 2
            killed.append(actors(cluster)[0])
            os.kill(killed[0], signal.SIGKILL)

    def ended(name: str, outcome: Any) -> None:
        outcomes[name] = outcome
        running.pop(name, None)

    asked = Assignment(setup, runs, progressed, ended, jobs=3, on_gpu=True, kept={("digits", False): digits})
    with RayExecutor(cluster.address) as executor:
        assert executor.device("auto") == "cuda"
        executor.execute(asked)
        assert all_is_free("GPU")
    assert killed
    assert max(at_once) == 2  # four runs on two GPUs
    assert {name: numbers(one) for name, one in outcomes.items()} == dict(undisturbed)
