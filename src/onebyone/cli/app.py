"""The commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from onebyone import __version__
from onebyone.cli import listings
from onebyone.cli.demo import demo_command
from onebyone.cli.learn import info_command, learn_command, predict_command
from onebyone.cli.merge import merge_command
from onebyone.cli.output import Answer, command
from onebyone.cli.reproduce import report_command, reproduce_command
from onebyone.cli.runs import run_command, sweep_command, table_command
from onebyone.cli.serve import serve_command
from onebyone.cli.tune import tune_command

app = typer.Typer(
    name="onebyone",
    help="Learn a classifier online, one class at a time.",
    rich_markup_mode=None,  # plain help: one line per option
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"onebyone {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


# In the order of the help: to teach and use a classifier, to run experiments, to see what can be named.
COMMANDS: dict[str, Callable[..., Answer]] = {
    "learn": learn_command,
    "predict": predict_command,
    "info": info_command,
    "merge": merge_command,
    "serve": serve_command,
    "demo": demo_command,
    "run": run_command,
    "sweep": sweep_command,
    "tune": tune_command,
    "table": table_command,
    "reproduce": reproduce_command,
    "report": report_command,
    "methods": listings.methods,
    "datasets": listings.datasets,
    "streams": listings.streams,
}
for name, function in COMMANDS.items():
    app.command(name)(command(function))
