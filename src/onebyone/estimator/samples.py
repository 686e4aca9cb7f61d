"""From whatever holds samples to one tensor, in the layout that networks read."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils import check_array
from torch import Tensor

from onebyone.errors import UsageError

Array = npt.NDArray[Any]
Axes = Literal["vector", "gray", "first", "last"]  # what one sample is; of an image with channels, where these stand
DTYPES = {"uint8": torch.uint8, "float32": torch.float32}
MOST = 2**26  # values of a sample that is read from a file
WIDE = (torch.float64, torch.int32, torch.int64)  # of which float32 may lose digits
FEW = 4  # an axis of at most so many is taken for channels: gray, gray and alpha, colour, colour and alpha


@dataclass(frozen=True)
class Layout:
    """What one sample is, fixed by the first that comes.

    Samples are vectors [n, features], gray images [n, height, width], or images with channels. Where the channels of
    the last stand is seen from the shape: the one axis, first or last, that is at most 4. If that is both or neither,
    it has to be said.

    >>> layout = Layout.of(torch.zeros(2, 28, 30, 3))
    >>> layout.axes, layout.sample_shape
    ('last', (3, 28, 30))
    """

    shape: tuple[int, ...]  # of one sample, as it comes
    dtype: torch.dtype  # bytes stay bytes and are scaled by the learner; all else is float32, used as it is
    axes: Axes

    @classmethod
    def of(cls, x: Tensor, channels: str = "auto") -> Layout:
        """The layout of the samples in ``x``, whose ``channels`` are first, last, or (auto) seen from the shape."""
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
            case (first, _, last) if (first <= FEW) != (last <= FEW):
                axes = "first" if first <= FEW else "last"
            case (_, _, _):
                raise UsageError(
                    f"X has shape {tuple(x.shape)}, and its channels may be its first or its last axis; "
                    "say channels='first' or channels='last'"
                )
            case _:
                raise UsageError(
                    f"X has shape {tuple(x.shape)}; expected [n, features], [n, height, width], "
                    "[n, height, width, channels] or [n, channels, height, width]"
                )
        if prod(shape) == 0:
            raise UsageError(f"X has shape {tuple(x.shape)}; a sample needs at least one value")
        return cls(shape, x.dtype, axes)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Of one sample as networks read it: (features,) or (channels, height, width)."""
        match self.axes:
            case "gray":
                return (1, *self.shape)
            case "last":
                return (self.shape[-1], *self.shape[:-1])
        return self.shape

    def arrange(self, x: Tensor) -> Tensor:
        """[n, *shape] as it comes -> [n, *sample_shape], without a copy; anything of another kind is refused."""
        if tuple(x.shape[1:]) != self.shape:
            raise UsageError(f"X has samples of shape {tuple(x.shape[1:])}; those learnt had {self.shape}")
        if x.dtype != self.dtype:
            raise UsageError(
                f"X has samples of type {_name(x.dtype)}; those learnt were {_name(self.dtype)}, and bytes (0 to 255) "
                "and other numbers are not scaled alike: give the same type"
            )
        return self.channels_first(x)

    def channels_first(self, x: Tensor) -> Tensor:
        """The same without looking: [n, height, width, channels] becomes [n, channels, height, width], and so on."""
        match self.axes:
            case "gray":
                return x[:, None]
            case "last":
                return x.permute(0, 3, 1, 2)
        return x

    def to_json(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "dtype": _name(self.dtype), "axes": self.axes}

    @classmethod
    def from_json(cls, found: Any) -> Layout:
        """What ``to_json`` gave; anything else is a ValueError."""
        match found:
            case {"shape": [*sizes], "dtype": "uint8" | "float32" as dtype, "axes": str(axes)}:
                fits = {"vector": 1, "gray": 2, "first": 3, "last": 3}.get(axes) == len(sizes)
                if fits and all(type(size) is int and size > 0 for size in sizes) and prod(sizes) <= MOST:
                    return cls(tuple(sizes), DTYPES[dtype], axes)  # type: ignore[arg-type]
        raise UsageError(f"{found!r} is no layout of samples")


