"""Samples and labels as tensors, held once, on the device, in the type they are stored in."""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from onebyone.data.augmentation import CropFlip
from onebyone.errors import UsageError

CHUNK_SAMPLES = 1000
CHUNK_BYTES = 2**25  # 32 MB: computing with a chunk takes a few times as much


def chunk_size(shape: tuple[int, ...]) -> int:
    """Samples of this shape to compute with at once: at most 1000, and at most 32 MB as float32.

    >>> chunk_size((3, 32, 32)), chunk_size((3, 1080, 1920))
    (1000, 1)
    """
    return max(1, min(CHUNK_SAMPLES, CHUNK_BYTES // (4 * max(1, math.prod(shape)))))


@dataclass(frozen=True)
class Spec:
    """The description of the data that a learner needs in advance: shapes and types, no values.

    Parameters
    ----------
    shape
        Shape of one sample: (channels, height, width), or (features,).
    num_classes
        The largest number of classes.
    dtype
        uint8 is scaled to [-1, 1] by the learner; float32 is used unchanged.
    augmentation
        How training images are varied.

    >>> Spec(shape=(3, 32, 32), num_classes=10).is_image
    True
    """

    shape: tuple[int, ...]
    num_classes: int
    dtype: torch.dtype = torch.uint8
    augmentation: CropFlip = field(default_factory=CropFlip)

    @property
    def is_image(self) -> bool:
        """Whether samples are images and not vectors."""
        return len(self.shape) == 3

    @property
    def sample_bytes(self) -> int:
        """Size of one stored sample, without its label."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def chunk(self) -> int:
        """Samples to compute with at once, so that memory stays bounded."""
        return chunk_size(self.shape)


@dataclass(frozen=True)
class Dataset:
    """A training and a test set as tensors: ``x`` [n, *shape] uint8 or float32, ``y`` [n] int64 in 0..C-1.

    Parameters
    ----------
    name
        Name of the data set, for messages and records.
    train_x, train_y
        The training set.
    test_x, test_y
        The test set, with samples of the same shape and type.
    classes
        The names of the C classes.
    augmentation
        How training images are varied.

    Raises
    ------
    UsageError
        Samples and labels do not match, or samples have NaN or infinite values.

    >>> from onebyone.data import load
    >>> digits = load("digits")
    >>> digits.train_x.shape, digits.train_x.dtype, digits.num_classes
    (torch.Size([1438, 1, 8, 8]), torch.uint8, 10)
    """

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]
    augmentation: CropFlip = field(default_factory=CropFlip)

    def __post_init__(self) -> None:
        for part, x, y in (("training", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            check_samples(x, f"{self.name}: the {part} set")
            check_labels(x, y, self.num_classes, f"{self.name}: the {part} set")
        if self.train_x.shape[1:] != self.test_x.shape[1:] or self.train_x.dtype != self.test_x.dtype:
            raise UsageError(
                f"{self.name}: training samples are {_describe(self.train_x)} and test samples "
                f"{_describe(self.test_x)}; give both the same shape and type"
            )

    def __eq__(self, other: object) -> bool:
        """Whether names, classes, augmentation, samples and labels are equal, on whatever devices they are."""
        if not isinstance(other, Dataset):
            return NotImplemented
        named = (self.name, self.classes, self.augmentation) == (other.name, other.classes, other.augmentation)
        return named and all(
            mine.dtype == theirs.dtype and torch.equal(mine, theirs.to(mine.device))
            for mine, theirs in zip(self._tensors, other._tensors, strict=True)
        )

    def __hash__(self) -> int:
        return hash((self.name, self.classes, self.augmentation, self.train_x.shape, self.test_x.shape))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as arrays, which the processes of a Ray node share; tensors would be copied."""
        arrays = [tensor.cpu().numpy() for tensor in self._tensors]
        return from_pickle, (self.name, arrays, self.classes, self.augmentation)

    @property
    def _tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.train_x, self.train_y, self.test_x, self.test_y

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @property
    def spec(self) -> Spec:
        """Description of the data, for ``onebyone.create``."""
        return Spec(tuple(self.train_x.shape[1:]), self.num_classes, self.train_x.dtype, self.augmentation)

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of all samples and labels, so that runs on different data are not mistaken for each other.

        >>> from onebyone.data import load
        >>> load("digits").fingerprint == load("digits").held_out().fingerprint
        False
        """
        checksum = 0
        for tensor in self._tensors:
            checksum = zlib.crc32(tensor.cpu().contiguous().numpy().data, checksum)
        return f"{checksum:08x}"

    def to(self, device: torch.device | str) -> Dataset:
        """The same data set on another device.

        Parameters
        ----------
        device
            As in ``Tensor.to``.

        Returns
        -------
        Dataset
            The data set with all tensors on ``device``; this one if they are there already.
        """
        moved = tuple(tensor.to(device) for tensor in self._tensors)
        if all(new is old for new, old in zip(moved, self._tensors, strict=True)):
            return self  # its labels are checked already, and a GPU would have to be waited for
        return replace(self, train_x=moved[0], train_y=moved[1], test_x=moved[2], test_y=moved[3])

    def held_out(self, fraction: float = 0.1, seed: int = 0) -> Dataset:
        """Make a data set for tuning: a random ``fraction`` of each training class becomes the test set.

        The real test set is not part of the result, so it cannot be used for tuning by accident. Each class keeps at
        least one training sample, and at least one sample is held out of each class that has two or more.

        Parameters
        ----------
        fraction
            Fraction of the training samples of each class to hold out, between 0 and 1.
        seed
            Seed of the choice of samples.

        Returns
        -------
        Dataset
            Both parts of the training set.

        Raises
        ------
        UsageError
            The fraction is out of bounds, or every class has a single sample.

        >>> from onebyone.data import load
        >>> digits = load("digits")
        >>> tuning = digits.held_out()
        >>> len(tuning.train_y) + len(tuning.test_y) == len(digits.train_y)
        True
        """
        keep, hold = split_by_class(self.train_y, fraction, seed)
        x, y = self.train_x, self.train_y
        return replace(self, train_x=x[keep], train_y=y[keep], test_x=x[hold], test_y=y[hold])

    def few(self, classes: int, train: int, test: int) -> Dataset:
        """A small data set: the first samples of the first classes.

        Parameters
        ----------
        classes
            How many classes are kept.
        train, test
            How many samples of each class are kept.

        Returns
        -------
        Dataset
            A part of this one.

        >>> from onebyone.data import load
        >>> small = load("digits").few(classes=3, train=5, test=2)
        >>> small.name, small.train_y.bincount().tolist(), small.test_y.bincount().tolist()
        ('digits-quick', [5, 5, 5], [2, 2, 2])
        """

        def first(y: Tensor, count: int) -> Tensor:
            members = [(y == label).nonzero().flatten()[:count] for label in range(classes)]
            return torch.cat(members).sort().values

        keep, ask = first(self.train_y, train), first(self.test_y, test)
        return replace(
            self,
            name=f"{self.name}-quick",
            train_x=self.train_x[keep],
            train_y=self.train_y[keep],
            test_x=self.test_x[ask],
            test_y=self.test_y[ask],
            classes=self.classes[:classes],
        )


def from_pickle(name: str, arrays: Iterable[Any], classes: tuple[str, ...], augmentation: CropFlip) -> Dataset:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nobody writes to data
        train_x, train_y, test_x, test_y = (torch.from_numpy(array) for array in arrays)
    return Dataset(name, train_x, train_y, test_x, test_y, classes, augmentation)


def split_by_class(y: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Indices of a training and a held-out part, in stored order: a random ``fraction`` of every class.

    Drawn on the CPU, so the split is the same on every device.
    """
    if not 0 < fraction < 1:
        raise UsageError(f"held-out fraction is {fraction}; it must be between 0 and 1")
    labels = y.cpu()
    generator = torch.Generator().manual_seed(seed)
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label in sorted(set(labels.tolist())):
        members = (labels == label).nonzero().flatten()
        count = min(max(1, round(fraction * len(members))), len(members) - 1)
        held[members[torch.randperm(len(members), generator=generator)[:count]]] = True
    if len(labels) and not held.any():
        raise UsageError("every class has a single sample, so none can be held out; give more samples, or a test set")
    return (~held).nonzero().flatten().to(y.device), held.nonzero().flatten().to(y.device)


def check_samples(x: Tensor, what: str) -> None:
    """Refuse samples that no learner can use: an empty set, another type, NaN or infinite values."""
    if x.dtype not in (torch.uint8, torch.float32):
        raise UsageError(f"{what} has samples of type {x.dtype}; convert them to uint8 or float32")
    if x.dim() not in (2, 4) or x.numel() == 0:
        raise UsageError(
            f"{what} has shape {tuple(x.shape)}; expected at least one sample, as [n, features] or "
            "[n, channels, height, width]"
        )
    if (row := first_not_finite(x)) is not None:
        raise UsageError(f"{what} has NaN or infinite values (first in sample {row}); remove or fill them")


def first_not_finite(x: Tensor) -> int | None:
    """The first sample with a NaN or infinite value, also one that float32 cannot hold; None if there is none."""
    if x.dtype == torch.uint8:
        return None
    start = 0
    for part in x.split(chunk_size(tuple(x.shape[1:]))):
        finite = part.float().isfinite().flatten(1).all(1)
        if not finite.all():
            return start + int((~finite).nonzero()[0])
        start += len(part)
    return None


def check_labels(x: Tensor, y: Tensor, num_classes: int, what: str) -> None:
    """Refuse labels that do not fit the samples: another number, not integers, or out of range."""
    if y.shape != x.shape[:1]:
        raise UsageError(f"{what} has {len(x)} samples and labels of shape {tuple(y.shape)}; give one label per sample")
    if y.dtype != torch.int64:
        raise UsageError(f"{what} has labels of type {y.dtype}; convert them to int64")
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= num_classes:
        raise UsageError(
            f"{what} has labels from {low} to {high}; with {num_classes} classes they must be in 0..{num_classes - 1}"
        )


def _describe(x: Tensor) -> str:
    return f"{tuple(x.shape[1:])} {str(x.dtype).removeprefix('torch.')}"
