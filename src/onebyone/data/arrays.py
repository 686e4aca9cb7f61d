"""A data set from arrays: in memory, or in an .npz file."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onebyone.data.augmentation import CropFlip
from onebyone.data.dataset import Dataset, check_labels, check_samples, split_by_class
from onebyone.data.registry import register
from onebyone.errors import UsageError

Array = npt.NDArray[Any] | Tensor

MOST_CLASSES = 100_000  # a larger label is an identifier or a measurement, not a class number
NO_AUGMENTATION = CropFlip(padding=0, flip=False)


def from_arrays(
    x: Array,
    y: Array,
    test_x: Array | None = None,
    test_y: Array | None = None,
    *,
    classes: Sequence[str] | None = None,
    name: str = "arrays",
    augmentation: CropFlip = NO_AUGMENTATION,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """Make a data set from numpy arrays or torch tensors.

    Arrays are not copied unless they have to be, so do not modify them afterwards.

    Parameters
    ----------
    x
        Images [n, H, W], [n, H, W, C] or [n, C, H, W], or vectors [n, d]. Four dimensions are read as [n, H, W, C] if
        C is 1, 3 or 4 and the second dimension is not. uint8 is kept; other types are converted to float32.
    y
        Integers from 0 to the number of classes less 1.
    test_x, test_y
        The test set. None: a random part of each class is split off.
    classes
        The names of the classes. None: there are max(y) + 1, named by their numbers.
    name, augmentation
        Name of the data set, and how training images are varied.
    test_fraction, seed
        Without a test set: the fraction of each class that is split off as the test set, and the seed of the choice.

    Returns
    -------
    Dataset
        Training and test set, on the CPU.

    Raises
    ------
    UsageError
        Samples and labels do not match, or a label is not a class number.

    >>> images, labels = np.zeros((10, 28, 28, 3), np.uint8), np.arange(10) % 2
    >>> pets = from_arrays(images, labels, classes=["cat", "dog"], name="pets")
    >>> pets.spec.shape, len(pets.train_y), len(pets.test_y)
    ((3, 28, 28), 8, 2)
    """
    if (test_x is None) != (test_y is None):
        raise UsageError(f"{name}: test_x and test_y belong together; give both or neither")
    parts = {"training": (x, y)}
    if test_x is not None and test_y is not None:
        parts["test"] = (test_x, test_y)
    samples = [_part(part_x, part_y, f"{name}: the {part} set") for part, (part_x, part_y) in parts.items()]
    classes = _numbered([labels for _, labels in samples], name) if classes is None else classes
    if len(samples) == 1:
        whole_x, whole_y = samples[0]
        check_labels(whole_x, whole_y, len(classes), f"{name}: the training set")
        samples = [(whole_x[index], whole_y[index]) for index in split_by_class(whole_y, test_fraction, seed)]
    (train_x, train_y), (test_samples, test_labels) = samples
    return Dataset(name, train_x, train_y, test_samples, test_labels, tuple(classes), augmentation)


def _part(x: Array, y: Array, what: str) -> tuple[Tensor, Tensor]:
    """Samples and labels of the training or the test set as tensors."""
    samples, labels = _samples(x, what), _labels(y, what)
    check_samples(samples, what)
    return samples, labels


def _numbered(labels: Sequence[Tensor], name: str) -> list[str]:
    """The names of classes that have none: their numbers, up to the highest label."""
    highest = max([0, *(int(part.max()) for part in labels if part.numel())])
    if highest >= MOST_CLASSES:
        raise UsageError(
            f"{name}: the highest label is {highest:,}; labels are class numbers from 0, so "
            f"they must be below {MOST_CLASSES:,}: number the classes, as np.unique(y, "
            "return_inverse=True) does"
        )
    return [str(label) for label in range(highest + 1)]


@register("arrays", about="not in the paper: for data of your own")
def load_arrays(root: Path | None = None) -> Dataset:
    """Your own arrays: an .npz file with x_train, y_train, x_test and y_test, or with x and y."""
    wanted = "an .npz file with x_train, y_train, x_test and y_test, or with x and y"
    if root is None or not root.is_file():
        found = "no file was given" if root is None else f"{root} is not a file"
        raise UsageError(f"arrays: {found}; expected {wanted}, as root (data_dir)")
    try:
        arrays = read_npz(root)
    except ValueError as error:
        raise UsageError(
            f"arrays: {root} cannot be read ({error}); expected {wanted}, of numbers; write it with np.savez"
        ) from error
    suffix = "_train" if "x_train" in arrays else ""
    if not {f"x{suffix}", f"y{suffix}"} <= arrays.keys():
        raise UsageError(f"arrays: {root} holds {', '.join(sorted(arrays)) or 'nothing'}; expected {wanted}")
    x, y = arrays[f"x{suffix}"], arrays[f"y{suffix}"]
    return from_arrays(x, y, arrays.get("x_test"), arrays.get("y_test"), name=root.stem)


def read_npz(path: Path, names: Collection[str] | None = None) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an .npz file by name: all of them, or only those in ``names``.

    Raises ValueError if the file cannot be read, or is something else.
    """
    try:
        with path.open("rb") as stream:  # np.load leaves the file open after an error
            loaded = np.load(stream, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise ValueError("it is a single array")
            return {name: loaded[name] for name in loaded if names is None or name in names}
    except (OSError, EOFError, BadZipFile, zlib.error) as error:
        raise ValueError(str(error)) from error


def _samples(x: Array, what: str) -> Tensor:
    if not isinstance(x, Tensor):
        x = np.asarray(x)
        if x.dtype.kind not in "biuf":
            raise UsageError(f"{what} has samples of type {x.dtype}; convert them to uint8 or float32")
        with np.errstate(over="ignore"):  # values too large for float32 become infinite and are refused
            x = x.astype(np.uint8 if x.dtype == np.uint8 else np.float32, copy=False)
        # torch needs writable memory and positive strides
        x = torch.from_numpy(np.require(x, requirements=["C", "W"]))
    if x.dtype != torch.uint8:
        if x.is_complex():
            raise UsageError(f"{what} has samples of type {x.dtype}; convert them to uint8 or float32")
        x = x.detach().float()
    if x.dim() == 3:
        return x[:, None]
    if x.dim() == 4 and x.shape[3] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
        return x.permute(0, 3, 1, 2).contiguous()
    return x


def _labels(y: Array, what: str) -> Tensor:
    device = y.device if isinstance(y, Tensor) else "cpu"
    if isinstance(y, Tensor):
        y = (y.double() if y.is_floating_point() else y).detach().cpu().numpy()  # numpy has no bfloat16
    labels = np.asarray(y)
    if labels.dtype.kind not in "biuf":
        raise UsageError(
            f"{what} has labels of type {labels.dtype}; number the classes from 0 and name them in `classes`"
        )
    if labels.dtype.kind == "f":
        integral = np.isfinite(labels) & (labels == np.trunc(labels))
        if not integral.all():
            raise UsageError(f"{what} has the label {labels[~integral][0]}; labels are integers from 0")
    return torch.from_numpy(labels.astype(np.int64)).to(device)
