"""Methods by name. Adding one is adding one file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch

from onebyone.data import Spec
from onebyone.errors import unknown
from onebyone.methods.base import Learner, Options

AnyLearner = Learner[Any]
L = TypeVar("L", bound=AnyLearner)


@dataclass(frozen=True)
class Entry:
    learner: type[AnyLearner]
    options: type[Options]
    section: str  # of the paper
    summary: str


_METHODS: dict[str, Entry] = {}


def register(name: str, options: type[Options], *, section: str) -> Callable[[type[L]], type[L]]:
    """Make a learner with these options known by ``name``; ``section`` says where the paper has it.

    The first line of its docstring is what ``onebyone methods`` prints.
    """

    def add(learner: type[L]) -> type[L]:
        _METHODS[name] = Entry(learner, options, section, (learner.__doc__ or "").strip().split("\n")[0])
        return learner

    return add


def method(name: str) -> Entry:
    """What is registered under this name.

    >>> method("ccp").section
    'section 2.2, equation 3'
    """
    if name not in _METHODS:
        raise unknown("method", name, _METHODS)
    return _METHODS[name]


def methods() -> dict[str, Entry]:
    """Every method by name, in the order of the paper's tables.

    >>> list(methods())
    ['finetune', 'iid', 'er', 'icarl', 'mir', 'der++', 'er-aml', 'er-ace', 'supbyol', 'ccp']
    """
    return dict(_METHODS)


def create(name: str, spec: Spec, *, seed: int = 0, device: torch.device | str = "cpu", **options: Any) -> AnyLearner:
    """A learner by the name of its method, for data of this kind; ``options`` are the method's own.

    >>> learner = create("er", Spec(shape=(1, 8, 8), num_classes=10), memory_per_class=5)
    >>> x, y = torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.tensor([3, 3])
    >>> loss = learner.observe(x, y)
    >>> learner.predict(x)
    tensor([3, 3])
    """
    entry = method(name)
    known = [item.name for item in fields(entry.options)]
    for option in options:
        if option not in known:
            raise unknown(f"option of {name}", option, known)
    return entry.learner(entry.options(**options), spec, seed, device)
