"""The options of commands: those of `run` are the fields of RunConfig, and names can be completed by the shell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from onebyone.errors import UsageError


def names(known: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Completes what was typed so far to the names that begin with it."""
    return lambda incomplete: [name for name in known() if name.startswith(incomplete)]


def registered(module: str, function: str) -> Callable[[], Iterable[str]]:
    """Names that a function of a module lists. The module is imported when the names are needed."""
    return lambda: getattr(import_module(f"onebyone.{module}"), function)()


COMPLETIONS: dict[str, Callable[[str], list[str]]] = {
    "method": names(registered("methods", "methods")),
    "dataset": names(registered("data", "datasets")),
    "stream": names(registered("streams", "streams")),
    "device": names(lambda: ("auto", "cpu", "cuda")),
}


def method_option(shown: str) -> Any:
    """The option ``--method`` of a command that otherwise uses several methods, which ``shown`` names."""
    text = "Only this, or FILE.py:NAME; repeatable."
    return typer.Option("--method", metavar="NAME", help=text, show_default=shown, autocompletion=COMPLETIONS["method"])


Methods = Annotated[list[str] | None, method_option("all")]
DataDir = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Folder or file of the data.", show_default="the cache")
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse unreadable images, do not skip them.")]
Device = Annotated[
    str, typer.Option(metavar="NAME", help="cpu, cuda, cuda:N or auto.", autocompletion=COMPLETIONS["device"])
]
CheckpointEvery = Annotated[
    int | None, typer.Option(metavar="N", help="Steps between checkpoints.", show_default="500, GPU 5000")
]
Executor = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="local, ray, or slurm:NAME=VALUE,... for submitit.",
        autocompletion=names(lambda: ("local", "ray", "slurm")),
    ),
]
Address = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Ray cluster, for example auto.", show_default="RAY_ADDRESS")
]
Track = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="mlflow, tensorboard:FOLDER or wandb; repeatable.", show_default=False),
]
Jobs = Annotated[int | None, typer.Option(metavar="N", help="Runs at once.", show_default="16 on a GPU, else cores")]


def config_options() -> list[Parameter]:
    """A command-line option for every field of RunConfig but the method's own options, and the protocol.

    A run of a protocol has that protocol's settings, so it is made by ``onebyone reproduce``.
    """
    from onebyone.runs import RunConfig

    hints = get_type_hints(RunConfig)
    return [_option(item, hints[item.name]) for item in fields(RunConfig) if item.name not in ("options", "protocol")]


def _option(item: Any, hint: Any) -> Parameter:
    found = re.fullmatch(r"(?:([A-Z]): )?(.*)", item.metadata["help"])  # "S: classes ..." names the value
    assert found is not None
    metavar, text = found[1], found[2]
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    default_metavar = {int: "N", str: "NAME"}.get(hint, item.name.rpartition("_")[2].upper())
    option = typer.Option(
        item.default,
        f"--{item.name.replace('_', '-')}",
        metavar=None if hint is bool else metavar or default_metavar,
        help=f"{text}.",
        autocompletion=names(lambda: choices) if choices else COMPLETIONS.get(item.name),
    )
    return Parameter(item.name, Parameter.KEYWORD_ONLY, default=option, annotation=str if choices else hint)


def with_config(after: dict[str, str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a function ``f(config, **more)`` the options of RunConfig in place of ``config``.

    Each of its other options is listed ``after`` the one that is named, or else last.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        listed = config_options()
        own = {name: p for name, p in signature(function, eval_str=True).parameters.items() if name != "config"}
        for name, parameter in own.items():
            position = [each.name for each in listed].index(after[name]) + 1 if name in after else len(listed)
            listed.insert(position, parameter.replace(kind=Parameter.KEYWORD_ONLY))

        def call(**given: Any) -> Any:
            config = {name: given.pop(name) for name in list(given) if name not in own}
            return function(config, **given)

        call.__name__, call.__doc__ = function.__name__, function.__doc__
        call.__signature__ = signature(call).replace(parameters=listed)  # type: ignore[attr-defined]
        call.__annotations__ = {each.name: each.annotation for each in listed}
        return call

    return decorate


def settings(texts: Iterable[str]) -> dict[str, str]:
    """Options of a method from texts of the form NAME=VALUE."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(
                f"--set {text!r} is not of the form NAME=VALUE; write for example --set learning_rate=0.01"
            )
        found[name] = value
    return found


def check_data_dir(data_dir: Path | None, datasets: Iterable[str]) -> None:
    """Refuse a folder that nothing would be read from."""
    if data_dir is not None and set(datasets) == {"digits"}:
        raise UsageError("digits is inside the package; leave --data-dir out, or name another data set, as folder")
