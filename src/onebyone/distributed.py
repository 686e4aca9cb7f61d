"""Exact parallel fits: workers teach copies of a classifier, each with some of the samples, and the copies are merged.

Statistics are sums, so the merged classifier is the one that a single process would have, had it been given all
samples. Which samples are added up together depends on the shards alone, so the number of workers does not change a
bit of the result, and neither does a worker that dies and whose samples are learnt again by another.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import BaseFileLock
from torch import Tensor

from onebyone.data import SkippedFilesWarning
from onebyone.data.arrays import read_npz
from onebyone.data.images import suffixes
from onebyone.engine import choose_device
from onebyone.engine.pack import Steps
from onebyone.errors import Interrupted, UsageError
from onebyone.estimator import OnlineClassifier, folders
from onebyone.estimator.classifier import learning
from onebyone.estimator.inputs import Layout, check_settings, read_samples
from onebyone.estimator.model import State, begin
from onebyone.executors import Executor, Failed, Status, Worker, executor_named
from onebyone.methods.learner import NOT_MERGEABLE
from onebyone.options import at_least_one

FILES = 256  # image files per shard of a folder
ROUND = 64 * FILES  # images between two saves of a file
CALL = 1000  # samples per call of ``partial_fit``
GROUPS = 32  # of shards; each is taught to one copy. Enough to keep 32 workers busy, few enough to be merged quickly
Progress = Callable[[int, int | None], None]  # samples learnt so far, and their number if it is known
Batch = tuple[Any, Any]  # samples and labels
Skipped = dict[Path, str]  # image files that cannot be read, and why


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
        ``"local"``, ``"ray"``, ``"slurm"`` or an executor of ``onebyone.executors``.
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
    chosen = executor_named(executor)
    parts = as_shards(shards, columns, located(chosen))
    if not parts:
        raise UsageError("there are no shards; give at least one")
    intake = folders.Intake(folders.known_files(classifier), folders.Learnt())
    parts = new_parts(parts, intake)
    with chosen:
        skipped = _fit(classifier, parts, workers, chosen, progress) if parts else {}
    intake.learnt.skipped |= skipped
    folders.move_files(classifier, intake)
    if skipped := intake.learnt.skipped:
        path, why = next(iter(skipped.items()))
        warnings.warn(f"{len(skipped)} images skipped; the first: {path} ({why})", SkippedFilesWarning, stacklevel=2)
    return classifier


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
) -> folders.Learnt:
    """Learn the images of a folder with several workers, and save the classifier to a file every ``ROUND`` images.

    Classifier, lock and rename are those of :func:`onebyone.estimator.folders.learn_folder`. Interrupted, the same call
    continues.
    """
    at_least_one(workers=workers)
    chosen = executor_named(executor)
    files, skipped = folders.find_images(located(chosen)(folder))
    with nullcontext() if lock is not None else folders.file_lock(into), chosen:
        learnt = folders.Learnt(skipped=skipped)
        intake = folders.Intake(folders.known_files(classifier), learnt)
        parts = new_parts(list(shards_of_files(files)), intake)
        per_round, known = ROUND // FILES, learnt.known
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
        folders.move_files(classifier, intake, rename=rename)
        if learnt.moved or learnt.renamed:
            classifier.save(into)
    return learnt


def _fit(
    classifier: OnlineClassifier,
    parts: Sequence[Shard],
    workers: int | None,
    executor: Executor,
    progress: Progress | None,
) -> Skipped:
    """Teach groups of shards to copies, and merge these in the order of the groups, whichever ends first."""
    device = executor.device(classifier.device)
    groups = {f"group {number}": group for number, group in enumerate(grouped(parts))}
    counts = [part.count for part in parts]
    total = None if None in counts else sum(count for count in counts if count is not None)
    done, order = dict[str, int](), iter(groups)
    ended = dict[str, OnlineClassifier | None]()  # not merged yet; None where there was no sample
    merged: OnlineClassifier | None = None
    skipped: Skipped = {}

    def progressed(name: str, status: Status) -> None:
        done[name] = status.done
        if progress is not None:
            progress(sum(done.values()), total)

    gpu = device.partition(":")[0] != "cpu"  # which has one worker
    teach = TeachGroup(blank(classifier, parts), device)
    outcomes = executor.map(teach, groups, jobs=1 if gpu else workers, gpu=gpu, progressed=progressed)
    following = next(order, None)
    with closing(outcomes):
        for name, outcome in outcomes:
            if isinstance(outcome, Failed):
                raise UsageError(f"nothing was learnt: {outcome}")
            ended[name] = as_classifier(outcome[0], classifier) if outcome[0] is not None else None
            skipped |= outcome[1]
            while following in ended:
                found = ended.pop(following)
                if found is not None:
                    merged = found if merged is None else merged.merge(found)
                following = next(order, None)
    if following is not None:
        raise Interrupted("stopped, and nothing was learnt")
    if merged is not None:
        classifier.merge(merged)
    elif not skipped:
        raise UsageError("the shards have no samples; give at least one")
    return skipped


def located(executor: Executor) -> Callable[[Path], Path]:
    """How paths are given to an executor, whose processes may be in other folders."""
    return Path if executor.shares_disk is True else Path.absolute


def grouped(parts: Sequence[Shard]) -> list[Sequence[Shard]]:
    """Neighbouring shards in groups that depend on the shards alone, as the order of sums does."""
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
    if known is not None:
        X: Any = np.zeros((1, *known.layout.shape), np.float32)
        layout = known.layout
    else:
        X = next((X for part in parts for X in part.first(classifier)), None)
        if X is None:
            raise UsageError("the shards have no samples that can be read; give at least one")
        layout = read_samples(X, None, classifier.channels, classifier).layout
    with learning():
        state = begin(parameters, layout, X)
    if known is not None:
        state = replace(state, feature_names=known.feature_names)
    learner = state.learner
    if not learner.mergeable:
        raise UsageError(NOT_MERGEABLE)
    if known is not None:
        learner.prepare_as(known.learner)
    if learner.first_samples:
        learner.prepare(first_samples(parts, classifier, layout, learner.first_samples))
    found = OnlineClassifier(**parameters)
    found.replace_state(state)
    return found


def first_samples(parts: Sequence[Shard], classifier: OnlineClassifier, layout: Layout, count: int) -> Tensor:
    """So many samples as the learner reads them, or all if there are fewer."""
    found: list[Tensor] = []
    for X in (X for part in parts for X in part.first(classifier)):
        missing = count - sum(map(len, found))
        if missing <= 0:
            break
        found.extend(read_samples(X[:missing], layout, classifier.channels, classifier).chunks())
    return torch.cat(found)


def as_classifier(state: State, classifier: OnlineClassifier) -> OnlineClassifier:
    """What a worker has learnt, with encoder and device of this process, as two modules are never equal."""
    parameters = classifier.get_params(deep=False) | {"autosave": None}
    found = OnlineClassifier(**parameters)
    own = {"encoder": parameters["encoder"], "device": parameters["device"]}
    learner = state.learner
    with suppress(UsageError):  # the workers may have a device that this process does not have
        learner = learner.to(choose_device(classifier.device))
    found.replace_state(replace(state, parameters={**state.parameters, **own}, learner=learner))
    return found


@dataclass(frozen=True)
class TeachGroup:
    """Teaches a copy with a group of shards. It is called in worker processes."""

    empty: OnlineClassifier
    device: str

    def __call__(self, name: str, group: Sequence[Shard], worker: Worker) -> Steps[tuple[State | None, Skipped]]:
        """Returns what was learnt, None if there was no sample, and which image files cannot be read."""
        copy = OnlineClassifier(**self.empty.get_params(deep=False))
        state = self.empty.state
        assert state is not None
        state = state.copied()
        copy.replace_state(replace(state, learner=state.learner.to(self.device)))  # not fitted, but with a layout
        done, skipped = 0, Skipped()
        for shard in group:
            for count in shard.teach(copy, skipped):
                done += count
                worker.progressed(name, Status(done, done))
                if worker.stopped.is_set():
                    raise Interrupted("stopped")
                yield
        assert copy.state is not None
        state = replace(copy.state, learner=copy.state.learner.cpu())
        return state if state.slots else None, skipped


class Shard:
    """A part of the samples, which is learnt by one worker."""

    @property
    def count(self) -> int | None:
        """The number of samples, if it is known before they are read."""
        return None

    def batches(self) -> Iterator[Batch]:
        """The samples, some at a time."""
        raise NotImplementedError

    def first(self, classifier: OnlineClassifier) -> Iterator[Any]:
        """Samples, as the classifier takes them."""
        return (X for X, _ in self.batches())

    def teach(self, classifier: OnlineClassifier, skipped: Skipped) -> Generator[int]:
        """Yields numbers of samples that were learnt."""
        for X, y in self.batches():
            classifier.partial_fit(X, y)
            yield len(y)


@dataclass(frozen=True)
class Pair(Shard):
    """Samples in memory."""

    X: Any
    y: Any

    def __reduce__(self) -> tuple[type[Pair], tuple[Any, Any]]:
        return Pair, (sendable(self.X), sendable(self.y))

    @property
    def count(self) -> int:
        return len(self.y)

    def batches(self) -> Iterator[Batch]:
        if len(self.X) != len(self.y):
            raise UsageError(f"X has {len(self.X)} samples and y has {len(self.y)} labels; give one label per sample")
        for start in range(0, len(self.y), CALL):
            yield self.X[start : start + CALL], self.y[start : start + CALL]


@dataclass(frozen=True)
class ArrayFile(Shard):
    """An ``.npz`` file with samples and labels."""

    path: Path
    columns: tuple[str, str]

    def batches(self) -> Iterator[Batch]:
        try:
            found = read_npz(self.path, self.columns)
            X, y = (found[name] for name in self.columns)
        except (ValueError, KeyError) as error:
            raise UsageError(
                f"{self.path} cannot be read ({error}); expected an .npz file with the arrays "
                f"{' and '.join(self.columns)}"
            ) from None
        return Pair(X, y.tolist()).batches()


@dataclass(frozen=True)
class Images(Shard):
    """Image files and their labels. The classifier decides in which size they are read."""

    files: Sequence[folders.LabelledFile]

    @property
    def count(self) -> int:
        return len(self.files)

    @property
    def paths(self) -> list[Path]:
        return [file.path for file in self.files]

    def first(self, classifier: OnlineClassifier) -> Iterator[Any]:
        found = folders.image_batches(classifier, self.paths, lambda position, error: None)
        return (folders.as_given(classifier, batch.images) for batch in found)

    def teach(self, classifier: OnlineClassifier, skipped: Skipped) -> Generator[int]:
        skipped |= folders.learn_files(classifier, self.files).skipped
        yield self.count


@dataclass(frozen=True)
class Batches(Shard):
    """An iterable of batches, or a function that returns one."""

    source: Iterable[Batch] | Callable[[], Iterable[Batch]]

    def __reduce__(self) -> tuple[type[Batches], tuple[Any]]:
        pairs = isinstance(self.source, list | tuple) and all(isinstance(each, tuple) for each in self.source)
        return Batches, ([tuple(map(sendable, each)) for each in self.source] if pairs else self.source,)  # type: ignore[union-attr]

    def batches(self) -> Iterator[Batch]:
        for batch in self.source() if callable(self.source) else self.source:
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise UsageError(f"a shard gives a {type(batch).__name__}; expected pairs (X, y)")
            yield batch[0], batch[1]


@dataclass(frozen=True)
class Block(Shard):
    """A block of a ``ray.data.Dataset``, which stays in Ray's object store until a worker reads it."""

    reference: Any
    columns: tuple[str, str]

    def batches(self) -> Iterator[Batch]:
        import ray

        block = ray.get(self.reference)
        missing = [name for name in self.columns if name not in block]
        if missing:
            raise UsageError(f"the data set has the columns {', '.join(block)}; give the names of two as columns")
        X, y = (block[name] for name in self.columns)
        return Pair(np.stack(X) if X.dtype == object else X, y.tolist()).batches()


