"""Data sets by name. Adding one is adding one function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from pathlib import Path

from onebyone.data.dataset import Dataset
from onebyone.errors import UsageError
from onebyone.registry import Registry, summary

Loader = Callable[..., Dataset]  # takes a path or None, and strict if files may have to be skipped


@dataclass(frozen=True)
class Entry:
    load: Loader
    summary: str
    about: str


DATASETS: Registry[Entry] = Registry("data set", "datasets")


def register(name: str, *, about: str) -> Callable[[Loader], Loader]:
    """Make a function that takes a folder (or None) and returns a :class:`Dataset` known by ``name``.

    The first line of its docstring is what ``onebyone datasets`` prints; ``about`` says where the paper
    uses it.
    """

    def add(load: Loader) -> Loader:
        DATASETS.add(name, Entry(load, summary(load), about), load)
        return load

    return add


def load(name: str = "digits", root: str | Path | None = None, *, strict: bool = False) -> Dataset:
    """Read a data set by name; ``root`` is its folder or file, by default the cache folder.

    ``strict``, for image folders only, refuses files that would be skipped with a warning.

    >>> load("digits").name
    'digits'
    """
    read = DATASETS.get(name).load
    if strict and "strict" not in signature(read).parameters:
        raise UsageError(f"strict is given, and {name} is no image folder; leave it out")
    return read(Path(root) if root is not None else None, **{"strict": True} if strict else {})


def datasets() -> dict[str, Entry]:
    """Every data set by name.

    >>> "cifar10" in datasets()
    True
    """
    return DATASETS.all()
