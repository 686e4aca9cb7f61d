"""Shared by tests of runs: the files of a run folder, and the part of a result that must not change."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from onebyone.evaluation import Result

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
