"""Shared by tests of runs: the files of a run folder, and the part of a result that must not change."""

import json
import threading
from collections.abc import Generator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from onebyone.engine import choose_device
from onebyone.evaluation import Result
from onebyone.executors import Executor, Worker
from onebyone.executors.executor import attempt

FILES = {"config.yaml", "curve.csv", "result.json"}
# The grid that tests of sweeps run: 121 steps each, in five tasks.
GRID = {"method": ["icarl", "ccp"], "seed": [0, 1], "classes_per_task": 2, "batch_size": 12, "prequential": True}


def numbers(result: Result) -> dict[str, Any]:
    """All of a result that must be the same when the run is repeated."""
    return {name: value for name, value in asdict(result).items() if name != "seconds"}


def names(folder: Path) -> set[str]:
    """The files in a folder."""
    return {path.name for path in folder.iterdir()}


def steps(folder: Path) -> int:
    """The number of steps in the checkpoint of a folder."""
    path = folder / "checkpoint.safetensors"
    try:
        with path.open("rb") as file:  # once: safe_open opens it twice, and the run may be writing the next
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    except FileNotFoundError:  # not yet, or the run has just finished
        return 0
    return int(json.loads(header["__metadata__"]["progress"])["steps"])


def check_results(folder: Path, expected_by_name: Mapping[str, Any]) -> None:
    """The folder holds these results, and nothing but finished runs."""
    for name, expected in expected_by_name.items():
        assert numbers(Result.read(folder / name / "result.json")) == expected
        assert names(folder / name) == FILES


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


class InThisProcess(Executor):
    """Does one item after another here, for tests that are not about processes: each of these imports torch."""

    shares_paths = True

    def device(self, name: str) -> str:
        return str(choose_device(name))

    def map(self, function: Any, items: Mapping[str, Any], **given: Any) -> Generator[tuple[str, Any]]:
        worker = Worker(given["progressed"], threading.Event())
        for name, item in items.items():
            yield name, attempt(partial(function, name, item, worker), worker.stopped)
