"""Protocols: how the paper's methods are run, and which options a search may choose (``protocols.yaml``)."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from itertools import product
from random import Random
from typing import Any, get_args, get_type_hints

from onebyone.methods import ReplayOptions, find
from onebyone.options import Checked


@cache
def protocols() -> dict[str, Any]:
    """The content of ``protocols.yaml``."""
    import yaml

    found: dict[str, Any] = yaml.safe_load((files("onebyone.paper") / "protocols.yaml").read_text())
    return found


def fixed(protocol: str, method: str) -> dict[str, Any]:
    """The options of a method that a protocol fixes.

    >>> fixed("printed", "finetune")
    {'learning_rate': 0.1, 'encoder': 'auto', 'augment': True}
    """
    known = option_types(find(method).options)
    found: dict[str, Any] = {}
    for entry in (*protocols()[protocol]["printed"], *protocols()[protocol]["assumed"]):
        if method in entry.get("methods", [method]):
            found |= {name: value for name, value in entry.get("options", {}).items() if name in known}
    return found


def settings(protocol: str, method: str, count: int) -> list[dict[str, Any]]:
    """The settings of the open options that a search tries: all, or ``count`` drawn at random, always the same.

    >>> len(settings("printed", "er", 32)), len(settings("printed", "ccp", 32))
    (4, 32)
    """
    space = protocols()[protocol]["open"][method]
    every = [dict(zip(space, values, strict=True)) for values in product(*space.values())]
    return every if len(every) <= count else Random(f"{protocol} {method}").sample(every, count)


def readouts(method: str) -> tuple[str, ...]:
    """The ways in which a trained method can be read out.

    >>> readouts("er"), readouts("ccp")
    (('head', 'ncm'), ('prototypes', 'projector', 'encoder'))
    """
    kind = find(method).options
    return get_args(option_types(kind)["readout"]) if issubclass(kind, ReplayOptions) else ()


def option_types(kind: type[Checked]) -> dict[str, Any]:
    return get_type_hints(kind)
