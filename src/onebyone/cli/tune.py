"""`onebyone tune`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from onebyone.cli.options import Address, DataDir, Device, Executor, Jobs, Methods, check_data_dir
from onebyone.cli.output import Answer
from onebyone.cli.runs import failure, finished
from onebyone.cli.sweep_view import show_progress
from onebyone.paper.printed import PARTS
from onebyone.runs.executors import executor_named
from onebyone.runs.tune import read_settings, tune, winners


def tune_command(
    dataset: Annotated[str, typer.Option(metavar="NAME", help="cifar10, cifar100 or digits.")] = "cifar10",
    methods: Methods = None,
    grid: Annotated[
        Path | None, typer.Option(metavar="FILE.yaml", help="Options, lists of values.", show_default="the package's")
    ] = None,
    classes_per_task: Annotated[
        list[int] | None, typer.Option(metavar="S", help="Only this; repeatable.", show_default="the paper's")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Parent of the result folders.")] = Path("runs/tuning"),
    record: Annotated[Path, typer.Option(metavar="FOLDER", help="For records and winners.")] = Path("tuning"),
    data_dir: DataDir = None,
    device: Device = "auto",
    jobs: Jobs = None,
    executor: Executor = "local",
    address: Address = None,
) -> Answer:
    """Find the best setting of every method, on held-out data.

    Trains with each setting of the grids of the package (runs/tuning.yaml) on
    nine tenths of the training set, and evaluates on the last tenth. The test
    set is never used. For a method of your own, the learning rates of the
    baselines are tried, or --grid. A setting with a failed run cannot win.
    After Ctrl-C or a crash, the same command resumes.
    """
    check_data_dir(data_dir, [dataset])
    with show_progress() as listener:
        done = tune(
            dataset,
            methods or (),
            classes_per_task or (),
            grid=read_settings(grid) if grid else (),
            out=out,
            record=record,
            data_dir=data_dir,
            device=device,
            jobs=jobs,
            executor=executor_named(executor, address),
            listener=listener,
        )
    best = winners(done.rows)
    failed = [row for row in done.rows if row["accuracy"] is None]
    lines = [_line(w.method, w.classes_per_task, f"{100 * w.accuracy:5.1f} %", w.options) for w in best]
    lines += [_line(row["method"], row["classes_per_task"], " failed", row["options"]) for row in failed]
    notes = [f"All that was tried: {done.record}; what won: {done.winners}"]
    if any(part.dataset == dataset for part in PARTS):
        notes.append(f"Runs of the paper with it: onebyone reproduce all --winners {done.winners}")
    notes.append(f"{finished(done.outcomes)}; see: onebyone table {out}")
    return Answer(
        {"winners": best, "failed": failed, "record": done.record, "file": done.winners},
        "\n".join(dict.fromkeys(lines)),  # a setting has several runs
        "\n".join(notes),
        failure(done.outcomes),
    )


def _line(method: str, classes_per_task: int, outcome: str, options: Mapping[str, Any]) -> str:
    listed = ", ".join(f"{name} {value}" for name, value in options.items())
    return f"{method:<10}{classes_per_task:>3} per task {outcome}  {listed}"
