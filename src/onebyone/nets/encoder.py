"""Networks by name. Adding one is adding one class or function."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from onebyone.registry import Registry

Precision = Literal["float32", "bf16"]


class Encoder(nn.Module):
    """A network that turns samples [n, *shape] into features [n, ``width``].

    With ``precision`` bf16 its convolutions and matrix products, and their gradients, are computed in bf16. Weights,
    their gradients and the features are float32 in either case.
    """

    width: int
    precision: Precision = "float32"
    fused: ClassVar[bool] = False  # whether it has kernels for channels-last images on a GPU
    one_pass: ClassVar[bool] = False  # whether only this library's BatchNorm depends on the other samples of a batch

    def __call__(self, x: Tensor) -> Tensor:
        features: Tensor
        if self.precision == "float32":
            features = super().__call__(x)
            return features
        # Without the cache of converted weights: each is converted once per pass, and a captured step must not share
        # tensors with another.
        with torch.autocast(x.device.type, torch.bfloat16, cache_enabled=False):
            features = super().__call__(x)
        return features.float()


Builder = Callable[[tuple[int, ...]], Encoder]
B = TypeVar("B", bound=Builder)
ENCODERS: Registry[Builder] = Registry("encoder", "encoders", also=["auto", "lite0", "onnx:FILE", "timm:NAME"])


def register(name: str) -> Callable[[B], B]:
    """Register a network by name. Used as a decorator.

    It decorates a class or function that takes the shape of a sample and returns an :class:`Encoder`.
    """

    def add(builder: B) -> B:
        ENCODERS.add(name, builder, builder)
        return builder

    return add


def encoders() -> tuple[str, ...]:
    """List the names of the networks that start untrained.

    >>> encoders()
    ('conv', 'mlp', 'resnet18', 'scaled-mlp')
    """
    return tuple(sorted(ENCODERS.all()))
