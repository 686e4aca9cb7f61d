"""Data sets by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from pathlib import Path

from onebyone.data.dataset import Dataset
from onebyone.data.download import Progress
from onebyone.errors import UsageError
from onebyone.registry import Registry, summary

Loader = Callable[..., Dataset]  # takes a path or None, and strict and progress if it has use for them


@dataclass(frozen=True)
class Entry:
    load: Loader
    summary: str
    about: str


DATASETS: Registry[Entry] = Registry("data set", "datasets")


def register(name: str, *, about: str) -> Callable[[Loader], Loader]:
    """Register a function that takes a path (or None) and returns a :class:`Dataset` under ``name``.

    The first line of its docstring is printed by ``onebyone datasets``; ``about`` is its use in the paper.
    """

    def add(load: Loader) -> Loader:
        DATASETS.add(name, Entry(load, summary(load), about), load)
        return load

    return add


def load(
    name: str = "digits", root: str | Path | None = None, *, strict: bool = False, progress: Progress | None = None
) -> Dataset:
    """Read a data set by name; ``root`` is its folder or file, by default the cache folder.

    ``strict``, for image folders only, refuses files that would be skipped with a warning. ``progress`` is called with
    what is being downloaded or read, how much of it is done, and the total (None if it is not known).

    >>> load("digits").name
    'digits'
    """
    read = DATASETS.get(name).load
    taken = signature(read).parameters
    if strict and "strict" not in taken:
        raise UsageError(f"strict is given, and {name} is no image folder; leave it out")
    options = {"strict": strict, "progress": progress}
    path = Path(root) if root is not None else None
    return read(path, **{option: value for option, value in options.items() if option in taken})


def datasets() -> dict[str, Entry]:
    """Every data set by name.

    >>> "cifar10" in datasets()
    True
    """
    return DATASETS.all()