def as_tensor(X: Any, estimator: object = None) -> Tensor:
    """Any samples as a tensor [n, ...] of bytes, or of finite numbers as float32; bytes are not copied.

    >>> as_tensor([[1, 2], [3, 4]])
    tensor([[1., 2.],
            [3., 4.]])
    """
    if isinstance(X, (list, tuple)) and len(X) and all(isinstance(x, Tensor) for x in X):
        _check_alike({tuple(x.shape) for x in X})
        X = torch.stack(tuple(X))
    if isinstance(X, Tensor):
        x = _checked(X)
        if X.dim() == 2 and X.dtype in WIDE:
            _warn_of_lost_digits(*(bound.cpu().numpy() for bound in X.detach().aminmax(dim=0)))
        return x
    if isinstance(X, (list, tuple)) and len(X) and hasattr(X[0], "__array_interface__"):  # arrays, images of PIL
        X = _stacked(X)
    dtype = None if getattr(X, "dtype", None) == np.uint8 else np.float32
    with np.errstate(over="ignore"):  # a number too large for float32 is refused, not warned of
        array = check_array(X, dtype=dtype, allow_nd=True, input_name="X", estimator=estimator)
    given = np.asarray(X)
    if given.ndim == 2 and given.dtype.kind in "iuf" and not np.can_cast(given.dtype, np.float32):
        _warn_of_lost_digits(given.min(0), given.max(0))
    usable = array.flags.writeable and all(stride >= 0 for stride in array.strides)  # torch takes no other
    return torch.from_numpy(array if usable else array.copy())


def _warn_of_lost_digits(low: Array, high: Array) -> None:
    """Say so of columns, from ``low`` to ``high``, that differ by so little of their size that float32 rounds it away.

    What differs by a few roundings of float64 is a constant that was computed. A batch of a slow stream may differ by
    less than all of it, so that only what keeps less than four bits in float32 is spoken of.
    """
    first, last = low.astype(np.float64), high.astype(np.float64)
    spread, largest = last - first, np.maximum(abs(first), abs(last))
    noise = 2.0**-46 if low.dtype.kind == "f" else 0.0
    lost = (high > low) & (spread >= noise * largest) & (spread < 2.0**-20 * largest)
    if lost.any():
        columns = ", ".join(map(str, lost.nonzero()[0][:3]))
        warnings.warn(
            f"X has large values that differ little (column {columns}), and they are used as float32, which keeps 7 "
            "digits; subtract a fixed offset from them first",
            stacklevel=6,
        )


def _stacked(images: Any) -> Any:
    # The values of a palette image are places in a table of colours, which says what they mean.
    arrays = [np.asarray(i.convert("RGB") if getattr(i, "mode", None) == "P" else i) for i in images]
    _check_alike({array.shape for array in arrays})
    return np.stack(arrays)


def _check_alike(shapes: set[tuple[int, ...]]) -> None:
    if len(shapes) > 1:
        few = ", ".join(map(str, sorted(shapes)[:3]))
        raise UsageError(f"X has samples of different shapes ({few}); resize them to one")


def _checked(x: Tensor) -> Tensor:
    x = x.detach()
    if x.dim() < 2 or x.layout != torch.strided or x.is_complex():
        raise UsageError(f"X is a tensor of shape {tuple(x.shape)} and type {_name(x.dtype)}; expected real [n, ...]")
    if len(x) == 0:
        raise UsageError(f"X has 0 samples (shape={tuple(x.shape)}); give at least one")
    if x.dtype != torch.uint8:
        x = x.float()
        if not bool(x.isfinite().all()):
            raise UsageError("X contains NaN, or infinity or a value too large for float32; remove or fill them")
    return x


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
