"""Shards: parts of the samples, in the forms that :func:`onebyone.distributed.fit` takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from onebyone.data.arrays import read_npz
from onebyone.data.images import suffixes
from onebyone.errors import UsageError
from onebyone.estimator.folders import Intake, LabelledFile, class_name, contents_key, find_images

FILES = 256  # image files per shard of a folder
CALL = 1000  # samples per call of ``partial_fit``
Batch = tuple[Any, Any]  # samples and labels


def sendable(given: Any) -> Any:
    """Samples for a pickle: a part of a tensor without the rest of the tensor, which torch would send too."""
    if isinstance(given, Tensor):
        return given.clone()
    return [sendable(each) for each in given] if isinstance(given, list) else given


@dataclass(frozen=True)
class Pair:
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

    def absolute(self) -> Pair:
        return self


@dataclass(frozen=True)
class ArrayFile:
    """An ``.npz`` file with samples and labels."""

    path: Path
    columns: tuple[str, str]

    @property
    def count(self) -> None:
        return None

    def batches(self) -> Iterator[Batch]:
        try:
            found = read_npz(self.path, self.columns)
            X, y = (found[name] for name in self.columns)
        except (ValueError, KeyError) as error:
            raise UsageError(
                f"{self.path} cannot be read ({error}); expected an .npz file with the arrays "
                f"{' and '.join(self.columns)}"
            ) from None
        yield from Pair(X, y.tolist()).batches()

    def absolute(self) -> ArrayFile:
        return replace(self, path=self.path.absolute())


@dataclass(frozen=True)
class Images:
    """Image files and their labels."""

    files: Sequence[LabelledFile]

    @property
    def count(self) -> int:
        return len(self.files)

    @property
    def paths(self) -> list[Path]:
        return [file.path for file in self.files]

    def absolute(self) -> Images:
        return Images([file._replace(path=file.path.absolute()) for file in self.files])


@dataclass(frozen=True)
class Stream:
    """An iterable of batches, or a function that returns one."""

    source: Iterable[Batch] | Callable[[], Iterable[Batch]]

    def __reduce__(self) -> tuple[type[Stream], tuple[Any]]:
        pairs = isinstance(self.source, list | tuple) and all(isinstance(each, tuple) for each in self.source)
        return Stream, ([tuple(map(sendable, each)) for each in self.source] if pairs else self.source,)  # type: ignore[union-attr]

    @property
    def count(self) -> None:
        return None

    def batches(self) -> Iterator[Batch]:
        for batch in self.source() if callable(self.source) else self.source:
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise UsageError(f"a shard gives a {type(batch).__name__}; expected pairs (X, y)")
            yield batch[0], batch[1]

    def absolute(self) -> Stream:
        return self


@dataclass(frozen=True)
class Block:
    """A block of a ``ray.data.Dataset``, which stays in Ray's object store until a worker reads it."""

    reference: Any
    columns: tuple[str, str]

    @property
    def count(self) -> None:
        return None

    def batches(self) -> Iterator[Batch]:
        import ray

        block = ray.get(self.reference)
        missing = [name for name in self.columns if name not in block]
        if missing:
            raise UsageError(f"the data set has the columns {', '.join(block)}; give the names of two as columns")
        X, y = (block[name] for name in self.columns)
        yield from Pair(np.stack(X) if X.dtype == object else X, y.tolist()).batches()

    def absolute(self) -> Block:
        return self


# Parts of the samples, each learnt by one worker. ``count`` is the number of samples, if it is known before they are
# read; ``absolute`` is the same shard for a process in another folder; ``batches`` are the samples, some at a time.
# Images have no batches, because the classifier decides in which size they are read.
Shard = Pair | ArrayFile | Images | Stream | Block


def as_shards(given: Any, columns: tuple[str, str]) -> list[Shard]:
    """The shards in any of the forms that ``fit`` takes."""
    if type(given).__module__.startswith("ray.data"):
        return [Block(reference, columns) for reference in given.to_numpy_refs()]
    if isinstance(given, str | PathLike):
        return list(_of_path(Path(given), columns))
    if not isinstance(given, Iterable):
        raise UsageError(f"shards is a {type(given).__name__}; give a sequence of shards, or the path of a folder")
    if _is_pair(given):
        raise UsageError("shards is a pair of arrays; give a list of pairs (X, y), one per shard")
    return [shard for each in given for shard in _of_one(each, columns)]


def _is_pair(given: Any) -> bool:
    """Whether this is one pair of samples and labels."""
    return isinstance(given, tuple) and len(given) == 2 and all(hasattr(part, "shape") for part in given)


def _of_one(each: Any, columns: tuple[str, str]) -> Iterator[Shard]:
    if isinstance(each, str | PathLike):
        yield from _of_path(Path(each), columns)
    elif isinstance(each, tuple) and len(each) == 2:
        yield Pair(*each)
    elif isinstance(each, Iterator):
        raise UsageError("a shard is an iterator, which cannot be sent to a worker; give a function that returns it")
    elif callable(each) or isinstance(each, Iterable):
        yield Stream(each)
    else:
        raise UsageError(f"a shard is a {type(each).__name__}; give pairs (X, y), paths, or iterables of pairs")


def _of_path(path: Path, columns: tuple[str, str]) -> Iterator[Shard]:
    if path.is_dir():
        yield from shards_of_files(find_images(path)[0])
    elif path.suffix == ".npz":
        yield ArrayFile(path, columns)
    elif path.suffix.lower() in suffixes() and path.is_file():
        folder = Path(os.path.abspath(path)).parent  # noqa: PTH100  (resolve would follow links)
        yield Images([LabelledFile(path, class_name(folder))])
    else:
        raise UsageError(f"{path} is no folder, .npz file or image file ({' '.join(suffixes())}); give one of these")


def shards_of_files(files: Sequence[LabelledFile]) -> Iterator[Images]:
    for start in range(0, len(files), FILES):
        yield Images(files[start : start + FILES])


def new_parts(parts: Sequence[Shard], intake: Intake) -> list[Shard]:
    """The shards without image files that are known or have the contents of another one, which the intake notes.

    Reads all files, some at a time, because copies may be in shards of different workers.
    """
    found = list[Shard]()
    with ThreadPoolExecutor() as threads:
        for part in parts:
            if not isinstance(part, Images):
                found.append(part)
                continue
            keys = threads.map(_key, part.paths)
            # A file that cannot be read is reported by the worker.
            kept = [file for file, key in zip(part.files, keys, strict=True) if key is None or intake.is_new(key, file)]
            if kept:
                found.append(Images(kept))
    return found


def _key(path: Path) -> int | None:
    try:
        return contents_key(path)
    except OSError:
        return None
