"""Our numbers beside the paper's: a row with a verdict for every cell, and tables as pivots of these rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from onebyone.paper.printed import DATASETS, NO_MEMORY, NOT_INCREMENTAL, Part, printed
from onebyone.paper.protocols import choice, protocols
from onebyone.paper.records import CellKey, Records
from onebyone.runs.results import Value

if TYPE_CHECKING:
    from pandas import DataFrame

METRICS = {"accuracy": 1, "forgetting": -1}  # and whether more is better
COSTS = "FLOPs, ER = 1"  # the heading of the cost per sample
EMPTY = "–"
OLD = "°"
SIGNS = {"better": "▲", "reproduced": "✓", "missed": "✗", "undecided": "?", "no runs yet": "…"}
DECIDES = 1.0  # points: with a larger standard error, a number within two of them may still be far from the paper's


def verdict(metric: str, paper: Value | None, ours: Value | None) -> str:
    """``reproduced`` if the difference of the means is at most two standard errors, else ``better`` or ``missed``.

    A difference within two standard errors is ``undecided`` if this error is above :data:`DECIDES`. Our mean is rounded
    to the one digit that the paper prints. The standard deviation that it prints is taken as that of a sample.

    >>> verdict("accuracy", Value(34.3, 1.1, 5), Value(33.3, 0.4, 5))
    'reproduced'
    >>> verdict("forgetting", Value(27.2, 1.0, 5), Value(20.0, 0.4, 5))
    'better'
    """
    if ours is None:
        return "no runs yet"
    if paper is None:
        return "not printed"
    advantage = round(METRICS[metric] * (round(ours.mean, 1) - paper.mean), 1)
    error = math.hypot(paper.standard_error, ours.standard_error)
    if abs(advantage) <= 2 * error:
        return "reproduced" if error <= DECIDES else "undecided"
    return "better" if advantage > 0 else "missed"


def cells(records: Records, parts: Iterable[Part], names: Sequence[str]) -> DataFrame:
    """A row for every cell of some parts in these protocols. A method without a memory has one row for all M."""
    from pandas import DataFrame

    rows: list[dict[str, Any]] = []
    for part, name in ((part, name) for part in parts for name in names if part.compares_in(name)):
        for classes, metric in ((classes, metric) for classes in part.classes_per_task for metric in METRICS):
            titles = {m: t for m, t in part.methods(classes).items() if (m, metric) != (NOT_INCREMENTAL, "forgetting")}
            for method, title in titles.items():
                for memory in part.memories[-1:] if method in NO_MEMORY else part.memories:
                    cell = CellKey(name, part.dataset, method, classes, memory)
                    paper, ours = printed(part.in_print, method, memory, metric), records.value(cell, metric)
                    place = {"part": part, "table": _heading(part, classes), "metric": metric, "cell": cell}
                    about = {"method": title, "M": "any" if method in NO_MEMORY else part.column(memory)}
                    found = {"paper": paper, "ours": ours, "verdict": verdict(metric, paper, ours)}
                    rows.append(place | about | found | {"protocol": name, "flops": records.value(cell, "flops")})
    found = DataFrame(rows, dtype=object)
    if rows:
        runs = found["ours"].map(lambda value: value.runs if value else 0)
        found["most"] = runs.groupby(found["table"]).transform("max")
        found["text"] = [_text(row) for row in found.itertuples()]
    return found


def _heading(part: Part, classes: int) -> str:
    """The title of a table. All curves of a data set and S end in one."""
    if part.is_table:
        return part.title
    stream = "one class" if classes == 1 else f"{classes} classes"
    dataset = DATASETS.get(part.dataset.removesuffix("-quick"), part.dataset)
    start = part.title if part.beyond else f"{'QUICK: ' * part.is_quick}{dataset}, at the end of the stream"
    return f"{start}, {stream} per task"


def _text(row: Any) -> str:
    """Our number, the number of its runs where others have more, the verdict, and whether its settings are old."""
    if row.ours is None:
        return SIGNS[row.verdict]
    few = f" (n = {row.ours.runs})" if row.ours.runs < row.most else ""
    return f"{row.ours}{few} {SIGNS.get(row.verdict, '')}{OLD if is_old(row.cell) else ''}".strip()


def is_old(cell: CellKey) -> bool:
    """Whether the search that chooses the settings of a cell has not been done: it has the settings of the tuning."""
    searched = protocols().get(protocols()[cell.protocol].get("settings_of", cell.protocol), {})
    known = cell.method in searched["open"]
    return known and choice(cell.protocol, cell.method, cell.classes_per_task) is None


def table(rows: DataFrame) -> DataFrame:
    """The texts of one table: a row for each method and M, and a column for the paper and for each protocol.

    Beyond the paper, where there is one protocol, M are the columns. Methods without runs are left out, and the others
    are sorted by their operations per sample.
    """
    if rows["part"].iloc[0].beyond:
        return _at_equal_bytes(rows[rows["ours"].notna()])
    found = rows.pivot_table(index=["method", "M"], columns="protocol", values="text", aggfunc="first", sort=False)
    found = found[list(rows["protocol"].unique())]
    if rows["part"].iloc[0].is_table:
        paper = rows.drop_duplicates(["method", "M"])["paper"]
        found.insert(0, "paper", [EMPTY if value is None else str(value) for value in paper])
    found = found.rename_axis(columns=None).reset_index()
    return found.assign(M=[text.removeprefix("M = ") for text in found["M"]])


def _at_equal_bytes(rows: DataFrame) -> DataFrame:
    found = rows.pivot_table(index="method", columns="M", values="text", aggfunc="first", sort=False)
    found = found[[column for column in rows["part"].iloc[0].columns if column in found]]
    if "any" in set(rows["M"]):
        every = rows[rows["M"] == "any"].set_index("method")["text"]
        found = found.reindex(list(dict.fromkeys(rows["method"])))
        found = found.apply(lambda column: column.fillna(every))
    flops = (
        rows.assign(flops=rows["flops"].map(lambda value: value.mean)).groupby("method")["flops"].agg(["min", "max"])
    )
    if "ER" in flops.index:
        low, high = ((flops[name] / flops["min"]["ER"]).map("{:.2f}".format) for name in ("min", "max"))
        found.insert(0, COSTS, low.where(low == high, low + " to " + high))
        found = found.loc[flops["min"].reindex(found.index).sort_values(kind="stable").index]
    return found.fillna(SIGNS["no runs yet"]).rename_axis(columns=None).reset_index()


def markdown(heading: Sequence[str], rows: Iterable[Sequence[Any]], left: int = 2) -> str:
    """A table as Markdown; after the first columns, cells are to the right.

    >>> print(markdown(["method", "M = 5"], [["er", 20.1]], left=1))
    | method | M = 5 |
    | --- | --: |
    | er | 20.1 |
    """
    lines = [heading, ["---"] * left + ["--:"] * (len(heading) - left), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
