"""The commands."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from onebyone import __version__
from onebyone.cli.progress import Bar
from onebyone.cli.reproduce import report_command, reproduce_command
from onebyone.cli.runs import CheckpointEvery, DataDir, Device, Jobs, Strict, check_data_dir, do_runs, end
from onebyone.cli.tune import tune_command
from onebyone.data import datasets as all_datasets
from onebyone.data import load
from onebyone.engine import choose_device
from onebyone.errors import UsageError
from onebyone.evaluation import Result
from onebyone.files import whole
from onebyone.methods import find
from onebyone.methods import methods as all_methods
from onebyone.options import describe
from onebyone.runs import RunConfig, run
from onebyone.runs.config import AUTO
from onebyone.runs.folder import find_folder
from onebyone.runs.grid import read_grid
from onebyone.runs.table import read_results, render, tabulate
from onebyone.streams import streams as all_streams

app = typer.Typer(
    name="onebyone",
    help="Learn a classifier online, one class at a time.",
    add_completion=False,
    rich_markup_mode=None,  # plain help: one line an option
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
console = Console(markup=False, highlight=False)  # square brackets in a summary are text


def _version(asked: bool) -> None:
    if asked:
        print(f"onebyone {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


@app.command("run")
def run_command(
    method: Annotated[str, typer.Option(metavar="NAME", help="`onebyone methods`, or FILE.py:NAME.")] = "ccp",
    dataset: Annotated[str, typer.Option(metavar="NAME", help="One of `onebyone datasets`.")] = "digits",
    data_dir: DataDir = None,
    classes_per_task: Annotated[int, typer.Option(metavar="S", help="Classes that arrive together.")] = 1,
    memory_per_class: Annotated[int, typer.Option(metavar="M", help="Samples kept for each class.")] = 20,
    seed: Annotated[int, typer.Option(metavar="N", help="Of stream, first weights and learner.")] = 0,
    device: Device = "auto",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Result folder.", show_default="one in runs/"),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="As `onebyone methods NAME` lists; repeatable."),
    ] = None,
    stream: Annotated[str, typer.Option(metavar="NAME", help="One of `onebyone streams`.")] = AUTO,
    batch_size: Annotated[int, typer.Option(metavar="N", help="Samples that arrive together.")] = 10,
    class_order: Annotated[str, typer.Option(metavar="ORDER", help="By label, or random (by seed).")] = "label",
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Examine on a tenth of the training set instead.")
    ] = False,
    prequential: Annotated[
        bool, typer.Option("--prequential", help="Also predict every batch before it is learnt.")
    ] = False,
    checkpoint_every: CheckpointEvery = None,
    strict: Strict = False,
) -> None:
    """Learn a stream with one method and leave a result folder.

    After Ctrl-C or a crash, the same command goes on where it was.
    """
    check_data_dir(data_dir, [dataset])
    config = RunConfig(
        method=method,
        dataset=dataset,
        classes_per_task=classes_per_task,
        memory_per_class=memory_per_class,
        seed=seed,
        device=device,
        batch_size=batch_size,
        class_order=class_order,  # type: ignore[arg-type]  # checked by RunConfig
        held_out=held_out,
        prequential=prequential,
        stream=stream,
        options=_settings(set_ or []),
    )
    device_type = choose_device(device).type
    config.resolved(device_type, data="")  # refuses a wrong configuration before the data are read
    with Bar() as bar:
        data = load(dataset, data_dir, strict=strict)
        learnt = data.held_out() if held_out else data
        folder = out or find_folder(Path("runs"), config.resolved(device_type, learnt.fingerprint))
        result = run(config, data=data, out=folder, checkpoint_every=checkpoint_every, listener=bar)
    _print_result(result, folder)


@app.command("sweep")
def sweep_command(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="Fields of a run, lists of values.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Of all result folders.", show_default="runs/FILE")
    ] = None,
    data_dir: DataDir = None,
    device: Device = "auto",
    jobs: Jobs = None,
    checkpoint_every: CheckpointEvery = None,
    strict: Strict = False,
) -> None:
    """Do every run of a grid, several at a time.

    The file names fields of a run, each with a value or a list of values:

    \b
      method: [er, ccp]
      memory_per_class: [5, 20]
      seed: [0, 1, 2]
      options: {learning_rate: [0.01, 0.1]}

    After Ctrl-C or a crash, the same command goes on where it was. Given several
    times at once, as with cuda:0 and cuda:1, it shares the runs.
    """
    folder = out or Path("runs") / file.stem
    end(do_runs(read_grid(file), folder, data_dir, device, jobs, checkpoint_every, strict), folder)


app.command("tune")(tune_command)


@app.command("table")
def table_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Results anywhere below it are read.")],
    rows: Annotated[str, typer.Option(metavar="FIELDS", help="What differs from row to row.")] = "method",
    columns: Annotated[
        str, typer.Option(metavar="FIELDS", help="And between columns.")
    ] = "classes_per_task,memory_per_class",
    metric: Annotated[str, typer.Option(metavar="NAME", help="As in result.json.")] = "accuracy",
    format: Annotated[str, typer.Option(metavar="NAME", help="terminal, markdown, csv or latex.")] = "terminal",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it there.", show_default="print")] = None,
) -> None:
    """Tabulate results: mean and spread over seeds.

    FIELDS are of the run or options of the method, with commas between.
    Other metrics: forgetting, average_anytime, cost.flops, seconds.training.
    """
    row_fields, column_fields = ([name.strip() for name in text.split(",") if name.strip()] for text in (rows, columns))
    table = tabulate(read_results(folder), row_fields, column_fields, metric)
    width = shutil.get_terminal_size().columns if out is None and sys.stdout.isatty() else None
    text = render(table, format, width)
    if table.warning:
        print(f"onebyone: {table.warning}", file=sys.stderr)
    if out is None:
        print(text)  # not by rich, which folds long lines
    else:
        with whole(out) as place:
            place.write_text(text + "\n")


app.command("reproduce")(reproduce_command)
app.command("report")(report_command)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the picture and the runs go.")] = Path("demo"),
) -> None:
    """Compare five methods on ten digits: a table and a picture."""
    from onebyone.cli.demo import BUDGET, anytime_figure, compare, mean_and_spread

    with Bar() as bar:
        results = compare(out, listener=bar)
    anytime_figure(results, out / "anytime.png")
    table = Table(
        "method",
        title=f"digits, one class at a time, {BUDGET:,} bytes of memory, 3 seeds",
        title_justify="left",
    )
    for column in ("accuracy %", "forgetting %", "average anytime %"):
        table.add_column(column, justify="right")
    for name, runs in results.items():
        table.add_row(
            name,
            mean_and_spread([result.accuracy for result in runs]),
            mean_and_spread([result.forgetting for result in runs if result.forgetting is not None]),
            mean_and_spread([result.average_anytime for result in runs]),
        )
    console.print(table)
    console.print(f"The picture: {out / 'anytime.png'}")


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show the options of this one.")] = None,
) -> None:
    """What can learn: every method, or one with its options."""
    if name is None:
        _print_registry({each: (entry.summary, entry.section) for each, entry in all_methods().items()})
        return
    entry = find(name)
    console.print(f"{name}: {entry.summary} ({entry.section})\n")
    table = Table("--set", "default", "what it is", box=None, pad_edge=False)
    for option, kind, default, text in describe(entry.options):
        if option != "memory_per_class":  # an option of `onebyone run`
            table.add_row(option, default, f"{text} ({kind})" if "|" in kind else text)
    console.print(table)


@app.command()
def datasets() -> None:
    """What there is to learn."""
    _print_registry({name: (entry.summary, entry.about) for name, entry in all_datasets().items()})


@app.command()
def streams() -> None:
    """How it arrives: every stream with its options."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, entry in all_streams().items():
        table.add_row(name, entry.summary, style="bold")
        for option, _, default, text in describe(entry.options):
            table.add_row(f"  {option}={default}", text)
    console.print(table)
    console.print("\nWith options: --stream blurry:share=0.3,imbalance=10")


def _print_registry(entries: dict[str, tuple[str, str]]) -> None:
    """Names, and what each of them is and where it is in the paper."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    for name, (summary, place) in entries.items():
        table.add_row(name, f"{summary} ({place})")
    console.print(table)


def _settings(texts: list[str]) -> dict[str, str]:
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(
                f"--set {text!r} is not of the form NAME=VALUE; write for example --set learning_rate=0.01"
            )
        settings[name] = value
    return settings


def _print_result(result: Result, folder: Path) -> None:
    def percent(value: float | None) -> str:
        return "n/a" if value is None else f"{100 * value:.1f} %"

    lines = {
        "accuracy": percent(result.accuracy),
        "forgetting": percent(result.forgetting),
        "average anytime accuracy": percent(result.average_anytime),
    }
    if result.prequential is not None:
        lines["prequential accuracy"] = percent(result.prequential)
    lines["learning, examining"] = f"{result.seconds['training']:.1f} s, {result.seconds['evaluation']:.1f} s"
    lines["result"] = str(folder / "result.json")
    for name, value in lines.items():
        print(f"{name:<26}{value}")  # not by rich, which folds long paths
