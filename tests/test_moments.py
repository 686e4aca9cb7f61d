"""Means and covariance of a stream against those of the whole, computed at once in float64."""

import pytest
import torch
from torch import Tensor

from onebyone import UsageError
from onebyone.statistics.sums import BLOCK, Moments, fold, unfold


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
    return means, (x - means[y]).T @ (x - means[y])


def check(moments: Moments, x: Tensor, y: Tensor, tolerance: float) -> None:
    """Every entry within the tolerance of its scale: the largest mean, the product of standard deviations."""
    means, scatter = at_once(x, y, len(moments.weights))
    assert (moments.means() - means).abs().div(means.abs().amax(0)).max() < tolerance
    size = scatter.diagonal().sqrt()
    assert (moments.scatter() - scatter).abs().div(size[:, None] * size).max() < tolerance
    assert moments.weights.tolist() == torch.bincount(y, minlength=len(moments.weights)).tolist()


def learnt(x: Tensor, y: Tensor, size: int, classes: int = 4) -> Moments:
    moments = Moments(x.shape[1], classes, torch.float64)
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
    check(learnt(x, y, size), x, y, 1e-9)


@pytest.mark.parametrize("width", [2 * BLOCK - 2, 2 * BLOCK, 2 * BLOCK + 2, 5 * BLOCK])
def test_a_matrix_of_several_blocks(width: int) -> None:
    """Renewed block by block, of which some are cut by the line between the two triangles that share their rows."""
    x, y = stream(100, width)
    check(learnt(x, y, 40), x, y, 1e-9)


@pytest.mark.slow
def test_a_million_samples_leave_no_trace() -> None:
    x, y = stream(1_000_000)
    check(learnt(x, y, 50), x, y, 1e-9)


def test_one_sample_and_classes_without_any() -> None:
    moments = learnt(torch.tensor([[3.0, -1.0]]), torch.tensor([2]), 1)
    assert moments.means().tolist() == [[0, 0], [0, 0], [3, -1], [0, 0]]
    assert not moments.scatter().any()


def test_features_that_never_vary_or_are_very_small() -> None:
    x, y = stream(100)
    x[:, 0], x[:, 1] = 7.0, x[:, 1] * 1e-20
    moments = learnt(x, y, 10)
    assert moments.scatter().isfinite().all()
    check(learnt(x[:, 1:3], y, 10), x[:, 1:3], y, 1e-9)
    assert moments.scatter()[0].abs().max() < 1e-12


def codes(count: int, width: int = 7, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-127, 128, (count, width), generator=generator).float(), torch.arange(count) % 3


