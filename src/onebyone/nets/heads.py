"""What stands on an encoder: projector, predictor, and class vectors compared by cosine."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onebyone.nets.normalization import LoneBatchNorm1d


def unit(x: Tensor, temperature: float = 1.0) -> Tensor:
    """Scale rows to length one, or to 1 / sqrt(temperature), so that products of rows are cosines over the temperature.

    A row of about 1e-6 or less stays short, so that its gradient stays finite.

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000], [0.0000, 0.0000]])
    """
    # x / sqrt(|x|^2 + 1e-12). RMSNorm because it is one kernel each way on a GPU, where F.normalize is a dozen.
    width = x.shape[1]
    return F.rms_norm(x, (width,), x.new_full((width,), (width * temperature) ** -0.5), eps=1e-12 / width)


def cosine(a: Tensor, b: Tensor, temperature: float) -> Tensor:
    """``sim(a, b)`` of the paper for all pairs: [n, d] and [m, d] -> [n, m], cosine over temperature.

    >>> cosine(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 3.0]]), 0.25)
    tensor([[4.0000, 0.0000]])
    """
    return unit(a, temperature) @ unit(b, temperature).T


class CosineHead(nn.Module):
    """One vector per class; a score is the cosine between it and the features, over a fixed temperature.

    The vectors start as random directions of length one. This is the head of ER-ACE and ER-AML, and these are
    the prototypes of SupBYOL and CCP.

    >>> CosineHead(64, num_classes=10, temperature=0.1)(torch.randn(5, 64)).shape
    torch.Size([5, 10])
    """

    def __init__(self, width: int, num_classes: int, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.weight = nn.Parameter(unit(torch.randn(num_classes, width)))

    def forward(self, features: Tensor) -> Tensor:
        return cosine(features, self.weight, self.temperature)


def multilayer(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """BYOL's projector and predictor: one hidden layer with BatchNorm.

    >>> multilayer(64, 512, 128)(torch.randn(1, 64)).shape
    torch.Size([1, 128])
    """
    return nn.Sequential(
        nn.Linear(inputs, hidden), LoneBatchNorm1d(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, outputs)
    )
