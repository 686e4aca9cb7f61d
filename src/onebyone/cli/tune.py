"""`onebyone tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onebyone.cli.runs import DataDir, Device, Jobs, do_runs
from onebyone.experiments.tune import from_csv, in_order, to_csv, tuning_rows, tuning_runs, winners
from onebyone.experiments.winners import write_winners
from onebyone.files import whole


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

    Tries the grids of the package (experiments/tuning.yaml) on nine tenths of the
    training set and examines on the last tenth; the test set is never looked at.
    After Ctrl-C or a crash, the same command goes on where it was.
    """
    results = do_runs(tuning_runs(dataset, method or (), classes_per_task or ()), out, data_dir, device, jobs)
    rows = tuning_rows(results.values())
    place = record / f"{dataset}.csv"
    if place.exists():  # what was tuned before and not now stays
        now = {(row["method"], row["classes_per_task"]) for row in rows}
        rows += [row for row in from_csv(place.read_text()) if (row["method"], row["classes_per_task"]) not in now]
    with whole(place) as file:
        file.write_text(to_csv(in_order(rows)))
    every = [row for path in sorted(record.glob("*.csv")) for row in from_csv(path.read_text())]
    with whole(record / "winners.json") as file:
        file.write_text(write_winners(winners(every)))
    for winner in winners(rows):
        options = ", ".join(f"{name} {value}" for name, value in winner.options.items())
        print(f"{winner.method:<10}{winner.classes_per_task:>3} per task {100 * winner.accuracy:5.1f} %  {options}")
    print(f"All that was tried: {place}; what won: {record / 'winners.json'}")