def sendable(given: Any) -> Any:
    """Samples for a pickle: a part of a tensor without the rest of the tensor, which torch would send too."""
    if isinstance(given, Tensor):
        return given.clone()
    return [sendable(each) for each in given] if isinstance(given, list) else given


def as_shards(given: Any, columns: tuple[str, str], located: Callable[[Path], Path] = Path) -> list[Shard]:
    """The shards in any of the forms that ``fit`` takes."""
    if type(given).__module__.startswith("ray.data"):
        return [Block(reference, columns) for reference in given.to_numpy_refs()]
    if isinstance(given, str | PathLike):
        return list(_shards(given, columns, located))
    if not isinstance(given, Iterable):
        raise UsageError(f"shards is a {type(given).__name__}; give a sequence of shards, or the path of a folder")
    if isinstance(given, tuple) and len(given) == 2 and all(hasattr(part, "shape") for part in given):
        raise UsageError("shards is a pair of arrays; give a list of pairs (X, y), one per shard")
    return [shard for each in given for shard in _shards(each, columns, located)]


def _shards(given: Any, columns: tuple[str, str], located: Callable[[Path], Path]) -> Iterator[Shard]:
    """The shards that one element stands for."""
    if isinstance(given, str | PathLike):
        path = located(Path(given))
        if path.is_dir():
            yield from shards_of_files(folders.find_images(path)[0])
        elif path.suffix == ".npz":
            yield ArrayFile(path, columns)
        elif path.suffix.lower() in suffixes() and path.is_file():
            folder = Path(os.path.abspath(path)).parent  # noqa: PTH100  (resolve would follow links)
            yield Images([folders.LabelledFile(path, folders.class_name(folder))])
        else:
            raise UsageError(
                f"{path} is no folder, .npz file or image file ({' '.join(suffixes())}); give one of these"
            )
    elif isinstance(given, tuple) and len(given) == 2:
        yield Pair(*given)
    elif isinstance(given, Iterator):
        raise UsageError("a shard is an iterator, which cannot be sent to a worker; give a function that returns it")
    elif callable(given) or isinstance(given, Iterable):
        yield Batches(given)
    else:
        raise UsageError(f"a shard is a {type(given).__name__}; give pairs (X, y), paths, or iterables of pairs")


def shards_of_files(files: Sequence[folders.LabelledFile]) -> Iterator[Images]:
    for start in range(0, len(files), FILES):
        yield Images(files[start : start + FILES])


def new_parts(parts: Sequence[Shard], intake: folders.Intake) -> list[Shard]:
    """The shards without image files that are known or have the contents of another one, which the intake notes.

    Reads all files, some at a time, because copies may be in shards of different workers.
    """
    found = list[Shard]()
    with ThreadPoolExecutor() as threads:
        for part in parts:
            if isinstance(part, Images):
                keys = zip(part.files, threads.map(_key, part.paths), strict=True)
                # A file that cannot be read is reported by the worker.
                part = Images([file for file, key in keys if key is None or intake.is_new(key, file)])
                if not part.files:
                    continue
            found.append(part)
    return found


def _key(path: Path) -> int | None:
    try:
        return folders.contents_key(path)
    except OSError:
        return None
