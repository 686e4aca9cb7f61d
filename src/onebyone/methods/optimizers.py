"""The state of a torch optimizer as named tensors, which belong to ``state_dict()`` of its learner.

An optimizer creates most of its state in its first step. Until then there are no names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from onebyone.errors import UsageError


def state_of(optimizer: Optimizer) -> dict[str, Tensor]:
    """State of each parameter, and settings that were changed since the optimizer was created.

    >>> weight = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    >>> weight.sum().backward()
    >>> optimizer.step()
    >>> optimizer.param_groups[0]["lr"] = 0.05
    >>> state_of(optimizer)
    {'tensor.0.momentum_buffer': tensor([1., 1.]), 'group.0.lr': tensor(0.0500, dtype=torch.float64)}
    """
    found: dict[str, Tensor] = {}
    for index, parameter in enumerate(_parameters(optimizer)):
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                found[f"tensor.{index}.{key}"] = value.detach()
            elif isinstance(value, int | float):
                found[f"number.{index}.{key}"] = _as_tensor(value)
            elif value is not None:
                name = type(optimizer).__name__
                raise UsageError(
                    f"{key} in the state of {name} is a {type(value).__name__}, which cannot be saved; use an "
                    "optimizer whose state is tensors and numbers, such as SGD or Adam"
                )
    found |= {f"group.{index}.{key}": _as_tensor(value) for index, key, value in _changed(optimizer)}
    return found


@torch.no_grad()
def load(optimizer: Optimizer, found: Mapping[str, Tensor]) -> None:
    """Put an optimizer into a state that :func:`state_of` returned; without names it is as before its first step.

    Tensors that exist are written in place, because a captured step refers to them.
    """
    parameters = _parameters(optimizer)
    for index, key, _ in list(_changed(optimizer)):
        if f"group.{index}.{key}" not in found:
            optimizer.param_groups[index][key] = optimizer.defaults[key]
    for index, parameter in enumerate(parameters):
        for key in list(optimizer.state.get(parameter, {})):
            if f"tensor.{index}.{key}" not in found and f"number.{index}.{key}" not in found:
                del optimizer.state[parameter][key]
    for name, value in found.items():
        kind, number, key = name.split(".", 2)
        index = int(number)
        place = optimizer.param_groups[index] if kind == "group" else optimizer.state[parameters[index]]
        now = place.get(key)
        if isinstance(now, Tensor):
            now.copy_(value)
        elif kind == "tensor":
            place[key] = _placed(optimizer, parameters[index], key, value).copy_(value)
        else:
            place[key] = value.item()


def begin_as(optimizer: Optimizer, other: Optimizer) -> None:
    """Give an optimizer the state that another one has and it lacks: zeros, in the shapes of its own parameters.

    The parameters of the two differ in the number of classes.
    """
    found, parameters, others = state_of(optimizer), _parameters(optimizer), _parameters(other)
    for name, value in state_of(other).items():
        if name not in found:
            if name.startswith("tensor."):
                index = int(name.split(".")[1])
                sizes = value.shape, others[index].shape, parameters[index].shape
                if len(sizes[0]) == len(sizes[1]):
                    shape = [new if size == old else size for size, old, new in zip(*sizes, strict=True)]
                    value = value.new_zeros(shape)
            found[name] = value
    load(optimizer, found)


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _changed(optimizer: Optimizer) -> Iterator[tuple[int, str, Any]]:
    """Group, name and value of each setting that is not the default, such as the learning rate of a schedule."""
    for index, group in enumerate(optimizer.param_groups):
        for key, default in optimizer.defaults.items():
            value = group.get(key)
            if isinstance(value, Tensor) or (isinstance(value, int | float) and value != default):
                yield index, key, value


def _as_tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None, device="cpu")


def _placed(optimizer: Optimizer, parameter: Tensor, key: str, value: Tensor) -> Tensor:
    """An empty tensor for a part of the state, on the device and in the memory layout that the optimizer would use."""
    group = next(g for g in optimizer.param_groups if any(parameter is own for own in g["params"]))
    if key == "step" and not (group.get("capturable") or group.get("fused")):
        return torch.empty_like(value, device="cpu")
    if value.shape == parameter.shape:  # in the layout of the parameter, so that sums have the same bits
        return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False)
    return torch.empty_like(value, device=parameter.device)
