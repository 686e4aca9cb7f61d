"""A learner made of shapes only, on which a step can be tried without computing anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode

from onebyone.methods.registry import AnyLearner


@contextmanager
def shapes_only(learner: AnyLearner) -> Iterator[AnyLearner]:
    """A copy of the learner whose tensors have shapes but no values; inside, new tensors have none either.

    A step that looks at a value, or whose shapes depend on one, fails on it with an error that names the operation.
    Such a step could not be captured as a graph.

    >>> import torch
    >>> from onebyone import create, load
    >>> with shapes_only(create("ccp", load("digits").spec)) as copy:
    ...     copy.observe(torch.zeros(10, 1, 8, 8, dtype=torch.uint8), torch.zeros(10, dtype=torch.int64)).shape
    torch.Size([])
    """
    mode = FakeTensorMode()
    with FakeCopyMode(mode):
        # Without values nothing is drawn, so the copy can share the generator, which cannot be copied here.
        copy = deepcopy(learner, {id(learner.generator): learner.generator})
    with mode:
        yield copy
