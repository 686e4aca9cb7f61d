"""SupBYOL without equation 1 and CCP without equation 3: what their losses on incoming samples contribute."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from onebyone.paper import records
from onebyone.paper.printed import TITLES, Part
from onebyone.paper.records import CellKey, Records
from onebyone.runs.results import Value
from onebyone.runs.table import EMPTY, Table

FOLDER = "equations"  # of the runs with incoming_weight=0, beside the other records
EQUATIONS = {"supbyol": "equation 1", "ccp": "equation 3"}


@dataclass(frozen=True)
class Ablation:
    """Accuracy of one cell with the loss on incoming samples and without it."""

    complete: Value
    without: Value

    @property
    def difference(self) -> float:
        return round(self.without.mean, 1) - round(self.complete.mean, 1)

    @property
    def matters(self) -> bool:
        """Whether the means differ by more than two standard errors of their difference."""
        error = math.hypot(self.complete.standard_error, self.without.standard_error)
        return abs(self.without.mean - self.complete.mean) > 2 * error

    def __str__(self) -> str:
        return f"{self.without} ({self.difference:+.1f}{' *' if self.matters else ''})"


def read(folders: Iterable[Path], parts: Collection[Part]) -> Records:
    """The runs without a loss on incoming samples that lie beside the records of some folders."""
    found = Records()
    for folder in folders:
        found = found.merged(records.read(folder / FOLDER, parts))
    return found


def compare(complete: Records, without: Records) -> dict[CellKey, Ablation]:
    """The cells that have runs with and without the loss on incoming samples."""
    found = {}
    for cell in without.cells:
        values = complete.value(cell, "accuracy"), without.value(cell, "accuracy")
        if values[0] and values[1] and cell.method in EQUATIONS:
            found[cell] = Ablation(values[0], values[1])
    return found


def table(found: dict[CellKey, Ablation], names: dict[str, str], method: str | None = None) -> Table:
    """Two rows per data set, S and method: complete, and without the loss. ``names`` are those of the data sets."""
    memories = sorted({cell.memory_per_class or 0 for cell in found})
    rows = []
    for dataset, classes, name in dict.fromkeys((c.dataset, c.classes_per_task, c.method) for c in found):
        if method in (None, name):
            cells = [
                next((a for c, a in found.items() if c[1:] == (dataset, name, classes, memory)), None)
                for memory in memories
            ]
            where = [names.get(dataset, dataset), str(classes)]
            rows.append([*where, TITLES[name], *(str(a.complete) if a else EMPTY for a in cells)])
            rows.append([*where, f"without {EQUATIONS[name]}", *(str(a or EMPTY) for a in cells)])
    heading = {"": [f"M = {memory}" for memory in memories]}
    return Table("Without the losses on incoming samples", ["data set", "S", "method"], heading, rows)
