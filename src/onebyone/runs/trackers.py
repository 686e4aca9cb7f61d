"""Trackers: runs and sweeps in MLflow, TensorBoard or Weights & Biases, as listeners.

A tracker that fails is reported once and then left out; it never stops a run.
"""

from __future__ import annotations

import hashlib
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onebyone.errors import UsageError, unknown
from onebyone.evaluation import Result
from onebyone.executors import Failed
from onebyone.runs.folder import CURVE as CURVE_FILE
from onebyone.runs.listener import Listener

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE = "anytime_accuracy"
PROJECT = "onebyone"
SUMMARY = ("accuracy", "forgetting", "average_anytime", "prequential")
Points = Sequence[tuple[int, float]]  # of the anytime curve: samples, and the accuracy after them


class Tracker(ABC):
    """The interface of trackers. Derive your own from it."""

    @abstractmethod
    def open(self, name: str, config: Mapping[str, Any], sweep: str | None) -> Any:
        """Begin a run.

        Parameters
        ----------
        name
            Name of the run.
        config
            The configuration, as it is recorded.
        sweep
            The folder of the sweep that the run belongs to, if there is one.

        Returns
        -------
        object
            The run, as the other methods take it.
        """

    @abstractmethod
    def point(self, run: Any, samples: int, accuracy: float) -> None:
        """Record a point of the anytime curve.

        Parameters
        ----------
        run
            What ``open`` returned.
        samples, accuracy
            The accuracy over the classes seen so far, after this number of samples.
        """

    @abstractmethod
    def close(self, run: Any, result: Result | None, points: Points) -> None:
        """End a run.

        Parameters
        ----------
        run
            What ``open`` returned.
        result
            None if the run failed or was stopped.
        points
            The anytime curve: samples, and the accuracy after them.
        """

    def close_sweep(self) -> None:  # noqa: B027  # most have nothing to do
        """End the sweep, if there was one."""


class MLflow(Tracker):
    """Tracker that records runs in MLflow, in the experiment ``onebyone``. A sweep is a parent run.

    Parameters
    ----------
    uri
        Where MLflow stores runs. None: the variable ``MLFLOW_TRACKING_URI``, or MLflow's default.
    """

    def __init__(self, uri: str | None = None) -> None:
        try:
            import mlflow
        except ImportError as error:
            raise UsageError(f"tracking with mlflow needs MLflow ({error}); pip install mlflow") from None
        self.client = mlflow.MlflowClient(uri)
        self.parent: str | None = None

    def open(self, name: str, config: Mapping[str, Any], sweep: str | None) -> str:
        parent = None if sweep is None else self.parent or self.open_parent(sweep)
        tags = {} if parent is None else {"mlflow.parentRunId": parent}
        run = self.start(name, tags)
        for key, value in flat(config).items():
            self.client.log_param(run, key, value)
        return run

    def open_parent(self, sweep: str) -> str:
        query = f"tags.`onebyone.sweep` = '{sweep}'"
        found = self.client.search_runs([self.experiment()], query, max_results=1)
        self.parent = found[0].info.run_id if found else self.start(Path(sweep).name, {"onebyone.sweep": sweep})
        self.client.update_run(self.parent, "RUNNING")
        return self.parent

    def start(self, name: str, tags: Mapping[str, str]) -> str:
        run = self.client.create_run(self.experiment(), tags=dict(tags), run_name=name)
        return str(run.info.run_id)

    def experiment(self) -> str:
        found = self.client.get_experiment_by_name(PROJECT)
        return str(found.experiment_id if found is not None else self.client.create_experiment(PROJECT))

    def point(self, run: str, samples: int, accuracy: float) -> None:
        self.client.log_metric(run, CURVE, accuracy, step=samples)

    def close(self, run: str, result: Result | None, points: Points) -> None:
        if result is not None:
            for name, value in final_numbers(result).items():
                self.client.log_metric(run, name, value)
            for name, text in result.environment.items():
                self.client.set_tag(run, f"environment.{name}", text)
            self.client.log_figure(run, curve_figure(result, points), "curve.png")
        self.client.set_terminated(run, "FAILED" if result is None else "FINISHED")

    def close_sweep(self) -> None:
        if self.parent is not None:
            self.client.set_terminated(self.parent)


