"""Figures as SVG: in the page, which styles them, and as files that need nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import groupby, pairwise, product
from statistics import fmean

from onebyone.paper.figures import DASHED, Drawing, Heat, Line, Panel, bright, style
from onebyone.paper.printed import TITLES

WIDTH, HEIGHT = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 42, 86, 32, 44  # margins: the ticks, names of methods, the title, the axis
HEAT_LEFT, HEAT_BOTTOM = 78, 78
SPACING = 12.8  # between names of methods
# Around the origin, about ten wide. A stroke is drawn around each, so that crosses can be lines.
MARKS = {
    "x": "M-3.5-3.5 3.5 3.5M-3.5 3.5 3.5-3.5",
    "+": "M-4.5 0H4.5M0-4.5V4.5",
    "o": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "s": "M-3.6-3.6h7.2v7.2h-7.2z",
    "D": "M0-5 5 0 0 5-5 0z",
    "^": "M0-4.6 4.6 3.6H-4.6z",
    "v": "M0 4.6 4.6-3.6H-4.6z",
    "<": "M-4.6 0 3.6-4.6V4.6z",
    ">": "M4.6 0-3.6-4.6V4.6z",
    "p": "M0-4.8 4.6-1.5 2.8 3.9H-2.8L-4.6-1.5z",
    "h": "M0-4.8 4.2-2.4V2.4L0 4.8-4.2 2.4V-2.4z",
    "H": "M-4.8 0-2.4-4.2H2.4L4.8 0 2.4 4.2H-2.4z",
    "*": "M0-5.6 1.4-1.8 5.4-1.7 2.2.7 3.3 4.6 0 2.3-3.3 4.6-2.2.7-5.4-1.7-1.4-1.8z",
    "P": "M-1.7-4.8h3.4v3.1h3.1v3.4h-3.1v3.1h-3.4v-3.1h-3.1v-3.4h3.1z",
    "X": "M0-2-2.6-4.6-4.6-2.6-2 0-4.6 2.6-2.6 4.6 0 2 2.6 4.6 4.6 2.6 2 0 4.6-2.6 2.6-4.6z",
    "d": "M0-5.4 3.2 0 0 5.4-3.2 0z",
}
CSS = """svg{color:var(--ink);font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
text{fill:currentColor}.axis{fill:var(--soft)}.title{font-size:13px;font-weight:600}.grid{stroke:var(--line)}
.m{color:var(--rest)}.m text{font-size:11.5px;fill:var(--soft)}.m path,.m use{fill:currentColor;stroke:currentColor}
.m .stroke{fill:none;stroke-width:1.3;stroke-linejoin:round}.m .far{fill:none;stroke-width:.6}.m .band{display:none}
.m .hollow{fill:none}.dashed .stroke{stroke-dasharray:6 4}
.m.on{color:var(--c)}.on text{fill:currentColor;font-weight:600}.on .stroke{stroke-width:2.2}
.on .band{display:inline;opacity:.16;stroke:none}.heat{fill:var(--heat)}.over{fill:var(--card)}"""
LIGHT = "--ink:#22252b;--soft:#666b74;--line:#e6e4de;--rest:#b9b8b4;--card:#fff;--heat:#0b5c94"
Scale = Callable[[float], float]
Ticks = Sequence[tuple[float, float]]  # places and values


def standalone(drawing: Drawing, title: str) -> str:
    """A file of its own, on white."""
    used = drawing.rows if isinstance(drawing, Heat) else [line.method for line in drawing.lines]
    shape = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
    content = f"<style>svg{{{LIGHT}}}{CSS}</style>{marks(dict.fromkeys(used))}{shape}{svg(drawing, title)}"
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">{content}</svg>\n'


def marks(methods: Iterable[str]) -> str:
    """The marks of some methods, which the figures refer to; once in a page."""
    paths = "".join(f'<path id="{mark_id(name)}" d="{MARKS[style(name)[1]]}"/>' for name in methods)
    return f"<defs>{paths}</defs>"


def mark_id(method: str) -> str:
    return f"mark-{escape(method)}"


def svg(drawing: Drawing, title: str = "") -> str:
    """One figure. ``data-on`` is on the methods in colour; the others are grey until the class ``on`` is set."""
    heading = f"{title}: {drawing.title}" if title else drawing.title
    body, values = _heat(drawing) if isinstance(drawing, Heat) else _panel(drawing)
    label = escape(f"{heading}. {values or 'Not yet run'}.")
    text = f'<text class="title" x="8" y="18">{escape(heading)}</text>'
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{text}{body}</svg>'


def _panel(panel: Panel) -> tuple[str, str]:
    """The figure and its values in words: those at the end of each line."""
    if not panel.lines:
        return _empty(), ""
    ends = [x for line in panel.lines for x in line.x if line.kind != "level"] or [0.1, 1]
    low, high = (0.85 * min(ends), 1.18 * max(ends)) if panel.log_x else (0, _ticks(max(ends))[-1])
    x_ticks, y_ticks = (
        _log_ticks(low, high) if panel.log_x else _ticks(high),
        _ticks(max(y for line in panel.lines for y in line.y)),
    )
    bend = math.log if panel.log_x else float
    of_points = all(len(line.x) == 1 and line.kind != "level" for line in panel.lines)
    right = WIDTH - (18 if of_points else RIGHT)  # names are beside points, or to the right of lines
    x, y = _scale(bend(low), bend(high), LEFT, right), _scale(0, y_ticks[-1], HEIGHT - BOTTOM, TOP)
    parts = [_axes(panel, [(x(bend(t)), t) for t in x_ticks], [(y(t), t) for t in y_ticks], right)]
    shown = bright(line.method for line in panel.lines)
    groups = {line.method: _line(line, lambda value: x(bend(value)), y) for line in panel.lines if line.kind != "paper"}
    for line in panel.lines:
        if line.kind == "paper":
            hollow = _use(line, x(bend(line.x[0])), y(line.y[0]), "hollow")
            groups[line.method] = groups.get(line.method, "") + hollow
    names = _beside(panel, shown, lambda value: x(bend(value)), y) if of_points else _at_the_end(panel, y)
    for method in sorted(groups, key=shown.__contains__):  # those in colour are on top
        dashed = " dashed" if method in DASHED else ""
        on = ("on" + dashed, ' data-on=""') if method in shown else (dashed.strip(), "")
        colour = style(method)[0].replace("#000000", "var(--ink)")
        parts.append(
            f'<g class="m {on[0]}"{on[1]} data-method="{escape(method)}" style="--c:{colour}">'
            f"<title>{escape(_words(panel, method))}</title>{groups[method]}{names.get(method, '')}</g>"
        )
    return "".join(parts), ", ".join(_words(panel, method) for method in groups)


def _words(panel: Panel, method: str) -> str:
    """A method and its values: ours at the end of the line, and the paper's."""
    ours = [f"{line.y[-1]:.1f}" for line in panel.lines if line.method == method and line.kind != "paper"]
    paper = [f"paper {line.y[0]:.1f}" for line in panel.lines if line.method == method and line.kind == "paper"]
    return f"{TITLES[method]} {', '.join(ours + paper)}"


def _axes(panel: Panel, x_ticks: Ticks, y_ticks: Ticks, right: float) -> str:
    bottom = HEIGHT - BOTTOM
    grid = "".join(f"M{LEFT} {_n(at)}H{right}" for at, _ in y_ticks)
    texts = [f'<text x="{LEFT - 6}" y="{_n(at + 4)}" text-anchor="end">{value:g}</text>' for at, value in y_ticks]
    texts += [f'<text x="{_n(at)}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>' for at, value in x_ticks]
    middle = f'<text x="{(LEFT + right) / 2:g}" y="{HEIGHT - 8}" text-anchor="middle">{escape(panel.x_title)}</text>'
    side = f'<text transform="translate(12 {(TOP + bottom) / 2:g})rotate(-90)" text-anchor="middle">'
    whole = f"{''.join(texts)}{middle}{side}{escape(panel.y_title)}</text>"
    return f'<path class="grid" d="{grid}"/><g class="axis">{whole}</g>'


def _line(line: Line, x: Scale, y: Scale) -> str:
    """A curve with its band, points with error bars, or a level."""
    if line.kind == "level":
        return f'<path class="stroke" d="M{LEFT} {_n(y(line.y[0]))}H{WIDTH - RIGHT}"/>'
    places = [(x(a), y(b)) for a, b in zip(line.x, line.y, strict=True)]
    ranges = [(x(a), y(max(0, b - s)), y(b + s)) for a, b, s in zip(line.x, line.y, line.std, strict=True)]
    drawn = f'<path class="stroke" d="{_path(places)}"/>' if len(places) > 1 else ""
    if line.kind == "curve":
        outline = [(a, high) for a, _, high in ranges] + [(a, low) for a, low, _ in reversed(ranges)]
        drawn = f'<path class="band" d="{_path(outline)}z"/>{drawn}'
    else:
        bars = "".join(f"M{_n(a)} {_n(low)}V{_n(high)}" for a, low, high in ranges)
        drawn += f'<path class="stroke" d="{bars}"/>'
    return drawn + ("".join(_use(line, *place) for place in places) if len(places) <= 12 else "")


def _use(line: Line, x: float, y: float, kind: str = "") -> str:
    css = f' class="{kind}"' if kind else ""
    return f'<use{css} href="#{mark_id(line.method)}" x="{_n(x)}" y="{_n(y)}"/>'


def _at_the_end(panel: Panel, y: Scale) -> dict[str, str]:
    """The names of lines to the right of their ends, moved apart, with a thin line where one had to move."""
    wanted = sorted((y(line.y[-1]), line.method) for line in panel.lines if line.kind != "paper")
    heights = [at for at, _ in wanted]
    for _ in range(200):  # push neighbours apart until none is too close
        for i, (one, other) in enumerate(pairwise(heights)):
            if (short := SPACING - (other - one)) > 1e-3:
                heights[i], heights[i + 1] = one - short / 2, other + short / 2
        bottom = HEIGHT - BOTTOM + 4
        heights = [min(at, bottom - SPACING * (len(heights) - 1 - i)) for i, at in enumerate(heights)]
    names, right = {}, WIDTH - RIGHT
    for height, (end, method) in zip(heights, wanted, strict=True):
        far = (
            f'<path class="far" d="M{right + 5} {_n(end)}L{right + 14} {_n(height)}"/>' if abs(height - end) > 3 else ""
        )
        names[method] = f'{far}<text x="{right + 17}" y="{_n(height + 4)}">{escape(TITLES[method])}</text>'
    return names


def _beside(panel: Panel, first: Sequence[str], x: Scale, y: Scale) -> dict[str, str]:
    """The names of points, each in the nearest free place; those of ``first`` choose first."""
    places = {line.method: (x(line.x[0]), y(line.y[0])) for line in panel.lines if line.kind != "paper"}
    taken = [(x(line.x[0]) - 5, y(line.y[0]) - 5, x(line.x[0]) + 5, y(line.y[0]) + 5) for line in panel.lines]
    names = {}
    for method in sorted(places, key=lambda name: name not in first):
        (a, b), wide = places[method], 7.4 * len(TITLES[method])
        sides = {"start": a + 8, "end": a - 8 - wide, "middle": a - wide / 2}
        moves = sorted(range(-126, 127, 14), key=abs)  # up or down, by one line after the other
        options = [
            (b + move + 4, side, (sides[side], b + move - 6, sides[side] + wide, b + move + 7))
            for move, side in product(moves, sides)
        ]
        inside = [o for o in options if o[2][0] > LEFT and o[2][2] < WIDTH and 30 < o[0] < HEIGHT - BOTTOM - 3]
        free = [o for o in inside if not any(_meet(o[2], other) for other in taken)]
        for base, side, box in free[:1] or inside[:1]:
            at = box[0] + {"start": 0, "middle": wide / 2, "end": wide}[side]
            place = f'x="{_n(at)}" y="{_n(base)}" text-anchor="{side}"'
            edge = base + 4 if base < b else base - 10  # of the name, on the side of the point
            far = f'<path class="far" d="M{_n(a)} {_n(b)}L{_n(at)} {_n(edge)}"/>' if abs(base - 4 - b) > 20 else ""
            names[method] = f"{far}<text {place}>{escape(TITLES[method])}</text>"
            taken.append(box)
    return names


def _meet(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(min(one[i + 2], other[i + 2]) > max(one[i], other[i]) for i in (0, 1))


def _heat(heat: Heat) -> tuple[str, str]:
    """A row for each method; the darker, the more accurate. With few classes, the numbers are shown too."""
    if not heat.rows:
        return _empty(), ""
    few = len(heat.columns) <= 20
    wide = (WIDTH - HEAT_LEFT - 10) / len(heat.columns)
    high = (HEIGHT - TOP - HEAT_BOTTOM) / len(heat.rows)
    middles = [HEAT_LEFT + (column + 0.5) * wide for column in range(len(heat.columns))]
    names, cells, numbers, words = [], [], [], []
    for row, (method, values) in enumerate(zip(heat.rows, heat.values, strict=True)):
        top = TOP + row * high
        base = _n(top + high / 2 + 4)
        names.append(f'<text x="{HEAT_LEFT - 6}" y="{base}">{escape(TITLES[method])}</text>')
        cells.append(_cells(values, top, wide, high - 1))
        known = [(middle, value) for middle, value in zip(middles, values, strict=True) if value is not None]
        words.append(f"{TITLES[method]} {fmean(value for _, value in known):.1f}")
        for middle, value in known if few else []:
            css = ' class="over"' if value >= 55 else ""
            numbers.append(f'<text{css} x="{_n(middle)}" y="{base}">{value:.0f}</text>')
    bottom = HEIGHT - HEAT_BOTTOM + 14
    for middle, name in list(zip(middles, heat.columns, strict=True))[:: 1 if few else 10]:
        turned = "rotate(-35)" if few else ""
        names.append(f'<text transform="translate({_n(middle + 3)} {bottom}){turned}">{escape(name)}</text>')
    x_title = f'<text class="axis" x="{WIDTH / 2:g}" y="{HEIGHT - 6}">{escape(heat.x_title)}</text>'
    ends = f'<g class="axis" text-anchor="end">{"".join(names)}</g>'
    return f'{"".join(cells)}{ends}<g text-anchor="middle">{"".join(numbers)}{x_title}</g>', ", ".join(words)


def _cells(values: Sequence[float | None], top: float, wide: float, high: float) -> str:
    """A row: one path for all cells of a level, in steps of five per cent."""
    levels: dict[int, list[str]] = {}
    for level, found in groupby(enumerate(round((value or 0) / 5) for value in values), lambda item: item[1]):
        (first, _), *more = found
        left, right = (HEAT_LEFT + column * wide for column in (first, first + len(more) + 1))
        levels.setdefault(level, []).append(f"M{_n(left)} {_n(top)}H{_n(right)}v{_n(high)}H{_n(left)}z")
    return "".join(
        f'<path class="heat" fill-opacity="{level / 20:g}" d="{"".join(shapes)}"/>' for level, shapes in levels.items()
    )


def _empty() -> str:
    return f'<text class="axis" x="{WIDTH / 2:g}" y="{HEIGHT / 2:g}" text-anchor="middle">not yet run</text>'


def _scale(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (value - low) / (high - low or 1) * (end - start)


def _ticks(most: float) -> list[float]:
    """Round numbers from zero to beyond ``most``, in at most six steps.

    >>> _ticks(47.0)
    [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    """
    power = 10.0 ** math.floor(math.log10(max(most, 1e-6) / 6))
    step = next(s * power for s in (1, 2, 5, 10, 20) if most / (s * power) <= 6)
    return [step * i for i in range(math.ceil(most / step - 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """The numbers 1, 2 and 5 times a power of ten in a range.

    >>> _log_ticks(0.13, 3.6)
    [0.2, 0.5, 1.0, 2.0]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    return [tick for p in powers for s in (1, 2, 5) if low <= (tick := float(f"{s}e{p}")) <= high]


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + " ".join(f"{_n(x)} {_n(y)}" for x, y in places)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
