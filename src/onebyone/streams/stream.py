"""The order in which samples arrive: classes in tasks, tasks in sequence, every sample exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from onebyone.errors import UsageError, unknown
from onebyone.seeding import generator

Order = Literal["label", "random"]


@dataclass(frozen=True)
class Task:
    """A stretch of the stream, after which the learner is examined."""

    classes: tuple[int, ...]  # the group of classes whose accuracy is one column of the accuracy matrix
    indices: Tensor  # [n] training samples, in order of arrival

    def batches(self, size: int) -> tuple[Tensor, ...]:
        """The indices in batches; the last one may be shorter."""
        parts: tuple[Tensor, ...] = self.indices.split(size)
        return parts


@dataclass(frozen=True)
class Stream:
    """Tasks in sequence. Learners see its batches; where a task ends is the stream's secret.

    Iterating gives the indices of one batch after another. The order is drawn on the CPU, so that a seed gives
    the same stream on every device.

    >>> stream = class_incremental(torch.tensor([0, 1, 0, 2]), num_classes=3, classes_per_task=2, batch_size=2)
    >>> [task.classes for task in stream.tasks], len(stream), [len(batch) for batch in stream]
    ([(0, 1), (2,)], 3, [2, 1, 1])
    """

    tasks: tuple[Task, ...]
    disjoint: bool  # whether a class arrives in one task only
    batch_size: int

    def __iter__(self) -> Iterator[Tensor]:
        for task in self.tasks:
            yield from task.batches(self.batch_size)

    def __len__(self) -> int:
        return sum(len(task.batches(self.batch_size)) for task in self.tasks)

    @property
    def samples(self) -> int:
        return sum(len(task.indices) for task in self.tasks)


def class_incremental(
    y: Tensor,
    num_classes: int,
    classes_per_task: int = 1,
    *,
    order: Order = "label",
    batch_size: int = 10,
    seed: int = 0,
) -> Stream:
    """Disjoint tasks of ``classes_per_task`` classes (the last may have fewer), samples shuffled within each.

    Classes come in label order, as in the paper, or in a seeded random one. No batch reaches over the end of a task.
    """
    groups = _groups(num_classes, classes_per_task, order, batch_size, seed)
    draw = generator(seed, "stream")
    shuffled = torch.randperm(len(y), generator=draw)
    labels = y.cpu()[shuffled]
    tasks = []
    for classes in groups:
        indices = shuffled[torch.isin(labels, torch.tensor(classes))]
        if len(indices) == 0:
            raise UsageError(f"no training sample has a class of task {classes}; remove these classes or add samples")
        tasks.append(Task(classes, indices.to(y.device)))
    return Stream(tuple(tasks), disjoint=True, batch_size=batch_size)


def iid(
    y: Tensor,
    num_classes: int,
    classes_per_task: int = 1,
    *,
    order: Order = "label",
    batch_size: int = 10,
    seed: int = 0,
) -> Stream:
    """All classes shuffled together, in as many stretches as the incremental stream has tasks.

    >>> stream = iid(torch.arange(10) % 5, num_classes=5, batch_size=4)
    >>> len(stream.tasks), stream.samples
    (5, 10)
    """
    groups = _groups(num_classes, classes_per_task, order, batch_size, seed)
    if len(y) < len(groups):
        raise UsageError(f"{len(y)} samples do not fill {len(groups)} tasks; raise classes_per_task or add samples")
    shuffled = torch.randperm(len(y), generator=generator(seed, "stream")).to(y.device)
    parts = shuffled.tensor_split(len(groups))
    tasks = tuple(Task(classes, part) for classes, part in zip(groups, parts, strict=True))
    return Stream(tasks, disjoint=False, batch_size=batch_size)


def _groups(num_classes: int, per_task: int, order: Order, batch_size: int, seed: int) -> list[tuple[int, ...]]:
    if not 1 <= per_task <= num_classes:
        raise UsageError(f"classes_per_task is {per_task}; with {num_classes} classes it must lie in 1..{num_classes}")
    if batch_size < 1:
        raise UsageError(f"batch_size is {batch_size}; it must be at least 1")
    if order not in get_args(Order):
        raise unknown("class order", order, get_args(Order))
    classes = torch.arange(num_classes)
    if order == "random":
        classes = torch.randperm(num_classes, generator=generator(seed, "class order"))
    return [tuple(int(c) for c in group) for group in classes.split(per_task)]
