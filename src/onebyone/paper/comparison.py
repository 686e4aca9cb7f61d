"""Our numbers beside the paper's: a verdict for every cell, and the tables to print."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product

from onebyone.paper.printed import Part, printed
from onebyone.paper.records import CellKey, Records
from onebyone.runs.results import Value
from onebyone.runs.table import EMPTY, Table

METRICS = {"accuracy": 1, "forgetting": -1}  # and whether more is better
HOLE = "…"  # a cell without runs
COSTS = "FLOPs, ER = 1"  # the heading of the cost per sample
SIGNS = {"better": "▲", "reproduced": "✓", "missed": "✗", "undecided": "?", "hole": HOLE, "not printed": ""}
DECIDES = 1.0  # points: with a larger standard error, a number within two of them may still be far from the paper's


@dataclass(frozen=True)
class Cell:
    """One number of a table: the paper's, ours, and the verdict."""

    method: str
    memory_per_class: int
    metric: str
    paper: Value | None
    ours: Value | None
    means_something: bool = True  # forgetting has no meaning in a stream without tasks

    @property
    def difference(self) -> float | None:
        return None if self.paper is None or self.ours is None else round(self.ours.mean, 1) - self.paper.mean

    @property
    def verdict(self) -> str:
        """``reproduced`` if the difference of the means is at most two standard errors, else ``better`` or ``missed``.

        A difference within two standard errors is ``undecided`` if this error is above :data:`DECIDES`. Our mean is
        rounded to the one digit the paper prints.

        >>> Cell("ccp", 20, "accuracy", Value(34.3, 1.1, 5), Value(33.3, 0.4, 5)).verdict
        'reproduced'
        >>> Cell("ccp", 20, "forgetting", Value(27.2, 1.0, 5), Value(20.0, 0.4, 5)).verdict
        'better'
        """
        if self.ours is None:
            return "hole" if self.means_something else "not printed"
        if self.paper is None or self.difference is None:
            return "not printed"
        advantage = round(METRICS[self.metric] * self.difference, 1)
        error = standard_error(self.paper, self.ours)
        if abs(advantage) <= 2 * error:
            return "reproduced" if error <= DECIDES else "undecided"
        return "better" if advantage > 0 else "missed"


def standard_error(paper: Value, ours: Value) -> float:
    """The standard error of the difference of two means.

    The paper does not say how it computes its standard deviation, which is taken as printed.

    >>> round(standard_error(Value(49.3, 0.6, 5), Value(39.0, 5.4, 5)), 2)
    2.71
    """
    return math.hypot(paper.std / math.sqrt(paper.runs), ours.standard_error)


@dataclass(frozen=True)
class PaperTable:
    """One metric of one table in one protocol: a row of cells per method."""

    part: Part
    classes_per_task: int
    protocol: str
    metric: str
    rows: dict[str, list[Cell]]  # by title of the method
    costs: dict[str, str] = field(default_factory=dict)  # by title of the method, where costs are compared

    @property
    def seeds(self) -> int:
        """The number of runs of the cell that has most."""
        return max((cell.ours.runs for row in self.rows.values() for cell in row if cell.ours), default=0)

    @property
    def distinct(self) -> list[list[Cell]]:
        """The cells with a printed number. Those that repeat one run over M, as of iid, are in one list."""
        found: dict[object, list[Cell]] = {}
        for cell in (cell for row in self.rows.values() for cell in row if cell.paper):
            same = replace(cell, memory_per_class=0) if cell.ours else cell
            found.setdefault(same, []).append(cell)
        return list(found.values())

    @property
    def title(self) -> str:
        return f"{self.name}, {self.metric} in per cent, protocol “{self.protocol}”"

    @property
    def name(self) -> str:
        """The title of the table, with the number of classes per task unless the title has it."""
        stream = "one class" if self.classes_per_task == 1 else f"{self.classes_per_task} classes"
        return self.part.title if self.part.is_table else f"{self.part.title}, {stream} per task"

    @property
    def columns(self) -> list[str]:
        return [self.part.column(memory) for memory in self.part.memories]

    def table(self, style: str = "short") -> Table:
        """The texts to print.

        ``short`` shows our number, the difference to the paper and the verdict; ``full`` the paper's number instead of
        the difference; ``numbers`` only numbers, with the paper's in a row of their own.
        """
        rows = []
        for title, row in self.rows.items():
            names = [title, *([self.costs[title]] if self.costs else [])]
            rows.append([*names, *(self._text(cell, style) for cell in row)])
            if style == "numbers" and self.part.is_table:
                rows.append(["paper", *names[2:], *(str(cell.paper or EMPTY) for cell in row)])
        return Table(self.title, ["method", *([COSTS] if self.costs else [])], {"": self.columns}, rows)

    def _text(self, cell: Cell, style: str) -> str:
        """Our number, with the number of its seeds if other cells have more, and what is shown beside it."""
        if cell.ours is None:
            text = SIGNS[cell.verdict] or EMPTY
        else:
            few = f", {cell.ours.runs} of {self.seeds} seeds" if cell.ours.runs < self.seeds else ""
            text = f"{cell.ours}{few}"
        sign = f" {SIGNS[cell.verdict]}" if cell.difference is not None else ""
        if style == "full":
            return text + (f" ({cell.paper})" if cell.paper else "") + sign
        return f"{text} ({cell.difference:+.1f}{sign})" if style == "short" and sign else text


def tables(records: Records, part: Part, protocol: str) -> Iterator[PaperTable]:
    """Accuracy and forgetting of a table.

    Beyond the paper, methods without runs are left out, and the others are sorted by their cost per sample.
    """
    for classes, metric in product(part.classes_per_task, METRICS):
        rows = {
            title: [
                Cell(
                    method,
                    memory,
                    metric,
                    printed(part.in_print, method, memory, metric),
                    records.value(CellKey(protocol, part.dataset, method, classes, memory), metric),
                    means_something=(method, metric) != ("iid", "forgetting"),
                )
                for memory in part.memories
            ]
            for method, title in part.methods(classes).items()
        }
        costs: dict[str, str] = {}
        if part.beyond:  # not every method is meant to be run
            rows = {title: row for title, row in rows.items() if any(cell.ours for cell in row)}
            multiples = _multiples(records, part, protocol, classes)
            if all(row[0].method in multiples for row in rows.values()):
                rows = dict(sorted(rows.items(), key=lambda item: multiples[item[1][0].method]))
                costs = {title: _range(*multiples[row[0].method]) for title, row in rows.items()}
        yield PaperTable(part, classes, protocol, metric, rows, costs)


def _multiples(records: Records, part: Part, protocol: str, classes: int) -> dict[str, tuple[float, float]]:
    """The floating-point operations per sample of each method, relative to ER: the minimum and maximum over M."""

    def costs(method: str) -> list[float]:
        cells = (CellKey(protocol, part.dataset, method, classes, memory) for memory in part.memories)
        return [value.mean for cell in cells if (value := records.value(cell, "flops"))]

    er = costs("er")
    every = {method: [cost / er[0] for cost in costs(method)] for method in part.methods(classes)} if er else {}
    return {method: (min(some), max(some)) for method, some in every.items() if some}


def _range(low: float, high: float) -> str:
    least, most = f"{low:.2f}", f"{high:.2f}"
    return least if least == most else f"{least} to {most}"
