"""`onebyone run`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from onebyone.cli.options import CheckpointEvery, DataDir, Strict, Track, check_data_dir, settings, with_config
from onebyone.cli.output import Output
from onebyone.cli.progress import Bar
from onebyone.data import load
from onebyone.engine import choose_device
from onebyone.evaluation import Result
from onebyone.runs import RunConfig, run
from onebyone.runs.folder import find_folder
from onebyone.runs.listener import together
from onebyone.runs.trackers import TrackedRun, tracker_named


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
) -> Output:
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
        listener = together(bar, TrackedRun(folder.name, trackers)) if trackers else bar
        result = run(asked, data=data, out=folder, checkpoint_every=checkpoint_every, listener=listener)
    return Output({"folder": folder, **json.loads(result.to_json())}, _result_text(result, folder))


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
