"""Trackers: what they are told, in fakes and in the real back ends, and that their failures stop nothing."""

import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from onebyone import Dataset
from onebyone.evaluation import Result
from onebyone.executors import Failed
from onebyone.runs import RunConfig, run
from onebyone.runs.grid import expand
from onebyone.runs.listener import Listener, together
from onebyone.runs.sweep import sweep
from onebyone.runs.trackers import (
    CURVE,
    MLflow,
    Points,
    TensorBoard,
    TrackedRun,
    TrackedSweep,
    Tracker,
    WandB,
    curve_figure,
    flat,
    tracker_named,
)
from run_folders import numbers

pytestmark = pytest.mark.usefixtures("_in_this_process")

CONFIG = RunConfig(method="er", classes_per_task=5, device="cpu")


class Memo(Tracker):
    """Remembers what it is told; fails at the call of this number."""

    def __init__(self, fails_at: int = 1000) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.fails_at = fails_at

    def tell(self, *what: Any) -> None:
        if len(self.told) == self.fails_at:
            self.fails_at = 0
            raise ConnectionError("the server is gone\nand more")
        self.told.append(what)

    def open(self, name: str, config: Mapping[str, Any], sweep: str | None) -> str:
        self.tell("open", name, dict(config), sweep)
        return name

    def point(self, run: Any, samples: int, accuracy: float) -> None:
        self.tell("point", run, samples, accuracy)

    def close(self, run: Any, result: Result | None, points: Points) -> None:
        self.tell("close", run, result)

    def close_sweep(self) -> None:
        self.tell("close sweep")


def test_a_run_is_tracked(few: Dataset) -> None:
    memo = Memo()
    result = run(CONFIG, data=few, listener=TrackedRun("mine", [memo]))
    points = list(zip((60, 120), result.anytime, strict=True))
    assert memo.told == [
        ("open", "mine", result.config, None),
        *(("point", "mine", *point) for point in points),
        ("close", "mine", result),
    ]


def test_a_resumed_run_has_a_whole_curve(few: Dataset, tmp_path: Path) -> None:
    class Stop(Listener):
        def evaluated(self, task: int, accuracy: float) -> None:
            raise KeyboardInterrupt

    first = Memo()
    tracked = together(TrackedRun("mine", [first]), Stop())
    with pytest.raises(KeyboardInterrupt):
        run(CONFIG, data=few, out=tmp_path, checkpoint_every=1, listener=tracked)
    assert first.told[-1] == ("close", "mine", None)
    memo = Memo()
    result = run(CONFIG, data=few, out=tmp_path, listener=TrackedRun("mine", [memo]))
    points = zip((60, 120), result.anytime, strict=True)
    assert sorted(memo.told[1:-1]) == [("point", "mine", *point) for point in points]
    again = Memo()
    assert run(CONFIG, data=few, out=tmp_path, listener=TrackedRun("mine", [again])) == result
    assert again.told == []  # it had finished before


@pytest.mark.parametrize("fails_at", range(4))
def test_a_tracker_that_fails_changes_no_result(fails_at: int, few: Dataset) -> None:
    alone = run(CONFIG, data=few)
    memo, other = Memo(fails_at), Memo()
    with pytest.warns(UserWarning, match=r"tracking with Memo failed \(the server is gone\)") as warned:
        result = run(CONFIG, data=few, listener=TrackedRun("mine", [memo, other]))
    assert len(warned) == 1
    assert numbers(result) == numbers(alone)
    assert len(memo.told) == fails_at
    assert len(other.told) == 4


