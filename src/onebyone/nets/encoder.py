"""Networks by name. Adding one is adding one class or function."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeVar

from torch import Tensor, nn

from onebyone.registry import Registry


class Encoder(nn.Module):
    """A network that turns samples [n, *shape] into features [n, ``width``]."""

    width: int
    one_pass: ClassVar[bool] = False  # whether only this library's BatchNorm depends on the other samples of a batch

    def __call__(self, x: Tensor) -> Tensor:  # nn.Module types its call as Any
        features: Tensor = super().__call__(x)
        return features


Builder = Callable[[tuple[int, ...]], Encoder]
B = TypeVar("B", bound=Builder)
ENCODERS: Registry[Builder] = Registry("encoder", "encoders", also=["auto", "lite0", "onnx:FILE", "timm:NAME"])


def register(name: str) -> Callable[[B], B]:
    """Make a class or function that takes a sample's shape and returns an :class:`Encoder` known by ``name``."""

    def add(builder: B) -> B:
        ENCODERS.add(name, builder, builder)
        return builder

    return add


def encoders() -> tuple[str, ...]:
    """The names of the networks that start untrained.

    >>> encoders()
    ('conv', 'mlp', 'resnet18', 'scaled-mlp')
    """
    return tuple(sorted(ENCODERS.all()))
