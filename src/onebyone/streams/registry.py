"""Streams by name, with their options in one text: ``blurry:share=0.3``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from torch import Tensor

from onebyone.errors import UsageError
from onebyone.options import Checked, parse
from onebyone.registry import Registry, summary
from onebyone.streams.stream import Stream

F = TypeVar("F", bound=Callable[..., Stream])


@dataclass(frozen=True)
class RegisteredStream:
    """A stream: the function that makes it, and its options."""

    make: Callable[..., Stream]
    options: type[Checked]
    summary: str


STREAMS: Registry[RegisteredStream] = Registry("stream", "streams")


def register(name: str, options: type[Checked]) -> Callable[[F], F]:
    """Register a function under ``name``; its options are keywords of the function.

    The first line of its docstring is printed by ``onebyone streams``.
    """

    def add(make: F) -> F:
        STREAMS.add(name, RegisteredStream(make, options, summary(make)), make)
        return make

    return add


def streams() -> dict[str, RegisteredStream]:
    """Every stream by name.

    >>> list(streams())
    ['class-incremental', 'blurry', 'gaussian', 'returning', 'iid']
    """
    return STREAMS.all()


def in_full(text: str) -> str:
    """The same stream with every option written out, so that equal streams have equal texts.

    >>> in_full("blurry"), in_full("blurry:imbalance=10,share=0.30")
    ('blurry:imbalance=1.0,share=0.1', 'blurry:imbalance=10.0,share=0.3')
    """
    name, _, options = _read(text)
    return f"{name}:" + ",".join(f"{option}={value}" for option, value in options.items())


def stream_named(text: str, y: Tensor, num_classes: int, classes_per_task: int = 1, **common: Any) -> Stream:
    """The stream that a text names, over these labels; ``common`` is what all streams take: order, batch_size, seed.

    >>> import torch
    >>> len(stream_named("returning:periods=4", torch.arange(40) % 2, num_classes=2).tasks)
    8
    """
    _, make, options = _read(text)
    return make(y, num_classes, classes_per_task, **common, **options)


def _read(text: str) -> tuple[str, Callable[..., Stream], dict[str, Any]]:
    name, colon, rest = text.partition(":")
    entry = STREAMS.get(name)
    settings = {}
    for setting in rest.split(",") if colon else ():
        option, equals, value = setting.partition("=")
        if not (option and equals and value):
            raise UsageError(
                f"stream {text!r} is not of the form NAME:OPTION=VALUE,OPTION=VALUE; write for example "
                "blurry:share=0.3,imbalance=10"
            )
        settings[option] = value
    return name, entry.make, asdict(parse(entry.options, settings, f"option of {name}"))
