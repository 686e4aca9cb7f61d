"""Tuning: a grid of settings per method, evaluated on the held-out tenth of the training set."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from onebyone.errors import UsageError, unknown
from onebyone.evaluation import Result
from onebyone.executors import Executor, Failed, executor_named
from onebyone.files import atomic_write
from onebyone.methods import find
from onebyone.runs.config import RunConfig, bare_name, folder_name
from onebyone.runs.grid import combinations, read_yaml
from onebyone.runs.listener import Listener
from onebyone.runs.results import summarize
from onebyone.runs.sweep import sweep
from onebyone.runs.winners import Winner, write_winners

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
NAMES = ("dataset", "method")


@dataclass(frozen=True)
class Tuning:
    """The outcome of :func:`tune`."""

    rows: list[dict[str, Any]]  # of the record of this data set, a row for each run
    outcomes: dict[str, Result | Failed]  # by folder
    record: Path  # the CSV file that holds the rows
    winners: Path  # the JSON file that holds the best settings of every data set on record


def tune(
    dataset: str,
    methods: Sequence[str] = (),
    classes_per_task: Sequence[int] = (),
    *,
    grid: Sequence[Mapping[str, Any]] = (),
    out: Path,
    record: Path,
    data_dir: Path | None = None,
    device: str = "auto",
    jobs: int | None = None,
    executor: str | Executor = "local",
    listener: Listener | None = None,
) -> Tuning:
    """Try all settings of some methods (see :func:`tuning_runs`); run folders are in ``out``, rows in ``record``."""
    for path in record.glob("*.csv"):
        read_record(path)  # refuses a damaged record before anything is run
    configs = tuning_runs(dataset, methods, classes_per_task, grid)
    with executor_named(executor) as chosen:
        device = chosen.device(device)
        kind = device.partition(":")[0]
        tried = {folder_name(config.resolved(kind, data="")): config for config in configs}
        outcomes = sweep(configs, out, data_dir=data_dir, device=device, jobs=jobs, executor=chosen, listener=listener)
    rows = tuning_rows(tried, outcomes)
    path = record / f"{dataset}.csv"
    if path.exists():  # rows of other methods stay
        now = {(row["method"], row["classes_per_task"]) for row in rows}
        rows += [row for row in read_record(path) if (row["method"], row["classes_per_task"]) not in now]
    rows = in_order(rows)
    write_record(path, rows)
    every = [row for other in sorted(record.glob("*.csv")) for row in read_record(other)]
    with atomic_write(record / "winners.json") as file:
        file.write_text(write_winners(winners(every)))
    return Tuning(rows, outcomes, path, record / "winners.json")


def grids() -> dict[str, Any]:
    """The settings to try: ``tuning.yaml`` beside this file, and under ``shared`` those of the baselines."""
    import yaml

    found: dict[str, Any] = yaml.safe_load((files("onebyone.runs") / "tuning.yaml").read_text())
    found["shared"] = found["grids"].pop("baseline")  # an anchor, not a method
    return found


def read_settings(path: Path) -> list[dict[str, Any]]:
    """The settings in a YAML file: options with values or lists of values, or a list of these."""
    found = read_yaml(path, "learning_rate: [0.01, 0.1]")
    return [setting for grid in found for setting in combinations(grid)]


def tuning_runs(
    dataset: str,
    methods: Sequence[str] = (),
    classes_per_task: Sequence[int] = (),
    grid: Sequence[Mapping[str, Any]] = (),
) -> list[RunConfig]:
    """All runs of the tuning on a data set, or only those of some methods; none uses the test set.

    ``grid`` are the settings to try. By default they are those of ``tuning.yaml``; a method that is not in there, such
    as one given as ``FILE.py:NAME``, tries what the baselines try, as far as it has these options.

    >>> runs = tuning_runs("cifar10", ["ccp"], [1])
    >>> len(runs), {run.held_out for run in runs}
    (8, {True})
    """
    found = grids()
    if dataset not in found["classes_per_task"]:
        raise unknown("data set to tune on", dataset, found["classes_per_task"])
    if grid and not methods:
        raise UsageError("a grid is for named methods; name at least one method")
    configs = []
    for name, per_task in product(methods or found["grids"], classes_per_task or found["classes_per_task"][dataset]):
        if find(name).learner.stream == "iid" and per_task != found["classes_per_task"][dataset][0]:
            continue  # a shuffled stream is the same for any number of classes per task
        settings = grid or found["grids"].get(name) or _shared_settings(name, found["shared"])
        for options, run in product(settings, found["runs"]):
            config = RunConfig(
                method=name, dataset=dataset, classes_per_task=per_task, held_out=True, options=options, **run
            )
            configs.append(config)
    return configs


def _shared_settings(name: str, settings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The settings of the baselines that a method has the options for."""
    known = {item.name for item in fields(find(name).options)}
    fitting = [setting for setting in settings if setting.keys() <= known]
    if not fitting:
        raise UsageError(f"there is no grid for {name}, which has no option learning_rate; give a grid of its options")
    return fitting


def tuning_rows(tried: Mapping[str, RunConfig], outcomes: Mapping[str, Result | Failed]) -> list[dict[str, Any]]:
    """A row of the record for every run: the setting that was tried, and its accuracy and forgetting if it succeeded.

    ``tried`` are the configurations as the grid gives them, by folder as the outcomes are.
    """
    rows = []
    for name, config in tried.items():
        resolved, outcome = config.resolved("", ""), outcomes[name]
        if not config.held_out:
            raise UsageError(f"a run of {config.method} was evaluated on the test set; tuning must use held_out")
        numbers = vars(outcome) if isinstance(outcome, Result) else {"accuracy": None, "forgetting": None}
        row = {column: resolved[column] for column in COLUMNS if column in resolved}
        row |= {column: value and round(value, 5) for column, value in numbers.items() if column in COLUMNS}
        setting = {option: resolved["options"][option] for option in config.options}
        rows.append(row | {"method": bare_name(row["method"]), "options": setting})
    return in_order(rows)


def in_order(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in the order of the record: by data set, classes per task, method, options and memory."""
    return sorted(rows, key=lambda row: [str(row[name]) for name in COLUMNS[:6]])


def winners(rows: Iterable[Mapping[str, Any]]) -> list[Winner]:
    """The best setting per data set, classes per task and method; a setting with a failed run cannot win.

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
        means = {options: value.mean for options, runs in settings.items() if (value := summarize(runs))}
        if means:
            best = max(means, key=lambda options: means[options])
            found.append(Winner(*key, options=json.loads(best), accuracy=round(means[best], 5)))
    return found


def write_record(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as CSV; numbers, options and missing values as JSON."""
    with atomic_write(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            writer.writerow(row[name] if name in NAMES else json.dumps(row[name]) for name in COLUMNS)


def read_record(path: Path) -> list[dict[str, Any]]:
    """The rows of a file that ``onebyone tune`` wrote. Raises ``UsageError`` for any other file."""
    try:
        with path.open(newline="") as file:
            return [
                {name: row[name] if name in NAMES else json.loads(row[name]) for name in COLUMNS}
                for row in csv.DictReader(file)
            ]
    except (ValueError, KeyError, TypeError):
        raise UsageError(
            f"{path} is not a record of tuning, or is damaged; choose another folder for the record"
        ) from None
