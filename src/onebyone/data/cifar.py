"""CIFAR-10 and CIFAR-100, read from the official files, which are downloaded once if needed."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onebyone.data.augmentation import CropFlip
from onebyone.data.dataset import Dataset
from onebyone.data.download import Progress, cache_folder, fetch, unpack
from onebyone.data.registry import register
from onebyone.errors import UsageError

PIXELS = 3 * 32 * 32
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Archive:
    """The content of an official archive, in both of its layouts: plain binary, and pickles for Python.

    A record of the binary layout has ``label_bytes`` labels, of which the last one is used, and then
    3,072 pixels: the red ones row by row, then the green ones, then the blue ones. The files of the Python
    layout have the same names without ``.bin``.
    """

    name: str
    address: str
    md5: str
    binary_folder: str
    python_folder: str
    train_files: tuple[str, ...]
    test_files: tuple[str, ...]
    names_file: str
    python_names_file: str
    names_key: bytes
    labels_key: bytes
    label_bytes: int
    train_records: int  # in each of the files
    test_records: int
    classes: tuple[str, ...]  # used if the file of names is missing


CIFAR10 = Archive(
    name="cifar10",
    address="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    md5="c32a1d4ab5d03f1284b67883e8d87530",
    binary_folder="cifar-10-batches-bin",
    python_folder="cifar-10-batches-py",
    train_files=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    test_files=("test_batch.bin",),
    names_file="batches.meta.txt",
    python_names_file="batches.meta",
    names_key=b"label_names",
    labels_key=b"labels",
    label_bytes=1,
    train_records=10_000,
    test_records=10_000,
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
)

CIFAR100 = Archive(
    name="cifar100",
    address="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    md5="03b5dce01913d631647c71ecec9e9cb8",
    binary_folder="cifar-100-binary",
    python_folder="cifar-100-python",
    train_files=("train.bin",),
    test_files=("test.bin",),
    names_file="fine_label_names.txt",
    python_names_file="meta",
    names_key=b"fine_label_names",
    labels_key=b"fine_labels",
    label_bytes=2,  # the coarse label, then the fine one
    train_records=50_000,
    test_records=10_000,
    classes=tuple(str(label) for label in range(100)),
)


@register("cifar10", about="Split CIFAR-10: tables 1 and 2")
def load_cifar10(root: Path | None = None, *, progress: Progress | None = None) -> Dataset:
    """60,000 photographs of 32x32 pixels in 10 classes; 160 MB, downloaded once."""
    return read_archive(CIFAR10, root, progress)


@register("cifar100", about="Split CIFAR-100: the figures")
def load_cifar100(root: Path | None = None, *, progress: Progress | None = None) -> Dataset:
    """60,000 photographs of 32x32 pixels in 100 (fine) classes; 160 MB, downloaded once."""
    return read_archive(CIFAR100, root, progress)


@register("cifar10-quick", about="for `onebyone reproduce --quick`: a trial run, not for results")
def load_cifar10_quick(root: Path | None = None, *, progress: Progress | None = None) -> Dataset:
    """The first 20 training and 5 test photographs of each class of cifar10."""
    return load_cifar10(root, progress=progress).few(classes=10, train=20, test=5)


@register("cifar100-quick", about="for `onebyone reproduce --quick`: a trial run, not for results")
def load_cifar100_quick(root: Path | None = None, *, progress: Progress | None = None) -> Dataset:
    """The first 20 training and 5 test photographs of 10 classes of cifar100."""
    return load_cifar100(root, progress=progress).few(classes=10, train=20, test=5)


def read_archive(archive: Archive, root: Path | None = None, progress: Progress | None = None) -> Dataset:
    """The data set of ``archive``, from ``root`` if given, or else from the cache folder.

    It is downloaded into the cache folder only: a ``root`` without the data set is most likely a wrong path.
    """
    folder, suffix = _locate(archive, root, progress)
    train_x, train_y = _read_files(archive, folder, suffix, archive.train_files, archive.train_records)
    test_x, test_y = _read_files(archive, folder, suffix, archive.test_files, archive.test_records)
    return Dataset(
        name=archive.name,
        train_x=train_x,
        train_y=train_y,
        test_x=test_x,
        test_y=test_y,
        classes=_read_names(archive, folder, suffix),
        augmentation=CropFlip(padding=4, flip=True),
    )


def _locate(archive: Archive, given: Path | None, progress: Progress | None) -> tuple[Path, str]:
    """The folder with the files, and the ending of their names: ``.bin``, or nothing for pickles."""
    root = given if given is not None else cache_folder()
    for suffix, folder in ((".bin", archive.binary_folder), ("", archive.python_folder)):
        files = [root / name.replace(".bin", suffix) for name in archive.train_files + archive.test_files]
        # "train" and "test" are common names: in a folder of another name, one such file proves nothing.
        enough = any if root.name == folder else all
        if enough(file.is_file() for file in files):
            return root, suffix
        if (root / folder).is_dir():
            return root / folder, suffix
    tar = root / archive.address.rsplit("/", 1)[-1]
    if given is not None and not tar.exists():
        found = "there is no folder" if not root.is_dir() else f"{archive.name} is not in"
        raise UsageError(
            f"{found} {root}; expected the folder {archive.binary_folder} or {archive.python_folder} there, or all of "
            f"its files ({', '.join(archive.train_files + archive.test_files)}, in the Python layout without .bin), or "
            f"the archive {tar.name}; to download the data set, leave root (data_dir) out"
        )
    fetch(archive.address, tar, archive.md5, progress=progress)
    unpack(tar, root / archive.binary_folder)
    return root / archive.binary_folder, ".bin"


def _read_files(
    archive: Archive, folder: Path, suffix: str, names: tuple[str, ...], each: int
) -> tuple[Tensor, Tensor]:
    """All records of some files, in the order of the files, in one array."""
    x = np.empty((len(names) * each, PIXELS), np.uint8)
    y = np.empty(len(names) * each, np.int64)
    for index, name in enumerate(names):
        path = folder / name.replace(".bin", suffix)
        if not path.is_file():
            raise UsageError(f"{path} is missing; {_remedy(archive, folder)}")
        pixels, labels = (_read_binary if suffix else _read_pickle)(archive, path, each)
        if labels.max() >= len(archive.classes) or labels.min() < 0:
            raise UsageError(
                f"{path} has labels from {labels.min()} to {labels.max()}; expected 0 to "
                f"{len(archive.classes) - 1}: the file is damaged; {_remedy(archive, folder)}"
            )
        rows = slice(index * each, (index + 1) * each)
        x[rows], y[rows] = pixels, labels
    return torch.from_numpy(x).view(-1, 3, 32, 32), torch.from_numpy(y)


def _read_binary(archive: Archive, path: Path, count: int) -> tuple[Bytes, npt.NDArray[Any]]:
    expected = count * (archive.label_bytes + PIXELS)
    if (found := path.stat().st_size) != expected:
        raise UsageError(f"{path} has {found:,} bytes; expected {expected:,}; {_remedy(archive, path.parent)}")
    records = np.fromfile(path, np.uint8).reshape(count, -1)
    return records[:, archive.label_bytes :], records[:, archive.label_bytes - 1]


def _read_pickle(archive: Archive, path: Path, count: int) -> tuple[Bytes, npt.NDArray[Any]]:
    content = _unpickle(archive, path)
    pixels, labels = content.get(b"data"), content.get(archive.labels_key)
    expected = f"expected uint8 of shape {(count, PIXELS)} and {count:,} labels; {_remedy(archive, path.parent)}"
    if not (
        isinstance(pixels, np.ndarray) and isinstance(labels, list) and all(isinstance(label, int) for label in labels)
    ):
        raise UsageError(f"{path} has no images and labels in it; {expected}")
    if pixels.shape != (count, PIXELS) or pixels.dtype != np.uint8 or len(labels) != count:
        found = f"{pixels.dtype} of shape {pixels.shape} and {len(labels):,} labels"
        raise UsageError(f"{path} has {found}; {expected}")
    return pixels, np.array(labels, np.int64)


def _read_names(archive: Archive, folder: Path, suffix: str) -> tuple[str, ...]:
    path = folder / (archive.names_file if suffix else archive.python_names_file)
    if not path.is_file():
        return archive.classes
    if suffix:
        names = path.read_text(encoding="utf-8", errors="replace").split()
    else:
        names = [
            name.decode() for name in _unpickle(archive, path).get(archive.names_key, ()) if isinstance(name, bytes)
        ]
    if len(names) != len(archive.classes):
        raise UsageError(
            f"{path} has {len(names)} class names; expected {len(archive.classes)}; {_remedy(archive, folder)}"
        )
    return tuple(names)


def _remedy(archive: Archive, folder: Path) -> str:
    if folder.name in (archive.binary_folder, archive.python_folder):
        return f"delete the folder {folder} and load {archive.name} without root (data_dir), which downloads it again"
    # The folder may hold other files of the user, so the advice is not to delete it.
    return f"replace it with the one of {archive.address}, or choose another folder as root (data_dir)"


class _Unpickler(pickle.Unpickler):
    """Reads arrays, lists and strings, which the official files consist of, and nothing else.

    A pickle can name any function to be called while it is read, so all other functions are refused.
    """

    allowed = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numpy", "dtype"):
            return _dtype
        if (module, name) not in self.allowed:
            raise UsageError(f"it asks for {module}.{name}, which no official file does")
        return super().find_class(module, name)


def _dtype(code: Any, align: object = False, copy: object = False) -> Any:
    """The official files contain ``dtype("u1", 0, 1)``; NumPy 2.4 warns unless the last two are booleans."""
    return np.dtype(code, bool(align), bool(copy))


def _unpickle(archive: Archive, path: Path) -> dict[bytes, Any]:
    try:
        with path.open("rb") as file:
            content = _Unpickler(file, encoding="bytes").load()
        if not isinstance(content, dict):
            raise UsageError(f"it is a {type(content).__name__}, not a dictionary")
    except Exception as error:  # a damaged pickle can raise anything
        raise UsageError(f"{path} cannot be read ({error}); {_remedy(archive, path.parent)}") from error
    return content
