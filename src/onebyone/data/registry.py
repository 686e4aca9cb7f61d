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
class RegisteredDataset:
    """A data set: the function that reads it, and what is printed about it."""

    load: Loader
    summary: str
    about: str


DATASETS: Registry[RegisteredDataset] = Registry("data set", "datasets")


def register(name: str, *, about: str) -> Callable[[Loader], Loader]:
    """Register a function that reads a data set. Used as a decorator.

    The function takes a path (or None) and returns a :class:`Dataset`. The first line of its docstring is printed by
    ``onebyone datasets``.

    Parameters
    ----------
    name
        Name of the data set, as :func:`load` takes it.
    about
        How the paper uses the data set. ``onebyone datasets`` prints it.

    Returns
    -------
    Callable
        The decorator, which returns the function unchanged.
    """

    def add(load: Loader) -> Loader:
        DATASETS.add(name, RegisteredDataset(load, summary(load), about), load)
        return load

    return add


def load(
    name: str = "digits", root: str | Path | None = None, *, strict: bool = False, progress: Progress | None = None
) -> Dataset:
    """Read a data set by name.

    Parameters
    ----------
    name
        One of :func:`datasets`.
    root
        Folder or file of the data set. None: the cache folder, to which CIFAR-10 and CIFAR-100 are downloaded on first
        use.
    strict
        For image folders only: raise an error for files that would otherwise be skipped with a warning.
    progress
        Function that is called while data are downloaded or read, with a description, the amount done, and the total
        (None if unknown).

    Returns
    -------
    Dataset
        Training and test set, on the CPU.

    Raises
    ------
    UsageError
        There is no data set of this name, or its files are missing or damaged.

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


def datasets() -> dict[str, RegisteredDataset]:
    """List all data sets by name.

    Returns
    -------
    dict
        For each name, an entry with ``load``, ``summary`` and ``about``.

    >>> "cifar10" in datasets()
    True
    """
    return DATASETS.all()
