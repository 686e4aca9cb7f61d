"""How many new samples of known classes are unknown to a classifier that has learnt a few."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import Tensor, nn

from onebyone import Dataset, OnlineClassifier, nets
from onebyone.estimator.predictor import low_quantile
from photo_folders import ENCODER, encoder  # noqa: F401  # a fixture

Call = Callable[..., tuple[int, str, str]]
SCENES = {"temple": 0, "flower": 1}


def write_pieces(seed: int) -> None:
    """Ten pieces of each of two photographs in ``photos``, two more of each in ``new``, and another picture."""
    random = np.random.default_rng(seed)
    scenes = load_sample_images().images
    for name, scene in SCENES.items():
        for folder, count in ((Path("photos", name), 10), (Path("new"), 2)):
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                left, top = random.integers(0, (400, 200))
                piece = Image.fromarray(scenes[scene][top : top + 200, left : left + 220])
                piece.save(folder / f"{name}{number}.jpg")
    Path("other").mkdir(exist_ok=True)
    stripes = 255 * (np.arange(220)[None, :, None] // 20 % 2) * np.array([0, 1, 0.2]) * np.ones((200, 1, 1))
    Image.fromarray(stripes.astype(np.uint8)).save("other/stripes.png")


def first_try(onebyone: Call, *options: str) -> list[dict[str, Any]]:
    """Learn 20 pieces. Return the predictions of four new pieces and of another picture."""
    write_pieces(seed=0)
    code, out, err = onebyone("learn", "photos", "--into", "pets.onebyone", *options)
    assert (code, err) == (0, "")
    assert "20 images learnt" in out
    code, out, _ = onebyone("predict", "pets.onebyone", "new", "other", "--json")
    assert code == 0
    found: list[dict[str, Any]] = json.loads(out)["predictions"]
    return found


def test_the_first_photographs(onebyone: Call) -> None:
    found = first_try(onebyone, "--encoder", ENCODER, "--memory", "60KB")
    assert [row["unknown"] for row in found[:4]] == [False] * 4


@pytest.mark.slow
def test_the_first_photographs_with_lite0(onebyone: Call) -> None:
    """One of the four was unknown, because it is less typical than every one of the 20."""
    found = first_try(onebyone)
    assert [row["class"] for row in found[:4]] == ["flower", "flower", "temple", "temple"]
    assert [row["unknown"] for row in found] == [False] * 4 + [True]


@pytest.mark.parametrize("count", [20, 38, 39, 200])
@pytest.mark.parametrize("logarithmic", [True, False])
def test_known_samples_are_rarely_below_the_threshold(count: int, logarithmic: bool) -> None:
    """Their share is at most 5 % on average; with few values to choose from it is not above 10 % by chance either."""
    normal = torch.randn(2000, count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = -(0.4 * normal).exp() if logarithmic else normal
    found = torch.tensor([low_quantile(values, 0.05) for values in drawn], dtype=torch.float64)
    at = -(-found).log() / 0.4 if logarithmic else found
    shares = torch.special.ndtr(at)
    assert shares.mean() < 0.052
    if count < 39:
        assert (shares > 0.1).double().mean() < 0.02
    else:
        assert shares.mean() > 0.045


def test_values_that_are_all_equal_are_not_below_their_quantile() -> None:
    assert low_quantile(torch.full((20,), 3.0, dtype=torch.float64), 0.05) == 3
    assert low_quantile(torch.full((20,), -3.0, dtype=torch.float64), 0.01) == pytest.approx(-3)


class Sparse(nn.Module):
    """Features that are zero for most samples, as those of networks are."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        weight = torch.randn(600, 64, generator=generator) * torch.logspace(-1, 1, 600)[:, None]
        self.weight = nn.Parameter(weight / 8)

    def forward(self, x: Tensor) -> Tensor:
        projected = x.flatten(1) @ self.weight.T
        return (projected - 2 * self.weight.norm(dim=1)).relu()


def sparse_samples(count: int, seed: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 2
    centres = torch.randn(2, 64, generator=torch.Generator().manual_seed(0))
    return (centres[y] + torch.randn(count, 64, generator=generator)).numpy(), y.numpy()


def test_features_that_few_samples_have_do_not_make_new_samples_unknown() -> None:
    turned_away = []
    for seed in range(5):
        clf = OnlineClassifier("lda", encoder=Sparse(), freeze_encoder=True, memory="4MB")
        clf.partial_fit(*sparse_samples(20, seed))
        x, y = sparse_samples(200, 100 + seed)
        turned_away.append((clf.predict(x, unknown=-1) == -1).mean())
        assert clf.score(x, y) > 0.9
    assert np.mean(turned_away) < 0.07


@pytest.mark.parametrize("per_class", [5, 20, 100])
def test_unknown_with_a_module(digits: Dataset, per_class: int) -> None:
    """A torch module as encoder, digits 0 to 4 learnt: few of these are unknown, and with enough samples most others.

    Samples are random, because the first ones of each class are of a few writers.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nets.Preprocess(8, [0.5], [0.5]), nn.Conv2d(1, 40, 3), nn.ReLU(), nn.AvgPool2d(3))
    known, turned_away = (digits.test_y < 5).numpy(), []
    for seed in range(3):
        order = torch.randperm(len(digits.train_y), generator=torch.Generator().manual_seed(seed))
        chosen = [order[digits.train_y[order] == label][:per_class] for label in range(5)]
        x, y = (part[torch.cat(chosen)].numpy() for part in (digits.train_x, digits.train_y))
        clf = OnlineClassifier(encoder=module, freeze_encoder=True, memory="1MB").partial_fit(x, y)
        unknown = clf.predict(digits.test_x.numpy(), unknown=-1) == -1
        turned_away.append((unknown[known].mean(), unknown[~known].mean()))
    of_known, of_others = np.mean(turned_away, axis=0)
    assert of_known < 0.07
    assert of_others > (0 if per_class == 5 else 0.7)
