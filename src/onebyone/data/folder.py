"""A data set from a folder of images."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onebyone.data.augmentation import CropFlip
from onebyone.data.dataset import Dataset, split_by_class
from onebyone.data.download import Progress
from onebyone.data.images import UnreadableImage, all_pixels, suffixes, why_no_image
from onebyone.data.registry import register
from onebyone.errors import UsageError

CROP_FLIP = CropFlip(padding=4, flip=True)
NAMED = 5  # skipped files that a message names; it counts the others


class SkippedFilesWarning(UserWarning):
    """Some files of an image folder were not read."""


@register("folder", about="not in the paper: for images of your own")
def load_folder(root: Path | None = None, *, strict: bool = False, progress: Progress | None = None) -> Dataset:
    """Your own images: a folder with one sub-folder for each class, read as 32x32 pixels."""
    if root is None:
        raise UsageError("folder: root (data_dir) is not given; expected a folder with a sub-folder for each class")
    return from_folder(root, strict=strict, progress=progress)


def from_folder(
    root: str | Path,
    size: int = 32,
    *,
    augmentation: CropFlip = CROP_FLIP,
    test_fraction: float = 0.2,
    seed: int = 0,
    strict: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Make a data set from a folder of images. Classes are sorted by name.

    Unreadable files, files of other types and nested folders are skipped with a :class:`SkippedFilesWarning`. Hidden
    files are ignored.

    Parameters
    ----------
    root
        A folder with a sub-folder for each class, or with ``train`` and ``test`` that have them.
    size, augmentation
        Every image is rotated upright and converted to RGB with ``size`` x ``size`` pixels. ``augmentation`` describes
        how training images are varied.
    test_fraction, seed
        Without ``train`` and ``test``: the fraction of each class that becomes the test set, and its seed.
    strict
        Raise an error for files that would be skipped.
    progress
        Function that is called after each file with a description, the number of files read, and their total number.

    Returns
    -------
    Dataset
        Named after the folder.

    Raises
    ------
    UsageError
        There is no such folder, a class has no readable image, or a file is refused.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for number, colour in enumerate(["green", "red"] * 5):
    ...         (Path(root) / colour).mkdir(exist_ok=True)
    ...         Image.new("RGB", (64, 48), colour).save(Path(root) / colour / f"{number}.png")
    ...     colours = from_folder(root)
    >>> colours.classes, colours.train_x.shape, colours.test_y
    (('green', 'red'), torch.Size([8, 3, 32, 32]), tensor([0, 1]))
    """
    root = Path(root)
    if not isinstance(size, int) or size < 1:
        raise UsageError(f"size is {size!r}; images need at least 1 pixel per side")
    halves, classes = _layout(root)
    beside = [path for half in halves for path in _visible(half) if not path.is_dir()]
    skipped = dict.fromkeys(beside, "beside the class folders")
    read = [_read(half, classes, size, skipped, progress) for half in halves]
    if skipped:
        _report(root, skipped, sum(len(y) for _, y in read), strict)
    if len(read) == 1:
        ((x, y),) = read
        read = [(x[index], y[index]) for index in split_by_class(y, test_fraction, seed)]
    (x, y), (test_x, test_y) = read
    return Dataset(root.resolve().name, x, y, test_x, test_y, classes, augmentation)


def _layout(root: Path) -> tuple[list[Path], tuple[str, ...]]:
    """The folders with class folders, which are ``root`` itself or its ``train`` and ``test``; and the classes."""
    if not root.is_dir():
        raise UsageError(f"{root} is not a folder; expected one with a sub-folder for each class")
    train, test = root / "train", root / "test"
    # "train" may be a class of images of trains, so only both folders together are taken for the split.
    divided = train.is_dir() and test.is_dir()
    halves = [train, test] if divided else [root]
    classes = _class_names(halves[0])
    if divided and (extra := sorted(set(_class_names(test)) - set(classes))):
        raise UsageError(
            f"{test} has the classes {', '.join(extra)}, which {train} does not have; remove them, or add "
            "training images"
        )
    return halves, classes


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _class_names(folder: Path) -> tuple[str, ...]:
    names = tuple(path.name for path in _visible(folder) if path.is_dir())
    if not names:
        raise UsageError(f"{folder} has no sub-folders; expected one for each class, with its images in it")
    return names


def _read(
    folder: Path, classes: tuple[str, ...], size: int, skipped: dict[Path, str], progress: Progress | None
) -> tuple[Tensor, Tensor]:
    """Samples [n, 3, size, size] and labels [n]; what is not read is added to ``skipped`` with the reason."""
    known = suffixes()
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        for path in _visible(folder / name) if (folder / name).is_dir() else ():  # a class may have no test images
            if path.is_dir():
                files = sum(not inside.is_dir() for inside in path.rglob("*"))
                skipped[path] = f"a nested folder with {files} files"
            elif path.suffix.lower() not in known:
                skipped[path] = why_no_image(path)
            elif path.exists() and not path.is_file():  # opening a pipe would wait for its other end
                skipped[path] = "a pipe, socket or device"
            else:
                paths.append(path)
                labels.append(label)
    x = np.empty((len(paths), size, size, 3), np.uint8)
    kept: list[int] = []
    for number, found in enumerate(all_pixels(paths, "RGB", (size, size))):
        if isinstance(found, UnreadableImage):
            skipped[paths[number]] = found.reason
        else:
            x[len(kept)] = found
            kept.append(labels[number])
        if progress is not None:
            progress(f"reading {folder}", number + 1, len(paths))
    for label, name in enumerate(classes):
        if (folder / name).is_dir() and label not in kept:
            raise UsageError(_no_images(folder / name, skipped))
    return torch.from_numpy(x[: len(kept)]).permute(0, 3, 1, 2).contiguous(), torch.tensor(kept)


def _no_images(folder: Path, skipped: dict[Path, str]) -> str:
    inside = {path: why for path, why in skipped.items() if path.parent == folder}
    found = f"; skipped: {_list(folder, inside)}" if inside else ""
    if inside and all(path.is_dir() for path in inside):
        found += f"; if these are the classes, give {folder} as root"
    return f"{folder} has no images that can be read ({' '.join(suffixes())}){found}; add some, or remove the folder"


def _report(root: Path, skipped: dict[Path, str], read: int, strict: bool) -> None:
    message = f"{root}: {len(skipped)} skipped, {read:,} images read; skipped: {_list(root, skipped)}"
    if strict:
        raise UsageError(f"{message}; fix or remove them, or read without strict")
    warnings.warn(message, SkippedFilesWarning, stacklevel=3)


def _list(root: Path, skipped: dict[Path, str]) -> str:
    named = [f"{path.relative_to(root)} ({why})" for path, why in list(skipped.items())[:NAMED]]
    return ", ".join(named) + (f" and {len(skipped) - NAMED} more" if len(skipped) > NAMED else "")