def test_sums_of_integers_are_exact_to_the_bit() -> None:
    """For any grouping and order, with an odd number of features too."""
    x, y = codes(5000)
    single = Moments(7, 3)
    single.add(x, y)
    exact = x.long().T @ x.long()
    assert torch.equal(unfold(single.products)[:7, :7].long(), exact)
    parts = []
    for start in range(50):
        part = Moments(7, 3)
        for batch, labels in zip(x[start::50].split(1 + start), y[start::50].split(1 + start), strict=True):
            part.add(batch, labels)
        parts.append(part)
    while len(parts) > 1:
        parts[0].merge(parts.pop(len(parts) // 2))
    for name, tensor in single.state_dict().items():
        assert torch.equal(parts[0].state_dict()[name], tensor), name


def test_integers_never_overflow() -> None:
    """Codes are halved instead, and means and scatter stay within a code."""
    x, y = torch.full((400_000, 2), 127.0), torch.zeros(400_000, dtype=torch.long)
    x[::2] = -127
    moments = Moments(2, 1)
    for part, labels in zip(x.split(1000), y.split(1000), strict=True):
        moments.add(part, labels)
    assert int(moments.halvings) == 1
    assert moments.means().abs().max() < 1
    torch.testing.assert_close(moments.scatter() / len(x), torch.full((2, 2), 127.0**2).double(), rtol=0.02, atol=1.0)
    other = Moments(2, 1)
    other.add(x[:1000], y[:1000])
    other.merge(moments)
    moments.merge(moments)
    assert other.weights.tolist() == [401_000]
    torch.testing.assert_close(other.scatter() / 401_000, torch.full((2, 2), 127.0**2).double(), rtol=0.02, atol=1.0)
    assert (moments.scatter() > 0).all()


def test_a_common_offset_costs_no_precision() -> None:
    x, y = stream(1000)
    shifted = x.double() + 1e4 * x.double().std(0)
    size = learnt(x, y, 10).scatter().diagonal().sqrt()
    near, far = (at_once(values.float().double(), y, 4)[1] for values in (x, shifted))
    found = learnt(shifted.float(), y, 10).scatter()
    assert ((found - far).abs() / (size[:, None] * size)).max() < 1e-9
    assert ((near - far).abs() / (size[:, None] * size)).max() < 0.05  # of float32 samples


def test_samples_that_were_never_added_cannot_be_removed() -> None:
    for dtype in (torch.int32, torch.float64):
        x, y = codes(30)
        for wrong in (x[:10] + 1, -x[:10] * 1.5):
            moments = Moments(7, 3, dtype)
            moments.add(x, y)
            before, minus = moments.squares(), -torch.ones(30, dtype=torch.float64)
            moments.add(x[10:], y[10:], minus[10:])
            moments.add(wrong.round(), y[:10], minus[:10])
            with pytest.raises(UsageError, match="cannot all have been learnt"):
                moments.check_possible(before)


@pytest.mark.parametrize(("dtype", "size"), [(torch.int32, 4), (torch.float64, 8)])
def test_bytes_of_an_entry(dtype: torch.dtype, size: int) -> None:
    """A half of the matrix and a sum per class and feature, a weight per class; an origin and squares for numbers."""
    kept = sum(tensor.nbytes for tensor in Moments(10, 3, dtype).state_dict().values())
    assert kept == size * (10 * 11 // 2) + size * 3 * 10 + 8 * 3 + 8 + (12 * 10 if size == 8 else 0)


@pytest.mark.parametrize("width", [2, 4, 30])
def test_folding_keeps_every_entry_once(width: int) -> None:
    square = torch.arange(width * width).reshape(width, width)
    square = square + square.T
    folded = fold(square)
    assert folded.shape == (width + 1, width // 2)
    assert sorted(folded.flatten().tolist()) == sorted(square[*torch.tril_indices(width, width)].tolist())
    assert torch.equal(unfold(folded), square)


def test_what_removed_samples_leave_counts_as_rounding_errors() -> None:
    """Features that are constant in the samples that are left do not vary, whatever was there before."""
    generator = torch.Generator().manual_seed(0)
    large = 1e3 * torch.randn(50, 30, generator=generator, dtype=torch.float64)
    rest = torch.randn(30, generator=generator, dtype=torch.float64).repeat(3, 1)
    rest[:, 0] = torch.arange(3)
    y = torch.zeros(53, dtype=torch.int64)
    moments, other = (Moments(30, 1, torch.float64) for _ in range(2))
    moments.add(torch.cat([rest, large]), y)  # the origin is one of those that stay
    for part in large.split(20):
        before = moments.squares()
        moments.add(part, y[: len(part)], -torch.ones(len(part), dtype=torch.float64))
        moments.check_possible(before)
    other.merge(moments)
    for each in (moments, other):
        rounding = each.rounding()
        assert rounding is not None
        assert (each.scatter().diagonal() > rounding).nonzero().tolist() == [[0]]
    assert float(moments.scatter().diagonal()[1:].max()) > 1e-12 * float(moments.squares()[1:].min())


def test_equal_samples_do_not_vary() -> None:
    """Their features may be computed in other batches, and then differ in the last bits. Origins are rounded."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(30, generator=generator, dtype=torch.float64).float().double()  # as origins are
    moments = Moments(30, 1, torch.float64)
    moments.add(values * (1 + 1e-15 * torch.randn(40, 30, generator=generator)), torch.zeros(40, dtype=torch.int64))
    rounding = moments.rounding()
    assert rounding is not None
    assert bool((moments.scatter().diagonal() < rounding).all())
    assert moments.is_covariance()


def test_small_weights_of_integers_are_rounded_once() -> None:
    """Rounded sample by sample, small codes with small weights would all be zero."""
    x = torch.randint(-3, 4, (400, 7), generator=torch.Generator().manual_seed(0)).float() + 1
    moments = Moments(7, 1)
    moments.add(x, torch.zeros(400, dtype=torch.int64), torch.full((400,), 0.1))
    torch.testing.assert_close(moments.means()[0].float(), x.mean(0), rtol=0, atol=0.5 / 40 + 1e-6)
