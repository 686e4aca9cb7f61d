"""The figures, each described once: pictures for papers and the page are drawn from the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal
from zlib import crc32

from onebyone.data.cifar import CIFAR10
from onebyone.paper.printed import Part, printed
from onebyone.paper.records import CellKey, Records
from onebyone.runs.results import Value, summarize

# Colour and mark of each method. Distinct for colour-blind readers (Okabe and Ito; Tol for two), and by mark and dash
# in black and white.
STYLES = {
    "iid": ("#000000", "x"),
    "finetune": ("#8a8a8a", "+"),
    "er": ("#e69f00", "o"),
    "icarl": ("#009e73", "s"),
    "mir": ("#56b4e9", "D"),
    "der++": ("#cc79a7", "^"),
    "er-aml": ("#999933", "v"),
    "er-ace": ("#882255", "p"),
    "supbyol": ("#0072b2", "h"),
    "ccp": ("#d55e00", "*"),
    "replay": ("#117733", "<"),
    "hybrid": ("#aa4499", ">"),
    "patch-lda": ("#332288", "P"),
}
OWN_STYLES = (("#b3001b", "X"), ("#6b7a00", "d"), ("#00676b", "H"))  # of methods of the user
DASHED = ("iid", "finetune")
# Of the methods of a figure, the first four of these are in colour; the others are grey.
FIRST = ("ccp", "patch-lda", "replay", "er-ace", "er-aml", "supbyol", "er", "iid", "der++")
Kind = Literal["curve", "points", "level", "paper"]


def style(method: str) -> tuple[str, str]:
    """Colour and mark of a method; a method of the user always gets the same."""
    return STYLES.get(method) or OWN_STYLES[crc32(method.encode()) % len(OWN_STYLES)]


def bright(methods: Iterable[str]) -> list[str]:
    """The methods that are in colour in a figure of some methods: those of the user, then the most important.

    >>> bright(["iid", "er", "mir", "supbyol", "ccp"])
    ['ccp', 'supbyol', 'er', 'iid']
    """
    some = set(methods)
    own = sorted(some - set(STYLES))
    return [*own, *(name for name in FIRST if name in some)][: max(4, len(own))]


@dataclass(frozen=True)
class Line:
    """One method in a panel: a curve with a band, points with error bars, a horizontal line, or the paper's point."""

    method: str
    kind: Kind
    x: tuple[float, ...]
    y: tuple[float, ...]
    std: tuple[float, ...] = ()


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x_title: str
    y_title: str
    lines: tuple[Line, ...]
    log_x: bool = False


@dataclass(frozen=True)
class Heat:
    """A matrix of per cents: a row for each method, a column for each class."""

    title: str
    x_title: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Scenario:
    """What a panel shows: one stream, one memory size and one protocol."""

    protocol: str
    part: Part
    classes_per_task: int
    memory_per_class: int

    @property
    def stream(self) -> str:
        return "one class per task" if self.classes_per_task == 1 else f"{self.classes_per_task} classes per task"

    @property
    def title(self) -> str:
        return f"{self.stream}, M = {self.memory_per_class}"

    @property
    def cells(self) -> dict[str, CellKey]:
        """The cell of each method that is compared."""
        where = self.classes_per_task, self.memory_per_class
        return {m: CellKey(self.protocol, self.part.dataset, m, *where) for m in self.part.methods(where[0])}


def anytime(records: Records, scenario: Scenario) -> Panel:
    """Accuracy over the classes seen so far, after every task, with a band of one standard deviation over the seeds."""
    lines = []
    for method, cell in scenario.cells.items():
        points = _per_position([100 * point for point in run.anytime] for run in records.runs(cell))
        if points:
            arrived = tuple(scenario.classes_per_task * (task + 1.0) for task in range(len(points)))
            known = [point for point in points if point is not None]  # a curve has no gaps
            lines.append(Line(method, "curve", arrived, tuple(p.mean for p in known), tuple(p.std for p in known)))
    return Panel(scenario.title, "classes seen so far", "accuracy on them, %", tuple(lines))


def tradeoff(records: Records, scenario: Scenario) -> Panel:
    """Forgetting against accuracy; hollow marks are the paper's numbers."""
    lines = []
    for method, cell in scenario.cells.items():
        metrics = ("forgetting", "accuracy")
        found: dict[Kind, list[Value | None]] = {
            "points": [records.value(cell, metric) for metric in metrics],
            "paper": [printed(scenario.part.in_print, method, scenario.memory_per_class, metric) for metric in metrics],
        }
        for kind, (x, y) in found.items():
            if x is not None and y is not None:
                lines.append(Line(method, kind, (x.mean,), (y.mean,), (y.std,)))
    return Panel(scenario.title, "forgetting, % (less is better)", "accuracy, %", tuple(lines))


