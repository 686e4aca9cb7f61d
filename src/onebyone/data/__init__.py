"""Data sets: training and test samples as tensors."""

from onebyone.data import arrays, cifar, digits, folder  # noqa: F401  (importing registers them)
from onebyone.data.arrays import from_arrays
from onebyone.data.augmentation import CropFlip
from onebyone.data.dataset import Dataset, Spec
from onebyone.data.folder import SkippedFilesWarning, from_folder
from onebyone.data.registry import datasets, load, register

__all__ = [
    "CropFlip",
    "Dataset",
    "SkippedFilesWarning",
    "Spec",
    "datasets",
    "from_arrays",
    "from_folder",
    "load",
    "register",
]
