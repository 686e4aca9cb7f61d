"""What the commands that do many runs share."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from onebyone.cli.sweep_view import watch
from onebyone.evaluation import Result
from onebyone.experiments import RunConfig
from onebyone.experiments.sweep import sweep
from onebyone.experiments.workers import Failed

DataDir = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Folder or file of the data.", show_default="the cache")
]
Device = Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda, cuda:N or auto.")]
CheckpointEvery = Annotated[
    int | None, typer.Option(metavar="N", help="Steps between checkpoints.", show_default="500, GPU 5000")
]
Jobs = Annotated[int | None, typer.Option(metavar="N", help="Runs at once.", show_default="16 on a GPU, else cores")]


def do_runs(
    configs: Iterable[RunConfig],
    folder: Path,
    data_dir: Path | None,
    device: str,
    jobs: int | None,
    checkpoint_every: int | None = None,
) -> dict[str, Result]:
    """Do these runs while the user watches; results by folder. Where one failed, says which and ends the command."""
    with watch() as watcher:
        outcomes = sweep(
            configs,
            folder,
            data_dir=data_dir,
            device=device,
            jobs=jobs,
            checkpoint_every=checkpoint_every,
            watcher=watcher,
        )
    results = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Result)}
    failed = [name for name, outcome in outcomes.items() if isinstance(outcome, Failed)]
    if failed:
        print(f"{len(results)} of {len(outcomes)} runs are finished; see: onebyone table {folder}")
        sentence = f"{len(failed)} of {len(outcomes)} runs failed, see error.txt in {', '.join(failed)}"
        print(f"onebyone: {sentence}", file=sys.stderr)
        raise typer.Exit(1)
    return results
