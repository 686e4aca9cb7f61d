"""The figures, each described once: what is drawn here as PNG and SVG for papers is what the page draws."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any, Literal

from onebyone.data.cifar import CIFAR10
from onebyone.files import whole
from onebyone.experiments.paper import TITLES, Part, Value, methods_of, printed
from onebyone.experiments.records import Records

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Told apart by people who see few colours, and by mark and dash where there are none (Okabe and Ito; Tol for two).
COLOURS = {
    "iid": "#000000",
    "finetune": "#8a8a8a",
    "er": "#e69f00",
    "icarl": "#009e73",
    "mir": "#56b4e9",
    "der++": "#cc79a7",
    "er-aml": "#999933",
    "er-ace": "#882255",
    "supbyol": "#0072b2",
    "ccp": "#d55e00",
}
MARKS = {
    "iid": "x",
    "finetune": "+",
    "er": "o",
    "icarl": "s",
    "mir": "D",
    "der++": "^",
    "er-aml": "v",
    "er-ace": "p",
    "supbyol": "h",
    "ccp": "*",
}
DASHED = ("iid", "finetune")
Kind = Literal["curve", "points", "level", "paper"]


@dataclass(frozen=True)
class Line:
    """One method in a panel: a curve with a band, points with a spread, a level, or where the paper puts it."""

    method: str
    kind: Kind
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float, ...] = ()


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
class Place:
    """Where a panel looks: one stream, one memory, one protocol."""

    protocol: str
    part: Part
    classes_per_task: int
    memory_per_class: int

    @property
    def stream(self) -> str:
        return "one class per task" if self.classes_per_task == 1 else f"{self.classes_per_task} classes per task"

    def value(self, records: Records, method: str, metric: str) -> Value | None:
        return records.value(
            self.protocol, self.part.dataset, method, self.classes_per_task, self.memory_per_class, metric
        )


def anytime(records: Records, place: Place) -> Panel:
    """Accuracy over the classes met so far, after every task; a band of one standard deviation over the seeds."""
    lines = []
    for method in methods_of(place.classes_per_task):
        runs = records.runs(place.protocol, place.part.dataset, method, place.classes_per_task, place.memory_per_class)
        points = [
            [100 * point for point in after if point is not None]
            for after in zip(*(run.anytime for run in runs), strict=True)
        ]
        if points:
            arrived = tuple(place.classes_per_task * (task + 1.0) for task in range(len(points)))
            middle, spread = tuple(map(fmean, points)), tuple(map(pstdev, points))
            lines.append(Line(method, "curve", arrived, middle, spread))
    title = f"{place.stream}, M = {place.memory_per_class}"
    return Panel(title, "classes met so far", "accuracy on them, %", tuple(lines))


def tradeoff(records: Records, place: Place) -> Panel:
    """Forgetting against accuracy; hollow marks are the paper's numbers."""
    lines = []
    for method in methods_of(place.classes_per_task):
        metrics = ("forgetting", "accuracy")
        found: dict[Kind, list[Value | None]] = {
            "points": [place.value(records, method, metric) for metric in metrics],
            "paper": [printed(place.part.in_print, method, place.memory_per_class, metric) for metric in metrics],
        }
        for kind, (x, y) in found.items():
            if x is not None and y is not None:
                lines.append(Line(method, kind, (x.mean,), (y.mean,), (y.std,)))
    return Panel(
        f"{place.stream}, M = {place.memory_per_class}", "forgetting, % (less is better)", "accuracy, %", tuple(lines)
    )


def against_flops(records: Records, place: Place) -> Panel:
    """Accuracy against what a sample costs to learn."""
    lines = []
    for method in methods_of(place.classes_per_task):
        cost, accuracy = (place.value(records, method, metric) for metric in ("flops", "accuracy"))
        if cost is not None and accuracy is not None:
            lines.append(Line(method, "points", (cost.mean / 1e9,), (accuracy.mean,), (accuracy.std,)))
    return Panel(
        f"{place.stream}, M = {place.memory_per_class}", "GFLOP for each sample learnt", "accuracy, %", tuple(lines)
    )


def against_bytes(records: Records, places: Sequence[Place]) -> Panel:
    """Accuracy against the bytes of the memory, over all M; a method without one is a level."""
    lines = []
    for method in methods_of(places[0].classes_per_task):
        points = [(p.value(records, method, "memory_bytes"), p.value(records, method, "accuracy")) for p in places]
        some = sorted((b.mean / 1e6, a.mean, a.std) for b, a in points if a is not None and b is not None)
        if some:
            x, y, spread = zip(*some, strict=True)
            lines.append(Line(method, "points" if x[-1] else "level", x, y, spread))
    return Panel(places[0].stream, "memory, MB", "accuracy, %", tuple(lines), log_x=True)


