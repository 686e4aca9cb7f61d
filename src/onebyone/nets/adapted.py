"""Any module as an encoder, trained or frozen."""

from __future__ import annotations

from copy import deepcopy
from math import prod
from typing import Self

import torch
from torch import Tensor, nn

from onebyone.errors import UsageError
from onebyone.nets.encoder import Encoder
from onebyone.nets.lite0 import Lite0
from onebyone.nets.normalization import Standardize
from onebyone.nets.onnx import OnnxNetwork
from onebyone.nets.preprocess import scaled

SMALL = 2**20  # values of a batch: 6 images of 224 x 224 pixels


class Adapted(Encoder):
    """A copy of ``module``, whose output [n, ...] is flattened to features; a frozen one never changes.

    With ``rescale``, a :class:`Standardize` in a frozen module still learns the scale of each value. A module that
    cannot read samples of this shape, or gives no floating-point features, raises a ``UsageError``.

    >>> Adapted(nn.Conv2d(3, 5, 8), (3, 8, 8), frozen=True).width
    5
    """

    def __init__(
        self, module: nn.Module, shape: tuple[int, ...], *, frozen: bool = False, rescale: bool = False
    ) -> None:
        super().__init__()
        self.module = deepcopy(module)
        self.frozen = frozen
        self.rescale = rescale
        if frozen:
            self.module.requires_grad_(False)
        self.width = self.features(shape)
        self.train()

    @torch.no_grad()
    def features(self, shape: tuple[int, ...]) -> int:
        """The number of features per sample, found with two blank samples."""
        device = next(self.module.parameters(), torch.empty(0)).device
        try:
            answer: Tensor = self.eval().module(torch.zeros(2, *shape, device=device))
            fits = answer.is_floating_point() and answer.dim() > 1 and len(answer) == 2
        except Exception as error:  # whatever the module raises
            reason = str(error).split("\n")[0]
            raise UsageError(f"the encoder cannot read samples of shape {shape} ({reason}); give another one") from None
        if not fits:
            raise UsageError("the encoder must turn samples [n, ...] into floating-point features [n, ...]")
        return answer[0].numel()

    @property
    def fixed(self) -> bool:
        """Whether it stays as it was given, so that a file can name it instead of holding its weights."""
        return self.frozen and not self.rescale

    def forward(self, x: Tensor) -> Tensor:
        """[n, *shape] -> [n, width]. Bytes are scaled to [-1, 1]."""
        if isinstance(self.module, (Lite0, OnnxNetwork)):  # these scale bytes and divide batches themselves
            return self.module(x).flatten(1)  # type: ignore[no-any-return]
        if self.frozen and x.device.type == "cpu" and not torch.compiler.is_compiling():
            # With large images, small batches are up to twice as fast on a CPU: their activations stay in its cache,
            # and their memory is not returned to the system in between.
            count = max(1, SMALL // max(1, prod(x.shape[1:])))
            if len(x) > count and not any(part.training for part in self.module.modules()):
                return torch.cat([self.module(scaled(part)).flatten(1) for part in x.split(count)])
        features: Tensor = self.module(scaled(x)).flatten(1)
        return features

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.frozen:
            for part in self.module.modules():  # BatchNorm statistics are frozen too
                part.training = mode and self.rescale and isinstance(part, Standardize)
        return self
