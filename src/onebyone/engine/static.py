"""A copy of a learner that has shapes but no values, to try a step without computing anything."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode

from onebyone.methods.registry import AnyLearner

T = TypeVar("T")


@contextmanager
def shapes_only(learner: AnyLearner) -> Iterator[AnyLearner]:
    """A copy of the learner whose tensors have shapes but no values; inside the block new tensors have none either.

    A step that reads a value, or whose shapes depend on one, fails on it with an error that names the operation. Such a
    step could not be captured as a CUDA graph.

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


class StepCache(Generic[T]):
    """Results that depend on the shapes of a step only: computed once for runs that differ in their seed.

    It keeps nothing alive: entries go away with the encoder that the options hold, or else with the class of the
    learner.
    """

    def __init__(self) -> None:
        self._results: WeakKeyDictionary[object, dict[Hashable, T]] = WeakKeyDictionary()

    def get(self, learner: AnyLearner, batch_size: int, compute: Callable[[], T]) -> T:
        """The result for this learner and batch size; ``compute`` is called if there is none yet."""
        options = vars(learner.options)
        modules = [value for value in options.values() if isinstance(value, nn.Module)]
        owner: object = modules[0] if modules else type(learner)
        values = (ref(value) if isinstance(value, nn.Module) else value for value in options.values())
        key = ref(type(learner)), *values, learner.spec, learner.device, batch_size
        results = self._results.setdefault(owner, {})
        if key not in results:
            results[key] = compute()
        return results[key]


def blank_batch(learner: AnyLearner, batch_size: int) -> tuple[Tensor, Tensor]:
    """A batch of zeros with the right shapes for ``observe``."""
    spec = learner.spec
    x = torch.zeros(batch_size, *spec.shape, dtype=spec.dtype, device=learner.device)
    return x, torch.zeros(batch_size, dtype=torch.int64, device=learner.device)


_capture_problems: StepCache[str | None] = StepCache()  # a step takes about a second to try


def capture_problem(learner: AnyLearner, batch_size: int) -> str | None:
    """Why the learner's step cannot be captured: the message of the operation that fails; None if it can.

    Found on a copy without values, before the GPU is used: a capture that fails half way leaves CUDA in a bad state.

    >>> from onebyone import create, load
    >>> capture_problem(create("ccp", load("digits").spec), batch_size=10) is None
    True
    """

    def find() -> str | None:
        try:
            with shapes_only(learner) as copy:
                copy.observe(*blank_batch(learner, batch_size))
        except Exception as error:  # whatever a method's code raises
            return str(error).strip().split("\n")[0] or type(error).__name__
        return None

    return _capture_problems.get(learner, batch_size, find)


@contextmanager
def step_copy(learner: AnyLearner, batch_size: int) -> Iterator[AnyLearner]:
    """A copy of the learner to take a step with: shapes only if its step needs no values, else a full copy."""
    if capture_problem(learner, batch_size) is None:
        with shapes_only(learner) as copy:
            yield copy
    else:
        yield deepcopy(learner)
