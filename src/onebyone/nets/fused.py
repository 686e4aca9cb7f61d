"""Convolution, BatchNorm, shortcut and ReLU as one function: by Triton kernels where they work, or by PyTorch."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.utils import skip_init

from onebyone.nets import kernels
from onebyone.nets.normalization import LoneBatchNorm2d, current_parts

Running = tuple[Tensor, Tensor, float]  # mean and variance of BatchNorm, which change, and their momentum


def conv_norm(
    conv: nn.Conv2d, norm: LoneBatchNorm2d, x: Tensor, residual: Tensor | None = None, relu: bool = True
) -> Tensor:
    """``relu(norm(conv(x)) + residual)``. The residual may be missing, and ReLU left out.

    >>> layers = nn.Conv2d(3, 4, 3, padding=1, bias=False), LoneBatchNorm2d(4)
    >>> conv_norm(*layers, torch.randn(2, 3, 5, 5)).shape
    torch.Size([2, 4, 5, 5])
    """
    if parts := kernel_parts(conv, norm, x):
        return by_kernels(conv, norm, x, residual, relu, parts)
    out: Tensor = norm(conv(x))
    if residual is not None:
        out = out + residual
    return F.relu(out, inplace=True) if relu else out


def kernel_parts(conv: nn.Conv2d, norm: LoneBatchNorm2d, x: Tensor) -> int:
    """The number of batches that are normalised separately if the kernels can do it; otherwise 0."""
    # A tensor without values has no kernels: PyTorch's path has the same shapes, and its operations can be counted.
    if not (kernels.AVAILABLE and x.is_cuda and norm.training) or isinstance(x, FakeTensor):
        return 0
    parts, side = current_parts(len(x)), x.shape[2] // conv.stride[0]
    suits = (
        parts > 0
        and x.shape[2] == x.shape[3] == side * conv.stride[0]
        and len(x) * side * side > parts  # more than one value per channel
        and len(x) * x.shape[2] * x.shape[3] * max(conv.in_channels, conv.out_channels) < 2**31  # indices are int32
        and x.dtype in (torch.float32, torch.bfloat16)
        and conv.weight.dtype == torch.float32
        and conv.weight.is_contiguous(memory_format=torch.channels_last)
    )
    return parts if suits and kernels_work(x.device) else 0


def by_kernels(
    conv: nn.Conv2d, norm: LoneBatchNorm2d, x: Tensor, residual: Tensor | None, relu: bool, parts: int
) -> Tensor:
    """``conv_norm`` by Triton kernels, for ``parts`` batches of equal size."""
    running = norm.running_mean, norm.running_var, 0.1 if norm.momentum is None else norm.momentum
    found: Tensor = ConvNorm.apply(  # type: ignore[no-untyped-call]
        x, conv.weight, norm.weight, norm.bias, residual, running, conv.stride[0], parts, norm.eps, relu
    )
    return found


@cache
def kernels_work(device: torch.device) -> bool:
    """Whether the kernels work on this device: one may lack the shared memory, or its machine a compiler for Triton.

    Tried forward and backward, with the largest tiles.
    """
    conv = skip_init(nn.Conv2d, 40, 40, 3, padding=1, bias=False, device=device)  # initial weights would be random
    nn.init.zeros_(conv.weight)
    conv.to(memory_format=torch.channels_last)
    x = torch.zeros(2, 40, 32, 32, device=device)
    try:
        with torch.enable_grad(), torch.autocast(device.type, enabled=False):
            by_kernels(conv, LoneBatchNorm2d(40).to(device), x.requires_grad_(), None, True, 1).sum().backward()
    except Exception as error:  # of Triton or the compiler
        reason = str(error).strip().split("\n")[0]
        warnings.warn(f"Triton's kernels cannot be used ({reason}); steps on {device} take longer", stacklevel=2)
        return False
    return True


class ConvNorm(torch.autograd.Function):
    """``conv_norm`` by Triton kernels, with its gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        scale: Tensor,
        shift: Tensor,
        residual: Tensor | None,
        running: Running,
        stride: int,
        parts: int,
        epsilon: float,
        relu: bool,
    ) -> Tensor:
        dtype = torch.bfloat16 if torch.is_autocast_enabled(x.device.type) else x.dtype
        x = x.to(dtype, memory_format=torch.channels_last)
        if residual is not None:
            residual = residual.to(dtype, memory_format=torch.channels_last)
        between, tiles = convolve(x, weight, stride, parts)
        out, mean, inverse = normalize(between, tiles, scale, shift, running, residual, parts, epsilon, relu)
        ctx.save_for_backward(x, weight, scale, between, out, mean, inverse)
        ctx.stride, ctx.parts, ctx.relu, ctx.residual = stride, parts, relu, residual is not None
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scale, between, out, mean, inverse = ctx.saved_tensors
        gradient = gradient.to(between.dtype, memory_format=torch.channels_last)
        inner, of_residual, of_scale, of_shift = normalize_gradient(
            gradient, out, between, mean, inverse, scale, ctx.parts, ctx.relu, ctx.residual
        )
        of_x = input_gradient(inner, weight, x, ctx.stride) if ctx.needs_input_grad[0] else None
        of_weight = weight_gradient(inner, weight, x, ctx.stride) if ctx.needs_input_grad[1] else None
        return of_x, of_weight, of_scale, of_shift, of_residual, *(None,) * 5


