"""One run: a learner on a stream, evaluated after every task, with its own result folder."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils import get_total_norm

from onebyone import engine, streams
from onebyone.data import Dataset, load
from onebyone.engine import NotNow, choose_device, completion, environment, measure_cost, torch_settings
from onebyone.engine.pack import Steps
from onebyone.errors import Interrupted as Interrupted
from onebyone.errors import UsageError
from onebyone.evaluation import Result, metrics, right_answers
from onebyone.evaluation.metrics import Matrix, accuracy_matrix, anytime
from onebyone.executors.executor import finish, stop_signal
from onebyone.files import atomic_write
from onebyone.methods import find
from onebyone.options import at_least_one
from onebyone.runs import checkpoint
from onebyone.runs.checkpoint import Position
from onebyone.runs.claim import Claim, sole_use
from onebyone.runs.config import RunConfig
from onebyone.runs.folder import CHECKPOINT, CONFIG, CURVE, RESULT, forget_error, read_config
from onebyone.runs.formats import configuration
from onebyone.runs.listener import Listener

# Steps between two checkpoints, so that a crash costs a minute at most. On a GPU one takes as long as a hundred steps.
CPU_STEPS, GPU_STEPS = 500, 5000


class Run:
    """A run that can be stopped between any two steps and resumed with the same bits."""

    def __init__(self, config: RunConfig, data: Dataset) -> None:
        device = choose_device(config.device)
        entry = find(config.method)
        self.config = config.resolved(device.type, data.fingerprint)
        self.data = data.to(device)
        # On the CPU: many small reads from a GPU would delay other runs on it.
        labels, test_labels = data.train_y.cpu(), data.test_y.cpu()
        stream = streams.stream_named(
            config.full_stream(),
            labels,
            data.num_classes,
            config.classes_per_task,
            order=config.class_order,
            batch_size=config.batch_size,
            seed=config.seed,
        )
        self.first_task = stream.first_arrivals(labels)
        self.stream = stream.to(device)
        self.ends = list(accumulate(len(task.indices) for task in stream.tasks))  # samples so far, after each task
        self.test_counts = torch.bincount(test_labels, minlength=data.num_classes).tolist()
        last = len(self.stream.tasks) - 1
        arrives_in = torch.tensor([self.first_task.get(label, last) for label in range(data.num_classes)])[test_labels]
        # Test samples in the order in which their classes arrive, and how many have arrived after each task.
        self.test_order = arrives_in.argsort(stable=True).to(device)
        self.arrived = torch.bincount(arrives_in, minlength=last + 1).cumsum(0).tolist()
        first_classes = tuple(label for label, task in self.first_task.items() if task == 0)
        for classes in (*(task.classes for task in self.stream.tasks), first_classes):
            if not any(self.test_counts[label] for label in classes):
                raise UsageError(f"no test sample has a class of task {classes}; add some or remove the classes")
        self.learner = entry.learner(config.method_options(), data.spec, config.seed, device)
        self.cost = measure_cost(self.learner, config.batch_size)
        self.position = Position()
        self.folder: Path | None = None  # until it enters one

    def enter(self, out: Path, claim: Claim) -> None:
        """Write the configuration to the folder, or check that the folder holds this configuration."""
        import yaml

        self.folder, self.claim = out, claim
        path = out / CONFIG
        differences = ""
        if path.exists():
            differences = _differences(read_config(path), self.config)
        if not differences and (out / RESULT).exists():  # also if config.yaml was lost
            differences = _differences(configuration(Result.read(out / RESULT).config), self.config)
        if differences:
            raise UsageError(f"{out} holds a run of another configuration ({differences}); choose another folder")
        if not path.exists():
            with atomic_write(path) as temporary:
                temporary.write_text(yaml.safe_dump(self.config, sort_keys=False))

    def steps(self, checkpoint_every: int | None, listener: Listener, stopped: threading.Event) -> Steps[Result]:
        """Learn the rest of the stream. Yields after every step, and returns the result, at once if it exists."""
        if self.folder is not None and (self.folder / RESULT).exists():
            result = Result.read(self.folder / RESULT)
            remove_leftovers(self.folder)
            return result
        if self.folder is not None and (self.folder / CHECKPOINT).exists():
            self.position = checkpoint.load(self.folder / CHECKPOINT, self.learner)
        self.engine = engine.engine_for(self.learner, self.data.train_x, self.data.train_y, self.stream.batch_size)
        every = checkpoint_every or (CPU_STEPS if self.learner.device.type == "cpu" else GPU_STEPS)
        batches = [task.batches(self.stream.batch_size) for task in self.stream.tasks]
        done = sum(len(index) for index in list(self.stream)[: self.position.steps])
        listener.configured(self.config, self.ends)
        title = f"{self.config['method']} on {self.config['dataset']}"
        listener.started(title, self.stream.samples, done, len(batches))
        self.clock = time.perf_counter()
        first_step = 0  # of the task
        for task, steps in enumerate(batches):
            for index in steps[max(0, self.position.steps - first_step) :]:
                self.step(index)
                listener.stepped(task, len(index))
                stopping = stopped.is_set()  # once: it may be set at any time
                if stopping or self.position.steps % every == 0:
                    self.save()
                if stopping:
                    raise Interrupted(f"stopped after {self.position.steps} steps; the same command resumes from there")
                yield
            first_step += len(steps)
            if len(self.position.right) == task:
                yield from self.evaluate()
                listener.evaluated(task, anytime(self.matrix(), self.stream.disjoint)[-1])
        listener.finished(result := self.finish())
        return result

    def step(self, index: torch.Tensor) -> None:
        if self.config["prequential"]:
            self.engine.synchronize()
            self.learner.refresh()  # so that settings are those of all samples so far
            right = self.learner.predict(self.data.train_x[index]) == self.data.train_y[index]
            self.position.predicted += int(right.sum())
        self.engine.step(index)
        self.position.steps += 1

    def evaluate(self) -> Iterator[None]:
        """End a task and predict the test set. Yields while a GPU is busy, so that other runs continue."""
        while self.engine.busy():
            yield
        self.position.training_seconds += self.lap_seconds()
        if self.learner.needs_boundaries:
            self.learner.end_task()
        self.learner.refresh()  # as above
        asked = self.test_order[: self.arrived[len(self.position.right)]]
        right = right_answers(self.learner, self.data.test_x[asked], self.data.test_y[asked])
        finite = torch.isfinite(get_total_norm(self.learner.parameters()))
        found = torch.cat([right, finite.to(right)[None]]).to("cpu", non_blocking=right.is_cuda)
        done = completion(self.learner.device)
        while not done():
            yield
        *answers, is_finite = found.tolist()
        if not is_finite:
            raise UsageError(f"the weights are not finite after {self.position.steps} steps; lower learning_rate")
        self.position.right.append(answers)
        self.position.evaluation_seconds += self.lap_seconds()

    def lap_seconds(self) -> float:
        """Seconds since the last call, including those of other runs in the same pack."""
        before, self.clock = self.clock, time.perf_counter()
        return self.clock - before

    def matrix(self) -> Matrix:
        tasks = [task.classes for task in self.stream.tasks]
        first_task = None if self.stream.disjoint else self.first_task
        return accuracy_matrix(self.position.right, self.test_counts, tasks, first_task)

    def finish(self) -> Result:
        """Compute the result, and write it to the folder if there is one."""
        position, matrix, counts = self.position, self.matrix(), self.test_counts
        result = Result(
            **vars(metrics(matrix, self.stream.disjoint)),
            accuracy_matrix=matrix,
            class_accuracy=tuple(r / n if n else None for r, n in zip(position.right[-1], counts, strict=True)),
            prequential=position.predicted / self.stream.samples if self.config["prequential"] else None,
            tasks=tuple(task.classes for task in self.stream.tasks),
            disjoint=self.stream.disjoint,
            samples=self.stream.samples,
            updates=position.steps,
            cost=self.cost,
            config=self.config,
            seconds={"training": position.training_seconds, "evaluation": position.evaluation_seconds},
            environment=environment(self.learner.device),
        )
        if self.folder is not None:
            self.claim.check()
            with atomic_write(self.folder / CURVE) as temporary:
                temporary.write_text(self.curve(result))
            with atomic_write(self.folder / RESULT) as temporary:
                temporary.write_text(result.to_json())
            remove_leftovers(self.folder)
        return result

    def curve(self, result: Result) -> str:
        """The anytime curve as CSV, a row per task."""
        points = enumerate(zip(self.ends, result.anytime, strict=True), start=1)
        lines = [f"{number},{samples},{accuracy:.6f}\n" for number, (samples, accuracy) in points]
        return "".join(["task,samples,accuracy\n", *lines])

    def save(self) -> None:
        if self.folder is not None:
            self.engine.synchronize()
            self.position.training_seconds += self.lap_seconds()
            self.claim.check()
            checkpoint.save(self.folder / CHECKPOINT, self.learner, self.position)
            self.claim.progressed()


def run(
    config: RunConfig,
    *,
    data: Dataset | None = None,
    data_dir: str | Path | None = None,
    strict: bool = False,
    out: str | Path | None = None,
    checkpoint_every: int | None = None,
    listener: Listener | None = None,
) -> Result:
    """Train a learner on a stream and evaluate it after every task, or resume such a run.

    Parameters
    ----------
    config
        Configuration of the run.
    data
        The data set. None: the data set that the configuration names is read.
    data_dir, strict
        Passed to :func:`load`: the folder of the data, and whether unreadable files raise an error.
    out
        Folder for results and checkpoints. None: nothing is written.
    checkpoint_every
        Number of steps between checkpoints. None: 500 on a CPU, 5000 on a GPU.
    listener
        Object whose methods are called with the progress of the run.

    Returns
    -------
    Result
        Metrics, cost and configuration.

    Raises
    ------
    UsageError
        The configuration is wrong, or the folder belongs to another run or process.
    Interrupted
        After Ctrl-C. If ``out`` is given, the same call resumes the run.

    >>> result = run(RunConfig(method="er", classes_per_task=5))
    >>> len(result.accuracy_matrix), result.samples
    (2, 1438)
    """
    at_least_one(checkpoint_every=checkpoint_every)
    config.method_options(), config.full_stream()  # refuses a wrong configuration before anything is read or written
    listener = listener or Listener()
    data = load(config.dataset, data_dir, strict=strict, progress=listener.reading) if data is None else data
    learnt = data.held_out() if config.held_out else data
    folder = Path(out) if out is not None else None
    try:
        with stop_signal() as stopped:
            return finish(steps_in_folder(config, learnt, folder, checkpoint_every, listener, stopped))
    except NotNow as busy:
        raise UsageError(f"{busy}; wait until it has finished, or choose another folder") from None
    except BaseException:
        listener.failed()
        raise


def steps_in_folder(
    config: RunConfig,
    data: Dataset,
    folder: Path | None,
    checkpoint_every: int | None,
    listener: Listener,
    stopped: threading.Event,
) -> Steps[Result]:
    """The steps of a run. Its folder is claimed until the last step; ``NotNow`` if another process works in it."""
    with ExitStack() as claimed:
        claim = claimed.enter_context(sole_use(folder)) if folder is not None and folder.exists() else None
        current = Run(config, data)  # refuses what cannot be run, before a folder is created for it
        if folder is not None:
            current.enter(folder, claim or claimed.enter_context(sole_use(folder)))
        # Small steps have one thread and the same bits in a run, a sweep and a pack. Large ones keep the threads that
        # the process has: in a sweep its share of the cores, so their last bits depend on the number of jobs.
        with torch_settings(current.cost.flops * config.batch_size):
            result = yield from current.steps(checkpoint_every, listener, stopped)
        if folder is not None:
            forget_error(folder)
        return result


def remove_leftovers(folder: Path) -> None:
    """Remove the checkpoint of a finished run, and temporary files from before it was killed."""
    for pattern in (CHECKPOINT, ".time-*", *(f".{name}.*" for name in (CONFIG, CURVE, RESULT, CHECKPOINT))):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def _differences(old: dict[str, Any] | None, new: dict[str, Any]) -> str:
    """The differences of two recorded configurations in words; empty if there are none."""
    if old is None:
        return "its config.yaml is damaged"
    flat_old, flat_new = ({**c, **c["options"]} for c in (old, new))
    names = [n for n in {**flat_old, **flat_new} if n != "options" and flat_old.get(n) != flat_new.get(n)]
    return ", ".join(f"{name} there is {flat_old.get(name)}, here {flat_new.get(name)}" for name in names)
