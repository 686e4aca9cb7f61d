"""The layout of a sample, and the conversion of samples with another layout."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from onebyone.errors import UsageError

Axes = Literal["vector", "gray", "first", "last"]  # of a sample; "first" and "last" are positions of the channel axis
DTYPES = {"uint8": torch.uint8, "float32": torch.float32}
MAX_VALUES = 2**26  # of a sample, in a layout that is read from a file
MAX_CHANNELS = 4  # largest size of an axis that can be the channel axis: gray or colour, with or without alpha


@dataclass(frozen=True)
class Layout:
    """Shape, type and axes of one sample, fixed by the first call.

    Samples are vectors [n, features], gray images [n, height, width], or images with channels. The channel axis is
    inferred from the shape: the first or the last axis, if it has a size of at most 4. If both or neither have,
    ``channels`` is required.

    >>> layout = Layout.of(torch.zeros(2, 28, 30, 3))
    >>> layout.axes, layout.sample_shape
    ('last', (3, 28, 30))
    """

    shape: tuple[int, ...]  # of one sample, as the user gives it
    dtype: torch.dtype  # uint8 is scaled by the learner; all other types become float32 and are not scaled
    axes: Axes

    @classmethod
    def of(cls, x: Tensor, channels: str = "auto") -> Layout:
        """The layout of the samples ``x``. ``channels`` is "first", "last", or "auto" to infer it from the shape."""
        shape = tuple(x.shape[1:])
        if channels not in ("auto", "first", "last"):
            raise UsageError(f"channels is {channels!r}; it must be 'auto', 'first' or 'last'")
        axes: Axes
        match shape:
            case (_,):
                axes = "vector"
            case (_, _):
                axes = "gray"
            case (_, _, _) if channels != "auto":
                axes = "first" if channels == "first" else "last"
            case (first, _, last) if (first <= MAX_CHANNELS) != (last <= MAX_CHANNELS):
                axes = "first" if first <= MAX_CHANNELS else "last"
            case (_, _, _):
                raise UsageError(
                    f"X has shape {tuple(x.shape)}, and its channels may be its first or its last axis; "
                    "set channels='first' or channels='last'"
                )
            case _:
                raise UsageError(
                    f"X has shape {tuple(x.shape)}; expected [n, features], [n, height, width], "
                    "[n, height, width, channels] or [n, channels, height, width]"
                )
        if prod(shape) == 0:
            raise UsageError(f"X has shape {tuple(x.shape)}; a sample needs at least one value")
        return cls(shape, kept_dtype(x.dtype), axes)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample as input of a network: (features,) or (channels, height, width)."""
        match self.axes:
            case "gray":
                return (1, *self.shape)
            case "last":
                return (self.shape[-1], *self.shape[:-1])
        return self.shape

    def like(self, x: Tensor, channels: str = "auto") -> Layout:
        """The layout of other samples ``x`` [n, ...], which :meth:`convert` can convert to this one.

        Images may have another size, and may be gray instead of colour or colour instead of gray.

        Raises
        ------
        UsageError
            If ``x`` differs in any other way.
        """
        shape = tuple(x.shape[1:])
        given = self if shape == self.shape else self._other(x, channels)
        if given is None:
            hint = "; give a single sample as X[None]" if x.dim() == len(self.shape) else ""
            raise UsageError(f"X has samples of shape {shape}; expected {self.shape}, as in the first call{hint}")
        dtype = kept_dtype(x.dtype)
        if dtype != self.dtype:
            raise UsageError(
                f"X has samples of type {_name(dtype)}; expected {_name(self.dtype)}, as in the first call, because "
                "bytes (0 to 255) are scaled and other numbers are not; convert X to that type"
            )
        return given

    def _other(self, x: Tensor, channels: str) -> Layout | None:
        shape = tuple(x.shape[1:])
        if self.axes == "vector" or len(shape) not in (2, 3) or prod(shape) == 0:
            return None
        expected, *own_sides = self.sample_shape
        for axes in (self.axes, channels) if self.axes in ("first", "last") else (channels,):
            with suppress(UsageError):  # raised if the channel axis cannot be inferred
                given = Layout.of(x, axes)
                count, *sides = given.sample_shape
                # One image [height, width, channels] without the sample axis has the shape of many tiny gray images.
                is_single_image = given.axes == "gray" and min(sides) <= MAX_CHANNELS < min(own_sides)
                if not is_single_image and (count == expected or {count, expected} == {1, 3}):
                    return given
        return None

    def convert(self, x: Tensor, given: Layout) -> Tensor:
        """[n, *given.shape] -> [n, *sample_shape] in the type of this layout, resized if necessary."""
        x = given.channels_first(x if x.dtype == self.dtype else x.float())
        count, *size = self.sample_shape
        if given.axes != "vector" and x.shape[1] != count:
            x = x.expand(-1, 3, -1, -1) if count == 3 else self._typed(luminance(x))
        if given.axes != "vector" and list(x.shape[2:]) != size:
            x = self._typed(F.interpolate(x.float(), size, mode="bilinear", antialias=True))
        return x

    def _typed(self, x: Tensor) -> Tensor:
        return x.round().clamp(0, 255).to(torch.uint8) if self.dtype == torch.uint8 else x

    def channels_first(self, x: Tensor) -> Tensor:
        """[n, *shape] -> [n, *sample_shape] without a copy: [n, height, width, channels] to [n, channels, ...]."""
        match self.axes:
            case "gray":
                return x[:, None]
            case "last":
                return x.permute(0, 3, 1, 2)
        return x

    def channels_last(self, x: Tensor) -> Tensor:
        """The inverse of :meth:`channels_first`."""
        match self.axes:
            case "gray":
                return x[:, 0]
            case "last":
                return x.permute(0, 2, 3, 1)
        return x

    def to_json(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "dtype": _name(self.dtype), "axes": self.axes}

    @classmethod
    def from_json(cls, found: Any) -> Layout:
        """The layout that ``to_json`` returned this value for. Any other value raises a UsageError."""
        match found:
            case {"shape": [*sizes], "dtype": "uint8" | "float32" as dtype, "axes": str(axes)}:
                fits = {"vector": 1, "gray": 2, "first": 3, "last": 3}.get(axes) == len(sizes)
                if fits and all(type(size) is int and size > 0 for size in sizes) and prod(sizes) <= MAX_VALUES:
                    return cls(tuple(sizes), DTYPES[dtype], axes)  # type: ignore[arg-type]
        raise UsageError(f"{found!r} is not a layout of samples")


def luminance(x: Tensor) -> Tensor:
    """[n, 3, h, w] -> [n, 1, h, w]: the gray value of colours, by the formula of Pillow."""
    red, green, blue = x.float().unbind(1)
    return (0.299 * red + 0.587 * green + 0.114 * blue)[:, None]


def kept_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type that samples of ``dtype`` are converted to."""
    return torch.uint8 if dtype == torch.uint8 else torch.float32


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
