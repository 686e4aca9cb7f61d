"""The progress of a sweep: a live table on a terminal, elsewhere one line per finished run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from onebyone.cli.output import silent
from onebyone.evaluation import Result
from onebyone.executors import Failed, Status
from onebyone.runs.listener import Listener


@contextmanager
def show_progress() -> Iterator[Listener]:
    """The listener for this output: a live table, lines, or nothing with --json and --quiet."""
    if silent() or not sys.stdout.isatty():
        yield Listener() if silent() else Lines()
        return
    table = LiveTable()
    with Live(table, refresh_per_second=4):
        yield table


class Lines(Listener):
    """One line per finished run."""

    def planned(self, waiting: Sequence[str], found: Mapping[str, Result]) -> None:
        self.ends, self.total = len(found), len(waiting) + len(found)

    def ended(self, name: str, outcome: Result | Failed) -> None:
        self.ends += 1
        text = f"failed: {outcome}" if isinstance(outcome, Failed) else f"accuracy {100 * outcome.accuracy:.1f} %"
        print(f"[{self.ends}/{self.total}] {name}  {text}", flush=True)


class LiveTable(Listener):
    """Running and failed runs, and as many of the last finished ones as fit on the screen."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.running: dict[str, Status] = {}
        self.results: dict[str, Result] = {}
        self.failures: dict[str, Failed] = {}
        self.nodes: dict[str, str] = {}  # of the runs, if they are not on this machine
        self.total = 0
        self.reads = "reading the data"  # before the runs are planned
        self.learnt = 0  # samples, by all runs since this command was started
        self.begun: float | None = None
        self.stop_asked = False

    def reading(self, what: str, done: int, total: int | None) -> None:
        self.reads = f"{what}: {done:,}" + (f" of {total:,}" if total is not None else "")

    def planned(self, waiting: Sequence[str], found: Mapping[str, Result]) -> None:
        self.results, self.total = dict(found), len(waiting) + len(found)

    def progressed(self, name: str, status: Status) -> None:
        if self.begun is None:
            self.begun = self.clock()
        self.learnt += status.done - (self.running[name].done if name in self.running else status.done)
        if status.node:
            self.nodes = self.nodes | {name: status.node}
        self.running = self.running | {name: Status(**vars(status))}  # a copy, because another thread draws it

    def ended(self, name: str, outcome: Result | Failed) -> None:
        last = self.running.get(name)
        self.running = {other: status for other, status in self.running.items() if other != name}
        if isinstance(outcome, Failed):
            self.failures = self.failures | {name: outcome}
        else:
            self.learnt += outcome.samples - last.done if last else 0
            self.results = self.results | {name: outcome}

    def stopping(self) -> None:
        self.stop_asked = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        running, failed, finished = self.running, self.failures, self.results
        if self.total == 0:
            yield Text(self.reads, style="dim")
            return
        table = Table(box=None, pad_edge=False, expand=True)
        table.add_column("run", ratio=1, no_wrap=True, overflow="ellipsis")
        nodes = self.nodes
        if nodes:
            table.add_column("node", no_wrap=True)
        table.add_column("state", no_wrap=True)
        table.add_column("done", justify="right", no_wrap=True)
        table.add_column("accuracy", justify="right", no_wrap=True)
        # By node, so that the runs of one node are next to each other.
        shown = sorted(running.items(), key=lambda run: nodes.get(run[0], ""))
        rows: list[tuple[str, Text, float | None, float | None]] = [
            *((name, Text("finished", "green"), 1.0, result.accuracy) for name, result in finished.items()),
            *((name, Text("failed", "red"), None, None) for name in failed),
            *((name, Text("running", "cyan"), s.done / s.samples, s.accuracy) for name, s in shown),
        ]
        for name, state, done, accuracy in rows[-max(1, options.size.height - 3) :]:  # title, footer, cursor
            node = [nodes.get(name, "–")] if nodes else []
            table.add_row(name, *node, state, _percent(done, ".0f"), _percent(accuracy, ".1f"))
        yield table
        yield Text(self.footer(), style="dim", no_wrap=True, overflow="ellipsis")

    def footer(self) -> str:
        """The number of finished runs, samples per second over all runs, and the remaining time."""
        if self.stop_asked:
            return "stopping after a checkpoint of every run; Ctrl-C again stops at once"
        parts = [f"{len(self.results)} of {self.total} finished"]
        if self.failures:
            parts.append(f"{len(self.failures)} failed")
        if self.nodes:
            parts.append(f"{len({self.nodes[name] for name in self.running if name in self.nodes})} nodes")
        seconds = self.clock() - self.begun if self.begun is not None else 0.0
        if self.learnt and seconds:
            rate = self.learnt / seconds
            parts.append(f"{rate:,.0f} samples/s")
            parts.append(f"{timedelta(seconds=round(self.samples_left() / rate))} left")
        return ", ".join(parts)

    def samples_left(self) -> float:
        """Remaining samples; runs that have not started count with the average of the others."""
        known = [s.samples for s in self.running.values()] + [r.samples for r in self.results.values()]
        waiting = self.total - len(self.running) - len(self.results) - len(self.failures)
        return sum(s.samples - s.done for s in self.running.values()) + waiting * sum(known) / max(1, len(known))


def _percent(value: float | None, form: str) -> str:
    return "–" if value is None else f"{format(100 * value, form)} %"
