"""Panels as plotly's JSON: what the page draws. The page has its own legend."""

from __future__ import annotations

from typing import Any

from onebyone.paper.figures import DASHED, Heat, Line, Panel, style
from onebyone.paper.printed import TITLES

SYMBOLS = {
    "x": "x-thin",
    "+": "cross-thin",
    "o": "circle",
    "s": "square",
    "D": "diamond",
    "^": "triangle-up",
    "v": "triangle-down",
    "p": "pentagon",
    "h": "hexagon",
    "*": "star",
    "<": "triangle-left",
    ">": "triangle-right",
    "P": "cross",
    "X": "x",
    "d": "diamond-tall",
    "H": "hexagon2",
}
GRID = "#eceae4"


def chart(drawing: Panel | Heat) -> dict[str, Any]:
    """Data and layout; ``meta`` of a trace is its method, so that the legend can hide it."""
    return _heat(drawing) if isinstance(drawing, Heat) else _panel(drawing)


def _panel(panel: Panel) -> dict[str, Any]:
    ends = [x for line in panel.lines if line.kind != "level" for x in line.x]
    traces = [trace for line in panel.lines for trace in _traces(line, ends)]
    layout = _layout(panel.title, panel.x_title)
    layout["xaxis"] |= {"type": "log", "dtick": "D2"} if panel.log_x else {"rangemode": "tozero"}
    layout["yaxis"] = {"title": {"text": panel.y_title}, "gridcolor": GRID, "rangemode": "tozero", "zeroline": False}
    return {"data": traces, "layout": layout}


def _traces(line: Line, ends: list[float]) -> list[dict[str, Any]]:
    title, (colour, mark_name) = TITLES[line.method], style(line.method)
    symbol = SYMBOLS[mark_name]
    dash = "dash" if line.method in DASHED else "solid"
    base = {"type": "scatter", "name": title, "meta": line.method, "x": _short(line.x), "y": _short(line.y)}
    stroke = {"color": colour, "width": 2.2, "dash": dash}
    mark = {"symbol": symbol, "color": colour, "size": 11, "line": {"color": colour, "width": 1.5}}
    hover = f"<b>{title}</b> %{{y:.1f}}<extra></extra>"
    match line.kind:
        case "curve":
            low = [m - s for m, s in zip(line.y, line.std, strict=True)]
            high = [m + s for m, s in zip(line.y, line.std, strict=True)]
            band = {
                "x": _short([*line.x, *reversed(line.x)]),
                "y": _short([*high, *reversed(low)]),
                "fill": "toself",
                "fillcolor": f"{colour}26",
                "line": {"width": 0},
                "hoverinfo": "skip",
                "mode": "lines",
            }
            mode = "lines+markers" if len(line.x) <= 20 else "lines"
            return [
                base | band,
                base | {"mode": mode, "line": stroke, "marker": mark | {"size": 6}, "hovertemplate": hover},
            ]
        case "level":
            x = [min(ends), max(ends)] if ends else [0.1, 1]
            return [
                base
                | {"x": _short(x), "y": _short(line.y[:1] * 2), "mode": "lines", "line": stroke, "hovertemplate": hover}
            ]
        case "paper":
            hollow = mark | {"symbol": symbol if symbol.endswith("-thin") else f"{symbol}-open"}
            hover = f"<b>{title}, the paper</b><br>%{{x:.1f}}, %{{y:.1f}}<extra></extra>"
            return [base | {"mode": "markers", "marker": hollow, "opacity": 0.65, "hovertemplate": hover}]
        case "points":
            bars = {"type": "data", "array": _short(line.std), "thickness": 1.2, "width": 0}
            mode = "lines+markers" if len(line.x) > 1 else "markers"
            hover = f"<b>{title}</b><br>%{{x:.3g}}, %{{y:.1f}}<extra></extra>"
            return [base | {"mode": mode, "line": stroke, "marker": mark, "error_y": bars, "hovertemplate": hover}]


def _heat(heat: Heat) -> dict[str, Any]:
    trace = {
        "type": "heatmap",
        "x": list(heat.columns),
        "y": [TITLES[method] for method in heat.rows],
        "z": [[None if value is None else round(value, 1) for value in row] for row in heat.values],
        "zmin": 0,
        "zmax": 100,
        "colorscale": "Cividis",
        "xgap": 1 if len(heat.columns) <= 20 else 0,
        "ygap": 1,
        "hovertemplate": "<b>%{y}</b>, %{x}: %{z:.1f} %<extra></extra>",
        "colorbar": {"thickness": 10, "outlinewidth": 0, "ticksuffix": " %"},
    }
    layout = _layout(heat.title, heat.x_title)
    layout["xaxis"] |= {"type": "category", "showgrid": False, "nticks": 20}
    layout["yaxis"] = {"autorange": "reversed", "automargin": True, "showgrid": False}
    return {"data": [trace], "layout": layout}


def _layout(title: str, x_title: str) -> dict[str, Any]:
    return {
        "title": {"text": title, "x": 0, "xref": "paper", "font": {"size": 14}},
        "xaxis": {"title": {"text": x_title}, "gridcolor": GRID, "zeroline": False, "automargin": True},
    }


def _short(values: Any) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
