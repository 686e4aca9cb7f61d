"""The map and the reduce: groups of shards are taught to copies, which are merged in a tree."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from filelock import BaseFileLock

from onebyone.data import SkippedFilesWarning
from onebyone.distributed.shards import FILES, Images, Shard, as_shards, new_parts, shards_of_files
from onebyone.engine import choose_device
from onebyone.engine.pack import Steps
from onebyone.errors import UsageError
from onebyone.estimator import OnlineClassifier
from onebyone.estimator.building import check_settings
from onebyone.estimator.folders import (
    Intake,
    Learnt,
    as_given,
    file_lock,
    find_images,
    image_batches,
    known_files,
    learn_files,
    move_files,
)
from onebyone.estimator.inputs import read_samples
from onebyone.estimator.model import State, begin, learning
from onebyone.methods.learner import NOT_MERGEABLE
from onebyone.runs.executors import Assignment, Executor, Failed, Lost, Status, Worker, executor_named
from onebyone.runs.executors.interface import ATTEMPTS
from onebyone.runs.run import Interrupted, at_least_one, stop_signal

ROUND = 64 * FILES  # images between two saves of a file
GROUPS = 32  # of shards; each is taught to one copy. Enough to keep 32 workers busy, few enough to be merged quickly
Progress = Callable[[int, int | None], None]  # samples learnt so far, and their number if it is known


def fit(
    classifier: OnlineClassifier,
    shards: Any,
    *,
    workers: int | None = None,
    executor: str | Executor = "local",
    columns: tuple[str, str] = ("x", "y"),
    progress: Progress | None = None,
) -> OnlineClassifier:
    """Learn from samples in several processes or on several machines, exactly as in one pass.

    The method must keep statistics, as the default method does for most samples. A classifier that has learnt
    something learns more, as with ``partial_fit``.

    Parameters
    ----------
    classifier
        The classifier. Its ``random_state`` must be a whole number.
    shards
        A sequence of shards, a folder, or a ``ray.data.Dataset``. A shard is a pair ``(X, y)``; the path of an
        ``.npz`` file with arrays ``x`` and ``y``; the path of an image file, whose label is the name of its folder; the
        path of a folder with a sub-folder of images for each class; or an iterable of pairs ``(X, y)`` that can be
        pickled, or a function that returns one. The order of shards does not matter. One worker learns a whole shard,
        so give several shards per worker.
    workers
        Number of workers: processes on this machine, or tasks on a cluster. None uses all cores, or the whole cluster.
    executor
        ``"local"``, ``"ray"``, ``"slurm"`` or an executor of ``onebyone.runs.executors``.
    columns
        The names of the arrays of samples and labels, in ``.npz`` files and in a ``ray.data.Dataset``.
    progress
        A function that is called with the number of samples learnt so far, and the number of all samples (None if it
        is not known).

    Returns
    -------
    The classifier itself.

    Raises
    ------
    UsageError
        If the samples of a shard cannot be learnt, or if the method cannot merge. The classifier is not changed.
    Interrupted
        After Ctrl-C. The classifier is not changed.

    Examples
    --------
    >>> from onebyone import OnlineClassifier, load
    >>> digits = load("digits")
    >>> shards = [(digits.train_x[part::4], digits.train_y[part::4]) for part in range(4)]
    >>> clf = fit(OnlineClassifier(), shards, workers=1)
    >>> clf.score(digits.test_x, digits.test_y) > 0.95
    True
    """
    at_least_one(workers=workers)
    parts = as_shards(shards, columns)
    if not parts:
        raise UsageError("there are no shards; give at least one")
    intake = Intake(known_files(classifier), Learnt())
    parts = new_parts(parts, intake)
    skipped = _fit(classifier, parts, workers, executor, progress) if parts else {}
    intake.learnt.skipped |= skipped
    move_files(classifier, intake)
    if skipped := intake.learnt.skipped:
        path, why = next(iter(skipped.items()))
        warnings.warn(f"{len(skipped)} images skipped; the first: {path} ({why})", SkippedFilesWarning, stacklevel=2)
    return classifier


def _fit(
    classifier: OnlineClassifier,
    parts: Sequence[Shard],
    workers: int | None,
    executor: str | Executor,
    progress: Progress | None,
) -> dict[Path, str]:
    """Returns the image files that could not be read, and why."""
    with executor_named(executor) as chosen, stop_signal() as stopped:
        device = chosen.device(classifier.device)
        if not chosen.shares_paths:
            parts = [part.absolute() for part in parts]
        groups = {f"group {number}": group for number, group in enumerate(grouped(parts))}
        empty = blank(classifier, parts)
        counts = [part.count for part in parts]
        total = None if None in counts else sum(count for count in counts if count is not None)
        merging = Merging(list(groups), classifier, progress or (lambda done, total: None), total)
        for _ in range(ATTEMPTS):  # again what a worker had that died
            waiting = {name: group for name, group in groups.items() if name in merging.waiting}
            asked = Assignment(Teaching(empty, device), waiting, merging.progressed, merging.ended, stopped=stopped)
            gpu = device.partition(":")[0] != "cpu"  # which has one worker
            chosen.execute(replace(asked, jobs=1 if gpu else workers, total=len(groups), on_gpu=gpu))
            if stopped.is_set() or not merging.waiting:
                break
    if merging.waiting and stopped.is_set():
        raise Interrupted("stopped, and nothing was learnt")
    learnt = merging.result()
    if learnt is not None:
        classifier.merge(learnt)
    elif not merging.skipped:
        raise UsageError("the shards have no samples; give at least one")
    return merging.skipped


def learn_folder(
    folder: Path,
    into: Path,
    classifier: OnlineClassifier,
    *,
    workers: int | None = None,
    executor: str | Executor = "local",
    progress: Progress | None = None,
    lock: BaseFileLock | None = None,
    rename: bool | None = None,
) -> Learnt:
    """Learn the images of a folder with several workers, and save the classifier to a file every ``ROUND`` images.

    Classifier, lock and rename are those of :func:`onebyone.estimator.folders.learn_folder`. Interrupted, the same call
    continues.
    """
    at_least_one(workers=workers)
    files, skipped = find_images(folder)
    with nullcontext() if lock is not None else file_lock(into):
        learnt = Learnt(skipped=skipped)
        intake = Intake(known_files(classifier), learnt)
        parts = new_parts(list(shards_of_files(files)), intake)
        per_round, known = ROUND // FILES, learnt.known
        with executor_named(executor) as chosen:
            for first in range(0, len(parts), per_round):
                now = parts[first : first + per_round]
                before = known + FILES * first

                def told(done: int, total: int | None, before: int = before) -> None:
                    if progress is not None:
                        progress(min(before + done, len(files)), len(files))

                unread = _fit(classifier, now, workers, chosen, told)
                learnt.skipped |= unread
                learnt.files += sum(part.count or 0 for part in now) - len(unread)
                classifier.save(into)
        move_files(classifier, intake, rename=rename)
        if learnt.moved or learnt.renamed:
            classifier.save(into)
    return learnt


def grouped(parts: Sequence[Shard]) -> list[Sequence[Shard]]:
    """Neighbouring shards in at most ``GROUPS`` groups, whatever the number of workers."""
    count = min(GROUPS, len(parts))
    edges = [len(parts) * number // count for number in range(count + 1)]
    return [parts[first:last] for first, last in pairwise(edges)]


def blank(classifier: OnlineClassifier, parts: Sequence[Shard]) -> OnlineClassifier:
    """A copy of the classifier that has learnt nothing, but knows the layout of the samples, which all copies share.

    Raises ``UsageError`` if the method cannot merge.
    """
    parameters = classifier.get_params(deep=False) | {"autosave": None, "device": "cpu"}  # which this process has
    check_settings(parameters)
    if not isinstance(parameters["random_state"], Integral):
        raise UsageError(
            f"random_state is {parameters['random_state']!r}; give a whole number, so that all copies are alike"
        )
    known = classifier.state
    X: Any = np.zeros((1, *known.layout.shape), np.float32) if known is not None else first_samples(parts, classifier)
    layout = known.layout if known is not None else read_samples(X, None, classifier.channels, classifier).layout
    with learning():
        state = begin(parameters, layout, X)
    if known is not None:
        state = replace(state, feature_names=known.feature_names)
    if not state.learner.mergeable:
        raise UsageError(NOT_MERGEABLE)
    found = OnlineClassifier(**parameters)
    found.replace_state(state)
    return found


def first_samples(parts: Sequence[Shard], classifier: OnlineClassifier) -> Any:
    """The first batch of samples."""
    for part in parts:
        if isinstance(part, Images):
            for batch in image_batches(classifier, part.paths, lambda position, error: None):
                return as_given(classifier, batch.images)
            continue
        for X, _ in part.batches():
            return X
    raise UsageError("the shards have no samples that can be read; give at least one")


@dataclass(frozen=True)
class Teaching:
    """The work of a fit (see :class:`onebyone.runs.executors.Work`): teach a copy with a group of shards."""

    empty: OnlineClassifier
    device: str

    def start(self, name: str, group: Sequence[Shard], worker: Worker) -> Steps[tuple[State | None, dict[Path, str]]]:
        """Returns what was learnt, None if there was no sample, and which image files cannot be read."""
        copy = OnlineClassifier(**self.empty.get_params(deep=False))
        state = self.empty.state
        assert state is not None
        state = state.copied()
        copy.replace_state(replace(state, learner=state.learner.to(self.device)))  # not fitted, but with a layout
        done, skipped = 0, dict[Path, str]()

        def learnt(count: int) -> None:
            nonlocal done
            done += count
            worker.progressed(name, Status(done, done))
            if worker.stopped.is_set():
                raise Interrupted("stopped")

        for shard in group:
            if isinstance(shard, Images):
                skipped |= learn_files(copy, shard.files).skipped
                learnt(shard.count)
                yield
                continue
            for batch in shard.batches():
                copy.partial_fit(*batch)
                learnt(len(batch[1]))
                yield
        assert copy.state is not None
        state = replace(copy.state, learner=copy.state.learner.cpu())
        return state if state.slots else None, skipped

    def folder(self, name: str) -> Path | None:
        return None

    def moved(self, out: Path) -> Teaching:
        return self

    def with_data(self, kept: Mapping[Any, Any]) -> Teaching:
        return self


class Merging:
    """Merges what the groups have learnt: two neighbours as soon as both are there, and so on up a binary tree.

    The tree is that of the groups, so the sums are added in the same order, whichever group is finished first.
    """

    def __init__(
        self, names: Sequence[str], classifier: OnlineClassifier, progress: Progress, total: int | None
    ) -> None:
        self.waiting, self.numbers = set(names), {name: number for number, name in enumerate(names)}
        self.classifier, self.progress, self.total = classifier, progress, total
        self.counts: dict[str, int] = {}
        self.nodes: dict[tuple[int, int], OnlineClassifier | None] = {}  # by level and number
        self.sizes = [len(names)]
        while self.sizes[-1] > 1:
            self.sizes.append((self.sizes[-1] + 1) // 2)
        self.skipped: dict[Path, str] = {}
        self.lost: Lost | None = None

    def progressed(self, name: str, status: Status) -> None:
        self.counts[name] = status.done
        self.progress(sum(self.counts.values()), self.total)

    def ended(self, name: str, outcome: Any) -> None:
        if isinstance(outcome, Lost):
            self.lost = outcome
            return
        if isinstance(outcome, Failed):
            raise UsageError(f"nothing was learnt: {outcome}")
        state, skipped = outcome
        self.skipped |= skipped
        self.waiting.discard(name)
        self.place(0, self.numbers[name], self.as_classifier(state) if state is not None else None)

    def as_classifier(self, state: State) -> OnlineClassifier:
        """What a worker has learnt, with the encoder of this process, as two modules are never equal."""
        parameters = self.classifier.get_params(deep=False) | {"autosave": None}
        found = OnlineClassifier(**parameters)
        own = {"encoder": parameters["encoder"], "device": parameters["device"]}
        found.replace_state(replace(state, parameters={**state.parameters, **own}))
        return found

    def place(self, level: int, number: int, node: OnlineClassifier | None) -> None:
        """Put a node into the tree, and merge it with its neighbour if that is there."""
        self.nodes[level, number] = node
        if level == len(self.sizes) - 1:
            return
        left, right = (level, number - number % 2), (level, number - number % 2 + 1)
        if left in self.nodes and right in self.nodes:
            one, other = self.nodes.pop(left), self.nodes.pop(right)
            if one is not None and other is not None:
                one = one.merge(other)
            self.place(level + 1, number // 2, one if one is not None else other)
        elif right[1] >= self.sizes[level]:  # it has no neighbour
            self.place(level + 1, number // 2, self.nodes.pop(left))

    def result(self) -> OnlineClassifier | None:
        """The root of the tree; None if there was no sample."""
        if self.waiting:
            raise UsageError(f"nothing was learnt: {self.lost}")
        root = self.nodes[len(self.sizes) - 1, 0]
        if root is None:
            return None
        state = root.state
        assert state is not None
        with suppress(UsageError):  # the workers may have a device that this process does not have
            root.replace_state(replace(state, learner=state.learner.to(choose_device(self.classifier.device))))
        return root
