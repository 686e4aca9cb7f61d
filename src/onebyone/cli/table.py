"""`onebyone table`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from onebyone.cli.output import Output, silent
from onebyone.files import atomic_write
from onebyone.runs.results import read_results
from onebyone.runs.table import tabulate


def table_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Results anywhere below it are read.")],
    rows: Annotated[str, typer.Option(metavar="FIELDS", help="Fields of the rows.")] = "method",
    columns: Annotated[
        str, typer.Option(metavar="FIELDS", help="Fields of the columns.")
    ] = "classes_per_task,memory_per_class",
    metric: Annotated[str, typer.Option(metavar="NAME", help="A metric of result.json.")] = "accuracy",
    format: Annotated[str, typer.Option(metavar="NAME", help="terminal, markdown, csv or latex.")] = "terminal",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="File to write.", show_default="print")] = None,
) -> Output:
    """Tabulate results: mean and standard deviation over seeds.

    FIELDS are of the run or options of the method, with commas between.
    Other metrics: forgetting, average_anytime, cost.flops, seconds.training.
    """
    row_fields, column_fields = ([name.strip() for name in text.split(",") if name.strip()] for text in (rows, columns))
    table = tabulate(read_results(folder), row_fields, column_fields, metric)
    width = shutil.get_terminal_size().columns if out is None and sys.stdout.isatty() else None
    text = table.render(format, width)
    if table.warning and not silent():
        print(f"onebyone: {table.warning}", file=sys.stderr)
    if out is not None:
        with atomic_write(out) as temporary:
            temporary.write_text(text + "\n")
    return Output(table.to_data(), "" if out is not None else text)
