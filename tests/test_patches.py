"""Features of images without a network: patches, their filters, and the dead leaves that filters come from."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from made_statistics import learn, make
from onebyone import Dataset, OnlineClassifier, Spec
from onebyone.data import CropFlip
from onebyone.nets import Patches
from onebyone.nets.leaves import dead_leaves
from onebyone.nets.patches import FLOOR, MOST_PATCHES, PICTURES, REGULARISATION, clusters, cosines, fitted


def patches_by_hand(patches: Patches, images: Tensor) -> Tensor:
    """Every patch of every image, and of its mirror image if it is used, filter by filter."""
    size, features, views = patches.patch, [], len(patches.pooling)
    filters = torch.einsum("kw,wcij->kcij", patches.filters.float(), patches.components)
    for image in images:
        found = torch.zeros(2, 2, 2, len(filters))  # top or bottom, left or right, side of the threshold
        total = torch.zeros(2, 2, 1, 1)
        for view in (image, image.flip(2))[:views]:
            rows, columns = (side - size + 1 for side in view.shape[1:])
            chessboard = patches.stride == 2 and columns % 2
            for row in range(rows):
                for column in range(columns):
                    if (row + column) % 2 if chessboard else row % patches.stride:
                        continue
                    patch = view[:, row : row + size, column : column + size]
                    floor = FLOOR * view.var(correction=0)
                    patch = (patch - patch.mean()) / (patch.var(correction=0) + floor).sqrt()
                    answer = (filters * patch).sum((1, 2, 3))
                    beyond = torch.stack([answer - patches.threshold, -answer - patches.threshold]).relu()
                    # From the first quarter of the image to the last, weight goes over from one half to the other.
                    down, across = (
                        min(max(2 * (place + 0.5) / count - 0.5, 0), 1)
                        for place, count in ((row, rows), (column, columns))
                    )
                    weight = torch.tensor([[1 - down], [down]]) * torch.tensor([1 - across, across])
                    found += weight[:, :, None, None] * beyond
                    total += weight[:, :, None, None]
        features.append((found / total).flatten().sqrt())
    return (torch.stack(features) - patches.centre) / patches.unit


@pytest.mark.parametrize("mirrored", [True, False])
@pytest.mark.parametrize(("side", "stride"), [(8, 1), (9, 1), (12, 2), (13, 2), (12, 3)])
def test_features_equal_a_loop_over_patches(side: int, stride: int, mirrored: bool) -> None:
    images = torch.rand(3, 3, side, side, generator=torch.Generator().manual_seed(0))
    patches = Patches((3, side, side), filters=5, patch=4, stride=stride, threshold=0.5, mirrored=mirrored)
    patches.fit(seed=0)
    torch.testing.assert_close(patches(images), patches_by_hand(patches, images), rtol=1e-3, atol=2e-2)
    assert torch.allclose(patches(images.flip(3)), patches(images), rtol=1e-3, atol=2e-2) == mirrored
    torch.testing.assert_close(patches(3 * images + 2), patches(images), rtol=1e-3, atol=5e-2)  # at every scale


@pytest.mark.parametrize(("flip", "told_apart"), [(True, False), (False, True)])
def test_mirror_images_differ_unless_the_augmentation_flips(flip: bool, told_apart: bool) -> None:
    """As with b and d. The augmentation of a data set says whether mirror images are of the same class."""
    generator = torch.Generator().manual_seed(0)
    left = torch.zeros(1, 12, 12)
    left[0, 2:10, 2:4] = left[0, 6:10, 2:8] = 1
    y = torch.arange(200) % 2
    x = torch.where((y == 0)[:, None, None, None], left, left.flip(2)) + 0.1 * torch.randn(
        200, 1, 12, 12, generator=generator
    )
    spec = Spec((1, 12, 12), 2, torch.float32, CropFlip(padding=0, flip=flip))
    learner = learn(make(spec), x[:100], y[:100])
    accuracy = (learner.predict(x[100:]) == y[100:]).float().mean()
    assert accuracy > 0.95 if told_apart else 0.3 < accuracy < 0.7


@pytest.mark.parametrize("unit", [1e-30, 1e-7, 1e25])
def test_features_do_not_depend_on_the_scale_of_an_image(digits: Dataset, unit: float) -> None:
    spec, y = replace(digits.spec, dtype=torch.float32), digits.train_y
    plain, other = (learn(make(spec), digits.train_x * scale, y) for scale in (1.0, unit))
    agree = plain.predict(digits.test_x * 1.0) == other.predict(digits.test_x * unit)
    assert agree.float().mean() > 0.99


def test_one_extreme_image_does_not_spoil_the_statistics(digits: Dataset) -> None:
    spec = replace(digits.spec, dtype=torch.float32)
    x = digits.train_x * 1.0
    x[100, 0, 3, 3] = 3e38
    learner = learn(make(spec), x, digits.train_y)
    assert (learner.predict(digits.test_x * 1.0) == digits.test_y).float().mean() > 0.9


def test_components_are_orthonormal_and_ignore_the_mean() -> None:
    waves, mirror = cosines(3, 4)
    assert len(waves) == 3 * 4 * 4 - 1
    torch.testing.assert_close(waves.flatten(1) @ waves.flatten(1).T, torch.eye(47), rtol=0, atol=1e-5)
    assert waves.sum((1, 2, 3)).abs().max() < 1e-5
    torch.testing.assert_close(waves.flip(3), waves * mirror[:, None, None, None], rtol=0, atol=1e-5)


def test_filters_are_clusters_of_whitened_patches_of_dead_leaves() -> None:
    patches, generator = Patches((1, 8, 8), filters=6), torch.Generator().manual_seed(0)
    patches.fit(seed=0)
    pictures = dead_leaves(PICTURES, 1, 16, generator).double()
    every = F.unfold(pictures, 4).mT
    every = every - every.mean(2, keepdim=True)
    floor = FLOOR * pictures.var((1, 2, 3), correction=0)[:, None, None]
    every = (every / (every.square().mean(2, keepdim=True) + floor).sqrt()).flatten(0, 1)
    every = every[torch.randperm(len(every), generator=generator)]
    every = every[every.norm(dim=1) > 1e-3][:MOST_PATCHES]  # not the flat ones
    every = every @ patches.components.flatten(1).T.double()
    deviation = (every.square().mean(0) + REGULARISATION).sqrt()
    white = every / deviation
    expected = clusters(white, 6) * white.norm(dim=1).mean() / deviation
    torch.testing.assert_close(patches.filters.double(), expected, rtol=0.01, atol=0.01)


def test_dead_leaves_look_like_natural_images() -> None:
    """Similar at every scale, correlated between channels, and without jagged borders."""
    pictures = dead_leaves(100, 3, 64, torch.Generator().manual_seed(0))
    spectrum = torch.fft.rfft2(pictures.mean(1)).abs().square().mean(0)
    fall = spectrum[0, 2] / spectrum[0, 16]  # of natural images: with about the square of the frequency
    assert 8**1.5 < fall < 8**3
    grey, red, green = pictures.mean(1), pictures[:, 0], pictures[:, 1]
    assert (red - green).square().mean() < 0.3 * grey.square().mean()


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 9), (3, 64, 48), (4, 5, 33)], ids=str)
def test_images_of_any_size(shape: tuple[int, ...]) -> None:
    x = torch.rand(40, *shape, generator=torch.Generator().manual_seed(0))
    x[20:] += torch.linspace(0, 3, shape[1])[:, None]
    y = torch.arange(40) // 20
    learner = learn(make(Spec(shape, 2, torch.float32), budget=300_000), x, y)
    assert learner.scores(x).isfinite().all()
    if shape != (1, 1, 1):  # which is zero without its mean
        assert (learner.predict(x) == y).float().mean() > 0.9


@pytest.mark.parametrize(("options", "stride"), [({}, 1), ({"budget": 2_000_000}, 2), ({"stride": 3}, 3)], ids=str)
def test_many_filters_use_every_second_row(digits: Dataset, options: dict[str, int], stride: int) -> None:
    assert make(digits.spec, **options).extractor.stride == stride


def test_filters_are_computed_once_and_not_for_a_file_that_has_them(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clf = OnlineClassifier(memory=200).partial_fit(digits.train_x[:50], digits.train_y[:50])
    clf.save(tmp_path / "model")
    fitted.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(Patches, "compute", lambda *_: pytest.fail("computed"))
        loaded = OnlineClassifier.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(digits.test_x), clf.predict_proba(digits.test_x))
    threads = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    OnlineClassifier(memory=200).partial_fit(digits.train_x[:50], digits.train_y[:50])
    assert threads == [1, torch.get_num_threads()]
