"""BatchNorm that also takes a batch with one value a channel."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class _Lone(_BatchNorm):
    """A single value a channel is scaled by the running statistics, which it leaves as they are.

    It has no variance to divide by; a stream that brings samples one by one still has to be learnt.
    """

    def forward(self, input: Tensor) -> Tensor:
        learning = self.training and input.numel() > self.num_features
        statistics = self.running_mean, self.running_var
        momentum = 0.1 if self.momentum is None else self.momentum
        # Called directly, without torch's counter of batches: nothing here reads it, and it is a kernel a layer.
        return F.batch_norm(input, *statistics, self.weight, self.bias, learning, momentum, self.eps)


class LoneBatchNorm1d(_Lone, nn.BatchNorm1d):
    """For features: one sample is one value a channel.

    >>> import torch
    >>> LoneBatchNorm1d(3)(torch.ones(1, 3)).shape
    torch.Size([1, 3])
    """


class LoneBatchNorm2d(_Lone, nn.BatchNorm2d):
    """For images: one sample is one value a channel where strides have left a single pixel.

    >>> import torch
    >>> LoneBatchNorm2d(3)(torch.ones(1, 3, 1, 1)).shape
    torch.Size([1, 3, 1, 1])
    """
