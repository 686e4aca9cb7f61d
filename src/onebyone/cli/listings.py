"""The commands that list what is registered: methods, data sets and streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table

from onebyone.cli.options import COMPLETIONS
from onebyone.cli.output import Output
from onebyone.data import datasets as all_datasets
from onebyone.methods import find
from onebyone.methods import methods as all_methods
from onebyone.options import describe
from onebyone.streams import streams as all_streams


def methods(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show the options of this one.", autocompletion=COMPLETIONS["method"]),
    ] = None,
) -> Output:
    """List all methods, or the options of one method."""
    if name is None:
        return _listing({each: (entry.summary, entry.section) for each, entry in all_methods().items()}, "section")
    entry = find(name)
    table = Table("--set", "default", "what it is", box=None, pad_edge=False)
    options = [option for option in describe(entry.options) if option[0] != "memory_per_class"]  # which is of `run`
    for option, kind, default, text in options:
        table.add_row(option, default, f"{text} ({kind})" if "|" in kind else text)
    data = {"name": name, "summary": entry.summary, "section": entry.section, "options": _options(entry.options)}
    return Output(data, Group(f"{name}: {entry.summary} ({entry.section})\n", table))


def datasets() -> Output:
    """List all data sets."""
    return _listing({name: (entry.summary, entry.about) for name, entry in all_datasets().items()}, "about")


def streams() -> Output:
    """List all streams with their options."""
    table = Table(box=None, pad_edge=False, show_header=False)
    data = []
    for name, entry in all_streams().items():
        table.add_row(name, entry.summary, style="bold")
        for option, _, default, text in describe(entry.options):
            table.add_row(f"  {option}={default}", text)
        data.append({"name": name, "summary": entry.summary, "options": _options(entry.options)})
    return Output(data, table, note="\nWith options: --stream blurry:share=0.3,imbalance=10")


def _listing(entries: Mapping[str, tuple[str, str]], second: str) -> Output:
    """Names, with a summary and where the paper has it."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    for name, (summary, where) in entries.items():
        table.add_row(name, f"{summary} ({where})")
    data = [{"name": name, "summary": summary, second: where} for name, (summary, where) in entries.items()]
    return Output(data, table)


def _options(kind: type[Any]) -> list[dict[str, str]]:
    return [
        {"name": name, "type": hint, "default": default, "help": text} for name, hint, default, text in describe(kind)
    ]
