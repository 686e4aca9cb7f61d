"""Where the numbers on pages come from: files in ``results/``, the paper, constants and defaults in the code."""

import csv
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from statistics import fmean

from onebyone.methods import find
from onebyone.options import describe
from onebyone.paper import printed, search
from onebyone.paper.protocols import choices
from onebyone.paper.records import Records, read
from onebyone.paper.reproduce import EVERYTHING

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"


@dataclass(frozen=True)
class Column:
    """Means of a column of a CSV file, over the rows that have the same values in the columns ``by``."""

    file: str
    value: str = "accuracy"
    by: tuple[str, ...] = ()
    where: str = ""  # only rows with these values: "name=value name=value"
    scale: float = 1.0
    best: bool = False  # the largest value of each group instead
    whole: bool = False  # whether the page rounds to whole numbers

    def groups(self) -> dict[tuple[str, ...], float]:
        groups: dict[tuple[str, ...], list[float]] = defaultdict(list)
        wanted = [word.split("=", 1) for word in self.where.split()]
        with (RESULTS / self.file).open(newline="") as file:
            for row in csv.DictReader(file):
                if row[self.value] not in ("", "-") and all(row[name] == value for name, value in wanted):
                    groups[tuple(row[name] for name in self.by)].append(self.scale * float(row[self.value]))
        assert groups, f"{self.file} has no {self.value}"
        return {name: max(values) if self.best else fmean(values) for name, values in groups.items()}

    def known(self) -> set[str]:
        return written(self.groups().values(), self.whole)


@dataclass(frozen=True)
class Cells:
    """Means of the runs of the paper's tables and figures, and of those beyond."""

    dataset: str
    classes_per_task: int
    memory_per_class: int | None = None  # None: all sizes

    def known(self) -> set[str]:
        values = [
            value
            for (dataset, per_task, memory), value in cells()
            if (dataset, per_task) == (self.dataset, self.classes_per_task)
            and (self.memory_per_class is None or memory in (None, self.memory_per_class))
        ]
        return written(values, whole=False)


@dataclass(frozen=True)
class Printed:
    """The numbers of the paper."""

    def known(self) -> set[str]:
        return written((value.mean for value in printed._numbers().values()), whole=False)


@dataclass(frozen=True)
class Text:
    """Numbers that a pattern finds in a file of text."""

    file: str
    pattern: str

    def numbers(self) -> list[float]:
        found = re.findall(self.pattern, (ROOT / self.file).read_text())
        assert found, f"{self.file} does not have {self.pattern}"
        numbers = [each for group in found for each in (group if isinstance(group, tuple) else (group,))]
        return [float(number.replace(",", "")) for number in numbers]

    def known(self) -> set[str]:
        return written(self.numbers())


@dataclass(frozen=True)
class Computed:
    """Numbers that follow from those on record, such as differences and ratios."""

    numbers: Callable[[], Iterable[float]]

    def known(self) -> set[str]:
        return written(self.numbers())


@dataclass(frozen=True)
class Code:
    """A constant in the code."""

    name: str  # "module:NAME"
    scale: float = 1.0
    offset: float = 0.0

    def known(self) -> set[str]:
        return written([self.scale * (resolve_name(self.name) + self.offset)])


@dataclass(frozen=True)
class Defaults:
    """The defaults of the options of methods."""

    methods: str

    def known(self) -> set[str]:
        return {default for name in self.methods.split() for _, _, default, _ in describe(find(name).options)}


@dataclass(frozen=True)
class Stated:
    """Numbers that need no source, and why."""

    numbers: str
    why: str

    def known(self) -> set[str]:
        return set(self.numbers.split())


Source = Column | Cells | Printed | Text | Computed | Code | Defaults | Stated


def written(values: Iterable[float], whole: bool = True) -> set[str]:
    """Each value as pages write it, with up to three decimals. A half may be rounded to either side."""
    found = set()
    for value in values:
        for moved in (abs(value) - 1e-9, abs(value) + 1e-9):
            texts = [f"{moved:.{decimals}f}" for decimals in range(4)]
            found |= {*texts[1:], *(text.removeprefix("0") for text in texts[1:])}
            found |= {texts[0], f"{moved:,.0f}"} if whole else set()
    return found


@cache
def records(folder: str = "") -> Records:
    """The runs of the tables and figures, and of those beyond."""
    return read(RESULTS / folder, EVERYTHING)


@cache
def cells() -> list[tuple[tuple[str, int, int | None], float]]:
    """Data set, classes per task, size of the memory and mean accuracy of every cell."""
    found = [(cell, records().value(cell, "accuracy")) for cell in records().cells]
    return [((c.dataset, c.classes_per_task, c.memory_per_class), value.mean) for c, value in found if value]


def read_out(*methods: str) -> list[float]:
    """Every read-out of what the search for `printed` chose, with one class per task and M = 20, in per cent."""
    rows = search.read(RESULTS / "search" / "printed.csv")
    return [
        100 * fmean(accuracies[1, 20])
        for method in methods
        for (options, _), accuracies in search.cells(rows, method, [1, 2], 1).items()
        if json.loads(options).items() <= choices()["printed"][method][0]["options"].items()
    ]


def removed_parts() -> list[float]:
    """What `patch-lda` loses without one of its parts, in points."""
    means = Column("statistics/ablation.csv", by=("removed",)).groups()
    return [means["nothing",] - mean for mean in means.values()]


@cache
def operations(dataset: str, method: str) -> dict[int, float]:
    """Operations of a method per incoming sample, relative to ER's, by the size of the memory."""
    found = {
        (row.fields["method"], row.fields["memory_per_class"]): row.metrics["cost.flops"]
        for row in records()
        if (row.fields["dataset"], row.fields["classes_per_task"]) == (dataset, 1)
        and row.config["protocol"] != "separate"
    }
    one = next(value for (name, _), value in found.items() if name == "er" and value)
    return {size: value / one for (name, size), value in found.items() if name == method and value}
