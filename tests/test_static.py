"""A step has static shapes and never looks at a value, however full the memory is."""

from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.utils._python_dispatch import TorchDispatchMode

from onebyone import Dataset, Learner, create, methods
from onebyone.engine.static import shapes_only
from onebyone.methods import ReplayLearner, ReplayOptions, method
from onebyone.methods.er import ER

aten = torch.ops.aten
FILLS = {"empty": 0, "half-empty": 10, "full": 40}  # samples seen by a memory of 20


class NoLooking(TorchDispatchMode):
    """On real tensors: refuses what would make a device wait for, or a shape depend on, a value."""

    refused = (
        aten._local_scalar_dense,
        aten.item,
        aten.is_nonzero,
        aten.equal,
        aten.nonzero,
        aten.nonzero_numpy,
        aten.masked_select,
        aten._unique,
        aten._unique2,
        aten.unique_dim,
        aten.unique_consecutive,
    )
    indexing = (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet = func.overloadpacket
        if packet in self.refused or (
            packet in self.indexing and any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
        ):
            raise AssertionError(f"{func} looks at a value")
        return func(*args, **(kwargs or {}))


def learner_with(few: Dataset, name: str, fill: str, options: dict[str, Any]) -> Learner[Any]:
    if issubclass(method(name).options, ReplayOptions):
        options = {"memory_per_class": 2, **options}
    learner = create(name, few.spec, **options)
    order = torch.randperm(len(few.train_y), generator=torch.Generator().manual_seed(0))[: FILLS[fill]]
    for index in order.split(20) if FILLS[fill] else ():
        learner.observe(few.train_x[index], few.train_y[index])
    if learner.needs_boundaries:
        learner.end_task()
    if isinstance(learner, ReplayLearner):
        assert int(learner.memory.filled.sum()) == min(FILLS[fill], 20)
    return learner


def cases() -> list[Any]:
    """Every method with either policy and either kind of pass, and with each of its further choices of code."""
    makings: list[dict[str, Any]] = [
        {"memory_policy": policy, "passes": passes}
        for policy in ("reservoir", "balanced")
        for passes in ("separate", "joint")
    ]
    makings += [
        {"replay_from": "others"},
        {"replay_from": "all"},
        {"positives": "memory"},
        {"prototype_gradient": "all"},
        {"prototype_gradient": "none"},
        {"contrast_unseen": False},
        {"projector": "mlp"},
    ]
    found = []
    for name in methods():
        known = {item.name for item in fields(method(name).options)}
        chosen = [options for options in makings if options.keys() <= known] or [{}]
        found += [pytest.param(name, options, id=" ".join([name, *map(str, options.values())])) for options in chosen]
    return found


every_case = pytest.mark.parametrize(("name", "options"), cases())
every_fill = pytest.mark.parametrize("fill", FILLS)


@every_case
@every_fill
def test_shapes_are_static(few: Dataset, name: str, options: dict[str, Any], fill: str) -> None:
    learner = learner_with(few, name, fill, options)
    before = {key: tensor.clone() for key, tensor in learner.state_dict().items()}
    with shapes_only(learner) as copy:
        loss = copy.observe(torch.zeros(10, 1, 8, 8, dtype=torch.uint8), torch.zeros(10, dtype=torch.int64))
        assert loss.shape == ()
    assert all(torch.equal(tensor, before[key]) for key, tensor in learner.state_dict().items())


@every_case
@every_fill
def test_no_value_is_looked_at(few: Dataset, name: str, options: dict[str, Any], fill: str) -> None:
    learner = learner_with(few, name, fill, options)
    with NoLooking():
        learner.observe(few.train_x[::12], few.train_y[::12])


class Item(ER):
    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        assert y.max().item() >= 0
        return super().observe(x, y)


class Branch(ER):
    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        if self.memory.seen > 0:
            self.count(y)
        return super().observe(x, y)


class Mask(ER):
    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        return super().observe(x[y >= 0], y[y >= 0])


class Unique(ER):
    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        return super().observe(x, y.unique(return_inverse=True)[1])


@pytest.mark.parametrize("broken", [Item, Branch, Mask, Unique])
def test_a_step_that_does_look_is_caught(few: Dataset, broken: type[ER]) -> None:
    """Both by shapes alone and by the watch on real tensors, on which it runs otherwise."""
    learner = broken(ReplayOptions(memory_per_class=2), few.spec)
    learner.observe(few.train_x[::12], few.train_y[::12])
    with (
        shapes_only(learner) as copy,
        pytest.raises((DataDependentOutputException, DynamicOutputShapeException), match="aten"),
    ):
        copy.observe(torch.zeros(10, 1, 8, 8, dtype=torch.uint8), torch.zeros(10, dtype=torch.int64))
    with NoLooking(), pytest.raises(AssertionError, match="looks at a value"):
        learner.observe(few.train_x[::12], few.train_y[::12])