class TensorBoard(Tracker):
    """Tracker that writes event files of TensorBoard.

    Parameters
    ----------
    folder
        Each run has a sub-folder of it.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UsageError(
                f"tracking with tensorboard needs TensorBoard ({error}); pip install tensorboard"
            ) from None
        self.folder, self.writer = Path(folder), SummaryWriter

    def open(self, name: str, config: Mapping[str, Any], sweep: str | None) -> Any:
        run = self.writer(str(self.folder / name))
        lines = [f"| {key} | {value} |" for key, value in flat(config).items()]
        run.add_text("configuration", "\n".join(["| name | value |", "|---|---|", *lines]))
        return run

    def point(self, run: Any, samples: int, accuracy: float) -> None:
        run.add_scalar(CURVE, accuracy, samples)
        run.flush()

    def close(self, run: Any, result: Result | None, points: Points) -> None:
        if result is not None:
            for name, value in final_numbers(result).items():
                run.add_scalar(name, value, result.samples)
            lines = [f"| {key} | {value} |" for key, value in result.environment.items()]
            run.add_text("environment", "\n".join(["| name | value |", "|---|---|", *lines]))
            run.add_figure("curve", curve_figure(result, points))
        run.close()


class WandB(Tracker):
    """Tracker that records runs in Weights & Biases, in the project ``onebyone``. The runs of a sweep are a group.

    Parameters
    ----------
    folder
        Where W&B writes its files. Its settings apply: with ``WANDB_MODE=offline`` it writes nowhere else.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        try:
            import wandb
        except ImportError as error:
            raise UsageError(f"tracking with wandb needs W&B ({error}); pip install wandb") from None
        self.wandb, self.folder = wandb, folder

    def open(self, name: str, config: Mapping[str, Any], sweep: str | None) -> Any:
        number = hashlib.sha256(f"{sweep}/{name}".encode()).hexdigest()[:12]
        return self.wandb.init(
            project=PROJECT,
            name=name,
            id=number if sweep is not None else None,
            resume="allow" if sweep is not None else None,
            group=Path(sweep).name if sweep is not None else None,
            config=dict(config),
            dir=self.folder,
            reinit="create_new",
            settings=self.wandb.Settings(silent=True),
        )

    def point(self, run: Any, samples: int, accuracy: float) -> None:
        run.log({CURVE: accuracy, "samples": samples})

    def close(self, run: Any, result: Result | None, points: Points) -> None:
        if result is not None:
            import matplotlib.pyplot  # noqa: F401  # wandb.Image uses it and does not import it

            run.summary.update(final_numbers(result) | {"environment": dict(result.environment)})
            run.log({"curve": self.wandb.Image(curve_figure(result, points))})
        run.finish(exit_code=0 if result is not None else 1)


