"""A multilayer perceptron for vectors."""

from __future__ import annotations

from math import prod

from torch import Tensor, nn

from onebyone.nets.encoder import Encoder, register
from onebyone.nets.normalization import Standardize


@register("mlp")
class MLP(Encoder):
    """Network with two hidden layers. Images are flattened.

    >>> MLP((20,)).width
    128
    """

    one_pass = True

    def __init__(self, shape: tuple[int, ...], width: int = 128) -> None:
        super().__init__()
        self.width = width
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(prod(shape), 2 * width), nn.ReLU(), nn.Linear(2 * width, width), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(x)
        return features


@register("scaled-mlp")
class ScaledMLP(MLP):
    """MLP for measurements in any unit: every value is standardised by its mean and standard deviation so far.

    >>> ScaledMLP((20,)).width
    128
    """

    one_pass = False  # replayed samples are scaled by what the incoming ones have added

    def __init__(self, shape: tuple[int, ...], width: int = 128) -> None:
        super().__init__(shape, width)
        self.layers.insert(0, Standardize(shape))
