"""Methods by name: those of this package, and those that others register."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch

from onebyone.data import Spec
from onebyone.errors import unknown
from onebyone.methods.learner import Learner
from onebyone.options import Checked
from onebyone.registry import Registry, summary

AnyLearner = Learner[Any]
L = TypeVar("L", bound=AnyLearner)


@dataclass(frozen=True)
class RegisteredMethod:
    """A method: its learner and the options of it."""

    learner: type[AnyLearner]
    options: type[Checked]
    section: str  # of the paper
    summary: str


STATISTICS = "onebyone.statistics"  # the room of these methods imports this one
METHODS: Registry[RegisteredMethod] = Registry(
    "method",
    "methods",
    modules={name: f"{STATISTICS}.{name.replace('-', '_')}" for name in ("patch-lda", "lda", "hybrid")},
)


def register(name: str, options: type[Checked], *, section: str = "not in the paper") -> Callable[[type[L]], type[L]]:
    """Register a learner as a method. Used as a decorator of the class.

    ``onebyone methods`` prints the first line of the docstring of the class.

    Parameters
    ----------
    name
        Name of the method, as :func:`create` takes it.
    options
        The dataclass of its options.
    section
        The section of the paper that describes the method.

    Returns
    -------
    Callable
        The decorator, which returns the class unchanged.
    """

    def add(learner: type[L]) -> type[L]:
        METHODS.add(name, RegisteredMethod(learner, options, section, summary(learner)), learner)
        return learner

    return add


def method(name: str) -> RegisteredMethod:
    """A method by name, registered by this package or by an installed one.

    >>> method("ccp").section
    'section 2.2, equation 3'
    """
    return METHODS.get(name)


def find(text: str) -> RegisteredMethod:
    """A method by name, or by ``FILE.py:NAME`` or ``MODULE:NAME``.

    The file or module registers NAME when it is imported. This runs its code, so the text must come from the user and
    not from another source.

    >>> find("onebyone.methods.er:er").learner.__name__
    'ER'
    """
    return METHODS.find(text)


def methods() -> dict[str, RegisteredMethod]:
    """All methods by name: those of the paper's tables first, then the others of this package, then installed ones.

    Returns
    -------
    dict
        For each name, an entry with ``learner``, ``options``, ``section`` (of the paper) and ``summary``.

    >>> list(methods())[8:14]
    ['supbyol', 'ccp', 'replay', 'patch-lda', 'lda', 'hybrid']
    """
    return METHODS.all()


def create(name: str, spec: Spec, *, seed: int = 0, device: torch.device | str = "cpu", **options: Any) -> AnyLearner:
    """Create a learner by the name of its method.

    Parameters
    ----------
    name
        One of :func:`methods`.
    spec
        Shape, type and number of classes of the data: ``Dataset.spec``.
    seed
        Seed of the initial weights and of all random numbers of the learner.
    device
        Device on which it learns.
    **options
        Options of the method, as ``onebyone methods NAME`` lists them.

    Returns
    -------
    Learner
        A new learner, which has learnt nothing.

    Raises
    ------
    UsageError
        The method or an option is not known, a value is out of bounds, or the method cannot learn such data.

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
