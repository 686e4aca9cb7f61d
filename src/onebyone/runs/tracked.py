"""What trackers are given of a run: its final numbers, its configuration and its curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onebyone.evaluation import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = ("accuracy", "forgetting", "average_anytime", "prequential")
Points = Sequence[tuple[int, float]]  # of the anytime curve


def summary(result: Result) -> dict[str, float]:
    """The final numbers of a run that it has."""
    numbers = {name: getattr(result, name) for name in SUMMARY}
    numbers |= {f"seconds_{name}": value for name, value in result.seconds.items()}
    return {name: float(value) for name, value in numbers.items() if value is not None}


def points_in(path: Path) -> list[tuple[int, float]]:
    """The anytime curve in the file ``curve.csv`` of a run: samples, and the accuracy after them."""
    rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
    return [(int(samples), float(accuracy)) for _, samples, accuracy in rows]


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without nesting.

    >>> flat({"method": "er", "options": {"momentum": 0.9}})
    {'method': 'er', 'options.momentum': 0.9}
    """
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
    return found


def curve_figure(result: Result, points: Points) -> Figure:
    """The anytime curve as a figure of Matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(*zip(*points, strict=True), marker="o")
    axes.set(xlabel="samples", ylabel="accuracy", ylim=(0, 1), title=str(result.config["method"]))
    return figure
