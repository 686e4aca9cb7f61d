"""Tables: one type and one renderer for every table that is printed, and the table of a metric over runs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onebyone.errors import UsageError, unknown
from onebyone.methods import methods
from onebyone.runs.results import FRACTIONS, METRICS, Results, import_pandas, summarize

if TYPE_CHECKING:
    from pandas import DataFrame, Series

EMPTY = "–"


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
    columns = []
    for number, texts in enumerate(zip(*table.head, *table.rows, strict=True)):
        widest = max(map(len, texts))
        columns.append([text.ljust(widest) if number < left else text.rjust(widest) for text in texts])
    blocks = [columns[:left]]
    for column in columns[left:]:
        taken = sum(2 + len(texts[0]) for texts in blocks[-1])
        if width is not None and taken + len(column[0]) > width and len(blocks[-1]) > left:
            blocks.append(columns[:left])
        blocks[-1] = [*blocks[-1], column]
    parts = ["\n".join("  ".join(line).rstrip() for line in zip(*block, strict=True)) for block in blocks]
    return (f"{table.title}\n" if table.title else "") + "\n\n".join(parts)


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
    numbers: Series[Any]  # of the runs of each cell, by the values of its fields
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
    def pivot(self) -> DataFrame:
        """The numbers in rows and columns; not a list where there is no run."""
        if not self.columns:
            return self.numbers.to_frame(self.metric)
        return self.numbers.unstack(list(self.columns)).sort_index(axis="columns")

    @property
    def counts(self) -> list[int]:
        """The numbers of runs that cells have."""
        return sorted(set(map(len, self.numbers)))

    @property
    def title(self) -> str:
        counts = self.counts
        unit = " in per cent" if self.metric in FRACTIONS else ""
        each = f"{counts[0]} run{'s' * (counts[0] > 1)} per cell" if len(counts) == 1 else "n runs per cell"
        return f"{self.metric}{unit}, mean ± standard deviation, {each}"

    def cells(self) -> Iterator[tuple[list[Any], list[float | None]]]:
        """Every cell, row by row: the values of its fields, and the numbers of its runs, of which there may be none."""
        pivot = self.pivot
        for row, *cells in pivot.itertuples():
            for column, numbers in zip(pivot.columns if self.columns else [()], cells, strict=True):
                keys = [None if key == EMPTY else key for key in (*as_key(row), *as_key(column))]
                yield keys, numbers if isinstance(numbers, list) else []

    def to_data(self) -> dict[str, Any]:
        """For JSON: a list of cells, each with its fields, mean, standard deviation and number of runs."""
        cells = []
        for keys, numbers in self.cells():
            if numbers:
                value = summarize(numbers)
                found = {"mean": value and value.mean, "std": value and value.std, "n": len(numbers)}
                cells.append(dict(zip((*self.rows, *self.columns), keys, strict=True)) | found)
        return {"metric": self.metric, "cells": cells, "averaged_over": list(self.mixed), "edited": list(self.edited)}

    def text(self, numbers: Any) -> str:
        """A cell as text."""
        if not isinstance(numbers, list):
            return EMPTY
        count = f" (n={len(numbers)})" if len(self.counts) > 1 else ""
        scale, form = (100, ".1f") if self.metric in FRACTIONS else (1, ".4g")
        value = summarize(number if number is None else scale * number for number in numbers)
        return f"{value.text(form) if value else 'n/a'}{count}"

    def table(self) -> Table:
        """The means and standard deviations, in rows and columns."""
        pivot = self.pivot
        keys = [as_key(key) for key in pivot.columns]
        heading = {name: [_show(key[number]) for key in keys] for number, name in enumerate(self.columns)}
        rows = [[*map(_show, as_key(key)), *map(self.text, numbers)] for key, *numbers in pivot.itertuples()]
        return Table(self.title, self.rows, heading or {"": [self.metric]}, rows)

    def plain(self) -> Table:
        """The same as plain numbers, for other programs: a line per cell."""
        rows = []
        for keys, numbers in self.cells():
            value = summarize(numbers)
            found = [str(value.mean), str(value.std)] if value else ["", ""]
            rows.append([*("" if key is None else str(key) for key in keys), *found, str(len(numbers))])
        return Table(self.title, [*self.rows, *self.columns, "mean", "std", "n"], {}, rows)

    def render(self, format: str = "terminal", width: int | None = None) -> str:
        """As :func:`render`; ``csv`` has plain numbers and a line per cell."""
        return render(self.plain() if format == "csv" else self.table(), format, width)


def as_key(label: Any) -> tuple[Any, ...]:
    """The values of fields, from a label of pandas, which is no tuple if there is one field."""
    return label if isinstance(label, tuple) else (label,)


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
    pandas = import_pandas("a table")
    shown = _short_names({str(record.fields["method"]) for record in results})
    blank = dict.fromkeys(results.names)
    lines = [
        blank | row.fields | {"method": shown[row.fields["method"]], "": row.metrics.get(metric)} for row in results
    ]
    frame = pandas.DataFrame(lines, dtype=object)
    fields = list(dict.fromkeys((*rows, *columns)))
    cells = frame.groupby([_in_order(name, frame[name]) for name in fields], observed=True)
    # A field that only some runs of a cell have is an option of their method, and the method itself is named.
    differ = cells[[name for name in results.names if name not in ("seed", "code")]].nunique().max() > 1
    edited = frame.groupby("method")["code"].nunique(dropna=False) > 1 if "code" in frame else None
    return Summary(
        metric=metric,
        rows=tuple(rows),
        columns=tuple(columns),
        numbers=cells[""].agg(list),
        mixed=tuple(sorted(differ.index[differ])),
        edited=tuple(sorted(edited.index[edited])) if edited is not None and "code" not in fields else (),
    )


def _in_order(name: str, values: Series[Any]) -> Series[Any]:
    """A field of all runs, whose values sort as in a table: a missing one first, methods as in the registry."""
    import pandas

    order = list(methods())

    def rank(value: Any) -> tuple[int, Any]:
        if value == EMPTY:
            return 0, 0
        if name == "method" and value in order:
            return 1, order.index(value)
        return (2, value) if isinstance(value, int | float) else (3, str(value))

    known = [EMPTY if value is None else str(value) if isinstance(value, tuple) else value for value in values]
    categories = pandas.Index(sorted(set(known), key=rank), dtype=object)
    return pandas.Series(pandas.Categorical(known, categories), name=name)


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


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
