"""Grids of configurations: every combination of the values in a file is a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any

from onebyone.data import datasets
from onebyone.errors import UsageError, unknown
from onebyone.runs.config import RunConfig, folder_name


def read_grid(path: Path) -> list[RunConfig]:
    """The configurations in a YAML file that holds a grid (see :func:`expand`) or a list of grids."""
    grids = read_yaml(path, "method: [er, ccp]")
    try:
        return [config for grid in grids for config in expand(grid)]
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def read_yaml(path: Path, example: str) -> list[dict[str, Any]]:
    """The grids in a YAML file: names with values or lists of values, or a list of these."""
    import yaml

    try:
        found = yaml.safe_load(path.read_bytes())
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{path} is not YAML ({reason}); write for example: {example}") from None
    grids = found if isinstance(found, list) else [found]
    if not grids or not all(isinstance(grid, dict) and grid for grid in grids):
        raise UsageError(f"{path} holds no grid, which is a list of names with values; write for example: {example}")
    return grids


def expand(grid: Mapping[str, Any]) -> list[RunConfig]:
    """Every combination of the values of a grid, whose keys are fields of :class:`RunConfig`.

    Any value may be a list. ``options`` is a mapping of the options of the method, whose values may be lists too.

    >>> [(c.method, c.seed, c.options) for c in expand({"method": "er", "seed": [0, 1], "options": {"momentum": 0.9}})]
    [('er', 0, {'momentum': 0.9}), ('er', 1, {'momentum': 0.9})]
    """
    known = [item.name for item in fields(RunConfig) if item.name != "device"]
    for name in grid:
        if name == "device":
            raise UsageError("device belongs to the sweep, not to its runs; remove it, and give it to the sweep")
        if name not in known:
            raise unknown("name in a grid", str(name), known)
    configs = []
    for choice in combinations(grid):
        options = choice.pop("options", None) or {}
        if not isinstance(options, dict):
            raise UsageError(f"options is {options!r}; it must hold names with values, as learning_rate: [0.01, 0.1]")
        configs += [RunConfig(**choice, options=chosen) for chosen in combinations(options)]
    return configs


def combinations(grid: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of the values of a grid, in which a value may be a list."""
    lists = [value if isinstance(value, list) else [value] for value in grid.values()]
    for name, values in zip(grid, lists, strict=True):
        if not values:
            raise UsageError(f"{name} is an empty list; give it a value")
    return (dict(zip(grid, values, strict=True)) for values in product(*lists))


def plan(configs: Iterable[RunConfig], device: str) -> dict[str, RunConfig]:
    """Checked configurations by folder name; configurations of the same run become one.

    >>> grid = {"method": ["finetune", "er"], "memory_per_class": [5, 10]}
    >>> list(plan(expand(grid), "cpu"))
    ['finetune-digits-s1-m20-seed0-...', 'er-digits-s1-m5-seed0-...', 'er-digits-s1-m10-seed0-...']
    """
    runs = {}
    for config in configs:
        name = folder_name(config.resolved(device, data=""))  # imports the method's file, which may register data sets
        if config.dataset not in datasets():
            raise unknown("data set", config.dataset, datasets())
        runs[name] = config.in_full(device)
    return runs
