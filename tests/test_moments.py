"""Means and covariance of a stream against those of the whole, computed at once in float64."""

import pytest
import torch
from torch import Tensor

from onebyone import UsageError
from onebyone.memory import Moments
from onebyone.memory.moments import BLOCK, fold, unfold


def stream(count: int, width: int = 6, classes: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Correlated features of unlike size, far from zero, whose mean depends on the class."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (count,), generator=generator)
    mixing = torch.randn(width, width, generator=generator) * torch.logspace(-3, 3, width)
    centres = 5 * torch.randn(classes, width, generator=generator) @ mixing
    return torch.randn(count, width, generator=generator) @ mixing + centres[y], y


def at_once(x: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    x, means = x.double(), torch.zeros(classes, x.shape[1], dtype=torch.float64)
    for label in y.unique():
        means[label] = x[y == label].mean(0)
    return means, (x - means[y]).T @ (x - means[y]) / len(x)


def check(moments: Moments, x: Tensor, y: Tensor, tolerance: float) -> None:
    """Every entry within the tolerance of its scale: the largest mean, the product of standard deviations."""
    means, covariance = at_once(x, y, len(moments.counts))
    assert (moments.means() - means).abs().div(means.abs().amax(0)).max() < tolerance
    deviation = covariance.diagonal().sqrt()
    assert (moments.covariance() - covariance).abs().div(deviation[:, None] * deviation).max() < tolerance
    assert moments.counts.tolist() == torch.bincount(y, minlength=len(moments.counts)).tolist()


def learnt(x: Tensor, y: Tensor, size: int, classes: int = 4) -> Moments:
    moments = Moments(x.shape[1], classes)
    for features, labels in zip(x.split(size), y.split(size), strict=True):
        moments.add(features, labels)
    return moments


@pytest.mark.parametrize("size", [1, 2, 7, 100, 1000])
@pytest.mark.parametrize("order", ["mixed", "by class", "class comes back"])
def test_streamed_equals_at_once(size: int, order: str) -> None:
    x, y = stream(1000)
    if order != "mixed":
        index = y.argsort(stable=True)
        x, y = x[index], y[index]
    if order == "class comes back":
        x, y = x.roll(100, 0), y.roll(100, 0)
    check(learnt(x, y, size), x, y, 1e-7)


@pytest.mark.parametrize("width", [2 * BLOCK - 2, 2 * BLOCK, 2 * BLOCK + 2, 5 * BLOCK])
def test_a_matrix_of_several_blocks(width: int) -> None:
    """Renewed block by block, of which some are cut by the line between the two triangles that share their rows."""
    x, y = stream(100, width)
    check(learnt(x, y, 40), x, y, 1e-7)


@pytest.mark.slow
def test_a_million_samples_leave_no_trace() -> None:
    x, y = stream(1_000_000)
    check(learnt(x, y, 50), x, y, 1e-6)


def test_a_sum_in_float32_would_leave_one() -> None:
    """So the test above can fail: the same stream, the usual way."""
    x, y = stream(1_000_000)
    means, covariance = at_once(x, y, 4)
    rows = (x - means.float()[y]).split(50)
    total = torch.zeros_like(covariance, dtype=torch.float32)
    for part in rows:
        total += part.T @ part
    assert (total.double() / len(x) - covariance).abs().div(covariance.abs()).max() > 1e-6


def test_one_sample_and_classes_without_any() -> None:
    moments = learnt(torch.tensor([[3.0, -1.0]]), torch.tensor([2]), 1)
    assert moments.means().tolist() == [[0, 0], [0, 0], [3, -1], [0, 0]]
    assert not moments.covariance().any()


def test_features_that_never_vary_or_are_very_small() -> None:
    x, y = stream(100)
    x[:, 0], x[:, 1] = 7.0, x[:, 1] * 1e-20
    moments = learnt(x, y, 10)
    assert moments.covariance().isfinite().all()
    check(learnt(x[:, 1:3], y, 10), x[:, 1:3], y, 1e-7)
    assert moments.covariance()[0].abs().max() < 1e-12


def test_bytes_of_an_entry() -> None:
    """A half of the matrix and the means in 4 bytes each, two exponents for each feature, a count for each class."""
    kept = sum(tensor.nbytes for tensor in Moments(10, 3).state_dict().values())
    assert kept == 4 * (10 * 11 // 2) + 4 * 3 * 10 + 2 * 10 + 8 * 3


@pytest.mark.parametrize("width", [2, 4, 30])
def test_folding_keeps_every_entry_once(width: int) -> None:
    square = torch.arange(width * width).reshape(width, width)
    square = square + square.T
    folded = fold(square)
    assert folded.shape == (width + 1, width // 2)
    assert sorted(folded.flatten().tolist()) == sorted(square[*torch.tril_indices(width, width)].tolist())
    assert torch.equal(unfold(folded), square)


def test_an_odd_number_of_features_is_refused() -> None:
    with pytest.raises(UsageError, match="moments of 3 features were asked for; it must be an even number"):
        Moments(3, 2)
