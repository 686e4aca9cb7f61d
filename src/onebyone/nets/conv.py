"""A small convolutional network for small images."""

from __future__ import annotations

from torch import Tensor, nn

from onebyone.nets.encoder import Encoder, register
from onebyone.nets.normalization import LoneBatchNorm2d


@register("conv")
class SmallConv(Encoder):
    """Three 3x3 convolutions with BatchNorm: enough for 8x8 digits, and quick on any machine.

    >>> SmallConv((1, 8, 8)).width
    64
    """

    one_pass = True

    def __init__(self, shape: tuple[int, ...], width: int = 64) -> None:
        super().__init__()
        self.width = width
        sizes = [(shape[0], width // 2, 1), (width // 2, width, 2), (width, width, 1)]
        self.layers = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
                    LoneBatchNorm2d(outputs),
                    nn.ReLU(inplace=True),
                )
                for inputs, outputs, stride in sizes
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(x)
        return features.mean((2, 3))
