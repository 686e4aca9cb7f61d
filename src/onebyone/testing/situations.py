"""Choices of options, kinds of data and streams that a learner is checked with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import combinations as two_of
from itertools import product
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from onebyone import streams
from onebyone.data import CropFlip, Dataset, Spec, load
from onebyone.methods import BudgetOptions, ReplayOptions, create, method
from onebyone.methods.registry import AnyLearner, RegisteredMethod
from onebyone.options import Checked

Batch = tuple[Tensor, Tensor]
Tasks = list[list[Batch]]


@dataclass(frozen=True)
class Method:
    """A method with some of its options chosen."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def entry(self) -> RegisteredMethod:
        return method(self.name)

    def has(self, options: Iterable[str]) -> bool:
        return set(options) <= {item.name for item in fields(self.entry.options)}

    def make(self, spec: Spec | None = None, seed: int = 0, memory_per_class: int | None = None) -> AnyLearner:
        """A learner, for digits unless ``spec`` is given, with a memory of that size if it has one."""
        options = dict(self.options)
        if memory_per_class is not None and memory_sizes(self.entry.options) != [{}]:
            options.setdefault("memory_per_class", memory_per_class)
        return create(self.name, spec or few().spec, seed=seed, **options)


# Choices of options, found in their types.


def choices(options: type[Checked]) -> dict[str, tuple[Any, ...]]:
    """The options that have a few values, with these values.

    >>> from onebyone.methods import Options
    >>> choices(Options)
    {'augment': (True, False), 'channels_last': (True, False), 'precision': ('float32', 'bf16')}
    """
    hints = {item.name: get_type_hints(options)[item.name] for item in fields(options)}
    literals = {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}
    flags = {name: (True, False) for name, hint in hints.items() if hint is bool}
    return {name: (literals | flags)[name] for name in hints if name in literals | flags}


def combinations(options: type[Checked]) -> Iterator[dict[str, Any]]:
    """Every combination of the options that have a few values.

    >>> from onebyone.methods import Options
    >>> len(list(combinations(Options)))
    8
    """
    found = choices(options)
    return (dict(zip(found, values, strict=True)) for values in product(*found.values()))


def pairs(options: type[Checked]) -> list[dict[str, Any]]:
    """A few combinations in which every two values of two options occur together at least once.

    Found greedily: the next combination is the one with the most pairs that are still missing.

    >>> from onebyone.methods import Options
    >>> len(pairs(Options)), len(pairs(ReplayOptions)) < 10
    (4, True)
    """
    possible = list(combinations(options))
    contained = [set(two_of(combination.items(), 2)) for combination in possible]
    missing, found = set().union(*contained), []
    while missing:
        best = max(range(len(possible)), key=lambda index: len(contained[index] & missing))
        missing -= contained[best]
        found.append(possible[best])
    return found


def bounds(options: type[Checked]) -> list[dict[str, Any]]:
    """Every number at the lowest and at the highest value it may have.

    >>> {"replay_size": 1} in bounds(ReplayOptions)
    True
    """
    hints = get_type_hints(options)
    limits = [(item.name, item.metadata.get(end)) for item in fields(options) for end in ("low", "high")]
    return [{name: hints[name](limit)} for name, limit in limits if limit is not None]


def memory_sizes(options: type[Checked]) -> list[dict[str, Any]]:
    """Sizes to try, for a method that keeps samples; others have their own smallest budget."""
    samples = issubclass(options, ReplayOptions) and not issubclass(options, BudgetOptions)
    return [{"memory_per_class": size} for size in (1, 5, 20)] if samples else [{}]


# Data and streams.


@cache
def few() -> Dataset:
    """Twelve training digits per class, sorted by class, and a tenth of the test set; with crops as augmentation."""
    digits = load("digits")
    keep = torch.cat([(digits.train_y == label).nonzero().flatten()[:12] for label in range(10)])
    train_x, train_y = digits.train_x[keep], digits.train_y[keep]
    test_x, test_y, crop = digits.test_x[::10], digits.test_y[::10], CropFlip(padding=1, flip=False)
    return replace(digits, train_x=train_x, train_y=train_y, test_x=test_x, test_y=test_y, augmentation=crop)


def tasks_of(data: Dataset, stream: streams.Stream) -> Tasks:
    return [
        [(data.train_x[index], data.train_y[index]) for index in task.batches(stream.batch_size)]
        for task in stream.tasks
    ]


@dataclass(frozen=True)
class Situation:
    """Samples with these labels in batches. Each run of equal labels is a task."""

    labels: tuple[int, ...] = (0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 1, 2)
    size: int = 4  # of a batch
    spec: Spec | None = None  # None: that of digits
    options: Mapping[str, Any] = field(default_factory=dict)

    def tasks(self) -> Tasks:
        x, y = few().train_x[: len(self.labels)], torch.tensor(self.labels)
        if self.spec:
            generator = torch.Generator().manual_seed(0)
            x = torch.randn(len(y), *self.spec.shape, generator=generator) + y.reshape(-1, *[1] * len(self.spec.shape))
        ends = [i for i in range(1, len(y)) if y[i] != y[i - 1]]
        return [
            list(zip(part.split(self.size), labels.split(self.size), strict=True))
            for part, labels in zip(x.tensor_split(ends), y.tensor_split(ends), strict=True)
        ]


VECTORS, IMAGES, PIXELS = (Spec(shape, 4, torch.float32) for shape in ((20,), (3, 6, 6), (3, 1, 1)))

BACK, ONE_BY_ONE = "a class comes back", "one by one"

SITUATIONS = {
    BACK: Situation(),
    ONE_BY_ONE: Situation(size=1),
    "one by one, mixed": Situation((0, 1, 2, 1, 0, 0, 1), size=1),
    "one class": Situation((3,) * 20),
    "batches above the memory": Situation((1,) * 30 + (2,) * 30, size=25, options={"memory_per_class": 1}),
    "many drawn from few": Situation(options={"memory_per_class": 1, "replay_size": 30}),
    "a small balanced memory": Situation(
        (0,) * 12 + (1,) * 9 + (0,) * 3, options={"memory_policy": "balanced", "memory_per_class": 1}
    ),
    "vectors": Situation(spec=VECTORS),
    "vectors one by one": Situation(spec=VECTORS, size=1),
    "float images": Situation(spec=IMAGES),
    "float images as they are": Situation(spec=IMAGES, options={"augment": False}),
    "single pixels one by one": Situation(spec=PIXELS, size=1, options={"augment": False}),
    "two classes in all": Situation((0, 0, 0, 1, 1, 1), spec=Spec((1, 8, 8), 2, torch.float32)),
    "a last batch of one, down to one pixel": Situation((0,) * 5 + (1,) * 9, options={"encoder": "resnet18"}),
}
