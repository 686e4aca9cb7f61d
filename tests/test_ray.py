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
from onebyone.executors import Failed, RayExecutor, Status, Worker
from onebyone.runs.grid import expand, plan
from onebyone.runs.listener import Listener
from onebyone.runs.run import Interrupted
from onebyone.runs.sweep import DoRun, sweep
from run_folders import FILES, GRID, check_results, names, numbers, steps

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # those of Ray
RUNS = {"method": ["finetune", "er"], "seed": list(range(12)), "batch_size": 40}  # 24 runs of 36 steps


class Nodes(Listener):
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


def test_two_drivers_share_a_sweep(cluster: Any, tmp_path: Path, local: Mapping[str, Any]) -> None:
    """On a shared disk, a run's folder is its claim: both drivers have all results, and no run is done twice."""
    runs = RUNS | {"seed": list(range(4))}
    drivers = [Driver(tmp_path, runs, cluster.address) for _ in range(2)]
    drivers[1].log = tmp_path / "other log"
    seen: dict[Path, int] = {}
    processes = [driver.start() for driver in drivers]
    while any(process.poll() is None for process in processes):
        seen = drivers[0].finished() | seen
        time.sleep(0.02)
    for driver, process in zip(drivers, processes, strict=True):
        assert process.returncode == 0, driver.log.read_text()
        assert "8 of 8 runs are finished" in driver.log.read_text()
    assert drivers[0].finished() == drivers[0].finished() | seen
    check_results(drivers[0].out, {run.name: local[run.name] for run in drivers[0].runs})


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


def packs(cluster: Any) -> list[int]:
    """The processes of the packs."""
    raylets = [str(node.all_processes["raylet"][0].process.pid) for node in cluster.list_all_nodes()]
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title, parent = (folder / "cmdline").read_text(), (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
        except OSError:
            continue
        if "ray::do_items" in title and parent in raylets:
            found.append(int(folder.name))
    return found


def test_on_gpus_a_task_per_gpu_advances_a_pack(
    cluster: Any, digits: Dataset, tmp_path: Path, undisturbed: Mapping[str, Any]
) -> None:
    """Ray believes that both nodes have a GPU; the runs are on the CPU. One of the two tasks is killed."""
    processes = tmp_path / "processes"

    class Together(DoRun):
        def __call__(self, name: str, item: Any, worker: Worker) -> Any:
            """Wait for the other task, which may need longer to start than this one for all runs."""
            processes.mkdir(exist_ok=True)
            (processes / str(os.getpid())).touch()
            while len(list(processes.iterdir())) < 2:
                time.sleep(0.05)
            return DoRun.__call__(self, name, item, worker)

    do_run = Together(tmp_path / "out", None, "cpu", 5, data={("digits", False): digits})
    items = {name: (config, {}) for name, config in plan(expand(GRID), "cpu").items()}
    running: dict[str, str] = {}
    killed: list[int] = []

    def progressed(name: str, status: Status) -> None:
        running[name] = status.node
        if sorted(map(list(running.values()).count, set(running.values()))) == [2, 2] and not killed:
            assert len(packs(cluster)) == 2
            killed.append(packs(cluster)[0])
            os.kill(killed[0], signal.SIGKILL)

    with RayExecutor(cluster.address) as executor:
        assert executor.device("auto") == "cuda"
        outcomes = dict(executor.map(do_run, items, jobs=3, gpu=True, progressed=progressed))
        assert all_is_free("GPU")
    assert killed  # four runs on two GPUs were two packs of two
    assert {name: numbers(one) for name, one in outcomes.items()} == dict(undisturbed)
