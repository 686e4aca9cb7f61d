"""Protocols: how the paper's methods are run, and which options a search may choose (``protocols.yaml``)."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from math import prod
from random import Random
from typing import Any, get_args, get_type_hints

from onebyone.methods import ReplayOptions, find
from onebyone.options import Checked
from onebyone.runs.config import bare_name

NAMES = ("printed", "separate", "joint")


@cache
def protocols() -> dict[str, Any]:
    """The content of ``protocols.yaml``."""
    return _read("protocols.yaml")


@cache
def choices() -> dict[str, Any]:
    """The content of ``chosen.yaml``: by protocol and method, a choice for each group of classes per task."""
    return _read("chosen.yaml")


def _read(name: str) -> dict[str, Any]:
    import yaml

    found: dict[str, Any] = yaml.safe_load((files("onebyone.paper") / name).read_text())
    return found


def entries(protocol: str) -> list[dict[str, Any]]:
    """What a protocol fixes: the paper's lines, then the assumed readings. ``joint`` adds its own to ``separate``."""
    rules = protocols()[protocol]
    inherited = entries(rules["settings_of"]) if "settings_of" in rules else []
    return [*inherited, *rules["printed"], *rules["assumed"]]


def fixed(protocol: str, method: str) -> dict[str, Any]:
    """The options of a method that a protocol fixes.

    >>> fixed("printed", "finetune")
    {'learning_rate': 0.1, 'encoder': 'auto', 'augment': True}
    >>> fixed("separate", "er")["passes"], fixed("joint", "er")["passes"]
    ('separate', 'joint')
    """
    known = option_types(find(method).options)
    found: dict[str, Any] = {}
    for entry in entries(protocol):
        if bare_name(method) in entry.get("methods", [bare_name(method)]):
            found |= {name: value for name, value in entry.get("options", {}).items() if name in known}
    return found


def fixed_of_run(protocol: str) -> dict[str, Any]:
    """The fields of a run that a protocol fixes.

    >>> fixed_of_run("printed")
    {'batch_size': 10, 'class_order': 'label'}
    """
    return {name: value for entry in entries(protocol) for name, value in entry.get("run", {}).items()}


def choice(protocol: str, method: str, classes_per_task: int) -> dict[str, Any] | None:
    """What was chosen for a method, or None: ``options`` with the read-out, and whether the search is ``complete``.

    A choice for two classes per task serves for all streams with several.

    >>> choice("printed", "ccp", 1)["options"]["readout"]
    'encoder'
    """
    of_method = choices().get(protocols()[protocol].get("settings_of", protocol), {}).get(method, [])
    if len(of_method) == 1:
        return dict(of_method[0])
    return next((dict(one) for one in of_method if min(classes_per_task, 2) in one["classes_per_task"]), None)


def settings(protocol: str, method: str, count: int) -> list[dict[str, Any]]:
    """The settings of the open options that a search tries: all, or ``count`` drawn at random, always the same.

    >>> len(settings("printed", "er", 32)), len(settings("printed", "ccp", 32))
    (4, 32)
    """
    space = protocols()[protocol]["open"][method]
    total = prod(map(len, space.values()))
    numbers = range(total) if total <= count else Random(f"{protocol} {method}").sample(range(total), count)
    return [_setting(space, number) for number in numbers]


def _setting(space: dict[str, list[Any]], number: int) -> dict[str, Any]:
    """One of all settings by its number; the last option varies fastest. A space can have millions."""
    found = {}
    for name, values in reversed(space.items()):
        number, position = divmod(number, len(values))
        found[name] = values[position]
    return dict(reversed(found.items()))


def readouts(method: str) -> tuple[str, ...]:
    """The ways in which a trained method can be read out.

    >>> readouts("er"), readouts("ccp"), readouts("finetune")
    (('head', 'ncm'), ('prototypes', 'projector', 'encoder'), ())
    """
    kind = find(method).options
    return get_args(option_types(kind)["readout"]) if issubclass(kind, ReplayOptions) else ()


def option_types(kind: type[Checked]) -> dict[str, Any]:
    return get_type_hints(kind)
