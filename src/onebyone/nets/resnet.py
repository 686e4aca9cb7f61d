"""The reduced ResNet-18 of the online continual-learning literature: a third of the usual width."""

from __future__ import annotations

from torch import Tensor, nn

from onebyone.nets import kernels
from onebyone.nets.encoder import Encoder, register
from onebyone.nets.fused import conv_norm
from onebyone.nets.normalization import LoneBatchNorm2d


def first_layers(layers: nn.Sequential) -> tuple[nn.Conv2d, LoneBatchNorm2d]:
    """The convolution and the BatchNorm that a stem or a shortcut starts with."""
    conv, norm = layers[0], layers[1]
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(norm, LoneBatchNorm2d)
    return conv, norm


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = LoneBatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = LoneBatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), LoneBatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = conv_norm(self.conv1, self.norm1, x)
        shortcut = conv_norm(*first_layers(self.shortcut), x, relu=False) if len(self.shortcut) else x
        return conv_norm(self.conv2, self.norm2, out, shortcut)


@register("resnet18")
class ResNet18(Encoder):
    """ResNet-18 with 20 base filters (1.09 million parameters), a 3x3 stem and no pooling before the end.

    >>> net = ResNet18((3, 32, 32))
    >>> net.width, sum(p.numel() for p in net.parameters())
    (160, 1093140)
    """

    one_pass = True
    fused = kernels.AVAILABLE

    def __init__(self, shape: tuple[int, ...], filters: int = 20) -> None:
        super().__init__()
        self.width = 8 * filters
        self.stem = nn.Sequential(
            nn.Conv2d(shape[0], filters, 3, padding=1, bias=False),
            LoneBatchNorm2d(filters),
            nn.ReLU(inplace=True),
        )
        blocks, inputs = [], filters
        for stage in range(4):
            outputs = filters * 2**stage
            blocks += [Block(inputs, outputs, 1 if stage == 0 else 2), Block(outputs, outputs, 1)]
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.blocks(conv_norm(*first_layers(self.stem), x))
        return features.mean((2, 3))
