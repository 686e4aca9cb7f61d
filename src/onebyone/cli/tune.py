"""`onebyone tune`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from onebyone.cli.runs import DataDir, Device, Jobs, do_runs, end
from onebyone.engine import choose_device
from onebyone.evaluation import Result
from onebyone.files import whole
from onebyone.paper.printed import PARTS
from onebyone.runs.grid import plan
from onebyone.runs.tune import in_order, read_record, to_csv, tuning_rows, tuning_runs, winners
from onebyone.runs.winners import write_winners
from onebyone.runs.workers import Failed


def tune_command(
    dataset: Annotated[str, typer.Option(metavar="NAME", help="cifar10, cifar100 or digits.")] = "cifar10",
    method: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this one; repeatable.", show_default="all")
    ] = None,
    classes_per_task: Annotated[
        list[int] | None, typer.Option(metavar="S", help="Only this; repeatable.", show_default="the paper's")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Of all result folders.")] = Path("runs/tuning"),
    record: Annotated[Path, typer.Option(metavar="FOLDER", help="Of the record and the winners.")] = Path("tuning"),
    data_dir: DataDir = None,
    device: Device = "auto",
    jobs: Jobs = None,
) -> None:
    """Find the best setting of every method, on held-out data.

    Tries the grids of the package (runs/tuning.yaml) on nine tenths of the
    training set and examines on the last tenth; the test set is never looked at.
    A setting of which a run fails cannot win. After Ctrl-C or a crash, the same
    command goes on where it was.
    """
    for path in record.glob("*.csv"):
        read_record(path)  # refused before anything is run, not after
    runs = plan(tuning_runs(dataset, method or (), classes_per_task or ()), choose_device(device).type)
    outcomes = do_runs(runs.values(), out, data_dir, device, jobs)
    failed = [runs[name] for name, outcome in outcomes.items() if isinstance(outcome, Failed)]
    rows = tuning_rows((outcome for outcome in outcomes.values() if isinstance(outcome, Result)), failed)
    place = record / f"{dataset}.csv"
    if place.exists():  # what was tuned before and not now stays
        now = {(row["method"], row["classes_per_task"]) for row in rows}
        rows += [row for row in read_record(place) if (row["method"], row["classes_per_task"]) not in now]
    with whole(place) as file:
        file.write_text(to_csv(in_order(rows)))
    every = [row for path in sorted(record.glob("*.csv")) for row in read_record(path)]
    with whole(record / "winners.json") as file:
        file.write_text(write_winners(winners(every)))
    lines = [_line(w.method, w.classes_per_task, f"{100 * w.accuracy:5.1f} %", w.options) for w in winners(rows)]
    lines += [_line(r["method"], r["classes_per_task"], " failed", r["options"]) for r in rows if r["accuracy"] is None]
    print("\n".join(dict.fromkeys(lines)))  # a setting has several runs
    print(f"All that was tried: {place}; what won: {record / 'winners.json'}")
    if any(part.dataset == dataset for part in PARTS):
        print(f"Runs of the paper with it: onebyone reproduce all --winners {record / 'winners.json'}")
    end(outcomes, out)


def _line(method: str, classes_per_task: int, outcome: str, options: Mapping[str, Any]) -> str:
    listed = ", ".join(f"{name} {value}" for name, value in options.items())
    return f"{method:<10}{classes_per_task:>3} per task {outcome}  {listed}"
