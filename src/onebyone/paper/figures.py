"""The figures, drawn by matplotlib as SVG: the same records give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from onebyone.files import atomic_write
from onebyone.paper.printed import DATASETS, TITLES, Part, printed, rank
from onebyone.paper.records import CellKey, Records
from onebyone.runs.results import Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
# Of the methods of a figure, the first four of these have thick lines.
FIRST = ("ccp", "patch-lda", "replay", "er-ace", "er-aml", "supbyol", "er", "iid", "der++")
HOW = {"printed": "as printed", "separate": "separate passes", "joint": "joint passes"}  # in titles of panels


def style(method: str) -> tuple[str, str]:
    """Colour and mark of a method; a method of the user always gets the same."""
    return STYLES.get(method) or OWN_STYLES[crc32(method.encode()) % len(OWN_STYLES)]


def bright(methods: Iterable[str]) -> list[str]:
    """The methods with thick lines in a figure of some methods: those of the user, then the most important.

    >>> bright(["iid", "er", "mir", "supbyol", "ccp"])
    ['ccp', 'supbyol', 'er', 'iid']
    """
    some = set(methods)
    own = sorted(some - set(STYLES))
    return [*own, *(name for name in FIRST if name in some)][: max(4, len(own))]


@dataclass(frozen=True)
class Scenario:
    """The content of a panel: one stream, one memory size and one protocol."""

    protocol: str
    part: Part
    classes_per_task: int
    memory_per_class: int

    @property
    def cells(self) -> dict[str, CellKey]:
        """The cell of each method that is compared."""
        where = self.classes_per_task, self.memory_per_class
        return {m: CellKey(self.protocol, self.part.dataset, m, *where) for m in self.part.methods(where[0])}


def anytime(axes: Axes, records: Records, scenario: Scenario) -> None:
    """Anytime accuracy: the accuracy over the classes seen so far, after every task.

    Thick lines have a band of one standard deviation over the seeds. The paper prints its curves only as pictures.
    """
    axes.set(xlabel="classes seen so far", ylabel="accuracy on them, %")
    thick = bright(method for method, cell in scenario.cells.items() if records.runs(cell))
    for method, cell in scenario.cells.items():
        if runs := records.runs(cell):
            curves = np.array([[100 * point for point in run.anytime] for run in runs])
            mean, std = np.round(curves.mean(0), 2), np.round(curves.std(0, ddof=len(runs) > 1), 2)
            x = scenario.classes_per_task * np.arange(1, curves.shape[1] + 1)
            colour, mark = style(method)
            look: dict[str, Any] = {"linewidth": 1.8} if method in thick else {"linewidth": 0.9, "alpha": 0.75}
            if method in thick:
                axes.fill_between(x, mean - std, mean + std, color=colour, alpha=0.14, linewidth=0)
            every = max(1, len(x) // 10)  # ten marks on a curve
            line = "--" if method in DASHED else "-"
            axes.plot(x, mean, line, color=colour, marker=mark, markersize=4, markevery=every, label=method, **look)


def tradeoff(axes: Axes, records: Records, scenario: Scenario) -> None:
    """Forgetting against accuracy: both at the end of the stream.

    Up and to the left is better. Hollow marks are the paper's numbers.
    """
    axes.set(xlabel="forgetting, % (less is better)", ylabel="accuracy, %")
    for method, cell in scenario.cells.items():
        size = scenario.memory_per_class
        ours = records.value(cell, "forgetting"), records.value(cell, "accuracy")
        paper = [printed(scenario.part.in_print, method, size, metric) for metric in ("forgetting", "accuracy")]
        _point(axes, method, *ours)
        if all(ours) and paper[0] and paper[1]:
            colour, mark = style(method)
            axes.plot(paper[0].mean, paper[1].mean, mark, color=colour, markersize=8, fillstyle="none", alpha=0.8)


def flops(axes: Axes, records: Records, scenario: Scenario) -> None:
    """Accuracy against computation: the floating-point operations per sample, relative to ER.

    Forward and backward passes count, and replay.
    """
    er = records.value(scenario.cells["er"], "flops")
    axes.set(xlabel="operations for each sample, ER = 1" if er else "operations for each sample", ylabel="accuracy, %")
    _log(axes)
    for method, cell in scenario.cells.items():
        if cost := records.value(cell, "flops"):
            relative = Value(cost.mean / er.mean, 0.0, 1) if er else cost
            _point(axes, method, relative, records.value(cell, "accuracy"))


def memory(axes: Axes, records: Records, scenario: Scenario) -> None:
    """Accuracy against memory: the bytes of a full memory, or of the statistics, for all M.

    A dashed line is a method without a memory.
    """
    axes.set(xlabel="memory, MB", ylabel="accuracy, %")
    _log(axes)
    for method, cell in scenario.cells.items():
        keys = [cell._replace(memory_per_class=size) for size in scenario.part.memories]
        values = [(records.value(key, "memory_bytes"), records.value(key, "accuracy")) for key in keys]
        found = sorted((size.mean / 1e6, value.mean, value.std) for size, value in values if size and value)
        if found and found[-1][0]:
            x, y, std = np.round(np.array(found).T, 3)
            colour, mark = style(method)
            axes.errorbar(x, y, std, color=colour, marker=mark, markersize=5, linewidth=1.2, label=method)
        elif found:
            axes.axhline(found[0][1], color=style(method)[0], linestyle="--", linewidth=1.2, label=method)


def _log(axes: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _point(axes: Axes, method: str, x: Value | None, y: Value | None) -> None:
    if x and y:
        colour, mark = style(method)
        at = round(x.mean, 3), round(y.mean, 2)
        axes.errorbar(*at, round(y.std, 2), color=colour, linestyle="none", marker=mark, markersize=7, label=method)


KINDS: dict[str, Callable[[Axes, Records, Scenario], None]] = {
    "anytime": anytime,
    "tradeoff": tradeoff,
    "memory": memory,
    "flops": flops,
}
WITH_COSTS = ("memory", "flops")  # these show all methods, the others those of the paper where it has them
EVERY_M = ("anytime", "tradeoff")


def figures(
    records: Records, parts: Sequence[Part], protocols: Sequence[str], largest: bool
) -> Iterator[tuple[str, str, list[Scenario]]]:
    """Every figure: its kind, its name and a panel for each protocol with runs, at the largest M or at the others."""
    for kind in KINDS:
        some = [part for part in parts if part.beyond == (kind in WITH_COSTS)] or parts
        for dataset, s in sorted({(part.dataset, s) for part in some for s in part.classes_per_task}):
            fitting = [part for part in some if part.dataset == dataset and s in part.classes_per_task]
            of = {m: part for part in fitting for m in part.memories}
            for m in sorted(of)[-1:] if largest else sorted(of)[:-1] if kind in EVERY_M else ():
                panels = [Scenario(name, of[m], s, m) for name in protocols if of[m].compares_in(name)]
                panels = [each for each in panels if any(map(records.runs, each.cells.values()))]
                if panels:
                    yield kind, f"{kind}-{dataset}-{s}" + ("" if largest else f"-M{m}"), panels


def title(kind: str, panels: Sequence[Scenario]) -> str:
    """The stream and the memory of a figure."""
    first, s = panels[0], panels[0].classes_per_task
    dataset = first.part.dataset.removesuffix("-quick")
    stream = "one class per task" if s == 1 else f"{s} classes per task"
    size = "" if kind == "memory" else f", M = {first.memory_per_class}"
    return f"{DATASETS.get(dataset, dataset)}, {stream}{size}" + " (quick: few images)" * first.part.is_quick


def save(kind: str, panels: Sequence[Scenario], records: Records, path: Path) -> None:
    """Draw the panels below each other, with one legend, as SVG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3 * len(panels) + 1.1), layout="constrained")
    FigureCanvasSVG(figure)  # without pyplot: no window, no global state
    figure.suptitle(title(kind, panels), fontsize=11, fontweight="bold")
    named: dict[str, Any] = {}
    grid = figure.subplots(len(panels), 1, squeeze=False, sharex=True, sharey=True)
    for axes, panel in zip(grid[:, 0], panels, strict=True):
        axes.set_title(HOW[panel.protocol], fontsize=10, loc="left")
        axes.grid(color="#eeeeee")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        KINDS[kind](axes, records, panel)
        named |= {str(label): handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        axes.label_outer()
    grid[0, 0].set_ylim(bottom=0)  # only now, as a limit ends the scaling of all axes
    if kind == "tradeoff":
        grid[0, 0].set_xlim(left=0)
    shown = sorted(named, key=rank)
    handles, names = [named[method] for method in shown], [TITLES[method] for method in shown]
    figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    with mpl.rc_context({"svg.hashsalt": path.name, "svg.fonttype": "none"}), atomic_write(path) as temporary:
        figure.savefig(temporary, format="svg", metadata={"Date": None, "Creator": None})
