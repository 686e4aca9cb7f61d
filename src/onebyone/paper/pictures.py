"""Figures as PNG and SVG, for papers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onebyone.files import atomic_write
from onebyone.paper.figures import DASHED, Drawing, Heat, Panel, style
from onebyone.paper.printed import TITLES, rank

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        order = sorted(named, key=rank)
        handles = [named[method] for method in order]
        figure.legend(handles, [TITLES[m] for m in order], loc="outside right upper", fontsize=9, frameon=False)
    with mpl.rc_context({"svg.hashsalt": stem.name, "svg.fonttype": "none"}):  # the same figure, the same bytes
        for kind, metadata in (("png", {}), ("svg", {"Date": None})):
            with atomic_write(stem.with_name(f"{stem.name}.{kind}")) as temporary:
                figure.savefig(temporary, format=kind, dpi=150, metadata=metadata)
            figure.set_layout_engine("none")  # the layout is final, and computing it again takes longer than drawing


def _draw_panel(axes: Axes, panel: Panel) -> dict[str, Any]:
    """Returns a handle for the legend per method."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    named: dict[str, Any] = {}
    axes.set_ylabel(panel.y_title, fontsize=9)
    axes.grid(color="#eeeeee")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if panel.log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    for line in panel.lines:
        (colour, mark), dash = style(line.method), "--" if line.method in DASHED else "-"
        if line.kind == "curve":
            low, high = ([m + sign * s for m, s in zip(line.y, line.std, strict=True)] for sign in (-1, 1))
            axes.fill_between(line.x, low, high, color=colour, alpha=0.15, linewidth=0)
            shown = mark if len(line.x) <= 20 else None
            (handle,) = axes.plot(line.x, line.y, dash, color=colour, linewidth=1.6, marker=shown, markersize=4)
        elif line.kind == "level":
            handle = axes.axhline(line.y[0], color=colour, linestyle=dash, linewidth=1.4)
        elif line.kind == "paper":
            axes.plot(line.x, line.y, mark, color=colour, markersize=8, fillstyle="none", alpha=0.7)
            continue
        else:
            joined = dash if len(line.x) > 1 else "none"
            handle = axes.errorbar(  # type: ignore[assignment]
                line.x, line.y, line.std, color=colour, linestyle=joined, marker=mark, markersize=7
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
