"""Tables: one type and one renderer for every table that is printed, and the table of a metric over runs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from onebyone.errors import UsageError, unknown
from onebyone.methods import methods
from onebyone.runs.results import FRACTIONS, METRICS, Record, Results, summarize

EMPTY = "–"
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """The texts of a table.

    ``names`` are the headings of the first columns, which name the rows. ``heading`` has the lines above the other
    columns: a text per column, by the name of the line. A line without a name stands beside ``names``.
    """

    title: str
    names: Sequence[str]
    heading: Mapping[str, Sequence[str]]
    rows: Sequence[Sequence[str]]

    @property
    def head(self) -> list[list[str]]:
        """The lines above the rows."""
        blank = [""] * (len(self.names) - 1)
        lines = [[name, *blank, *texts] for name, texts in self.heading.items() if name]
        width = len(next(iter(self.heading.values()), ()))
        return [*lines, [*self.names, *self.heading.get("", [""] * width)]]

    @property
    def columns(self) -> list[str]:
        """The heading in one line."""
        lines = [[f"{name}={text}" if name else text for text in texts] for name, texts in self.heading.items()]
        return [*self.names, *(", ".join(texts) for texts in zip(*lines, strict=True))]


def render(table: Table, format: str = "terminal", width: int | None = None) -> str:
    """A table as text: ``terminal``, ``markdown``, ``csv`` or ``latex``.

    In a terminal of this ``width``, columns that do not fit go below the others.

    >>> table = Table("Accuracy", ["method"], {"": ["M = 5", "M = 20"]}, [["er", "20.1", "35.0"]])
    >>> print(render(table))
    Accuracy
    method  M = 5  M = 20
    er       20.1    35.0
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
    left = len(table.names)
    columns = [list(texts) for texts in zip(*table.head, *table.rows, strict=True)]
    columns = [_aligned(texts, left=number < left) for number, texts in enumerate(columns)]
    blocks = [columns[:left]]
    for column in columns[left:]:
        taken = sum(2 + len(texts[0]) for texts in blocks[-1])
        if width is not None and taken + len(column[0]) > width and len(blocks[-1]) > left:
            blocks.append(columns[:left])
        blocks[-1] = [*blocks[-1], column]
    parts = ["\n".join("  ".join(line).rstrip() for line in zip(*block, strict=True)) for block in blocks]
    return (f"{table.title}\n" if table.title else "") + "\n\n".join(parts)


def _aligned(texts: Sequence[str], left: bool) -> list[str]:
    widest = max(map(len, texts))
    return [text.ljust(widest) if left else text.rjust(widest) for text in texts]


def _markdown(table: Table) -> str:
    columns = table.columns
    rule = ["---"] * len(table.names) + ["--:"] * (len(columns) - len(table.names))
    lines = [columns, rule, *table.rows]
    return "\n".join(
        "| " + " | ".join(_in_one_line(text).replace("|", "\\|") for text in line) + " |" for line in lines
    )


def _in_one_line(text: str) -> str:
    return " ".join(text.split("\n"))


