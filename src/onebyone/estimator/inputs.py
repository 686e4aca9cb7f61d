"""Anything that a user gives, checked once, and read as samples of one layout."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from onebyone import nets
from onebyone.data import Dataset
from onebyone.data.dataset import chunk_size, first_not_finite
from onebyone.data.images import UnreadableImage, all_pixels, is_gray, opened, pixels
from onebyone.errors import UsageError, warn
from onebyone.estimator.labels import Label, as_labels

if TYPE_CHECKING:
    from onebyone.data.images import Mode, Source

Array = npt.NDArray[Any]
MODES: dict[int, Mode] = {1: "L", 3: "RGB", 4: "RGBA"}  # Pillow modes by number of channels
MAX_SIDE = 256  # pixels of the shorter side of PIL images and image files; larger ones are resized
MAX_DENSE = 2**30  # bytes of sparse rows as an array
MAX_DECODED = 2**27  # bytes of decoded images to hold; if there are more, files are read again for each use
ROUNDING = 1e-3  # by which resized images may exceed the values of black and white
FEW_VALUES = 2**16  # that are checked at once
SAMPLES_PER_BATCH = 64  # of a torch Dataset
WIDE = (torch.float64, torch.int32, torch.int64)  # types that lose digits when converted to float32
Axes = Literal["vector", "gray", "first", "last"]  # of a sample; "first" and "last" are positions of the channel axis
DTYPES = {"uint8": torch.uint8, "float32": torch.float32}
MAX_VALUES = 2**26  # of a sample, in a layout that is read from a file
MAX_VALIDATION_FRACTION = 0.5
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
        if math.prod(shape) == 0:
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
        if self.axes == "vector" or len(shape) not in (2, 3) or math.prod(shape) == 0:
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
                if fits and all(type(size) is int and size > 0 for size in sizes) and math.prod(sizes) <= MAX_VALUES:
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


@dataclass(frozen=True)
class Samples:
    """Samples of one layout. They are converted on access, so that only a few converted samples are in memory."""

    layout: Layout
    given: Layout  # of the source
    source: Tensor | Sequence[Source]  # [n, *given.shape], or images and image files
    is_single: bool = False  # given as one image, not as a list

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """[m, *sample_shape] the samples at ``rows``. Those of a slice may share memory with the source."""
        if isinstance(self.source, Tensor):
            return self.layout.convert(self.source[rows], self.given)
        found = self.source[rows] if isinstance(rows, slice) else [self.source[row] for row in rows.tolist()]
        return self.layout.channels_first(self.decoded(found))

    def chunks(self) -> Iterable[Tensor]:
        """All samples in order, in parts that take a bounded amount of memory.

        A tensor that needs no conversion is one part: learners compute with a few samples at a time anyway.
        """
        given, layout, source = self.given, self.layout, self.source
        if isinstance(source, Tensor) and given == layout and source.dtype == layout.dtype:
            return [layout.channels_first(source)]
        size = chunk_size(max(given.shape, layout.shape, key=math.prod))
        if isinstance(source, Tensor):
            return (layout.convert(part, given) for part in source.split(size))
        parts = (source[start : start + size] for start in range(0, len(source), size))
        return (layout.channels_first(self.decoded(part)) for part in parts)

    def decoded(self, sources: Sequence[Source]) -> Tensor:
        """[n, *layout.shape] the pixels of images or image files."""
        channels, *size = self.layout.sample_shape
        x = np.empty((len(sources), *size, channels), np.uint8)
        for row, found in zip(x, all_pixels(sources, MODES[channels], (size[0], size[1])), strict=True):
            if isinstance(found, UnreadableImage):
                raise found
            row[:] = found.reshape(row.shape)
        decoded = torch.from_numpy(x)
        if self.layout.axes == "gray":
            return decoded[..., 0]
        return decoded.movedim(3, 1) if self.layout.axes == "first" else decoded


def read_samples(
    X: Any,
    layout: Layout | None = None,
    channels: str = "auto",
    estimator: object = None,
    size: Callable[[], tuple[int, int] | None] = lambda: None,
) -> Samples:
    """Read ``X`` as samples of ``layout``.

    Parameters
    ----------
    X
        Arrays, tensors, PIL images or paths of image files.
    layout
        The layout to convert to. Images are resized and converted between gray and colour. None infers it from ``X``:
        for PIL images and files, the size of the first image with its shorter side at most 256 pixels, in gray if all
        images are gray; with ``size``, that height and width, in colour.
    channels
        Position of the channel axis: "first", "last" or "auto".
    estimator
        The classifier, to check the number and names of columns.
    size
        A function that returns the height and width in pixels that an encoder resizes images to, or None.

    Raises
    ------
    UsageError
        If ``X`` is not a batch of samples, or cannot be converted to ``layout``.
    """
    X = dense(X)
    images = images_in(X)
    if images is None:
        x = as_tensor(X, layout, channels, estimator)
        if layout is not None and layout.axes == "vector" and estimator is not None:
            check_columns(estimator, X, x, layout)
        given = Layout.of(x, channels) if layout is None else layout.like(x, channels)
        is_scaled = given.axes == "vector" or given.dtype == torch.uint8  # by the learner
        if not is_scaled and nets.is_pretrained(getattr(estimator, "encoder", None)):
            _check_limits(x)
        return Samples(layout or given, given, x)
    if layout is None:
        sides = size()
        layout = _image_layout(images) if sides is None else Layout((*sides, 3), torch.uint8, "last")
    _check_reads_images(layout)
    samples = Samples(layout, layout, images, is_image(X))
    if len(images) * math.prod(layout.shape) > MAX_DECODED:
        return samples
    return Samples(layout, layout, samples.decoded(images), samples.is_single)


def read_pairs(
    X: Any,
    y: Any,
    layout: Layout | None,
    channels: str,
    estimator: object,
    known: Sequence[Label] = (),
    size: Callable[[], tuple[int, int] | None] = lambda: None,
) -> tuple[Samples, list[Label]]:
    """Read ``X`` as :func:`read_samples` does, and one label per sample of the type of the ``known`` ones."""
    x = read_samples(X, layout, channels, estimator, size)
    is_label = x.is_single and y is not None and np.ndim(y) == 0
    labels = as_labels([y] if is_label else y, known)
    if len(x) != len(labels):
        raise UsageError(f"X has {len(x)} samples and y has {len(labels)} labels; give one label per sample")
    return x, labels


def check_columns(estimator: object, X: Any, x: Tensor, layout: Layout) -> None:
    """Raise an error, in the words of scikit-learn, if vectors have other columns than those of the first call."""
    # An array has no names. Without names in the first call, only the number of columns can differ.
    if type(X) is not np.ndarray or hasattr(estimator, "feature_names_in_") or x.shape[1:] != layout.shape:
        validate_data(estimator, X, reset=False, skip_check_array=True)


def images_in(X: Any) -> list[Source] | None:
    """The PIL images or paths in ``X``, one or many; None if ``X`` is anything else that may be a batch of samples."""
    if type(X) in (np.ndarray, Tensor) and getattr(X.dtype, "kind", "f") in "biuf":
        return None  # the usual case
    check_batch(X)
    if is_image(X):
        return [X]
    if getattr(X, "ndim", None) == 1 and getattr(X, "dtype", None) is not None and X.dtype.kind in "OUT":
        X = list(X)  # paths in an array or in a column of a data frame
    if not isinstance(X, (list, tuple)) or not len(X) or not is_image(X[0]):
        return None
    if not all(map(is_image, X)):
        raise UsageError("X mixes images or paths with other samples; give samples of one kind")
    return list(X)


def dense(X: Any) -> Any:
    """Sparse rows as an array. Other samples are returned as they are."""
    if not hasattr(X, "toarray") or getattr(X, "ndim", 0) != 2:
        return X
    rows, columns = X.shape
    row = columns * X.dtype.itemsize
    if rows * row > MAX_DENSE:
        raise UsageError(
            f"X is sparse and takes {rows * row / 1e9:.1f} GB as an array, which is needed; give at most "
            f"{max(1, MAX_DENSE // row)} rows in one call"
        )
    return X.toarray()


def is_image(x: object) -> bool:
    """Whether ``x`` is a single sample: a PIL image, or the path of an image file."""
    pillow = sys.modules.get("PIL.Image")  # if Pillow was never imported, x is not a PIL image
    return isinstance(x, (str, PathLike)) or (pillow is not None and isinstance(x, pillow.Image))


def check_batch(X: Any) -> None:
    """Raise an error that says what to call instead, if ``X`` is not a batch of samples."""
    each = "call learn_from, or predict(x) for each of its batches"
    match X:
        case Dataset():
            raise UsageError("X is a Dataset; give its samples and labels, such as data.train_x and data.train_y")
        case DataLoader():
            raise UsageError(f"X is a DataLoader; {each}")
        case TorchDataset():
            raise UsageError(f"X is a torch Dataset; {each.replace('its batches', 'the batches of a DataLoader')}")
        case Iterator():
            raise UsageError(f"X is a {type(X).__name__}; give list(X) if it yields samples, or {each}")
        case Mapping() | Set() if not hasattr(X, "toarray"):  # a sparse matrix may be a dictionary too
            raise UsageError(
                f"X is a {type(X).__name__}; give an array, a list or a data frame [n, ...] of samples (if each sample "
                "is a dictionary, use onebyone.river.RiverClassifier)"
            )
        case np.ma.MaskedArray() if np.ma.is_masked(X):
            raise UsageError("X is an array with masked values, which would be learnt; fill or remove them first")
        case bytes() | bytearray():
            raise UsageError("X is bytes; open an encoded image with PIL.Image.open(io.BytesIO(X)) first")
        case str() | PathLike() if str(X) and Path(X).is_dir():
            raise UsageError(
                f"X is the folder {X}; give a list of its files, or read it with onebyone.from_folder, which uses "
                "the names of sub-folders as labels"
            )


def read_batches(given: Any) -> Iterable[Any]:
    """The batches of an iterable. Of the samples of a torch Dataset, batches are made."""
    if isinstance(given, Dataset):
        raise UsageError("a Dataset of onebyone is in memory; give data.train_x and data.train_y to partial_fit")
    if isinstance(given, TorchDataset):
        return DataLoader(given, batch_size=SAMPLES_PER_BATCH, collate_fn=_as_lists)
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes, PathLike)):
        raise UsageError(f"{type(given).__name__} is not an iterable of batches; give pairs (X, y), or use partial_fit")
    return given


def _as_lists(samples: list[Any]) -> tuple[list[Any], list[Any]]:
    if not all(isinstance(sample, (tuple, list)) and len(sample) == 2 for sample in samples):
        raise UsageError("a sample of the torch Dataset is not a pair; expected a sample and its label")
    labels = [y.item() if isinstance(y, Tensor) and y.dim() == 0 else y for _, y in samples]
    return [x for x, _ in samples], labels


def _image_layout(sources: Sequence[Source]) -> Layout:
    gray = True
    for source in sources:
        try:
            with opened(source) as image:  # the header only
                gray &= is_gray(image)
        except Exception as error:  # a damaged image can raise anything
            raise UnreadableImage(source, error) from error
    height, width, *_ = pixels(sources[0]).shape
    shrink = max(1.0, min(height, width) / MAX_SIDE)
    size = (max(1, round(height / shrink)), max(1, round(width / shrink)))
    return Layout(size if gray else (*size, 3), torch.uint8, "gray" if gray else "last")


def _check_reads_images(layout: Layout) -> None:
    if layout.axes == "vector" or layout.dtype != torch.uint8 or layout.sample_shape[0] not in MODES:
        kind = f"{layout.shape} {str(layout.dtype).removeprefix('torch.')}"
        raise UsageError(f"X has images; expected arrays of {kind}, as in the first call; convert X to such arrays")


def _check_limits(x: Tensor) -> None:
    """Raise an error if numbers are not an image for a pretrained network, which must know what is black and white."""
    low, high = (float(bound) for bound in x.aminmax())
    if low < -ROUNDING or high > 1 + ROUNDING:
        raise UsageError(
            f"X has images of {str(x.dtype).removeprefix('torch.')} with values from {low:g} to {high:g}, and this "
            "encoder reads numbers from 0 (black) to 1 (white), or bytes; scale X to that, or give it as uint8"
        )


def as_tensor(X: Any, layout: Layout | None = None, channels: str = "auto", estimator: object = None) -> Tensor:
    """Samples as a tensor [n, ...] of bytes, or of numbers that are finite as float32.

    Vectors are converted to float32 here. Images are not, because all of them as float32 may not fit into memory.

    >>> as_tensor([[1, 2], [3, 4]])
    tensor([[1., 2.],
            [3., 4.]])
    """
    if isinstance(X, (list, tuple)) and len(X) and all(isinstance(x, (Tensor, np.ndarray)) for x in X):
        X = _stacked([x if isinstance(x, Tensor) else _shared(x) for x in X], layout, channels)
    plain = isinstance(X, np.ndarray) and X.dtype.kind in "biuf" and X.dtype.itemsize <= 8
    if isinstance(X, Tensor):
        x = _dense(X)
    elif plain and X.ndim > 2:
        x = _shared(X)
    elif plain and type(X) is np.ndarray and X.ndim == 2 and X.size and X.dtype.kind != "u":
        with np.errstate(over="ignore"):
            x = _shared(X.astype(np.float32, copy=False))  # as check_array does, which takes longer than learning
    else:
        x = _shared(_array(X, estimator))
    if len(x) == 0:
        raise UsageError(f"X has 0 samples (shape={tuple(x.shape)}); give at least one")
    _check_finite(x, X)
    if x.dim() == 2:
        _warn_of_lost_digits(X)
    return x


def _dense(X: Tensor) -> Tensor:
    """A tensor of the user as samples [n, ...]."""
    if X.dim() < 2 or X.layout != torch.strided or X.is_complex():
        raise UsageError(
            f"X is a tensor of shape {tuple(X.shape)} and type {_name(X.dtype)}; give a dense tensor [n, ...] of real "
            "numbers"
        )
    return X.detach().float() if X.dim() == 2 and X.dtype != torch.uint8 else X.detach()


def _array(X: Any, estimator: object) -> Array:
    """Anything that scikit-learn converts to samples [n, ...] of numbers, such as lists and data frames."""
    types = [X.dtype] if hasattr(X, "dtype") else list(getattr(X, "dtypes", ()))  # of an array, or of columns
    if any(getattr(each, "kind", "") in ("m", "M") for each in types):
        raise UsageError("X has dates or times; give them as numbers, such as days since the first sample")
    dtype = None if getattr(X, "dtype", None) == np.uint8 else np.float32
    finite = {"ensure_all_finite": False}  # checked later, because the errors of check_array do not say where
    try:
        with np.errstate(over="ignore"):
            found: Array = check_array(X, dtype=dtype, allow_nd=True, input_name="X", estimator=estimator, **finite)
    except (TypeError, ValueError):
        _check_numbers(X)
        raise
    return found


def _shared(array: Array) -> Tensor:
    """The array as a tensor, without a copy if torch allows it."""
    usable = array.flags.writeable and array.dtype.isnative and all(stride >= 0 for stride in array.strides)
    return torch.from_numpy(array if usable else array.astype(array.dtype.newbyteorder("=")))


def _warn_of_lost_digits(X: Any) -> None:
    """Warn if float32 rounds away the differences between values of a column.

    Differences of a few float64 rounding errors are ignored: the column is a computed constant. One batch of a slow
    stream may vary less than the whole stream, so the warning is only for columns that keep fewer than four bits.
    """
    if isinstance(X, Tensor):
        if X.dtype not in WIDE:
            return
        low, high = (bound.cpu().numpy() for bound in X.detach().aminmax(dim=0))
    else:
        given = np.asarray(X)
        if len(given) < 2 or given.dtype.kind not in "iuf" or np.can_cast(given.dtype, np.float32):
            return
        low, high = given.min(0), given.max(0)
    first, last = low.astype(np.float64), high.astype(np.float64)
    span, largest = last - first, np.maximum(abs(first), abs(last))
    noise = 2.0**-46 if low.dtype.kind == "f" else 0.0
    lost = (high > low) & (span >= noise * largest) & (span < 2.0**-20 * largest)
    if lost.any():
        columns = ", ".join(map(str, lost.nonzero()[0][:3]))
        warn(
            f"X has large values that differ little (column {columns}), and they are converted to float32, which has 7 "
            "digits; subtract a fixed offset from them first"
        )


def _stacked(parts: Sequence[Tensor], layout: Layout | None, channels: str) -> Tensor:
    """All parts as one tensor. Images of different sizes are converted to ``layout``, or to the size of the first."""
    shapes = {tuple(part.shape) for part in parts}
    if len({kept_dtype(part.dtype) for part in parts}) > 1:
        raise UsageError(
            "X has samples of uint8 and of other types, and bytes (0 to 255) are scaled and other numbers are not; "
            "give samples of one type"
        )
    if len(shapes) == 1:
        return torch.stack(tuple(parts))
    if not {len(shape) for shape in shapes} <= {2, 3} or len({part.dtype for part in parts}) > 1:
        few = ", ".join(map(str, sorted(shapes)[:3]))
        raise UsageError(f"X has samples of different shapes ({few}) or types; give samples of one shape and type")
    if layout is None:
        layout = _common_layout([Layout.of(part[None], channels) for part in parts])
    converted = [layout.convert(part[None], layout.like(part[None], channels)) for part in parts]
    return layout.channels_last(torch.cat(converted))


def _common_layout(layouts: Sequence[Layout]) -> Layout:
    """The size of the first image, with the largest number of channels of any image."""
    _, height, width = layouts[0].sample_shape
    richest = max(layouts, key=lambda layout: layout.sample_shape[0])
    count = richest.sample_shape[0]
    shape = {"gray": (height, width), "first": (count, height, width), "last": (height, width, count)}[richest.axes]
    return Layout(shape, richest.dtype, richest.axes)


def _check_finite(x: Tensor, table: Any = None) -> None:
    """Raise an error that says where the samples [n, ...] have a value that is not finite as float32."""
    # The sum takes less time. It may overflow, where all numbers are finite.
    if x.dtype == torch.uint8 or (x.numel() < FEW_VALUES and math.isfinite(x.float().sum())):
        return
    row = first_not_finite(x)
    if row is None:
        return
    position = (~x[row].float().isfinite()).nonzero()[0].tolist()
    place = f"row {row}, column {_column_name(table, position[0])}" if x.dim() == 2 else f"sample {row}"
    if x[(row, *position)].isnan():
        raise _missing("NaN", place)
    raise UsageError(
        f"X has infinity, or a value too large for float32, in {place}; replace such values, or leave the sample out"
    )


def _check_numbers(table: Any) -> None:
    """Raise an error that says where a table has text, or no value. Other tables may be wrong in other ways."""
    try:
        rows = np.asarray(table, dtype=object)
    except ValueError:  # of different lengths
        return
    for row, values in enumerate(rows if rows.ndim == 2 else ()):
        for column, value in enumerate(values):
            place = f"row {row}, column {_column_name(table, column)}"
            if value is None or type(value).__name__ == "NAType":  # of pandas
                raise _missing(str(value), place)
            if isinstance(value, (str, bytes)) and not _is_number(value):
                raise UsageError(
                    f"X has {value!r} in {place}, and samples must be numbers; encode the column first, for example by "
                    "sklearn.preprocessing.OneHotEncoder(handle_unknown='ignore'), or leave it out"
                )


def _missing(value: str, place: str) -> UsageError:
    return UsageError(
        f"X has {value} in {place}; replace missing values first, for example by sklearn.impute.SimpleImputer, or "
        "leave the sample out"
    )


def _column_name(table: Any, column: int) -> str:
    """The name of a column in a data frame, else its number."""
    return repr(table.columns[column]) if hasattr(table, "columns") else str(column)


def _is_number(text: str | bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# Parameters


def check_settings(parameters: Mapping[str, Any]) -> None:
    for name in ("batch_size", "epochs", "every"):
        value = parameters[name]
        if not isinstance(value, Integral) or isinstance(value, bool) or not 1 <= int(value) < 2**31:
            raise UsageError(f"{name} is {value!r}; it must be a whole number, at least 1")
    if not isinstance(parameters["options"], Mapping | None):
        raise UsageError(f"options is {parameters['options']!r}; give a dictionary such as {{'learning_rate': 0.01}}")
    share = parameters["validation_fraction"]
    if not is_share(share) or share > MAX_VALIDATION_FRACTION:
        raise UsageError(f"validation_fraction is {share!r}; it must be a number from 0 to {MAX_VALIDATION_FRACTION}")
    prior, unknown_rate = parameters["prior"], parameters["unknown_rate"]
    if isinstance(prior, Mapping):
        if not prior or not all(map(is_share, prior.values())) or sum(prior.values()) > 1 + 1e-6:
            raise UsageError(
                f"prior is {prior!r}; its values must be probabilities, from 0 to 1, with a sum of at most 1"
            )
    elif not isinstance(prior, str) or prior not in ("uniform", "counts"):
        raise UsageError(f"prior is {prior!r}; it must be 'uniform', 'counts' or a dictionary {{label: probability}}")
    if not is_share(unknown_rate) or unknown_rate == 1:
        raise UsageError(f"unknown_rate is {unknown_rate!r}; it must be a number from 0 to less than 1")


def renamed_prior(prior: Any, names: Mapping[Label, Label]) -> Any:
    """The prior of the same classes with new labels. Classes that become one have the sum of their probabilities.

    >>> renamed_prior({"cat": 0.5, "dog": 0.25}, {"cat": "tiger"})
    {'tiger': 0.5, 'dog': 0.25}
    """
    if not isinstance(prior, Mapping) or prior.keys().isdisjoint(names):
        return prior
    found: dict[Label, float] = {}
    for label, share in prior.items():
        new = names.get(label, label)
        found[new] = found.get(new, 0) + share
    return found


def is_share(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) <= 1
