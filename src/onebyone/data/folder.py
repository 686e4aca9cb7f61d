"""A data set from a folder of pictures."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onebyone.data.augmentation import CropFlip
from onebyone.data.dataset import Dataset, split_by_class
from onebyone.data.download import progress
from onebyone.data.registry import register
from onebyone.errors import UsageError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
CROP_FLIP = CropFlip(padding=4, flip=True)


@register("folder", about="not in the paper: for pictures of your own")
def load_folder(root: Path | None = None) -> Dataset:
    """Your own pictures: a folder with one sub-folder for each class, read as 32x32 pixels."""
    if root is None:
        raise UsageError(
            "folder: no folder was given; expected one with a sub-folder for each class (--data-dir FOLDER)"
        )
    return from_folder(root)


def from_folder(
    root: str | Path,
    size: int = 32,
    *,
    augmentation: CropFlip = CROP_FLIP,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """A data set from pictures: ``root`` has a sub-folder for each class, or ``train`` and ``test`` that do.

    Every picture becomes RGB of ``size`` x ``size`` pixels, whatever its proportions. The classes are in the
    order of their names. Without ``train`` and ``test``, ``test_fraction`` of each class, drawn by ``seed``,
    becomes the test set.

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
    if not root.is_dir():
        raise UsageError(f"{root} is not a folder; expected one with a sub-folder for each class")
    if size < 1:
        raise UsageError(f"size is {size}; pictures need at least 1 pixel a side")
    train, test = root / "train", root / "test"
    # There may be a class of pictures of trains, so only both together mean the two halves.
    divided = train.is_dir() and test.is_dir()
    classes = _class_names(train if divided else root)
    x, y = _read(train if divided else root, classes, size)
    if divided:
        if strange := sorted(set(_class_names(test)) - set(classes)):
            raise UsageError(
                f"{test} has the classes {', '.join(strange)}, which {train} has not; remove them, or add "
                "pictures to learn them from"
            )
        test_x, test_y = _read(test, classes, size)
    else:
        keep, hold = split_by_class(y, test_fraction, seed)
        x, y, test_x, test_y = x[keep], y[keep], x[hold], y[hold]
    return Dataset(root.resolve().name, x, y, test_x, test_y, classes, augmentation)


def _class_names(folder: Path) -> tuple[str, ...]:
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not names:
        raise UsageError(f"{folder} has no sub-folders; expected one for each class, with its pictures in it")
    return tuple(names)


def _read(folder: Path, classes: tuple[str, ...], size: int) -> tuple[Tensor, Tensor]:
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        if not (folder / name).is_dir():
            continue  # a class without test pictures
        found = sorted(
            path
            for path in (folder / name).iterdir()
            if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
        )
        if not found:
            raise UsageError(f"{folder / name} has no pictures ({' '.join(SUFFIXES)}); add some, or remove the folder")
        paths += found
        labels += [label] * len(found)
    x = np.empty((len(paths), size, size, 3), np.uint8)
    # Decoding is nearly all of the work, and Pillow lets go of the interpreter lock for it.
    with ThreadPoolExecutor() as pool, progress(f"reading {folder}", len(paths)) as advance:
        for row, picture in zip(x, pool.map(lambda path: _read_picture(path, size), paths), strict=True):
            row[:] = picture
            advance(1)
    return torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels)


def _read_picture(path: Path, size: int) -> npt.NDArray[np.uint8]:
    try:
        from PIL import Image
    except ImportError:
        raise UsageError(
            "reading pictures needs Pillow, which is not installed; run `pip install 'onebyone[cli]'`"
        ) from None
    try:
        with Image.open(path) as image:
            if image.mode[0] in "IF":  # Pillow would cut every value above 255, leaving a white picture
                raise UsageError(f"its pixels are of type {image.mode}, not of 8 bits")
            # Pillow warns unless a transparent palette goes through RGBA.
            solid = (image.convert("RGBA") if "transparency" in image.info else image).convert("RGB")
            return np.asarray(solid.resize((size, size), Image.Resampling.BILINEAR))
    except Exception as error:  # a damaged picture can raise anything
        raise UsageError(
            f"{path} cannot be read as a picture ({error}); mend it, save it as 8-bit PNG, or remove it"
        ) from error
