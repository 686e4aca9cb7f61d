"""What a pretrained network needs before it: images of its own size, with its own mean and standard deviation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onebyone.errors import UsageError


class Preprocess(nn.Module):
    """Resizes images to ``size`` and standardises each channel, as a pretrained network expects it.

    Put it before the network: ``nn.Sequential(Preprocess(224, mean, std), network)`` is an encoder. Gray images get as
    many equal channels as ``mean`` has values.

    Parameters
    ----------
    size : int, (int, int) or None
        Height and width in pixels. The image is resized with antialiasing, whatever its proportions. None keeps it.
    mean, std : sequence of float
        Mean and standard deviation per channel, for values from 0 (black) to 1 (white).
    interpolation : {"bicubic", "bilinear"}
        How pixels are interpolated.
    crop : float
        The share of the resized image that is kept, in its centre: the image is resized to ``size / crop``.
    limits : (float, float)
        The values of black and white in floating-point input. Learners scale bytes to [-1, 1], the default; for your
        own float images in [0, 1], which learners do not scale, give ``(0, 1)``. Bytes range from 0 to 255.

    >>> half = Preprocess(2, mean=[0.5], std=[0.5])
    >>> half(torch.full((1, 1, 4, 6), 255, dtype=torch.uint8)).tolist(), half(torch.zeros(1, 1, 4, 6)).tolist()
    ([[[[1.0, 1.0], [1.0, 1.0]]]], [[[[0.0, 0.0], [0.0, 0.0]]]])
    """

    scale: Tensor
    shift: Tensor

    def __init__(
        self,
        size: int | tuple[int, int] | None,
        mean: Sequence[float],
        std: Sequence[float],
        *,
        interpolation: str = "bicubic",
        crop: float = 1.0,
        limits: tuple[float, float] = (-1.0, 1.0),
    ) -> None:
        super().__init__()
        sides = (size, size) if isinstance(size, int) else size
        if (sides is not None and min(sides) < 1) or interpolation not in ("bicubic", "bilinear") or not 0 < crop <= 1:
            raise UsageError(
                f"size is {size!r}, interpolation {interpolation!r} and crop {crop!r}; expected at least 1 pixel, "
                "'bicubic' or 'bilinear', and more than 0 and at most 1"
            )
        if len(mean) != len(std) or min(std, default=0) <= 0 or limits[0] >= limits[1]:
            raise UsageError(
                f"mean is {mean!r}, std {std!r} and limits {limits!r}; expected one mean and one positive standard "
                "deviation per channel, and limits in ascending order"
            )
        self.size, self.interpolation, self.crop, self.limits = sides, interpolation, crop, limits
        # One multiplication and one addition for floats within `limits`. They follow from the arguments, so they are
        # not part of the state. Computed on the CPU: on the device ``meta``, arithmetic imports torch's compiler.
        deviation, average = torch.tensor(std, device="cpu"), torch.tensor(mean, device="cpu")
        black, span = limits[0], limits[1] - limits[0]
        scale, shift = 1 / (span * deviation), -(average + black / span) / deviation
        device = torch.empty(0).device  # the default, which the caller may have set
        self.register_buffer("scale", scale[:, None, None].to(device), persistent=False)
        self.register_buffer("shift", shift[:, None, None].to(device), persistent=False)

    @property
    def full_size(self) -> tuple[int, int] | None:
        """Height and width of images that are not resized, only cropped."""
        return None if self.size is None else (round(self.size[0] / self.crop), round(self.size[1] / self.crop))

    def forward(self, x: Tensor) -> Tensor:
        """[n, channels, height, width] -> [n, channels of the network, *size]."""
        if x.dim() != 4 or x.shape[1] not in (1, len(self.scale)):
            raise UsageError(f"expected images of 1 or {len(self.scale)} channels, not samples {tuple(x.shape[1:])}")
        black, white = self.limits
        if not x.is_floating_point():
            x = x * ((white - black) / 255) + black
        if self.size is not None and (full := self.full_size) is not None:
            if x.shape[2:] != full:
                x = F.interpolate(x, full, mode=self.interpolation, antialias=True)
                x = x.clamp(black, white)  # bicubic weights can be negative
            (top, left), (height, width) = ((f - s) // 2 for f, s in zip(full, self.size, strict=True)), self.size
            x = x[:, :, top : top + height, left : left + width]
        return torch.addcmul(self.shift, x, self.scale)

    def extra_repr(self) -> str:
        return f"{self.size}, {self.interpolation}"


def scaled(x: Tensor) -> Tensor:
    """Samples as numbers: bytes scaled to [-1, 1], other numbers unchanged."""
    return (x * (2 / 255)).sub_(1) if x.dtype == torch.uint8 else x  # in one piece of memory, which is faster


def image_size(encoder: nn.Module) -> tuple[int, int] | None:
    """Height and width that an encoder resizes images to, so that a loader can; None if it reads them as they are.

    >>> image_size(nn.Sequential(Preprocess(224, [0.5] * 3, [0.5] * 3), nn.Flatten()))
    (224, 224)
    """
    return next((part.full_size for part in encoder.modules() if isinstance(part, Preprocess)), None)
