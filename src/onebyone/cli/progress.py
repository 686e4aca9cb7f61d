"""A progress bar for runs; silent where there is no terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from onebyone.cli.output import silent
from onebyone.runs import Listener


class Rate(ProgressColumn):
    """Samples per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f} samples/s" if task.speed else "", style="dim")


class Bar(Listener):
    """Task, samples per second, accuracy and remaining time, on one line of the terminal."""

    def __init__(self) -> None:
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[position]}"),
            Rate(Column(no_wrap=True)),  # in a narrow terminal the bar shrinks instead
            TextColumn("{task.fields[accuracy]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            disable=silent() or not sys.stderr.isatty(),
            transient=True,
        )
        self.line = self.progress.add_task("reading the data", total=None, position="", accuracy="")

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def reading(self, what: str, done: int, total: int | None) -> None:
        self.progress.update(self.line, description=what, completed=done, total=total)

    def started(self, title: str, samples: int, done: int, tasks: int) -> None:
        self.tasks = tasks
        self.progress.reset(
            self.line, description=title, total=samples, completed=done, position=f"task 1/{tasks}", accuracy=""
        )

    def stepped(self, task: int, samples: int) -> None:
        self.progress.update(self.line, advance=samples, position=f"task {task + 1}/{self.tasks}")

    def evaluated(self, task: int, accuracy: float) -> None:
        self.progress.update(self.line, accuracy=f"accuracy {100 * accuracy:.1f} %")
