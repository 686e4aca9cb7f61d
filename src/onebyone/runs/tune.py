"""Tuning: a grid for every method on the held-out tenth of the training set, and what won."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from onebyone.errors import UsageError, unknown
from onebyone.evaluation import Result
from onebyone.methods import method
from onebyone.runs.config import RunConfig

COLUMNS = (
    "dataset",
    "classes_per_task",
    "method",
    "options",
    "memory_per_class",
    "seed",
    "held_out",
    "accuracy",
    "forgetting",
)


@dataclass(frozen=True)
class Winner:
    """The setting of a method that did best on held-out data, by the mean over its runs."""

    dataset: str
    classes_per_task: int
    method: str
    options: Mapping[str, Any]
    accuracy: float


def grids() -> dict[str, Any]:
    """What is tried: ``tuning.yaml`` beside this file."""
    import yaml

    found: dict[str, Any] = yaml.safe_load((files("onebyone.runs") / "tuning.yaml").read_text())
    del found["grids"]["baseline"]  # an anchor, not a method
    return found


def tuning_runs(dataset: str, methods: Sequence[str] = (), classes_per_task: Sequence[int] = ()) -> list[RunConfig]:
    """All runs of the tuning on a data set, or of these methods and settings only; none looks at the test set.

    >>> runs = tuning_runs("cifar10", ["ccp"], [1])
    >>> len(runs), {run.held_out for run in runs}
    (8, {True})
    """
    found = grids()
    if dataset not in found["classes_per_task"]:
        raise unknown("data set to tune on", dataset, found["classes_per_task"])
    for name in methods:
        if name not in found["grids"]:
            raise unknown("method to tune", name, found["grids"])
    configs = []
    for name, per_task in product(methods or found["grids"], classes_per_task or found["classes_per_task"][dataset]):
        if method(name).learner.stream == "iid" and per_task != found["classes_per_task"][dataset][0]:
            continue  # a stream without tasks is the same however many classes a task has
        for options, run in product(found["grids"][name], found["runs"]):
            config = RunConfig(
                method=name, dataset=dataset, classes_per_task=per_task, held_out=True, options=options, **run
            )
            configs.append(config)
    return configs


def tuning_rows(results: Iterable[Result], failed: Iterable[RunConfig] = ()) -> list[dict[str, Any]]:
    """A row of the record for every run: what was tried of the grid, and what came of it on held-out data."""
    tried = grids()["grids"]
    ended: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = [
        *((result.config, vars(result)) for result in results),
        *((config.resolved("", ""), {"accuracy": None, "forgetting": None}) for config in failed),
    ]
    rows = []
    for config, numbers in ended:
        if not config["held_out"]:
            raise UsageError(f"a run of {config['method']} was examined on the test set; tuning must never be")
        options = _of_grid(tried[config["method"]], config["options"])
        row = {name: config[name] for name in COLUMNS if name in config}
        found = {name: value and round(value, 5) for name, value in numbers.items() if name in COLUMNS}
        rows.append(row | found | {"options": options})
    return in_order(rows)


def in_order(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the record as they are kept: by data set, classes per task, method, options and memory."""
    return sorted(rows, key=lambda row: [str(row[name]) for name in COLUMNS[:6]])


def _of_grid(settings: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The setting of a grid that these options are; of several, the one that says most."""
    fitting = [setting for setting in settings if all(options.get(name) == setting[name] for name in setting)]
    if not fitting:
        raise UsageError(f"a run with {dict(options)} is not of the grid in tuning.yaml; remove its folder")
    return max(fitting, key=len)


def winners(rows: Iterable[Mapping[str, Any]]) -> list[Winner]:
    """The best setting for every data set, number of classes per task and method, of those without a failed run.

    >>> row = {"dataset": "digits", "classes_per_task": 1, "method": "er"}
    >>> tried = [row | {"options": {"learning_rate": rate}, "accuracy": rate} for rate in (0.1, 0.3, 0.2)]
    >>> [winner.options for winner in winners(tried)]
    [{'learning_rate': 0.3}]
    """
    cells: dict[tuple[str, int, str], dict[str, list[Any]]] = {}  # accuracies, None where a run failed
    for row in rows:
        cell = cells.setdefault((row["dataset"], row["classes_per_task"], row["method"]), {})
        cell.setdefault(json.dumps(row["options"]), []).append(row["accuracy"])
    found = []
    for key, settings in cells.items():
        means = {options: fmean(accuracies) for options, accuracies in settings.items() if None not in accuracies}
        if means:
            best = max(means, key=lambda options: means[options])
            found.append(Winner(*key, options=json.loads(best), accuracy=round(means[best], 5)))
    return found


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The record as text; numbers, options and what is missing as JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(row[name] if name in ("dataset", "method") else json.dumps(row[name]) for name in COLUMNS)
    return text.getvalue()


def from_csv(text: str) -> list[dict[str, Any]]:
    """What :func:`to_csv` wrote."""
    return [
        {name: row[name] if name in ("dataset", "method") else json.loads(row[name]) for name in COLUMNS}
        for row in csv.DictReader(io.StringIO(text))
    ]


def read_record(path: Path) -> list[dict[str, Any]]:
    """The rows of a file that ``onebyone tune`` wrote; any other is refused."""
    try:
        return from_csv(path.read_text())
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{path} is no record of tuning, or damaged; give --record a folder of its own") from None
