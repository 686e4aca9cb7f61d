"""Progress on the terminal: a bar for a run, and for a sweep a bar for each run in progress."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.progress import TimeRemainingColumn as Remaining
from rich.table import Column
from rich.text import Text

from onebyone.cli.output import silent
from onebyone.evaluation import Result
from onebyone.executors import Failed, Status
from onebyone.runs import Listener

OTHERS = 48  # characters of a line beside its title


class Rate(ProgressColumn):
    """Samples per second; for a whole sweep, runs per minute."""

    def render(self, task: Task) -> Text:
        speed = task.speed or 0
        words = f"{60 * speed:,.1f} runs/min" if task.fields.get("whole") else f"{speed:,.0f} samples/s"
        return Text(words if speed else "", style="dim")


class Bar(Listener):
    """A run in one line: task, samples per second, accuracy and remaining time. Nothing without a terminal."""

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        title = Column(no_wrap=True, overflow="ellipsis", max_width=max(20, console.width - OTHERS))
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=title),
            BarColumn(),  # shrinks in a narrow terminal
            TextColumn("{task.fields[position]}", table_column=Column(no_wrap=True)),
            Rate(Column(no_wrap=True)),
            TextColumn("{task.fields[accuracy]}", table_column=Column(no_wrap=True)),
            Remaining(compact=True, table_column=Column(no_wrap=True)),
            console=console,
            disable=silent() or not console.is_terminal,
            redirect_stdout=sys.stdout.isatty(),  # lines go above the bars, and to a file where that was asked for
            transient=True,
        )
        self.line = self.add("reading the data")

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def add(self, title: str, total: float | None = None) -> TaskID:
        """Add a line."""
        return self.progress.add_task(title, total=total, position="", accuracy="")

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
        self.progress.update(self.line, accuracy=percent(accuracy))


class SweepBars(Bar):
    """A sweep in one line, and below it a line for each run in progress. Runs that have ended are printed.

    Without a terminal, only the runs that have ended are printed.
    """

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self.silent = silent()
        self.lines: dict[str, TaskID] = {}  # of the runs in progress
        self.found = self.finished_now = self.failed_now = self.total = 0  # numbers of runs
        self.stop_asked = False

    def planned(self, waiting: Sequence[str], found: Mapping[str, Result]) -> None:
        self.found, self.total = len(found), len(waiting) + len(found)
        self.progress.reset(self.line, total=len(waiting), position="", accuracy="", whole=True)
        self.show_total()

    def progressed(self, name: str, status: Status) -> None:
        if name not in self.lines:
            self.lines[name] = self.add(name, status.samples)
        accuracy = "" if status.accuracy is None else percent(status.accuracy)
        self.progress.update(self.lines[name], completed=status.done, position=status.node, accuracy=accuracy)
        self.show_total()

    def ended(self, name: str, outcome: Result | Failed) -> None:
        if name in self.lines:
            self.progress.remove_task(self.lines.pop(name))
        self.failed_now += isinstance(outcome, Failed)
        self.finished_now += isinstance(outcome, Result)
        self.show_total()
        if not self.silent:
            text = f"failed: {outcome}" if isinstance(outcome, Failed) else percent(outcome.accuracy)
            count = self.found + self.finished_now + self.failed_now
            print(f"[{count}/{self.total}] {name}  {text}", flush=True)

    def stopping(self) -> None:
        self.stop_asked = True
        self.show_total()

    def show_total(self) -> None:
        """Update the line of the sweep, which counts a run in progress as the part that is done."""
        running = [task for task in self.progress.tasks if task.id != self.line]
        nodes = {task.fields["position"] for task in running} - {""}
        words = f"{self.found + self.finished_now} of {self.total} finished"
        words += f", {self.failed_now} failed" if self.failed_now else ""
        if self.stop_asked:
            words = "stopping (Ctrl-C again: at once)"  # after a checkpoint of every run
        done = self.finished_now + self.failed_now + sum(task.percentage for task in running) / 100
        position = f"{len(nodes)} nodes" if nodes else ""
        self.progress.update(self.line, description=words, completed=done, position=position)


def percent(accuracy: float) -> str:
    return f"accuracy {100 * accuracy:.1f} %"
