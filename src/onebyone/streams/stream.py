"""A stream: a sequence of tasks, which are sequences of batches; no sample arrives twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Task:
    """A part of the stream, after which the learner is evaluated."""

    classes: tuple[int, ...]  # the group of classes whose accuracy is one column of the accuracy matrix
    indices: Tensor  # [n] training samples, in order of arrival

    def __eq__(self, other: object) -> bool:
        """Whether classes and indices are equal, on whatever devices they are."""
        if not isinstance(other, Task):
            return NotImplemented
        return self.classes == other.classes and torch.equal(self.indices, other.indices.to(self.indices.device))

    def __hash__(self) -> int:
        return hash((self.classes, len(self.indices)))

    def batches(self, size: int) -> tuple[Tensor, ...]:
        """The indices in batches.

        Parameters
        ----------
        size
            Number of samples per batch. The last batch may be smaller.

        Returns
        -------
        tuple of Tensor
            The indices of each batch.
        """
        parts: tuple[Tensor, ...] = self.indices.split(size)
        return parts


@dataclass(frozen=True)
class Stream:
    """The order in which samples arrive: a sequence of tasks, which are divided into batches.

    Iterating over a stream yields the indices of one batch after another. A learner is not told where a task ends. The
    order is drawn on the CPU, so a seed gives the same stream on every device.

    >>> import torch
    >>> from onebyone import class_incremental
    >>> stream = class_incremental(torch.tensor([0, 1, 0, 2]), num_classes=3, classes_per_task=2, batch_size=2)
    >>> [task.classes for task in stream.tasks], len(stream), [len(batch) for batch in stream]
    ([(0, 1), (2,)], 3, [2, 1, 1])
    """

    tasks: tuple[Task, ...]  # in order of arrival
    disjoint: bool  # whether a class arrives in one task only
    batch_size: int  # samples that arrive together

    def __iter__(self) -> Iterator[Tensor]:
        for task in self.tasks:
            yield from task.batches(self.batch_size)

    def __len__(self) -> int:
        return sum(len(task.batches(self.batch_size)) for task in self.tasks)

    def to(self, device: torch.device | str) -> Stream:
        """The same stream on another device.

        Parameters
        ----------
        device
            As in ``Tensor.to``.

        Returns
        -------
        Stream
            The stream with its indices on ``device``.
        """
        tasks = tuple(replace(task, indices=task.indices.to(device)) for task in self.tasks)
        return replace(self, tasks=tasks)

    @property
    def samples(self) -> int:
        """Number of samples in the stream."""
        return sum(len(task.indices) for task in self.tasks)

    def first_arrivals(self, y: Tensor) -> dict[int, int]:
        """The task in which each class first arrives.

        A class that never arrives is counted with the first task that names it, so that it is not left out.

        Parameters
        ----------
        y
            The labels of all training samples.

        Returns
        -------
        dict of int to int
            For each class, the number of the task, from 0.

        >>> import torch
        >>> from onebyone import iid
        >>> iid(torch.tensor([1, 0]), num_classes=3, classes_per_task=2, seed=1).first_arrivals(torch.tensor([1, 0]))
        {0: 1, 1: 0, 2: 1}
        """
        first: dict[int, int] = {}
        for number, task in enumerate(self.tasks):
            for label in y[task.indices].unique().tolist():
                first.setdefault(label, number)
        for number, task in enumerate(self.tasks):
            for label in task.classes:
                first.setdefault(label, number)
        return dict(sorted(first.items()))