# The kernels and their tiles. Sizes were measured on an H200 with 16 runs at once: see results/benchmarks/engine.txt.


def power_of_two(number: int) -> int:
    """The smallest one that is not below the number; at least 16, which Triton's matrix products need.

    >>> [power_of_two(number) for number in (3, 20, 32)]
    [16, 32, 32]
    """
    return max(16, 1 << (number - 1).bit_length())


def tiles_of(number: int, size: int) -> int:
    """How many tiles of this size cover a number of rows or channels.

    >>> tiles_of(20, 16)
    2
    """
    return -(-number // size)


def product_precision() -> str:
    """How float32 numbers are multiplied: as PyTorch's convolutions do it."""
    return "tf32" if torch.backends.cudnn.allow_tf32 else "ieee"


def images_like(x: Tensor, channels: int, side: int) -> Tensor:
    """[n, channels, side, side] without values, channels-last."""
    return torch.empty(len(x), channels, side, side, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


def convolve(x: Tensor, weight: Tensor, stride: int, parts: int) -> tuple[Tensor, tuple[Tensor, Tensor, int]]:
    """The convolution; and mean and spread of each tile of rows, with the rows of a tile."""
    (outputs, inputs, side, _), large = weight.shape, x.shape[2]
    small = large // stride
    rows = len(x) * small * small
    height, width, depth = 128 if rows >= 1024 else 64, min(64, power_of_two(outputs)), min(32, power_of_two(inputs))
    tiles = tiles_of(rows // parts, height)
    result = images_like(x, outputs, small)
    mean, spread = (torch.empty(parts * tiles, outputs, device=x.device) for _ in range(2))
    kernels.convolve[parts * tiles, tiles_of(outputs, width)](
        x, weight, result, mean, spread, rows // parts, tiles, large, small,
        inputs, outputs, side, stride, height, width, depth, product_precision(), num_warps=4, num_stages=3,
    )  # fmt: skip
    return result, (mean, spread, height)


def input_gradient(gradient: Tensor, weight: Tensor, x: Tensor, stride: int) -> Tensor:
    (outputs, inputs, side, _), large = weight.shape, x.shape[2]
    rows = len(x) * large * large
    height, width, depth = 128 if inputs <= 32 else 64, min(64, power_of_two(inputs)), min(32, power_of_two(outputs))
    result = torch.empty_like(x)
    kernels.input_gradient[tiles_of(rows, height), tiles_of(inputs, width)](
        gradient, weight, result, rows, large, large // stride,
        inputs, outputs, side, stride, height, width, depth, product_precision(), num_warps=2, num_stages=3,
    )  # fmt: skip
    return result


def weight_gradient(gradient: Tensor, weight: Tensor, x: Tensor, stride: int) -> Tensor:
    (outputs, inputs, side, _), large = weight.shape, x.shape[2]
    small = large // stride
    rows = len(x) * small * small
    a, b = min(64, power_of_two(outputs)), power_of_two(inputs) if inputs <= 64 else 32
    split = 1024 if rows > 16_384 else 512  # rows that one program sums
    splits = tiles_of(rows, split)
    result = torch.empty(splits, outputs, side, side, inputs, device=x.device)
    kernels.weight_gradient[splits * side * side, tiles_of(outputs, a) * tiles_of(inputs, b)](
        x, gradient, result, rows, split, large, small,
        inputs, outputs, side, stride, 32, a, b, product_precision(), num_warps=2, num_stages=3,
    )  # fmt: skip
    return (result[0] if splits == 1 else result.sum(0)).permute(0, 3, 1, 2)


ROWS, CHANNELS = 256, 32  # of a tile of ``normalize``
AT_ONCE = 128  # tiles whose sums are added at once


def normalize(
    x: Tensor,
    tiles: tuple[Tensor, Tensor, int],
    scale: Tensor,
    shift: Tensor,
    running: Running,
    residual: Tensor | None,
    parts: int,
    epsilon: float,
    relu: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalised images, and mean and inverse standard deviation [parts, channels]."""
    count, filters, side, _ = x.shape
    rows = count * side * side // parts
    row_tiles = tiles_of(rows, ROWS)
    result = torch.empty_like(x)
    mean, inverse = (torch.empty(parts, filters, device=x.device) for _ in range(2))
    tile_mean, tile_spread, tile_rows = tiles
    tiles_per_part = len(tile_mean) // parts
    kernels.normalize[parts * row_tiles, tiles_of(filters, CHANNELS)](
        x, tile_mean, tile_spread, scale, shift, *running, epsilon, result if residual is None else residual,
        result, mean, inverse, parts, rows, tiles_per_part, tile_rows, row_tiles,
        filters, residual is not None, relu, ROWS, CHANNELS, min(AT_ONCE, power_of_two(tiles_per_part)),
    )  # fmt: skip
    return result, mean, inverse


def normalize_gradient(
    gradient: Tensor,
    out: Tensor,
    x: Tensor,
    mean: Tensor,
    inverse: Tensor,
    scale: Tensor,
    parts: int,
    relu: bool,
    residual: bool,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """The gradients for the images, the residual, and BatchNorm's scale and shift."""
    count, filters, side, _ = x.shape
    rows = count * side * side // parts
    row_tiles = tiles_of(rows, ROWS)
    grid = parts * row_tiles, tiles_of(filters, CHANNELS)
    sums, products = (torch.empty(parts * row_tiles, filters, device=x.device) for _ in range(2))
    kernels.gradient_sums[grid](
        gradient, out, x, mean, inverse, sums, products, rows, row_tiles, filters, relu, ROWS, CHANNELS
    )
    result = torch.empty_like(x)
    # Without ReLU the gradient of the residual is the gradient itself.
    copied = torch.empty_like(x) if residual and relu else None
    of_scale, of_shift = torch.empty_like(scale), torch.empty_like(scale)
    kernels.normalize_gradient[grid](
        gradient, out, x, mean, inverse, scale, sums, products, result, result if copied is None else copied,
        of_scale, of_shift, parts, rows, row_tiles,
        filters, copied is not None, relu, ROWS, CHANNELS, min(AT_ONCE, power_of_two(row_tiles)),
    )  # fmt: skip
    return result, (gradient if copied is None else copied) if residual else None, of_scale, of_shift