def test_a_tracker_that_fails_where_warnings_are_errors(few: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    run(CONFIG, data=few, listener=TrackedRun("mine", [Memo(1)]))  # as in these tests
    assert capsys.readouterr().err.count("tracking with Memo failed") == 1


def test_a_sweep_is_tracked(tmp_path: Path) -> None:
    configs = expand({"method": "finetune", "seed": [0, 1], "batch_size": 200})
    configs += expand({"method": "er", "options": {"learning_rate": 1e30}})
    memo = Memo()
    done = sweep(configs, tmp_path, device="cpu", jobs=1, listener=TrackedSweep(tmp_path, [memo]))
    assert memo.told[-1] == ("close sweep",)
    for name, outcome in done.items():
        told = [each for each in memo.told if each[1:2] == (name,)]
        assert told[0][0] == "open"
        assert told[0][3] == str(tmp_path)
        if isinstance(outcome, Failed):
            assert told[1:] == [("close", name, None)]
        else:
            assert told[-1] == ("close", name, outcome)
            assert [accuracy for *_, accuracy in told[1:-1]] == pytest.approx(list(outcome.anytime), abs=1e-6)
            assert told[-2][2] == outcome.samples
    again = Memo()
    sweep(configs[:2], tmp_path, device="cpu", listener=TrackedSweep(tmp_path, [again]))
    assert again.told == [("close sweep",)]  # both were tracked before


@pytest.mark.parametrize("name", ["mlflow", "wandb", "tensorboard"])
def test_a_tracker_whose_package_is_missing(
    name: str, refuse: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, {"tensorboard": "torch.utils.tensorboard"}.get(name, name), None)
    text = name + ":logs" * (name == "tensorboard")
    assert f"pip install {name}" in refuse("run", "--track", text)
    Path("grid.yaml").write_text("method: er\n")
    assert f"pip install {name}" in refuse("sweep", "grid.yaml", "--track", text)
    assert "unknown tracker 'neptune'" in refuse("run", "--track", "neptune")
    assert "needs a folder" in refuse("run", "--track", "tensorboard")


def test_the_figure_has_the_points(few: Dataset) -> None:
    (line,) = curve_figure(run(CONFIG, data=few), [(60, 0.5), (120, 0.4)]).axes[0].lines
    assert line.get_xydata().tolist() == [[60, 0.5], [120, 0.4]]


GRID = {"method": "finetune", "seed": [0, 1], "batch_size": 200}
real = pytest.mark.filterwarnings("default")  # those of the back ends


@pytest.mark.slow
@real
def test_mlflow(onebyone: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep, a second one that finds the parent, and a run, read back by MLflow's client from SQLite."""
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    for seeds in ([0], [0, 1]):
        Path("grid.yaml").write_text(yaml.safe_dump(GRID | {"seed": seeds}))
        code, _, err = onebyone("sweep", "grid.yaml", "--track", "mlflow", "--device", "cpu")
        assert code == 0, err
        assert "failed" not in err
    assert onebyone("run", "--method", "er", "--batch-size", 100, "--track", "mlflow", "--device", "cpu")[0] == 0
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("onebyone")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = [each for each in runs if "onebyone.sweep" in each.data.tags]
    children = [each for each in runs if each.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    (single,) = [each for each in runs if each not in [parent, *children]]
    assert parent.info.run_name == "grid"
    assert parent.info.status == "FINISHED"
    assert sorted(each.data.params["seed"] for each in children) == ["0", "1"]
    for each in [*children, single]:
        assert each.info.status == "FINISHED"
        folder = Path("runs") / ("grid" if each is not single else "") / each.info.run_name
        result = Result.read(folder / "result.json")
        assert each.data.params == {key: str(value) for key, value in flat(result.config).items()}
        assert each.data.metrics["accuracy"] == result.accuracy
        assert each.data.tags["environment.torch"] == result.environment["torch"]
        history = client.get_metric_history(each.info.run_id, CURVE)
        assert [point.value for point in history] == pytest.approx(list(result.anytime), abs=1e-6)
        assert history[-1].step == result.samples
        assert [file.path for file in client.list_artifacts(each.info.run_id)] == ["curve.png"]


@pytest.mark.slow
@real
def test_tensorboard(onebyone: Callable[..., Any]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    Path("grid.yaml").write_text(yaml.safe_dump(GRID))
    assert onebyone("sweep", "grid.yaml", "--track", "tensorboard:logs", "--device", "cpu")[0] == 0
    folders = sorted(Path("logs").iterdir())
    assert len(folders) == 2
    for folder in folders:
        result = Result.read(Path("runs/grid") / folder.name / "result.json")
        events = EventAccumulator(str(folder)).Reload()
        points = events.Scalars(CURVE)
        assert [point.value for point in points] == pytest.approx(list(result.anytime), abs=1e-6)
        assert points[-1].step == result.samples
        assert events.Scalars("accuracy")[0].value == pytest.approx(result.accuracy)
        assert events.Tags()["images"] == ["curve"]
        assert {"configuration/text_summary", "environment/text_summary"} <= set(events.Tags()["tensors"])


@pytest.mark.slow
@real
def test_wandb_offline(few: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)  # as in a process that has drawn nothing yet
    monkeypatch.delattr(matplotlib, "pyplot", raising=False)
    alone = run(CONFIG, data=few)
    with warnings.catch_warnings(record=True) as warned:
        result = run(CONFIG, data=few, listener=TrackedRun("mine", [WandB(tmp_path)]))
    assert not [str(each.message) for each in warned if "failed" in str(each.message)]
    assert numbers(result) == numbers(alone)
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    deadline = time.monotonic() + 120
    while not all(text in file.read_bytes() for text in (CURVE.encode(), b"memory_per_class", b"average_anytime")):
        assert time.monotonic() < deadline  # another process writes it
        time.sleep(0.1)
    (image,) = tmp_path.glob("wandb/offline-run-*/files/media/images/*.png")
    assert image.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@real
def test_real_trackers_by_name(tmp_path: Path) -> None:
    assert isinstance(tracker_named(f"mlflow:sqlite:///{tmp_path / 'a.db'}"), MLflow)
    assert isinstance(tracker_named(f"tensorboard:{tmp_path}"), TensorBoard)
    assert isinstance(tracker_named("wandb"), WandB)