def by_class(records: Records, place: Place) -> Heat:
    """Accuracy of every class at the end, in the order they came: what is old stands on the left."""
    rows, values = [], []
    for method in methods_of(place.classes_per_task):
        runs = records.runs(place.protocol, place.part.dataset, method, place.classes_per_task, place.memory_per_class)
        columns = list(zip(*(run.class_accuracy for run in runs), strict=True))
        if columns:
            rows.append(method)
            values.append(
                tuple(None if None in seeds else 100 * fmean(s for s in seeds if s is not None) for seeds in columns)
            )
    number = len(values[0]) if values else 0
    names = CIFAR10.classes if number == len(CIFAR10.classes) else tuple(map(str, range(number)))
    title = f"{place.stream}, M = {place.memory_per_class}"
    return Heat(title, "class, in order of arrival", names, tuple(rows), tuple(values))


def places(parts: Iterable[Part], dataset: str, protocol: str) -> list[list[Place]]:
    """All places on a data set: a row for each M, in it a place for each S."""
    some = [part for part in parts if part.dataset == dataset]
    found = {(m, s): Place(protocol, part, s, m) for part in some for m in part.memories for s in part.classes_per_task}
    memories = sorted({m for m, _ in found})
    return [[found[key] for key in sorted(found) if key[0] == memory] for memory in memories]


Drawing = Panel | Heat
Maker = Callable[[Records, Place], Drawing]
KINDS: dict[str, Maker] = {
    "anytime": anytime,
    "tradeoff": tradeoff,
    "flops": against_flops,
    "classes": by_class,
}


def save(title: str, rows: Sequence[Sequence[Drawing]], stem: Path) -> None:
    """A grid of panels as PNG and SVG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    wide = max(len(row) for row in rows)
    figure = Figure(figsize=(5.2 * wide + 1.4, 3.4 * len(rows) + 0.6), layout="constrained")
    FigureCanvasAgg(figure)  # without pyplot: no window, no global state
    figure.suptitle(title, fontsize=12, fontweight="bold")
    grid = figure.subplots(len(rows), wide, squeeze=False)
    named: dict[str, Any] = {}
    for axes_row, row in zip(grid, rows, strict=True):
        for axes, drawing in zip(axes_row, row, strict=False):
            axes.set_title(drawing.title, fontsize=10, loc="left")
            axes.set_xlabel(drawing.x_title, fontsize=9)
            axes.tick_params(labelsize=8)
            if isinstance(drawing, Heat):
                _draw_heat(axes, drawing)
            else:
                named |= _draw_panel(axes, drawing)
        for axes in axes_row[len(row) :]:
            axes.axis("off")
    if named:
        order = [method for method in TITLES if method in named]
        handles = [named[method] for method in order]
        figure.legend(handles, [TITLES[m] for m in order], loc="outside right upper", fontsize=9, frameon=False)
    with mpl.rc_context({"svg.hashsalt": stem.name, "svg.fonttype": "none"}):  # the same figure, the same bytes
        for kind, metadata in (("png", {}), ("svg", {"Date": None})):
            with whole(stem.with_name(f"{stem.name}.{kind}")) as place:
                figure.savefig(place, format=kind, dpi=150, metadata=metadata)
            figure.set_layout_engine("none")  # it has settled, and takes longer than the drawing


def _draw_panel(axes: Axes, panel: Panel) -> dict[str, Any]:
    """Gives a handle for the legend for each method."""
    named: dict[str, Any] = {}
    axes.set_ylabel(panel.y_title, fontsize=9)
    axes.grid(color="#eeeeee")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if panel.log_x:
        axes.set_xscale("log")
    for line in panel.lines:
        colour, dash = COLOURS[line.method], "--" if line.method in DASHED else "-"
        if line.kind == "curve":
            low, high = ([m + sign * s for m, s in zip(line.y, line.spread, strict=True)] for sign in (-1, 1))
            axes.fill_between(line.x, low, high, color=colour, alpha=0.15, linewidth=0)
            mark = MARKS[line.method] if len(line.x) <= 20 else None
            (handle,) = axes.plot(line.x, line.y, dash, color=colour, linewidth=1.6, marker=mark, markersize=4)
        elif line.kind == "level":
            handle = axes.axhline(line.y[0], color=colour, linestyle=dash, linewidth=1.4)
        elif line.kind == "paper":
            axes.plot(line.x, line.y, MARKS[line.method], color=colour, markersize=8, fillstyle="none", alpha=0.7)
            continue
        else:
            style = dash if len(line.x) > 1 else "none"
            handle = axes.errorbar(  # type: ignore[assignment]
                line.x, line.y, line.spread, color=colour, linestyle=style, marker=MARKS[line.method], markersize=7
            )
        named[line.method] = handle
    axes.set_ylim(bottom=0)
    return named


def _draw_heat(axes: Axes, heat: Heat) -> None:
    numbers = [[float("nan") if value is None else value for value in row] for row in heat.values]
    if not numbers:
        axes.axis("off")
        return
    axes.imshow(numbers, cmap="cividis", vmin=0, vmax=100, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(heat.rows)), [TITLES[method] for method in heat.rows], fontsize=8)
    if len(heat.columns) <= 20:
        axes.set_xticks(range(len(heat.columns)), heat.columns, rotation=45, ha="right", fontsize=7)
        for row, values in enumerate(numbers):
            for column, value in enumerate(values):
                shade = "white" if value < 55 else "black"
                axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=7, color=shade)
