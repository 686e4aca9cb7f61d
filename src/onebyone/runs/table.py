"""From result folders to a table: means and spreads over seeds, and nothing averaged that is not said."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from onebyone.errors import UsageError, unknown
from onebyone.evaluation import Cost, Metrics, Result
from onebyone.methods import methods
from onebyone.runs.config import short_hash
from onebyone.runs.run import RESULT

FRACTIONS = (*(item.name for item in fields(Metrics) if item.name != "anytime"), "prequential")
METRICS = (*FRACTIONS, *(f"cost.{item.name}" for item in fields(Cost)), "seconds.training", "seconds.evaluation")
EMPTY = "–"
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """The values of one metric, by the fields that name its rows and its columns."""

    metric: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_keys: list[Key]
    column_keys: list[Key]
    cells: dict[tuple[Key, Key], list[float | None]]  # a value for each run; no runs, no cell
    mixed: tuple[str, ...]  # fields other than the seed that differ between the runs of a cell

    @property
    def warning(self) -> str:
        """What was averaged besides seeds, in a sentence; empty if nothing was."""
        if not self.mixed:
            return ""
        return f"averaged over runs that differ in {', '.join(self.mixed)}; name these in --rows or --columns"

    @property
    def title(self) -> str:
        counts = self.counts
        unit = " in per cent" if self.metric in FRACTIONS else ""
        each = f"{counts[0]} run{'s' * (counts[0] > 1)} a cell" if len(counts) == 1 else "n runs a cell"
        return f"{self.metric}{unit}, mean ± standard deviation, {each}"

    @property
    def counts(self) -> list[int]:
        return sorted({len(values) for values in self.cells.values()})

    def to_data(self) -> dict[str, Any]:
        """For JSON: a list of cells, each with its fields, mean, standard deviation and number of runs."""
        cells = []
        for (row, column), values in self.cells.items():
            mean, std = _summary(values) or (None, None)
            fields_of_cell = dict(zip((*self.rows, *self.columns), (*row, *column), strict=True))
            cells.append(fields_of_cell | {"mean": mean, "std": std, "n": len(values)})
        return {"metric": self.metric, "cells": cells, "averaged_over": list(self.mixed)}

    def text(self, row: Key, column: Key) -> str:
        """A cell for people."""
        values = self.cells.get((row, column))
        if values is None:
            return EMPTY
        count = f" (n={len(values)})" if len(self.counts) > 1 else ""
        found = _summary(values)
        if found is None:
            return f"n/a{count}"
        scale, form = (100, ".1f") if self.metric in FRACTIONS else (1, ".4g")
        middle, spread = (format(scale * value, form) for value in found)
        return f"{middle} ± {spread}{count}" if len(values) > 1 else f"{middle}{count}"  # one run has no spread


def read_results(folder: Path) -> list[Result]:
    """Every result below a folder; a run that lies there twice is one."""
    results = [Result.read(path) for path in sorted(folder.rglob(RESULT))]
    if not results:
        raise UsageError(f"there is no {RESULT} below {folder}; give the folder of a sweep or of runs")
    return list({short_hash(result.config): result for result in results}.values())


def tabulate(results: Iterable[Result], rows: Sequence[str], columns: Sequence[str], metric: str = "accuracy") -> Table:
    """Group results by fields of their configurations or of the options of their methods.

    >>> from onebyone.runs import RunConfig, run
    >>> results = [run(RunConfig(method="finetune", batch_size=200, seed=seed)) for seed in (0, 1)]
    >>> table = tabulate(results, rows=["method"], columns=["classes_per_task"], metric="cost.memory_bytes")
    >>> print(render(table))
    cost.memory_bytes, mean ± standard deviation, 2 runs a cell
    classes_per_task      1
    method
    finetune          0 ± 0
    """
    if not rows:
        raise UsageError("no field names the rows; use for example --rows method")
    runs = [(_flat(result), result) for result in results]
    known = {name for flat, _ in runs for name in flat}
    for name in (*rows, *columns):
        if name not in known:
            raise unknown("field", name, known)
    if metric not in METRICS:
        raise unknown("metric", metric, METRICS)
    groups: dict[tuple[Key, Key], list[tuple[dict[str, Any], Result]]] = {}
    for flat, result in runs:
        row, column = (tuple(flat.get(name) for name in names) for names in (rows, columns))
        groups.setdefault((row, column), []).append((flat, result))
    # A field that only some runs of a cell have is one of their method's, and the method is named itself.
    mixed = {
        name
        for group in groups.values()
        for name in known - {"seed"}
        if len({flat[name] for flat, _ in group if name in flat}) > 1
    }
    return Table(
        metric=metric,
        rows=tuple(rows),
        columns=tuple(columns),
        row_keys=_ordered({row for row, _ in groups}, rows),
        column_keys=_ordered({column for _, column in groups}, columns),
        cells={place: [_value(result, metric) for _, result in group] for place, group in groups.items()},
        mixed=tuple(sorted(mixed)),
    )


def render(table: Table, format: str = "terminal", width: int | None = None) -> str:
    """A table as text: ``terminal``, ``markdown``, ``csv`` (a line for each cell, plain numbers) or ``latex``.

    On a terminal of this ``width``, columns that have no room go below the others.
    """
    formats: dict[str, Callable[[Table], str]] = {
        "terminal": partial(_terminal, width=width),
        "markdown": _markdown,
        "csv": _csv,
        "latex": _latex,
    }
    if format not in formats:
        raise unknown("format", format, formats)
    return formats[format](table)


def _terminal(table: Table, width: int | None) -> str:
    columns = [list(texts) for texts in zip(*_grid(table, heading=True), strict=True)]
    columns = [_aligned(texts, left=place < len(table.rows)) for place, texts in enumerate(columns)]
    stub, rest = columns[: len(table.rows)], columns[len(table.rows) :]
    blocks = [stub]
    for column in rest:
        taken = sum(2 + len(texts[0]) for texts in blocks[-1])
        if width is not None and taken + len(column[0]) > width and len(blocks[-1]) > len(stub):
            blocks.append(stub)
        blocks[-1] = [*blocks[-1], column]
    parts = ["\n".join("  ".join(line).rstrip() for line in zip(*block, strict=True)) for block in blocks]
    return table.title + "\n" + "\n\n".join(parts)


def _aligned(texts: Sequence[str], left: bool) -> list[str]:
    widest = max(map(len, texts))
    return [text.ljust(widest) if left else text.rjust(widest) for text in texts]


def _markdown(table: Table) -> str:
    titles = [
        ", ".join(f"{n}={_show(v)}" for n, v in zip(table.columns, key, strict=True)) for key in table.column_keys
    ]
    head = [*table.rows, *(title or table.metric for title in titles)]
    rule = ["---"] * len(table.rows) + ["--:"] * len(titles)
    lines = [head, rule, *_grid(table)]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)


def _csv(table: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*table.rows, *table.columns, "mean", "std", "n"])
    for row in table.row_keys:
        for column in table.column_keys:
            values = table.cells.get((row, column), [])
            writer.writerow([*row, *column, *(_summary(values) or ("", "")), len(values)])
    return text.getvalue().rstrip("\n")


def _latex(table: Table) -> str:
    head, body = _grid(table, heading=True)[: -len(table.row_keys)], _grid(table)
    lines = [
        f"% {table.title}",
        f"\\begin{{tabular}}{{{'l' * len(table.rows)}{'r' * len(table.column_keys)}}}",
        "\\toprule",
        *(_latex_line(line) for line in head),
        "\\midrule",
        *(_latex_line(line) for line in body),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return "\n".join(lines)


_LATEX = str.maketrans(
    {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$", EMPTY: "--"}
    | {character: f"\\{character}" for character in "&%$#_{}"}
)


def _latex_line(texts: Sequence[str]) -> str:
    return " & ".join(text.translate(_LATEX) for text in texts) + " \\\\"


def _grid(table: Table, heading: bool = False) -> list[list[str]]:
    """The texts of all cells, beside what names the rows and, if asked for, under what names the columns."""
    lines = []
    if heading:
        blank = [""] * (len(table.rows) - 1)
        for place, name in enumerate(table.columns):
            lines.append([name, *blank, *(_show(key[place]) for key in table.column_keys)])
        lines.append([*table.rows, *([""] * len(table.column_keys))])
    return lines + [
        [*map(_show, row), *(table.text(row, column) for column in table.column_keys)] for row in table.row_keys
    ]


def _flat(result: Result) -> dict[str, Any]:
    left_out = "class-incremental" if result.disjoint else "iid"  # where it is the one that the method has anyway
    config = {"stream": left_out} | dict(result.config)
    options: dict[str, Any] = config.pop("options")
    return config | options


def _value(result: Result, metric: str) -> float | None:
    kind, _, name = metric.rpartition(".")
    value: float | None = result.seconds[name] if kind == "seconds" else getattr(getattr(result, kind, result), name)
    return value


def _summary(values: Sequence[float | None]) -> tuple[float, float] | None:
    """Mean and population standard deviation; None where a run has no such number."""
    numbers = [value for value in values if value is not None]
    return (fmean(numbers), pstdev(numbers)) if numbers and len(numbers) == len(values) else None


def _ordered(keys: Iterable[Key], names: Sequence[str]) -> list[Key]:
    """By value, what has none first; methods as in the paper's tables."""
    order = list(methods())

    def rank(name: str, value: Any) -> tuple[int, Any]:
        if value is None:
            return 0, 0
        if name == "method" and value in order:
            return 1, order.index(value)
        return (2, value) if isinstance(value, int | float) else (3, str(value))

    return sorted(keys, key=lambda key: [rank(name, value) for name, value in zip(names, key, strict=True)])


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return EMPTY if value is None else str(value)
