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
from typing import Any, TypeVar

from onebyone.errors import UsageError, unknown
from onebyone.evaluation import Result
from onebyone.executors import Failed
from onebyone.runs.folder import CURVE as CURVE_FILE
from onebyone.runs.listener import Listener
from onebyone.runs.tracked import Points, curve_figure, flat, points_in, summary

CURVE = "anytime_accuracy"
PROJECT = "onebyone"
L = TypeVar("L")


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
        run = self.create(name, tags)
        for key, value in flat(config).items():
            self.client.log_param(run, key, value)
        return run

    def open_parent(self, sweep: str) -> str:
        query = f"tags.`onebyone.sweep` = '{sweep}'"
        found = self.client.search_runs([self.experiment()], query, max_results=1)
        self.parent = found[0].info.run_id if found else self.create(Path(sweep).name, {"onebyone.sweep": sweep})
        self.client.update_run(self.parent, "RUNNING")
        return self.parent

    def create(self, name: str, tags: Mapping[str, str]) -> str:
        run = self.client.create_run(self.experiment(), tags=dict(tags), run_name=name)
        return str(run.info.run_id)

    def experiment(self) -> str:
        found = self.client.get_experiment_by_name(PROJECT)
        return str(found.experiment_id if found is not None else self.client.create_experiment(PROJECT))

    def point(self, run: str, samples: int, accuracy: float) -> None:
        self.client.log_metric(run, CURVE, accuracy, step=samples)

    def close(self, run: str, result: Result | None, points: Points) -> None:
        if result is not None:
            for name, value in summary(result).items():
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
            for name, value in summary(result).items():
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

            run.summary.update(summary(result) | {"environment": dict(result.environment)})
            run.log({"curve": self.wandb.Image(curve_figure(result, points))})
        run.finish(exit_code=0 if result is not None else 1)


class Careful:
    """Calls a tracker until it fails once. The failure is reported, and the tracker is left out from then on."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker: Tracker | None = tracker

    def call(self, method: str, *arguments: Any) -> Any:
        if self.tracker is None:
            return None
        try:
            return getattr(self.tracker, method)(*arguments)
        except Exception as error:
            name, self.tracker = type(self.tracker).__name__, None
            reason = str(error).strip().split("\n")[0] or type(error).__name__
            text = f"tracking with {name} failed ({reason}) and is left out from here; the run goes on"
            try:
                warnings.warn(text, stacklevel=2)
            except Warning:  # warnings are errors here
                print(f"onebyone: {text}", file=sys.stderr)
            return None


class TrackedRun(Listener):
    """Listener that records a run in trackers: ``run(config, listener=TrackedRun("er", [MLflow()]))``.

    Parameters
    ----------
    name
        Name of the run.
    trackers
        The trackers that record the run.
    """

    def __init__(self, name: str, trackers: Sequence[Tracker]) -> None:
        self.name, self.trackers = name, [Careful(tracker) for tracker in trackers]
        self.ends: Sequence[int] = ()
        self.logged: set[int] = set()
        self.opened: list[tuple[Careful, Any]] = []

    def configured(self, config: Mapping[str, Any], ends: Sequence[int]) -> None:
        self.ends = ends
        self.opened = [(each, each.call("open", self.name, config, None)) for each in self.trackers]

    def evaluated(self, task: int, accuracy: float) -> None:
        self.logged.add(task)
        for each, run in self.opened:
            each.call("point", run, self.ends[task], accuracy)

    def finished(self, result: Result) -> None:
        points = list(zip(self.ends, result.anytime, strict=True))
        for each, run in self.opened:
            for task, point in enumerate(points):
                if task not in self.logged:  # from before the run was resumed
                    each.call("point", run, *point)
            each.call("close", run, result, points)

    def failed(self) -> None:
        for each, run in self.opened:
            each.call("close", run, None, [])


class TrackedSweep(Listener):
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
        self.folder, self.trackers = str(Path(folder).absolute()), [Careful(tracker) for tracker in trackers]

    def ended(self, name: str, outcome: Result | Failed) -> None:
        result = outcome if isinstance(outcome, Result) else None
        points = points_in(Path(self.folder) / name / CURVE_FILE) if result is not None else []
        for each in self.trackers:
            run = each.call("open", name, {"error": str(outcome)} if result is None else result.config, self.folder)
            for point in points:
                each.call("point", run, *point)
            each.call("close", run, result, points)

    def closed(self) -> None:
        for each in self.trackers:
            each.call("close_sweep")


class _Together:
    def __init__(self, listeners: Sequence[Any]) -> None:
        self._listeners = listeners

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> None:
            for listener in self._listeners:
                getattr(listener, name)(*arguments)

        return call


def together(*listeners: L) -> L:
    """Several listeners as one."""
    return _Together(listeners)  # type: ignore[return-value]


def tracker_named(text: str) -> Tracker:
    """The tracker for ``--track``: ``mlflow``, ``tensorboard:FOLDER`` or ``wandb``."""
    name, _, rest = text.partition(":")
    made: dict[str, Callable[[], Tracker]] = {
        "mlflow": lambda: MLflow(rest or None),
        "tensorboard": lambda: TensorBoard(rest),
        "wandb": lambda: WandB(rest or None),
    }
    if name not in made:
        raise unknown("tracker", name, list(made))
    if name == "tensorboard" and not rest:
        raise UsageError("tensorboard needs a folder; write for example --track tensorboard:logs")
    return made[name]()
