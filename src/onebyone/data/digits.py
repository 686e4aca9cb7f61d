"""The embedded data set: small, without a download, read in a millisecond."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from onebyone.data.augmentation import CropFlip
from onebyone.data.dataset import Dataset, split_by_class
from onebyone.data.registry import register

# Written once from scikit-learn's copy (NOTICE has the source and licence), so that neither a download nor
# scikit-learn is needed: x = round(load_digits().images * 255 / 16), y = load_digits().target.
FILE = Path(__file__).with_name("digits.npz")


@register("digits", about="not in the paper: for trials that take seconds, and for tests")
def load_digits(root: Path | None = None) -> Dataset:
    """1,797 handwritten digits of 8x8 pixels, embedded in the package.

    A fixed fifth of each class is the test set. ``root`` is not used.

    >>> digits = load_digits()
    >>> len(digits.train_y), len(digits.test_y), digits.spec.shape
    (1438, 359, (1, 8, 8))
    """
    with np.load(FILE, allow_pickle=False) as arrays:
        x = torch.from_numpy(arrays["x"])[:, None]
        y = torch.from_numpy(arrays["y"]).long()
    train, test = split_by_class(y, 0.2, seed=0)
    return Dataset(
        name="digits",
        train_x=x[train],
        train_y=y[train],
        test_x=x[test],
        test_y=y[test],
        classes=tuple("0123456789"),
        augmentation=CropFlip(padding=0, flip=False),  # digits fill their 8x8 pixels, and have no mirror symmetry
    )
