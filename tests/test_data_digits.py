import numpy as np
import pytest
import torch

from onebyone.data import CropFlip, load
from onebyone.data.digits import FILE


def test_the_embedded_file_is_scikit_learns() -> None:
    original = pytest.importorskip("sklearn.datasets").load_digits()
    with np.load(FILE, allow_pickle=False) as embedded:
        assert embedded["x"].dtype == np.uint8
        np.testing.assert_array_equal(embedded["x"], np.round(original.images * 255 / 16))
        np.testing.assert_array_equal(embedded["y"], original.target)
    assert FILE.stat().st_size < 50_000


def test_split() -> None:
    digits = load("digits")
    assert digits.name == "digits"
    assert digits.classes == tuple("0123456789")
    assert digits.augmentation == CropFlip(padding=0, flip=False)
    assert digits.train_x.dtype == torch.uint8
    assert digits.train_x.shape == (1438, 1, 8, 8)
    assert digits.test_x.shape == (359, 1, 8, 8)
    every = digits.train_y.bincount() + digits.test_y.bincount()
    assert torch.equal(digits.test_y.bincount(), (every * 0.2).round().long())


def test_the_split_is_always_the_same() -> None:
    first, second = load("digits"), load("digits", "ignored")
    assert torch.equal(first.test_x, second.test_x)
    assert torch.equal(first.train_y, second.train_y)
