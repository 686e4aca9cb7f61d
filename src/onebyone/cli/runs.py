"""The commands that run configurations and tabulate results: run, sweep and table."""

from __future__ import annotations

import json
import shutil
import sys
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
    Strict,
    Track,
    check_data_dir,
    settings,
    with_config,
)
from onebyone.cli.output import Answer, silent
from onebyone.cli.progress import Bar
from onebyone.cli.sweep_view import show_progress
from onebyone.data import load
from onebyone.engine import choose_device
from onebyone.evaluation import Result
from onebyone.files import atomic_write
from onebyone.runs import RunConfig, run
from onebyone.runs.executors import Failed, executor_named
from onebyone.runs.folder import find_folder
from onebyone.runs.grid import read_grid
from onebyone.runs.results import read_results
from onebyone.runs.sweep import sweep
from onebyone.runs.table import tabulate
from onebyone.runs.trackers import TrackedRun, TrackedSweep, together, tracker_named


@with_config(after={"data_dir": "dataset", "out": "device", "set_": "out"})
def run_command(
    config: dict[str, Any],
    data_dir: DataDir = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Result folder.", show_default="one in runs/")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="As `onebyone methods NAME` lists; repeatable."),
    ] = None,
    checkpoint_every: CheckpointEvery = None,
    strict: Strict = False,
    track: Track = None,
) -> Answer:
    """Learn a stream with one method and leave a result folder.

    After Ctrl-C or a crash, the same command resumes.
    """
    asked = RunConfig(**config, options=settings(set_ or []))
    check_data_dir(data_dir, [asked.dataset])
    device = choose_device(asked.device).type
    asked.resolved(device, data="")  # refuses a wrong configuration before the data are read
    trackers = [tracker_named(name) for name in track or ()]
    with Bar() as bar:
        data = load(asked.dataset, data_dir, strict=strict, progress=bar.reading)
        learnt = data.held_out() if asked.held_out else data
        folder = out or find_folder(Path("runs"), asked.resolved(device, learnt.fingerprint))
        listener = together(bar, TrackedRun(folder.name, trackers))
        result = run(asked, data=data, out=folder, checkpoint_every=checkpoint_every, listener=listener)
    return Answer({"folder": folder, **json.loads(result.to_json())}, _result_text(result, folder))


def _result_text(result: Result, folder: Path) -> str:
    def percent(value: float | None) -> str:
        return "n/a" if value is None else f"{100 * value:.1f} %"

    lines = {
        "accuracy": percent(result.accuracy),
        "forgetting": percent(result.forgetting),
        "average anytime accuracy": percent(result.average_anytime),
    }
    if result.prequential is not None:
        lines["prequential accuracy"] = percent(result.prequential)
    lines["training, evaluation"] = f"{result.seconds['training']:.1f} s, {result.seconds['evaluation']:.1f} s"
    lines["result"] = str(folder / "result.json")
    return "\n".join(f"{name:<26}{value}" for name, value in lines.items())


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
) -> Answer:
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
    with show_progress() as view:
        outcomes = sweep(
            configs,
            folder,
            data_dir=data_dir,
            strict=strict,
            device=device,
            jobs=jobs,
            checkpoint_every=checkpoint_every,
            executor=executor_named(executor, address),
            listener=together(view, tracked),
        )
    return Answer(
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


def table_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Results anywhere below it are read.")],
    rows: Annotated[str, typer.Option(metavar="FIELDS", help="Fields of the rows.")] = "method",
    columns: Annotated[
        str, typer.Option(metavar="FIELDS", help="Fields of the columns.")
    ] = "classes_per_task,memory_per_class",
    metric: Annotated[str, typer.Option(metavar="NAME", help="A metric of result.json.")] = "accuracy",
    format: Annotated[str, typer.Option(metavar="NAME", help="terminal, markdown, csv or latex.")] = "terminal",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="File to write.", show_default="print")] = None,
) -> Answer:
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
    return Answer(table.to_data(), "" if out is not None else text)