def against_flops(records: Records, scenario: Scenario) -> Panel:
    """Accuracy against the cost per sample, relative to ER."""
    lines, er = [], records.value(scenario.cells["er"], "flops")
    unit, words = (er.mean, "operations for each sample, ER = 1") if er else (1e9, "GFLOP for each sample")
    for method, cell in scenario.cells.items():
        cost, accuracy = (records.value(cell, metric) for metric in ("flops", "accuracy"))
        if cost is not None and accuracy is not None:
            lines.append(Line(method, "points", (cost.mean / unit,), (accuracy.mean,), (accuracy.std,)))
    title = f"{scenario.stream}, {scenario.part.column(scenario.memory_per_class)}"
    return Panel(title, words, "accuracy, %", tuple(lines), log_x=True)


def against_bytes(records: Records, scenarios: Sequence[Scenario]) -> Panel:
    """Accuracy against the bytes of the memory, over all M. A method without a memory is a horizontal line."""
    lines = []
    for method in scenarios[0].cells:
        cells = [scenario.cells[method] for scenario in scenarios if method in scenario.cells]
        points = [(records.value(cell, "memory_bytes"), records.value(cell, "accuracy")) for cell in cells]
        some = sorted((b.mean / 1e6, a.mean, a.std) for b, a in points if a is not None and b is not None)
        if some:
            x, y, std = zip(*some, strict=True)
            lines.append(Line(method, "points" if x[-1] else "level", x, y, std))
    return Panel(scenarios[0].stream, "memory, MB", "accuracy, %", tuple(lines), log_x=True)


def by_class(records: Records, scenario: Scenario) -> Heat:
    """Accuracy of every class at the end of the stream, in order of arrival: the oldest class is on the left."""
    rows = {
        method: tuple(100 * value.mean if value else None for value in columns)
        for method, cell in scenario.cells.items()
        if (columns := _per_position(run.class_accuracy for run in records.runs(cell)))
    }
    number = len(next(iter(rows.values()), ()))
    names = CIFAR10.classes if number == len(CIFAR10.classes) else tuple(map(str, range(number)))
    return Heat(scenario.title, "class, in order of arrival", names, tuple(rows), tuple(rows.values()))


def _per_position(curves: Iterable[Sequence[float | None]]) -> list[Value | None]:
    """Mean and standard deviation over runs, at each position of their curves."""
    return [summarize(position) for position in zip(*curves, strict=True)]


def scenarios(parts: Iterable[Part], dataset: str, protocol: str) -> list[list[Scenario]]:
    """All scenarios of a data set: a row per M, with a scenario per S. A later part replaces an earlier one."""
    some = [part for part in parts if part.dataset == dataset]
    found = {
        (m, s): Scenario(protocol, part, s, m) for part in some for m in part.memories for s in part.classes_per_task
    }
    memories = sorted({m for m, _ in found})
    return [[found[key] for key in sorted(found) if key[0] == memory] for memory in memories]


Drawing = Panel | Heat
KINDS: dict[str, Callable[[Records, Scenario], Drawing]] = {
    "anytime": anytime,
    "tradeoff": tradeoff,
    "flops": against_flops,
    "classes": by_class,
}


def drawings(
    records: Records, parts: Iterable[Part], kind: str, dataset: str, protocol: str
) -> dict[str, list[Drawing]]:
    """A figure of one kind: by M, a panel per S. A figure over all M (``bytes``) has the empty text as its key.

    Figures of costs show all methods; the others show the methods of the paper where it has them.
    """
    with_costs = kind in ("bytes", "flops")
    rows = scenarios(sorted(parts, key=lambda part: part.beyond == with_costs), dataset, protocol)
    if kind == "bytes":
        streams: dict[int, list[Scenario]] = {}
        for scenario in (scenario for row in rows for scenario in row):
            streams.setdefault(scenario.classes_per_task, []).append(scenario)
        return {"": [against_bytes(records, streams[classes]) for classes in sorted(streams)]}
    return {f"M = {row[0].memory_per_class}": [KINDS[kind](records, scenario) for scenario in row] for row in rows}
