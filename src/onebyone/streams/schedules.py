"""How classes arrive: one after another, with blurry boundaries, in waves, again and again, or all at once.

A stream is drawn on the CPU from its seed alone, and no sample arrives twice. Every stream can be made ``imbalanced``:
its most frequent class then has so many times the samples of its least frequent one.
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
    """What every stream can be told."""

    imbalance: float = option(1.0, "most frequent class over the least (1: as it is)", low=1)


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
def class_incremental(
    y: Tensor,
    num_classes: int,
    classes_per_task: int = 1,
    **common: Unpack[Common],
) -> Stream:
    """Classes one after another, in disjoint tasks.

    A task has ``classes_per_task`` classes (the last may have fewer), its samples shuffled. Classes come in label
    order, as in the paper, or in a seeded random one. No batch reaches over the end of a task.
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
    """Tasks with blurry boundaries: some samples stray.

    Each sample strays with a probability of ``share``, to any of the other tasks, earlier or later. This is the blurry
    setting of Bang et al., Rainbow Memory (CVPR 2021), whose Blurry10 has a share of 0.1; Koh et al. (ICLR 2022)
    build on it.

    >>> y = torch.arange(1000) % 2
    >>> first, second = blurry(y, num_classes=2, share=0.2).tasks
    >>> 0.7 < float((y[first.indices] == 0).float().mean()) < 0.9
    True
    """
    BlurryOptions(share=share)  # refuses what is out of bounds
    plan = _Plan(y, num_classes, classes_per_task, **common)
    tasks, samples = len(plan.groups), len(plan.labels)
    if tasks == 1:
        raise UsageError("a stream of one task has no boundary to blur; lower classes_per_task")
    draw = plan.generator()
    strays = torch.rand(samples, generator=draw) < share
    away = torch.randint(1, tasks, (samples,), generator=draw)  # tasks further, round the end
    return plan.by_task((plan.home() + strays * away) % tasks, disjoint=not bool(strays.any()))


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

    Each sample arrives at a time drawn from a Gaussian round the centre of its class. The centres of the groups of
    ``classes_per_task`` classes lie one task apart; with ten of them a ``width`` of 1 is a tenth of the stream. The
    learner is examined after stretches of equal length. This is the boundary-free stream of Koh et al. (ICLR 2023)
    with its centres in order, as Shanahan et al. (2021, arXiv:2105.13327) have them.

    >>> y = torch.arange(1000) % 10
    >>> [len(task.indices) for task in gaussian(y, num_classes=10, classes_per_task=5).tasks]
    [500, 500]
    """
    GaussianOptions(width=width)
    plan = _Plan(y, num_classes, classes_per_task, **common)
    time = plan.home() + width * torch.randn(len(plan.labels), generator=plan.generator())
    return plan.in_stretches(plan.indices[time.argsort(stable=True)])


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

    The incremental stream ``periods`` times over, with another part of every class each time; there are ``periods``
    times as many tasks. Class-incremental learning with repetition (Hemati et al., CoLLAs 2023) in its regular form:
    every class returns after the same time, as in a year with seasons.

    >>> [task.classes for task in returning(torch.arange(8) % 2, num_classes=2, periods=2).tasks]
    [(0,), (1,), (0,), (1,)]
    """
    ReturningOptions(periods=periods)
    plan = _Plan(y, num_classes, classes_per_task, **common)
    home, counts = plan.home(), torch.bincount(plan.labels)
    if bool(((counts > 0) & (counts < periods)).any()):
        raise UsageError(
            f"a class has fewer samples than the {periods} times it is to arrive; lower periods or add samples"
        )
    period = _rank(plan.labels) * periods // counts[plan.labels]
    return plan.by_task(period * len(plan.groups) + home, times=periods, disjoint=periods == 1)


@register("iid", StreamOptions)
def iid(
    y: Tensor,
    num_classes: int,
    classes_per_task: int = 1,
    **common: Unpack[Common],
) -> Stream:
    """All classes shuffled together.

    There are as many stretches as the incremental stream has tasks.

    >>> stream = iid(torch.arange(10) % 5, num_classes=5, batch_size=4)
    >>> len(stream.tasks), stream.samples
    (5, 10)
    """
    plan = _Plan(y, num_classes, classes_per_task, **common)
    return plan.in_stretches(plan.indices)


class _Plan:
    """What every stream begins with: its groups of classes, and its samples in random order."""

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
        StreamOptions(imbalance=imbalance)  # refuses what is out of bounds
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
        """The stream in which each sample arrives in its ``task`` [n]; the groups follow each other so many times."""
        groups = self.groups * times
        parts = [self.indices[task == number].to(self.device) for number in range(len(groups))]
        if not all(map(len, parts)):
            raise UsageError(
                f"{len(self.indices)} samples leave one of {len(groups)} tasks empty; lower share or add samples"
            )
        return Stream(tuple(map(Task, groups, parts)), disjoint=disjoint, batch_size=self.batch_size)

    def in_stretches(self, indices: Tensor) -> Stream:
        """The stream of these samples in this order, in tasks of equal length."""
        if len(indices) < len(self.groups):
            raise UsageError(
                f"{len(indices)} samples do not fill {len(self.groups)} tasks; raise classes_per_task or add samples"
            )
        parts = indices.to(self.device).tensor_split(len(self.groups))
        return Stream(tuple(map(Task, self.groups, parts)), disjoint=False, batch_size=self.batch_size)


def _groups(num_classes: int, per_task: int, order: Order, batch_size: int, seed: int) -> Groups:
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

    The exponential profile of Cao et al. (NeurIPS 2019). Which class is rare is drawn by the seed, so that to be rare
    is not to be late. So that the ratio is as asked, no class keeps more than the smallest one has.
    """
    present = counts.nonzero().flatten()
    most = int(counts[present].min())
    if len(present) == 1:
        raise UsageError("one class alone cannot be imbalanced; add classes or leave imbalance at 1")
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
