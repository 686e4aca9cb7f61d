"""How classes arrive: one after another, with blurry boundaries, in waves, repeatedly, or all at once.

A stream is drawn on the CPU from its seed alone, and no sample arrives twice. Every stream can be made imbalanced:
``imbalance`` is the number of samples of its most frequent class over that of its least frequent one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict, Unpack

import torch
from torch import Tensor

from onebyone.errors import UsageError
from onebyone.options import option
from onebyone.streams.plan import Order, Plan, StreamOptions, rank
from onebyone.streams.registry import register
from onebyone.streams.stream import Stream


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

    A task has ``classes_per_task`` classes (the last task may have fewer), and its samples are shuffled. Classes arrive
    in label order, as in the paper, or in a random order. No batch extends over the end of a task.

    Parameters
    ----------
    y, num_classes
        The labels [n] of the training samples, from 0, and the number of classes.
    classes_per_task
        How many classes arrive together.
    **common
        ``order`` of the classes (``"label"`` or ``"random"``), ``batch_size`` (10), ``seed`` (0) and ``imbalance`` (1).
        With an ``imbalance`` of 10, the most frequent class has ten times as many samples as the rarest.

    Returns
    -------
    Stream
        The order in which the samples arrive, as batches of indices.

    Raises
    ------
    UsageError
        A number is out of bounds, or a task would have no samples.
    """
    plan = Plan(y, num_classes, classes_per_task, **common)
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

    Each sample moves to any of the other tasks, earlier or later, with the probability ``share``. This is the blurry
    setting of Bang et al., Rainbow Memory (CVPR 2021), whose Blurry10 has a share of 0.1; Koh et al. (ICLR 2022)
    build on it.

    Parameters
    ----------
    y, num_classes
        The labels [n] of the training samples, from 0, and the number of classes.
    classes_per_task
        How many classes arrive together.
    share
        The probability that a sample moves to another task.
    **common
        ``order`` of the classes (``"label"`` or ``"random"``), ``batch_size`` (10), ``seed`` (0) and ``imbalance`` (1).
        With an ``imbalance`` of 10, the most frequent class has ten times as many samples as the rarest.

    Returns
    -------
    Stream
        The order in which the samples arrive, as batches of indices.

    Raises
    ------
    UsageError
        A number is out of bounds, or a task would have no samples.

    >>> y = torch.arange(1000) % 2
    >>> first, second = blurry(y, num_classes=2, share=0.2).tasks
    >>> 0.7 < float((y[first.indices] == 0).float().mean()) < 0.9
    True
    """
    BlurryOptions(share=share)  # raises if it is out of bounds
    plan = Plan(y, num_classes, classes_per_task, **common)
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
    ``classes_per_task`` classes are one task apart. With ten such groups, a ``width`` of 1 is a tenth of the stream.
    The learner is evaluated after parts of equal length. This is the boundary-free stream of Koh et al. (ICLR 2023)
    with its centres in order, as in Shanahan et al. (2021, arXiv:2105.13327).

    Parameters
    ----------
    y, num_classes
        The labels [n] of the training samples, from 0, and the number of classes.
    classes_per_task
        How many classes arrive together.
    width
        Standard deviation of the times of arrival, in tasks.
    **common
        ``order`` of the classes (``"label"`` or ``"random"``), ``batch_size`` (10), ``seed`` (0) and ``imbalance`` (1).
        With an ``imbalance`` of 10, the most frequent class has ten times as many samples as the rarest.

    Returns
    -------
    Stream
        The order in which the samples arrive, as batches of indices.

    Raises
    ------
    UsageError
        A number is out of bounds, or a task would have no samples.

    >>> y = torch.arange(1000) % 10
    >>> [len(task.indices) for task in gaussian(y, num_classes=10, classes_per_task=5).tasks]
    [500, 500]
    """
    GaussianOptions(width=width)
    plan = Plan(y, num_classes, classes_per_task, **common)
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

    Parameters
    ----------
    y, num_classes
        The labels [n] of the training samples, from 0, and the number of classes.
    classes_per_task
        How many classes arrive together.
    periods
        How many times each class arrives.
    **common
        ``order`` of the classes (``"label"`` or ``"random"``), ``batch_size`` (10), ``seed`` (0) and ``imbalance`` (1).
        With an ``imbalance`` of 10, the most frequent class has ten times as many samples as the rarest.

    Returns
    -------
    Stream
        The order in which the samples arrive, as batches of indices.

    Raises
    ------
    UsageError
        A number is out of bounds, or a class has fewer samples than periods.

    >>> [task.classes for task in returning(torch.arange(8) % 2, num_classes=2, periods=2).tasks]
    [(0,), (1,), (0,), (1,)]
    """
    ReturningOptions(periods=periods)
    plan = Plan(y, num_classes, classes_per_task, **common)
    home, counts = plan.home(), torch.bincount(plan.labels)
    if bool(((counts > 0) & (counts < periods)).any()):
        raise UsageError(f"a class has fewer samples than its {periods} periods; lower periods or add samples")
    period = rank(plan.labels) * periods // counts[plan.labels]
    return plan.by_task(period * len(plan.groups) + home, times=periods, disjoint=periods == 1)


@register("iid", StreamOptions)
def iid(y: Tensor, num_classes: int, classes_per_task: int = 1, **common: Unpack[Common]) -> Stream:
    """All classes shuffled together.

    There are as many parts of equal length as the incremental stream has tasks.

    Parameters
    ----------
    y, num_classes
        The labels [n] of the training samples, from 0, and the number of classes.
    classes_per_task
        How many classes arrive together.
    **common
        ``order`` of the classes (``"label"`` or ``"random"``), ``batch_size`` (10), ``seed`` (0) and ``imbalance`` (1).
        With an ``imbalance`` of 10, the most frequent class has ten times as many samples as the rarest.

    Returns
    -------
    Stream
        The order in which the samples arrive, as batches of indices.

    Raises
    ------
    UsageError
        A number is out of bounds, or there are fewer samples than tasks.

    >>> stream = iid(torch.arange(10) % 5, num_classes=5, batch_size=4)
    >>> len(stream.tasks), stream.samples
    (5, 10)
    """
    plan = Plan(y, num_classes, classes_per_task, **common)
    return plan.in_equal_parts(plan.indices)
