"""How classes arrive: one after another, with blurry boundaries, in waves, repeatedly, or all at once.

A stream is drawn on the CPU from its seed alone, and no sample arrives twice. Every stream can be made imbalanced:
``imbalance`` is the number of samples of its most frequent class over that of its least frequent one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack, get_args

import torch
from torch import Tensor

from onebyone.errors import UsageError, unknown
from onebyone.options import Checked, option
from onebyone.seeding import generator
from onebyone.streams.registry import register
from onebyone.streams.stream import Stream, Task

Order = Literal["label", "random"]
Groups = list[tuple[int, ...]]  # the classes of each task


@dataclass(frozen=True, kw_only=True)
class StreamOptions(Checked):
    """Options of every stream."""

    imbalance: float = option(1.0, "most frequent class over the least (1: unchanged)", low=1)


class Common(TypedDict, total=False):
    """Keywords that every stream takes."""

    order: Order  # of the classes: by label (the default), or random by the seed
    batch_size: int  # 10 unless given
    seed: int  # 0 unless given
    imbalance: float  # as in StreamOptions


@dataclass(frozen=True, kw_only=True)
class BlurryOptions(StreamOptions):
    share: float = option(0.1, "of the samples arrive in another task than their class", low=0, high=1)


@dataclass(frozen=True, kw_only=True)
class GaussianOptions(StreamOptions):
    width: float = option(1.0, "standard deviation of the times of arrival, in tasks", above=0)


@dataclass(frozen=True, kw_only=True)
class ReturningOptions(StreamOptions):
    periods: int = option(3, "how many times every class arrives", low=1)


@register("class-incremental", StreamOptions)
def class_incremental(y: Tensor, num_classes: int, classes_per_task: int = 1, **common: Unpack[Common]) -> Stream:
    """Classes one after another, in disjoint tasks.

    A task has ``classes_per_task`` classes (the last may have fewer), its samples shuffled. Classes come in label
    order, as in the paper, or in random order by the seed. No batch extends over the end of a task.
    """
    plan = _Plan(y, num_classes, classes_per_task, **common)
    return plan.by_task(plan.home(), disjoint=True)


@register("blurry", BlurryOptions)
def blurry(
    y: Tensor,
    num_classes: int,
    classes_per_task: int = 1,
    *,
    share: float = BlurryOptions.share,
    **common: Unpack[Common],
) -> Stream:
    """Tasks with blurry boundaries: some samples arrive in other tasks.

    Each sample moves with a probability of ``share`` to any of the other tasks, earlier or later. This is the blurry
    setting of Bang et al., Rainbow Memory (CVPR 2021), whose Blurry10 has a share of 0.1; Koh et al. (ICLR 2022)
    build on it.

    >>> y = torch.arange(1000) % 2
    >>> first, second = blurry(y, num_classes=2, share=0.2).tasks
    >>> 0.7 < float((y[first.indices] == 0).float().mean()) < 0.9
    True
    """
    BlurryOptions(share=share)  # raises if it is out of bounds
    plan = _Plan(y, num_classes, classes_per_task, **common)
    tasks, samples = len(plan.groups), len(plan.labels)
    if tasks == 1:
        raise UsageError("a stream of one task has no boundary to blur; lower classes_per_task")
    draw = plan.generator()
    moved = torch.rand(samples, generator=draw) < share
    away = torch.randint(1, tasks, (samples,), generator=draw)  # by how many tasks, modulo their number
    return plan.by_task((plan.home() + moved * away) % tasks, disjoint=not bool(moved.any()))


@register("gaussian", GaussianOptions)
def gaussian(
    y: Tensor,
    num_classes: int,
    classes_per_task: int = 1,
    *,
    width: float = GaussianOptions.width,
    **common: Unpack[Common],
) -> Stream:
    """Classes come and go in waves, without any boundary.

    Each sample arrives at a time drawn from a Gaussian around the centre of its class. The centres of the groups of
    ``classes_per_task`` classes are one task apart; with ten of them a ``width`` of 1 is a tenth of the stream. The
    learner is evaluated after parts of equal length. This is the boundary-free stream of Koh et al. (ICLR 2023)
    with its centres in order, as in Shanahan et al. (2021, arXiv:2105.13327).

    >>> y = torch.arange(1000) % 10
    >>> [len(task.indices) for task in gaussian(y, num_classes=10, classes_per_task=5).tasks]
    [500, 500]
    """
    GaussianOptions(width=width)
    plan = _Plan(y, num_classes, classes_per_task, **common)
    time = plan.home() + width * torch.randn(len(plan.labels), generator=plan.generator())
    return plan.in_equal_parts(plan.indices[time.argsort(stable=True)])


@register("returning", ReturningOptions)
def returning(
    y: Tensor,
    num_classes: int,
    classes_per_task: int = 1,
    *,
    periods: int = ReturningOptions.periods,
    **common: Unpack[Common],
) -> Stream:
    """Classes come back, each time with new samples.

    The incremental stream is repeated ``periods`` times, each time with another part of every class, so there are
    ``periods`` times as many tasks. This is class-incremental learning with repetition (Hemati et al., CoLLAs 2023) in
    its regular form: every class returns after the same time.

    >>> [task.classes for task in returning(torch.arange(8) % 2, num_classes=2, periods=2).tasks]
    [(0,), (1,), (0,), (1,)]
    """
    ReturningOptions(periods=periods)
    plan = _Plan(y, num_classes, classes_per_task, **common)
    home, counts = plan.home(), torch.bincount(plan.labels)
    if bool(((counts > 0) & (counts < periods)).any()):
        raise UsageError(f"a class has fewer samples than its {periods} periods; lower periods or add samples")
    period = _rank(plan.labels) * periods // counts[plan.labels]
    return plan.by_task(period * len(plan.groups) + home, times=periods, disjoint=periods == 1)


@register("iid", StreamOptions)
def iid(y: Tensor, num_classes: int, classes_per_task: int = 1, **common: Unpack[Common]) -> Stream:
    """All classes shuffled together.

    There are as many parts of equal length as the incremental stream has tasks.

    >>> stream = iid(torch.arange(10) % 5, num_classes=5, batch_size=4)
    >>> len(stream.tasks), stream.samples
    (5, 10)
    """
    plan = _Plan(y, num_classes, classes_per_task, **common)
    return plan.in_equal_parts(plan.indices)


class _Plan:
    """What all streams share: the groups of classes, and the samples in random order."""

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
    kept = _rank(labels) < _long_tail(torch.bincount(labels), imbalance, seed)[labels]
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


def _rank(labels: Tensor) -> Tensor:
    """[n] how many samples of its own class come before each sample."""
    counts = torch.bincount(labels)
    by_class = labels.argsort(stable=True)
    rank = torch.empty_like(labels)
    rank[by_class] = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[by_class]]
    return rank
