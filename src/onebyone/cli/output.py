"""What a command prints: text, or with --json one JSON document; with --quiet the result and no progress."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

_silent: ContextVar[bool] = ContextVar("silent", default=False)
OPTIONS: dict[str, Any] = {
    "as_json": Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")],
    "quiet": Annotated[bool, typer.Option("--quiet", help="Print the result, and no progress.")],
}


@dataclass(frozen=True)
class Output:
    """The result of a command."""

    data: Any  # for --json
    text: RenderableType = ""  # the same as text
    note: str = ""  # what to do next; left out with --quiet
    failure: str = ""  # a sentence for stderr; the command then ends with code 1


def command(function: Callable[..., Output]) -> Callable[..., None]:
    """A command that prints what the function returns; it has the function's options, --json and --quiet."""
    signature = inspect.signature(function, eval_str=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, kind, default=False, annotation=hint) for name, hint in OPTIONS.items()]

    @functools.wraps(function)
    def call(*, as_json: bool, quiet: bool, **options: Any) -> None:
        before = _silent.set(as_json or quiet)
        with interrupt_ends():
            import torch  # noqa: F401
        try:
            answer = function(**options)
        finally:
            _silent.reset(before)
        if as_json:
            print(json.dumps(answer.data, indent=2, default=_plain))
        else:
            show(answer.text)
            if not quiet:
                show(answer.note)
        if answer.failure:
            print(f"onebyone: {answer.failure}", file=sys.stderr)
            raise typer.Exit(1)

    given = [parameter.replace(kind=kind) for parameter in signature.parameters.values()]
    call.__signature__ = signature.replace(parameters=[*given, *added], return_annotation=None)  # type: ignore[attr-defined]
    call.__annotations__ = get_type_hints(function, include_extras=True) | OPTIONS | {"return": None}
    return call


@contextmanager
def interrupt_ends() -> Iterator[None]:
    """For the import of torch: Ctrl-C ends the process, as an exception in torch's initialisation would abort it."""
    handler = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread()  # only there, handlers can be set
    if handler is not signal.default_int_handler or not ours:  # ignored, as in the background of a shell: it stays so
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def silent() -> bool:
    """Whether the user asked for the result only: no progress."""
    return _silent.get()


def show(text: RenderableType) -> None:
    """Print a text or a table."""
    if isinstance(text, str):
        if text:
            print(text)  # not by rich, which folds long lines
    else:
        from rich.console import Console

        Console(markup=False, highlight=False).print(text)  # square brackets in a summary are text


def _plain(value: Any) -> Any:
    """Convert values that JSON has no notation for."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
