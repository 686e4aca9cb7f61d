"""A method outside the package, in 30 lines: the mean of each class's features, without memory and gradients."""

from collections.abc import Callable

import torch
from torch import Tensor

from onebyone.methods import NetworkLearner, Options, register
from onebyone.nets import cosine, unit


@register("means", Options)
class Means(NetworkLearner[Options]):
    """The mean direction of each class in the features of an untrained network."""

    sums: Tensor

    def build(self) -> None:
        self.register_buffer("sums", torch.zeros(self.spec.num_classes, self.encoder.width))

    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        self.count(y)
        with torch.no_grad():
            features = unit(self.encoder(self.view(x)))
        self.sums.index_add_(0, y, features)
        return 1 - (features * unit(self.sums)[y]).sum(1).mean()

    def readout(self) -> Callable[[Tensor], Tensor]:
        return lambda features: cosine(features, self.sums, 1.0)
