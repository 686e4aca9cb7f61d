"""Our numbers beside the paper's: a verdict for every cell, and tables as text, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from onebyone.paper.printed import Part, Value, printed
from onebyone.paper.records import Records

METRICS = {"accuracy": 1, "forgetting": -1}  # and whether more is better
HOLE = "…"  # a cell whose runs are still to be made
COSTS = "FLOPs, ER = 1"  # above what a sample costs a method
SIGNS = {"better": "▲", "reproduced": "✓", "missed": "✗", "hole": HOLE, "not printed": ""}


@dataclass(frozen=True)
class Cell:
    """One number of a table: the paper's, ours, and what to think of it."""

    method: str
    memory_per_class: int
    metric: str
    paper: Value | None
    ours: Value | None
    means_something: bool = True  # forgetting does not, of a stream without tasks

    @property
    def difference(self) -> float | None:
        return None if self.paper is None or self.ours is None else round(self.ours.mean, 1) - self.paper.mean

    @property
    def verdict(self) -> str:
        """``reproduced`` if we are at most twice the larger standard deviation worse than the paper, ``better`` if we
        are more than that better, else ``missed``. Ours is rounded to the one digit the paper prints.

        >>> Cell("ccp", 20, "accuracy", Value(34.3, 1.1, 5), Value(32.2, 0.4, 5)).verdict
        'reproduced'
        >>> Cell("ccp", 20, "forgetting", Value(27.2, 1.0, 5), Value(20.0, 0.4, 5)).verdict
        'better'
        """
        if self.ours is None:
            return "hole" if self.means_something else "not printed"
        if self.paper is None or self.difference is None:
            return "not printed"
        advantage = round(METRICS[self.metric] * self.difference, 1)
        slack = round(2 * max(self.paper.std, round(self.ours.std, 1)), 1)
        if advantage > slack:
            return "better"
        return "reproduced" if advantage >= -slack else "missed"


@dataclass(frozen=True)
class Grid:
    """One metric of one table in one protocol: a row of cells for each method."""

    part: Part
    classes_per_task: int
    protocol: str
    metric: str
    rows: dict[str, list[Cell]]  # by the title of the method
    costs: dict[str, str] = field(default_factory=dict)  # by the same, where they are compared too

    @property
    def seeds(self) -> int:
        """How many runs the fullest cell has."""
        return max((cell.ours.runs for row in self.rows.values() for cell in row if cell.ours), default=0)

    @property
    def title(self) -> str:
        return f"{self.name}, {self.metric} in per cent, protocol “{self.protocol}”"

    @property
    def name(self) -> str:
        """Of the table, which says itself how many classes arrive together if it is the paper's."""
        stream = "one class" if self.classes_per_task == 1 else f"{self.classes_per_task} classes"
        return self.part.title if self.part.is_table else f"{self.part.title}, {stream} per task"

    @property
    def columns(self) -> list[str]:
        return [self.part.column(memory) for memory in self.part.memories]

    @property
    def head(self) -> list[str]:
        return ["method", *([COSTS] if self.costs else []), *self.columns]

    def lead(self, title: str) -> list[str]:
        """What stands before the numbers of a method."""
        return [title, *([self.costs[title]] if self.costs else [])]


def grids(records: Records, part: Part, protocol: str) -> Iterator[Grid]:
    """Accuracy and forgetting of a table.

    Beyond the paper, methods without runs are left out, and the others go by what a sample costs them.
    """
    for classes, metric in product(part.classes_per_task, METRICS):
        rows = {
            title: [
                Cell(
                    method,
                    memory,
                    metric,
                    printed(part.in_print, method, memory, metric),
                    records.value(protocol, part.dataset, method, classes, memory, metric),
                    means_something=(method, metric) != ("iid", "forgetting"),
                )
                for memory in part.memories
            ]
            for method, title in part.methods(classes).items()
        }
        costs: dict[str, str] = {}
        if part.beyond:  # there is no promise of what will be run
            rows = {title: row for title, row in rows.items() if any(cell.ours for cell in row)}
            multiples = _multiples(records, part, protocol, classes)
            if all(row[0].method in multiples for row in rows.values()):
                rows = dict(sorted(rows.items(), key=lambda item: multiples[item[1][0].method]))
                costs = {title: _range(*multiples[row[0].method]) for title, row in rows.items()}
        yield Grid(part, classes, protocol, metric, rows, costs)


