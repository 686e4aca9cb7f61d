"""BatchNorm for several batches at once and for single values; and standardisation learnt from the stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

_sizes: ContextVar[Sequence[int]] = ContextVar("sizes", default=())


@contextmanager
def separate_batches(sizes: Sequence[int]) -> Iterator[None]:
    """Inside, BatchNorm normalises each part of the batch separately; ``sizes`` are the numbers of samples per part.

    The result is that of one forward pass per part. All other layers treat samples independently and process the
    parts together: on a GPU, where a small layer takes as long as a large one, that halves the time.

    >>> x, norm = torch.tensor([[1.0], [3.0], [10.0], [50.0]]), LoneBatchNorm1d(1)
    >>> with separate_batches([2, 2]):
    ...     norm(x).detach().round().flatten().tolist()
    [-1.0, 1.0, -1.0, 1.0]
    """
    token = _sizes.set(sizes)
    try:
        yield
    finally:
        _sizes.reset(token)


def current_parts(count: int) -> int:
    """Into how many batches of equal size ``count`` samples are divided; 0 if their sizes differ.

    >>> with separate_batches([2, 2]):
    ...     current_parts(4)
    2
    """
    sizes = _sizes.get()
    if len(sizes) < 2:
        return 1
    return len(sizes) if set(sizes) == {count // len(sizes)} else 0


class _Lone(_BatchNorm):
    """A single value per channel is scaled by the running statistics and does not update them.

    It has no variance to divide by, and a stream may bring samples one by one.
    """

    def forward(self, input: Tensor) -> Tensor:
        sizes = _sizes.get()
        if len(sizes) < 2 or not self.training:
            return self.normalised(input)
        return torch.cat([self.normalised(part) for part in input.split(list(sizes))])

    def normalised(self, input: Tensor) -> Tensor:
        learning = self.training and input.numel() > self.num_features
        statistics = self.running_mean, self.running_var
        momentum = 0.1 if self.momentum is None else self.momentum
        # Called directly, without torch's counter of batches: nothing here reads it, and it costs a kernel per layer.
        return F.batch_norm(input, *statistics, self.weight, self.bias, learning, momentum, self.eps)


class LoneBatchNorm1d(_Lone, nn.BatchNorm1d):
    """For features: one sample is one value per channel.

    >>> LoneBatchNorm1d(3)(torch.ones(1, 3)).shape
    torch.Size([1, 3])
    """


class LoneBatchNorm2d(_Lone, nn.BatchNorm2d):
    """For images: one sample is one value per channel if strides have left a single pixel.

    >>> LoneBatchNorm2d(3)(torch.ones(1, 3, 1, 1)).shape
    torch.Size([1, 3, 1, 1])
    """


class Standardize(nn.Module):
    """Every value minus its mean, over its standard deviation, both of all samples seen in training so far.

    Unlike BatchNorm it does not use the current batch: if a batch is of one class, that would remove just what
    distinguishes the class from others. A value that has never varied is only centred.

    >>> scale = Standardize((1,))
    >>> scale(torch.tensor([[10.0], [30.0]]))
    tensor([[-1.], [ 1.]])
    >>> scale.eval()(torch.tensor([[40.0]]))
    tensor([[2.]])
    """

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("variance", torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.count += len(x)
            share = len(x) / self.count
            step = x.mean(0) - self.mean
            self.variance.lerp_(x.var(0, correction=0) + (1 - share) * step.square(), share)
            self.mean += share * step
        deviation = self.variance.sqrt()
        varies = deviation > 1e-5 * self.mean.abs()  # less is rounding error of a constant
        return (x - self.mean) / deviation.where(varies, 1.0)
