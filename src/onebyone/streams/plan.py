"""What all streams share: the groups of classes, the samples in random order, and how many of them are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from onebyone.errors import UsageError, unknown
from onebyone.options import Checked, option
from onebyone.seeding import generator
from onebyone.streams.stream import Stream, Task

Order = Literal["label", "random"]
Groups = list[tuple[int, ...]]  # the classes of each task


@dataclass(frozen=True, kw_only=True)
class StreamOptions(Checked):
    """Options of every stream."""

    imbalance: float = option(1.0, "most frequent class over the least (1: unchanged)", low=1)


class Plan:
    """The groups of classes, and the samples in random order."""

    def __init__(
        self,
        y: Tensor,
        num_classes: int,
        classes_per_task: int,
        order: Order = "label",
        batch_size: int = 10,
        seed: int = 0,
        imbalance: float = StreamOptions.imbalance,
    ) -> None:
        StreamOptions(imbalance=imbalance)  # raises if it is out of bounds
        self.device = y.device
        self.groups = _groups(num_classes, classes_per_task, order, batch_size, seed)
        self.indices, self.labels = _shuffled(y, imbalance, seed)  # [n] and [n]
        self.batch_size = batch_size
        self.seed = seed

    def generator(self) -> torch.Generator:
        return generator(self.seed, "schedule")

    def home(self) -> Tensor:
        """[n] the task that each sample's class belongs to; a task without samples is refused."""
        home = torch.empty(sum(map(len, self.groups)), dtype=torch.int64)
        for number, classes in enumerate(self.groups):
            home[list(classes)] = number
            if not bool(torch.isin(self.labels, torch.tensor(classes)).any()):
                raise UsageError(
                    f"no training sample has a class of task {classes}; remove these classes or add samples"
                )
        return home[self.labels]

    def by_task(self, task: Tensor, *, disjoint: bool, times: int = 1) -> Stream:
        """The stream in which each sample arrives in its ``task`` [n]; the groups are repeated ``times`` times."""
        groups = self.groups * times
        parts = [self.indices[task == number].to(self.device) for number in range(len(groups))]
        if not all(map(len, parts)):
            raise UsageError(
                f"{len(self.indices)} samples leave one of {len(groups)} tasks empty; lower share or add samples"
            )
        return Stream(tuple(map(Task, groups, parts)), disjoint=disjoint, batch_size=self.batch_size)

    def in_equal_parts(self, indices: Tensor) -> Stream:
        """The stream of these samples in this order, in tasks of equal length."""
        if len(indices) < len(self.groups):
            raise UsageError(
                f"{len(indices)} samples do not fill {len(self.groups)} tasks; raise classes_per_task or add samples"
            )
        parts = indices.to(self.device).tensor_split(len(self.groups))
        return Stream(tuple(map(Task, self.groups, parts)), disjoint=False, batch_size=self.batch_size)


def _groups(num_classes: int, per_task: int, order: Order, batch_size: int, seed: int) -> Groups:
    if not 1 <= per_task <= num_classes:
        raise UsageError(f"classes_per_task is {per_task}; with {num_classes} classes it must be in 1..{num_classes}")
    if batch_size < 1:
        raise UsageError(f"batch_size is {batch_size}; it must be at least 1")
    if order not in get_args(Order):
        raise unknown("class order", order, get_args(Order))
    classes = torch.arange(num_classes)
    if order == "random":
        classes = torch.randperm(num_classes, generator=generator(seed, "class order"))
    return [tuple(int(c) for c in group) for group in classes.split(per_task)]


def _shuffled(y: Tensor, imbalance: float, seed: int) -> tuple[Tensor, Tensor]:
    """Indices and labels of the samples in random order: all of them, or as many of each class as imbalance leaves."""
    indices = torch.randperm(len(y), generator=generator(seed, "stream"))
    labels = y.cpu()[indices]
    if imbalance == 1:
        return indices, labels
    kept = rank(labels) < _long_tail(torch.bincount(labels), imbalance, seed)[labels]
    return indices[kept], labels[kept]


def _long_tail(counts: Tensor, imbalance: float, seed: int) -> Tensor:
    """How many samples each class keeps: from class to class fewer by the same factor, ``imbalance`` in all.

    The exponential profile of Cao et al. (NeurIPS 2019). Which classes are rare is drawn by the seed, so that
    rare classes are not always the last ones. No class keeps more samples than the smallest one has, so that the ratio
    is exact.
    """
    present = counts.nonzero().flatten()
    most = int(counts[present].min())
    if len(present) == 1:
        raise UsageError("a single class cannot be imbalanced; add classes or leave imbalance at 1")
    if imbalance > most:
        raise UsageError(
            f"imbalance is {imbalance}; the smallest class has {most} samples, so it can be at most {most}"
        )
    profile = most * imbalance ** -torch.linspace(0, 1, len(present), dtype=torch.float64)
    kept = torch.zeros_like(counts)
    kept[present[torch.randperm(len(present), generator=generator(seed, "imbalance"))]] = profile.round().long()
    return kept


def rank(labels: Tensor) -> Tensor:
    """[n] how many samples of its own class come before each sample."""
    counts = torch.bincount(labels)
    by_class = labels.argsort(stable=True)
    rank = torch.empty_like(labels)
    rank[by_class] = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[by_class]]
    return rank