def _multiples(records: Records, part: Part, protocol: str, classes: int) -> dict[str, tuple[float, float]]:
    """What a sample costs each method in floating-point operations, ER being 1: the least and the most of all M."""

    def costs(method: str) -> list[float]:
        found = (records.value(protocol, part.dataset, method, classes, m, "flops") for m in part.memories)
        return [value.mean for value in found if value]

    er = costs("er")
    every = {method: [cost / er[0] for cost in costs(method)] for method in part.methods(classes)} if er else {}
    return {method: (min(some), max(some)) for method, some in every.items() if some}


def _range(low: float, high: float) -> str:
    least, most = f"{low:.2f}", f"{high:.2f}"
    return least if least == most else f"{least} to {most}"


def text(grid: Grid) -> str:
    """For a terminal: ours, the difference to the paper, and the verdict; holes marked."""
    lines = [["", *grid.head[1:]]]
    lines += [[*grid.lead(title), *(_short(cell, grid.seeds) for cell in row)] for title, row in grid.rows.items()]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = ("  ".join(item.ljust(width) for item, width in zip(line, widths, strict=True)).rstrip() for line in lines)
    return "\n".join([grid.title, *rows])


def _short(cell: Cell, seeds: int) -> str:
    beside = "" if cell.difference is None else f" ({cell.difference:+.1f} {SIGNS[cell.verdict]})"
    return f"{_ours(cell, seeds)}{beside}"


def _ours(cell: Cell, seeds: int) -> str:
    """Our number, and how many seeds it has if other cells of its table have more."""
    if cell.ours is None:
        return SIGNS[cell.verdict] or "–"
    return f"{cell.ours}" + (f", {cell.ours.runs} of {seeds} seeds" if cell.ours.runs < seeds else "")


def markdown(grid: Grid) -> str:
    """Ours, the paper's in brackets, and the verdict."""
    lines = [grid.head, ["---"] * len(grid.head)]
    for title, row in grid.rows.items():
        lines.append([*grid.lead(title), *(_whole(cell, grid.seeds) for cell in row)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _whole(cell: Cell, seeds: int) -> str:
    paper = f" (paper {cell.paper})" if cell.paper else ""
    sign = f" {SIGNS[cell.verdict]}" if cell.difference is not None else ""
    return f"{_ours(cell, seeds)}{paper}{sign}"


def latex(grid: Grid) -> str:
    """For a paper: ours above the paper's, in the tabular of booktabs."""

    def value(text: str) -> str:
        return "--" if text in (HOLE, "–") else text.replace("±", "$\\pm$")

    head = " & ".join(["", *(column.replace("M = ", "$M$ = ") for column in grid.head[1:])])
    lines = [
        f"% {grid.title}" + ("; first ours, below it the paper's" if grid.part.is_table else ""),
        f"\\begin{{tabular}}{{l{'r' * len(grid.head[1:])}}}",
        "\\toprule",
        f"{head} \\\\",
        "\\midrule",
    ]
    for title, row in grid.rows.items():
        lines.append(" & ".join([*grid.lead(title), *(value(_ours(cell, grid.seeds)) for cell in row)]) + " \\\\")
        if grid.part.is_table:
            printed_row = ["\\quad\\small paper", *(f"\\small {value(str(cell.paper or HOLE))}" for cell in row)]
            lines.append(" & ".join(printed_row) + " \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"