def _csv(table: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return text.getvalue().rstrip("\n")


def _latex(table: Table) -> str:
    lines = [
        f"% {_in_one_line(table.title)}",
        f"\\begin{{tabular}}{{{'l' * len(table.names)}{'r' * (len(table.columns) - len(table.names))}}}",
        "\\toprule",
        *map(_latex_line, table.head),
        "\\midrule",
        *map(_latex_line, table.rows),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return "\n".join(lines)


_LATEX = str.maketrans(
    {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$", EMPTY: "--"}
    | {"…": "\\dots{}"}
    | {character: f"\\{character}" for character in "&%$#_{}"}
)


def _latex_line(texts: Sequence[str]) -> str:
    return " & ".join(text.translate(_LATEX) for text in texts) + " \\\\"


@dataclass(frozen=True)
class Summary:
    """One metric of many runs, by the fields that name the rows and the columns of a table."""

    metric: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_keys: list[Key]
    column_keys: list[Key]
    cells: dict[tuple[Key, Key], list[float | None]]  # a number per run; no runs, no cell
    mixed: tuple[str, ...]  # fields other than the seed that differ between the runs of a cell
    edited: tuple[str, ...] = ()  # methods whose runs come from different source code, which the table does not show

    @property
    def warning(self) -> str:
        """What was averaged besides seeds, and what was compared besides fields; empty if nothing was."""
        sentences = []
        if self.mixed:
            sentences.append(
                f"averaged over runs that differ in {', '.join(self.mixed)}; name these in rows or columns"
            )
        if self.edited:
            names = ", ".join(self.edited)
            sentences.append(f"the runs of {names} come from different source code; name code in rows or columns")
        return "; ".join(sentences)

    @property
    def counts(self) -> list[int]:
        """The numbers of runs that cells have."""
        return sorted({len(numbers) for numbers in self.cells.values()})

    @property
    def title(self) -> str:
        counts = self.counts
        unit = " in per cent" if self.metric in FRACTIONS else ""
        each = f"{counts[0]} run{'s' * (counts[0] > 1)} per cell" if len(counts) == 1 else "n runs per cell"
        return f"{self.metric}{unit}, mean ± standard deviation, {each}"

    def to_data(self) -> dict[str, Any]:
        """For JSON: a list of cells, each with its fields, mean, standard deviation and number of runs."""
        cells = []
        for (row, column), numbers in self.cells.items():
            value = summarize(numbers)
            fields = dict(zip((*self.rows, *self.columns), (*row, *column), strict=True))
            found = {"mean": value.mean, "std": value.std} if value else {"mean": None, "std": None}
            cells.append(fields | found | {"n": len(numbers)})
        return {"metric": self.metric, "cells": cells, "averaged_over": list(self.mixed), "edited": list(self.edited)}

    def text(self, row: Key, column: Key) -> str:
        """A cell as text."""
        numbers = self.cells.get((row, column))
        if numbers is None:
            return EMPTY
        count = f" (n={len(numbers)})" if len(self.counts) > 1 else ""
        scale, form = (100, ".1f") if self.metric in FRACTIONS else (1, ".4g")
        value = summarize(number if number is None else scale * number for number in numbers)
        return f"{value.text(form) if value else 'n/a'}{count}"

    def table(self) -> Table:
        """The means and standard deviations, in rows and columns."""
        heading = {name: [_show(key[number]) for key in self.column_keys] for number, name in enumerate(self.columns)}
        rows = [[*map(_show, row), *(self.text(row, column) for column in self.column_keys)] for row in self.row_keys]
        return Table(self.title, self.rows, heading or {"": [self.metric]}, rows)

    def plain(self) -> Table:
        """The same as plain numbers, for other programs: a line per cell."""
        rows = []
        for row in self.row_keys:
            for column in self.column_keys:
                numbers = self.cells.get((row, column), [])
                value = summarize(numbers)
                found = [str(value.mean), str(value.std)] if value else ["", ""]
                keys = ["" if key is None else str(key) for key in (*row, *column)]
                rows.append([*keys, *found, str(len(numbers))])
        return Table(self.title, [*self.rows, *self.columns, "mean", "std", "n"], {}, rows)

    def render(self, format: str = "terminal", width: int | None = None) -> str:
        """As :func:`render`; ``csv`` has plain numbers and a line per cell."""
        return render(self.plain() if format == "csv" else self.table(), format, width)


def tabulate(results: Results, rows: Sequence[str], columns: Sequence[str] = (), metric: str = "accuracy") -> Summary:
    """Group runs by fields of their configurations or by options of their methods.

    Parameters
    ----------
    results
        The runs.
    rows, columns
        Names of fields or options, whose values name the rows and the columns.
    metric
        The metric in the cells, such as ``accuracy``, ``forgetting`` or ``cost.flops``.

    Returns
    -------
    Summary
        Mean and standard deviation of each cell. Its method ``render`` returns a text.

    Raises
    ------
    UsageError
        No run has a field of this name, or there is no such metric.

    >>> from onebyone.runs import RunConfig, run
    >>> runs = [run(RunConfig(method="finetune", batch_size=200, seed=seed)) for seed in (0, 1)]
    >>> found = tabulate(Results.from_runs(runs), ["method"], ["classes_per_task"], "cost.memory_bytes")
    >>> print(found.render())
    cost.memory_bytes, mean ± standard deviation, 2 runs per cell
    classes_per_task      1
    method
    finetune          0 ± 0
    """
    if not rows:
        raise UsageError("rows names no field; name at least one, for example method")
    for name in (*rows, *columns):
        if name not in results.names:
            raise unknown("field", name, results.names)
    if metric not in METRICS:
        raise unknown("metric", metric, METRICS)
    shown = _short_names({str(record.fields["method"]) for record in results})
    groups: dict[tuple[Key, Key], list[Record]] = {}
    codes: dict[str, set[str | None]] = {}
    for record in results:
        method = shown[str(record.fields["method"])]
        fields = record.fields | {"method": method}
        row, column = (tuple(fields.get(name) for name in names) for names in (rows, columns))
        groups.setdefault((row, column), []).append(record)
        codes.setdefault(method, set()).add(fields.get("code"))
    edited = [method for method, found in codes.items() if len(found) > 1 and "code" not in (*rows, *columns)]
    # A field that only some runs of a cell have is an option of their method, and the method itself is named.
    mixed = {
        name
        for group in groups.values()
        for name in set(results.names) - {"seed", "code"}
        if len({record.fields[name] for record in group if name in record.fields}) > 1
    }
    return Summary(
        metric=metric,
        rows=tuple(rows),
        columns=tuple(columns),
        row_keys=_ordered({row for row, _ in groups}, rows),
        column_keys=_ordered({column for _, column in groups}, columns),
        cells={key: [record.metrics.get(metric) for record in group] for key, group in groups.items()},
        mixed=tuple(sorted(mixed)),
        edited=tuple(sorted(edited)),
    )


def _short_names(methods: Collection[str]) -> dict[str, str]:
    """Names for a table: without the file of a user's method, unless two files have a method of this name.

    >>> _short_names(["er", "/a/mine.py:means"]), _short_names(["/a/mine.py:er", "/b/yours.py:er"])
    ({'er': 'er', '/a/mine.py:means': 'means'}, {'/a/mine.py:er': 'mine.py:er', '/b/yours.py:er': 'yours.py:er'})
    """

    def names(method: str) -> tuple[str, str, str]:
        file, _, name = method.rpartition(":")
        return name, f"{Path(file).name}:{name}" if file else name, method

    return {
        method: next(
            text for n, text in enumerate(names(method)) if all(names(o)[n] != text for o in methods if o != method)
        )
        for method in methods
    }


def _ordered(keys: Iterable[Key], names: Sequence[str]) -> list[Key]:
    """Keys by value, with a missing value first; methods in the order of the registry."""
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
