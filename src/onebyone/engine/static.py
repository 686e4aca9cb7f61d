"""A learner made of shapes only, on which a step can be tried without computing anything."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode

from onebyone.methods.registry import AnyLearner


@contextmanager
def shapes_only(learner: AnyLearner) -> Iterator[AnyLearner]:
    """A copy of the learner whose tensors have shapes but no values; inside, new tensors have none either.

    A step that looks at a value, or whose shapes depend on one, fails on it with an error that names the operation.
    Such a step could not be captured as a graph.

    >>> from onebyone import create, load
    >>> with shapes_only(create("ccp", load("digits").spec)) as copy:
    ...     copy.observe(torch.zeros(10, 1, 8, 8, dtype=torch.uint8), torch.zeros(10, dtype=torch.int64)).shape
    torch.Size([])
    """
    mode = FakeTensorMode()
    with FakeCopyMode(mode):
        # Without values nothing is drawn, so the copy can share the generators, which cannot be copied here.
        copy = deepcopy(learner, {id(generator): generator for generator in learner.generators})
    with mode:
        yield copy


def kind(learner: AnyLearner, batch_size: int) -> Hashable:
    """What a step's shapes depend on: the same for runs that differ in their seed only."""
    return type(learner), learner.options, learner.spec, learner.device, batch_size


def blank_batch(learner: AnyLearner, batch_size: int) -> tuple[Tensor, Tensor]:
    """A batch of the right shapes for ``observe``."""
    spec = learner.spec
    x = torch.zeros(batch_size, *spec.shape, dtype=spec.dtype, device=learner.device)
    return x, torch.zeros(batch_size, dtype=torch.int64, device=learner.device)


_obstacles: dict[Hashable, str | None] = {}  # a step takes about a second to try, and many runs have the same


def obstacle(learner: AnyLearner, batch_size: int) -> str | None:
    """What keeps the learner's step from being recorded, in the words of the operation that does; None if nothing.

    Found on a copy without values, before the GPU is touched: a recording that breaks off leaves it in disorder.

    >>> from onebyone import create, load
    >>> obstacle(create("ccp", load("digits").spec), batch_size=10) is None
    True
    """
    key = kind(learner, batch_size)
    if key not in _obstacles:
        try:
            with shapes_only(learner) as copy:
                copy.observe(*blank_batch(learner, batch_size))
            _obstacles[key] = None
        except Exception as error:  # whatever a method's code does there
            _obstacles[key] = str(error).strip().split("\n")[0] or type(error).__name__
    return _obstacles[key]


@contextmanager
def trial(learner: AnyLearner, batch_size: int) -> Iterator[AnyLearner]:
    """A copy of the learner to try a step on: one of shapes only where that will do, else a real one."""
    if obstacle(learner, batch_size) is None:
        with shapes_only(learner) as copy:
            yield copy
    else:
        yield deepcopy(learner)
