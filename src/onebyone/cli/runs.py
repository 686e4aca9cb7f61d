"""What the commands that do many runs share."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from onebyone.cli.sweep_view import watch
from onebyone.errors import UsageError
from onebyone.evaluation import Result
from onebyone.runs import RunConfig
from onebyone.runs.sweep import sweep
from onebyone.runs.workers import Failed

DataDir = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Folder or file of the data.", show_default="the cache")
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse unreadable images, do not skip them.")]
Device = Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda, cuda:N or auto.")]
CheckpointEvery = Annotated[
    int | None, typer.Option(metavar="N", help="Steps between checkpoints.", show_default="500, GPU 5000")
]
Jobs = Annotated[int | None, typer.Option(metavar="N", help="Runs at once.", show_default="16 on a GPU, else cores")]


def check_data_dir(data_dir: Path | None, datasets: Iterable[str]) -> None:
    """Refuse a place of the data that nothing would be read from."""
    if data_dir is not None and set(datasets) == {"digits"}:
        raise UsageError("digits is inside the package; leave --data-dir out, or name another data set, as folder")


def do_runs(
    configs: Collection[RunConfig],
    folder: Path,
    data_dir: Path | None,
    device: str,
    jobs: int | None,
    checkpoint_every: int | None = None,
    strict: bool = False,
) -> dict[str, Result | Failed]:
    """Do these runs while the user watches; outcomes by folder."""
    check_data_dir(data_dir, (config.dataset for config in configs))
    with watch() as watcher:
        return sweep(
            configs,
            folder,
            data_dir=data_dir,
            strict=strict,
            device=device,
            jobs=jobs,
            checkpoint_every=checkpoint_every,
            watcher=watcher,
        )


def end(outcomes: Mapping[str, Result | Failed], folder: Path) -> None:
    """Say how many runs are finished; where one failed, say which and end the command."""
    failed = [name for name, outcome in outcomes.items() if isinstance(outcome, Failed)]
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} runs are finished; see: onebyone table {folder}")
    if failed:
        sentence = f"{len(failed)} of {len(outcomes)} runs failed, see error.txt in {', '.join(failed)}"
        print(f"onebyone: {sentence}", file=sys.stderr)
        raise typer.Exit(1)