class Tracking(Listener):
    """Passes one run at a time to some trackers. One that fails is reported, and left out from then on."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self.trackers = list(trackers)
        self.runs: dict[Tracker, Any] = {}

    def tell(self, call: Callable[[Tracker], None]) -> None:
        for tracker in list(self.trackers):
            try:
                call(tracker)
            except Exception as error:
                self.trackers.remove(tracker)
                reason = str(error).strip().split("\n")[0] or type(error).__name__
                name = type(tracker).__name__
                text = f"tracking with {name} failed ({reason}) and is left out from here; the run goes on"
                try:
                    warnings.warn(text, stacklevel=2)
                except Warning:  # warnings are errors here
                    print(f"onebyone: {text}", file=sys.stderr)

    def open(self, name: str, config: Mapping[str, Any], sweep: str | None) -> None:
        def call(tracker: Tracker) -> None:
            self.runs[tracker] = tracker.open(name, config, sweep)

        self.tell(call)

    def point(self, samples: int, accuracy: float) -> None:
        self.tell(lambda tracker: tracker.point(self.runs[tracker], samples, accuracy))

    def close(self, result: Result | None, points: Points) -> None:
        self.tell(lambda tracker: tracker.close(self.runs[tracker], result, points))


class TrackedRun(Tracking):
    """Listener that records a run in trackers: ``run(config, listener=TrackedRun("er", [MLflow()]))``.

    Parameters
    ----------
    name
        Name of the run.
    trackers
        The trackers that record the run.
    """

    def __init__(self, name: str, trackers: Sequence[Tracker]) -> None:
        super().__init__(trackers)
        self.name = name
        self.ends: Sequence[int] = ()
        self.evaluations = 0  # since the run was started or resumed

    def configured(self, config: Mapping[str, Any], ends: Sequence[int]) -> None:
        self.ends = ends
        self.open(self.name, config, None)

    def evaluated(self, task: int, accuracy: float) -> None:
        self.evaluations += 1
        self.point(self.ends[task], accuracy)

    def finished(self, result: Result) -> None:
        points = list(zip(self.ends, result.anytime, strict=True))
        for point in points[: len(points) - self.evaluations]:  # from before the run was resumed
            self.point(*point)
        self.close(result, points)

    def failed(self) -> None:
        if self.runs:
            self.close(None, [])


class TrackedSweep(Tracking):
    """Listener that records the runs of a sweep in trackers, each when it has ended.

    The trackers are called in the process of the sweep, with any executor.

    Parameters
    ----------
    folder
        Folder of the sweep.
    trackers
        The trackers that record the sweep.
    """

    def __init__(self, folder: str | Path, trackers: Sequence[Tracker]) -> None:
        super().__init__(trackers)
        self.folder = Path(folder).absolute()

    def ended(self, name: str, outcome: Result | Failed) -> None:
        result = outcome if isinstance(outcome, Result) else None
        points = points_in(self.folder / name / CURVE_FILE) if result is not None else []
        self.open(name, {"error": str(outcome)} if result is None else result.config, str(self.folder))
        for point in points:
            self.point(*point)
        self.close(result, points)

    def closed(self) -> None:
        self.tell(lambda tracker: tracker.close_sweep())


def tracker_named(text: str) -> Tracker:
    """The tracker for ``--track``: ``mlflow``, ``tensorboard:FOLDER`` or ``wandb``."""
    name, _, rest = text.partition(":")
    if name == "mlflow":
        return MLflow(rest or None)
    if name == "wandb":
        return WandB(rest or None)
    if name != "tensorboard":
        raise unknown("tracker", name, ["mlflow", "tensorboard", "wandb"])
    if not rest:
        raise UsageError("tensorboard needs a folder; write for example --track tensorboard:logs")
    return TensorBoard(rest)


def final_numbers(result: Result) -> dict[str, float]:
    """The final numbers of a run that it has."""
    numbers = {name: getattr(result, name) for name in SUMMARY}
    numbers |= {f"seconds_{name}": value for name, value in result.seconds.items()}
    return {name: float(value) for name, value in numbers.items() if value is not None}


def points_in(path: Path) -> list[tuple[int, float]]:
    """The anytime curve in the file ``curve.csv`` of a run: samples, and the accuracy after them."""
    rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
    return [(int(samples), float(accuracy)) for _, samples, accuracy in rows]


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without nesting.

    >>> flat({"method": "er", "options": {"momentum": 0.9}})
    {'method': 'er', 'options.momentum': 0.9}
    """
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
    return found


def curve_figure(result: Result, points: Points) -> Figure:
    """The anytime curve as a figure of Matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(*zip(*points, strict=True), marker="o")
    axes.set(xlabel="samples", ylabel="accuracy", ylim=(0, 1), title=str(result.config["method"]))
    return figure
