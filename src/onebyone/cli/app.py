"""The commands. Each is imported when it is used: most need torch, whose import takes a second."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from onebyone import __version__
from onebyone.cli.output import command, interrupt_ends

# Name -> where its function is, and the first line of its help. In the order of the help: to teach and use a
# classifier, to run experiments, to see what can be named.
COMMANDS: dict[str, tuple[str, str]] = {
    "learn": ("learn.learn_command", "Learn a folder of images, or continue with more of them."),
    "predict": ("learn.predict_command", "Predict the classes of images, with probabilities."),
    "info": ("learn.info_command", "Show classes, bytes and accuracy of a saved classifier."),
    "merge": ("merge.merge_command", "Merge classifiers that were taught separately."),
    "serve": ("serve.serve_command", "Serve a classifier over HTTP, with a page to teach it."),
    "demo": ("demo.demo_command", "Compare methods on ten digits: a table and a picture."),
    "run": ("run.run_command", "Learn a stream with one method and leave a result folder."),
    "sweep": ("sweep.sweep_command", "Do every run of a grid, several at a time."),
    "tune": ("sweep.tune_command", "Find the best setting of every method, on held-out data."),
    "table": ("table.table_command", "Tabulate results: mean and standard deviation over seeds."),
    "reproduce": ("reproduce.reproduce_command", "Repeat the paper: do the missing runs of a table or figure."),
    "report": ("reproduce.report_command", "Report on runs of the paper: a page, figures and tables."),
    "methods": ("listings.methods", "List all methods, or the options of one method."),
    "datasets": ("listings.datasets", "List all data sets."),
    "streams": ("listings.streams", "List all streams with their options."),
}
SETTINGS: dict[str, Any] = {
    "rich_markup_mode": None,  # plain help: one line per option
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class Commands(TyperGroup):
    """The group of all commands, which imports only those that are used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            module, _, function = COMMANDS[cmd_name][0].partition(".")
            with interrupt_ends():
                found = getattr(import_module(f"onebyone.cli.{module}"), function)
            alone = typer.Typer(add_completion=False, **SETTINGS)
            alone.command(cmd_name)(command(found))
            self.commands[cmd_name] = typer.main.get_command(alone)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in COMMANDS:  # the error names the nearest of the commands that are there
            for name in COMMANDS:
                self.commands[name] = typer.core.TyperCommand(name)
        return super().resolve_command(ctx, args)


app = typer.Typer(name="onebyone", help="Learn a classifier online, one class at a time.", cls=Commands, **SETTINGS)


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
