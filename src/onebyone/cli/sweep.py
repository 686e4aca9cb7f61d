"""`onebyone sweep` and `onebyone tune`: many runs at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from onebyone.cli.options import (
    Address,
    CheckpointEvery,
    DataDir,
    Device,
    Executor,
    Jobs,
    Methods,
    Strict,
    Track,
    check_data_dir,
)
from onebyone.cli.output import Output
from onebyone.cli.progress import SweepBars
from onebyone.evaluation import Result
from onebyone.executors import Failed, executor_named
from onebyone.paper.printed import PARTS
from onebyone.runs.grid import read_grid
from onebyone.runs.listener import together
from onebyone.runs.sweep import sweep
from onebyone.runs.trackers import TrackedSweep, tracker_named
from onebyone.runs.tune import read_settings, tune, winners


def sweep_command(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="Fields of a run, lists of values.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Parent of the result folders.", show_default="runs/FILE")
    ] = None,
    data_dir: DataDir = None,
    device: Device = "auto",
    jobs: Jobs = None,
    checkpoint_every: CheckpointEvery = None,
    strict: Strict = False,
    executor: Executor = "local",
    address: Address = None,
    track: Track = None,
) -> Output:
    """Do every run of a grid, several at a time.

    The file names fields of a run, each with a value or a list of values:

    \b
      method: [er, ccp]
      memory_per_class: [5, 20]
      seed: [0, 1, 2]
      options: {learning_rate: [0.01, 0.1]}

    After Ctrl-C or a crash, the same command resumes. Given several
    times at once, as with cuda:0 and cuda:1, it shares the runs.
    """
    folder = out or Path("runs") / file.stem
    configs = read_grid(file)
    check_data_dir(data_dir, (config.dataset for config in configs))
    tracked = TrackedSweep(folder, [tracker_named(name) for name in track or ()])
    with SweepBars() as bars:
        outcomes = sweep(
            configs,
            folder,
            data_dir=data_dir,
            strict=strict,
            device=device,
            jobs=jobs,
            checkpoint_every=checkpoint_every,
            executor=executor_named(executor, address),
            listener=together(bars, tracked),
        )
    return Output(
        {"folder": folder, "runs": {name: as_data(outcome) for name, outcome in outcomes.items()}},
        f"{finished(outcomes)}; see: onebyone table {folder}",
        failure=failure(outcomes),
    )


def as_data(outcome: Result | Failed) -> dict[str, Any]:
    """A result as in result.json, or the reason of a failure."""
    if isinstance(outcome, Failed):
        return {"error": str(outcome)}
    found: dict[str, Any] = json.loads(outcome.to_json())
    return found


def finished(outcomes: Mapping[str, Result | Failed]) -> str:
    """The number of finished runs, in words."""
    good = sum(isinstance(outcome, Result) for outcome in outcomes.values())
    return f"{good} of {len(outcomes)} runs are finished"


def failure(outcomes: Mapping[str, Result | Failed]) -> str:
    """The failed runs in a sentence; empty if there are none."""
    failed = [name for name, outcome in outcomes.items() if isinstance(outcome, Failed)]
    if not failed:
        return ""
    return f"{len(failed)} of {len(outcomes)} runs failed, see error.txt in {', '.join(failed)}"


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
) -> Output:
    """Find the best setting of every method, on held-out data.

    Trains with each setting of the grids of the package (runs/tuning.yaml) on
    nine tenths of the training set, and evaluates on the last tenth. The test
    set is never used. For a method of your own, the learning rates of the
    baselines are tried, or --grid. A setting with a failed run cannot win.
    After Ctrl-C or a crash, the same command resumes.
    """
    check_data_dir(data_dir, [dataset])
    with SweepBars() as bars:
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
            listener=bars,
        )
    best = winners(done.rows)
    failed = [row for row in done.rows if row["accuracy"] is None]
    lines = [_line(w.method, w.classes_per_task, f"{100 * w.accuracy:5.1f} %", w.options) for w in best]
    lines += [_line(row["method"], row["classes_per_task"], " failed", row["options"]) for row in failed]
    notes = [f"All that was tried: {done.record}; what won: {done.winners}"]
    if any(part.dataset == dataset for part in PARTS):
        notes.append(f"Runs of the paper with it: onebyone reproduce all --winners {done.winners}")
    notes.append(f"{finished(done.outcomes)}; see: onebyone table {out}")
    return Output(
        {"winners": best, "failed": failed, "record": done.record, "file": done.winners},
        "\n".join(dict.fromkeys(lines)),  # a setting has several runs
        "\n".join(notes),
        failure(done.outcomes),
    )


def _line(method: str, classes_per_task: int, outcome: str, options: Mapping[str, Any]) -> str:
    listed = ", ".join(f"{name} {value}" for name, value in options.items())
    return f"{method:<10}{classes_per_task:>3} per task {outcome}  {listed}"
