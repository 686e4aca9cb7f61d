"""Features of vectors: values are projected in units that are taken from the first samples."""

from typing import Any

import pytest
import torch
from torch import Tensor

from onebyone.statistics.features import Directions

FEW = 50


def directions(width: int, filters: int = 40) -> Directions:
    made = Directions((width,), filters)
    made.fit(seed=0)
    return made


def with_units(x: Tensor, copies: Tensor | None = None) -> Directions:
    made = directions(x.shape[1])
    made.set_units(x, torch.ones(len(x)) if copies is None else copies)
    return made


def projections(made: Directions, x: Tensor) -> Tensor:
    return made(x)[:, made.size :]


def normal(width: int = 6, count: int = FEW, seed: int = 0) -> Tensor:
    """Whole multiples of a power of two: sums with offsets that are such multiples are exact."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, generator=generator, dtype=torch.float64).mul(1024).round() / 1024


def test_before_units_are_set_projections_are_zero() -> None:
    x = normal()
    made = directions(6)
    assert made.needs_units
    assert not made.settled
    assert torch.equal(made(x)[:, :6], x)
    assert not projections(made, x).any()
    made.set_units(x, torch.ones(len(x)))
    assert made.settled
    assert torch.equal(made(x)[:, :6], x)
    assert int(projections(made, x).any(0).sum()) > 70  # of 80


def test_projections_are_the_literal_ones() -> None:
    x = normal(3)
    made = with_units(x)
    z = torch.empty_like(x)
    for row in range(len(x)):
        for column in range(3):
            value = float((x[row, column] - made.location[column]) * made.factor[column])
            size = abs(value) if abs(value) <= 1 else 1 + torch.tensor(abs(value), dtype=torch.float64).log()
            z[row, column] = size if value > 0 else -size
    answers = z @ made.filters.double()
    above, below = made.thresholds
    for index in range(made.count):
        expected = (answers[:, index] - above[index]).clamp(min=0)
        torch.testing.assert_close(made(x)[:, 3 + index], expected)
        expected = (-answers[:, index] - below[index]).clamp(min=0)
        torch.testing.assert_close(made(x)[:, 3 + made.count + index], expected)


def test_units_are_the_median_and_a_power_of_two_near_the_deviation() -> None:
    deviations = torch.tensor([1e-3, 0.4, 1.0, 3.0, 1e5], dtype=torch.float64)
    x = 7 * deviations + deviations * normal(5, 2000)
    made = with_units(x)
    torch.testing.assert_close(made.location, x.sort(0).values[999])
    assert torch.equal(made.factor.log2(), made.factor.log2().round())
    assert bool(((made.factor * deviations).log2().abs() < 0.6).all())


@pytest.mark.parametrize("offset", [1.0, -1000.0, 2.0**18])
def test_an_offset_changes_no_projection(offset: float) -> None:
    x, new = normal(), normal(seed=1)
    found, expected = with_units(x + offset), with_units(x)
    assert torch.equal(found.factor, expected.factor)
    assert torch.equal(projections(found, new + offset), projections(expected, new))


def test_powers_of_two_in_which_columns_are_given_change_no_projection() -> None:
    units = 2.0 ** torch.tensor([-30, -3, 0, 1, 10, 40], dtype=torch.float64)
    x, new = normal() + 5, normal(seed=1) + 5
    found, expected = with_units(x * units), with_units(x)
    assert torch.equal(found.factor * units, expected.factor)
    assert torch.equal(projections(found, new * units), projections(expected, new))


@pytest.mark.parametrize("times", [0.01, 3.0, 1e6])
def test_in_another_unit_values_are_within_a_factor_of_two(times: float) -> None:
    x = normal()
    ratio = with_units(x * times).factor * times / with_units(x).factor
    assert bool(((ratio > 0.5) & (ratio < 2)).all())


@pytest.mark.parametrize("rows", [[0], [0, 20], [3, 30, 40]], ids=str)
def test_wild_values_do_not_matter(rows: list[int]) -> None:
    x = normal()
    wild = x.clone()
    wild[rows, 2] = 1e4
    found, expected = with_units(wild), with_units(x)
    assert bool((found.factor == expected.factor)[[0, 1, 3, 4, 5]].all())
    assert float((found.factor / expected.factor).log2().abs()[2]) <= 1
    assert float((found.location - expected.location).abs()[2]) < 0.3
    assert float(projections(found, wild).max()) < 20  # compressed


def test_the_order_of_samples_does_not_matter() -> None:
    x = normal()
    assert with_units(x).same_units(with_units(x.flip(0)))
    assert not with_units(x).same_units(with_units(2 * x))
    assert not with_units(x).same_units(with_units(x + 1))


@pytest.mark.parametrize("value", [0.0, 1.0, 0.3, 1e9, -1e-9])
def test_a_constant_column_is_never_projected(value: float) -> None:
    x = normal()
    x[:, 1] = value
    made = with_units(x)
    assert made.factor[1] == 0
    assert bool((made.factor[[0, 2, 3, 4, 5]] > 0).all())
    new = x.clone()
    new[:, 1] += 100
    assert torch.equal(projections(made, new), projections(made, x))
    assert not torch.equal(made(new), made(x))  # the value itself is used


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_noise_is_no_unit(dtype: torch.dtype) -> None:
    x = normal().to(dtype)
    x[:, 0] = 0.3
    x[::2, 0] = torch.tensor(0.1, dtype=dtype) + torch.tensor(0.2, dtype=dtype)
    x[:, 1] = 1e4
    x[::3, 1] = torch.nextafter(x[0, 1], torch.tensor(1e9, dtype=dtype))
    made = with_units(x)
    assert made.factor[:2].tolist() == [0, 0]
    assert bool((made.factor[2:] > 0).all())


def test_nothing_is_projected_if_all_columns_are_constant() -> None:
    made = with_units(torch.full((FEW, 6), 3.0))
    assert made.settled
    assert not projections(made, normal()).any()


def test_a_sparse_column_is_used() -> None:
    x = normal()
    x[:, 0] = 0
    x[7, 0] = 5.0
    made = with_units(x)
    assert made.location[0] == 0
    assert 0.5 < float(made.factor[0]) * 5 / FEW**0.5 < 2  # the deviation of all values
    assert not torch.equal(projections(made, x)[7], projections(made, x * (torch.arange(6) > 0))[7])


@pytest.mark.parametrize("many", [1, 7, 30])
def test_copies_are_samples_that_are_given_again(many: int) -> None:
    x = normal()
    x[:25, 3] = 0  # half of a column
    x[:, 4] = 0
    x[:2, 4] = 1  # hardly any of a column
    copies = torch.ones(FEW)
    copies[:5] = many
    again = torch.cat([x, x[:5].repeat(many - 1, 1)])
    found, expected = with_units(x, copies), with_units(again)
    torch.testing.assert_close(found.location, expected.location)
    torch.testing.assert_close(found.factor, expected.factor)
    for times in (0.1, 0.3, 0.7):
        torch.testing.assert_close(with_units(x, times * copies.double()).location, expected.location)
        torch.testing.assert_close(with_units(x, times * copies.double()).factor, expected.factor)


@pytest.mark.parametrize("times", [0.1, 0.3, 0.7, 1.0])
def test_a_tenth_of_the_samples_is_a_tenth_in_any_unit_of_weight(times: float) -> None:
    """The middle four fifths of 10 samples do not depend on rounding errors of the sum of their weights."""
    x = torch.tensor([0.0, 1, 1, 1, 1, 1, 1, 1, 1, 100], dtype=torch.float64)[:, None]
    made = with_units(x, torch.full((10,), times, dtype=torch.float64))
    assert float(made.factor[0]) == 2  # the smallest value is the tenth, and 1 the rest but one


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_samples_have_units(count: int) -> None:
    made = with_units(normal(count=count))
    assert bool(made.factor.isfinite().all())
    assert bool((made.factor > 0).all()) == (count > 1)
    assert bool(made(normal(seed=1)).isfinite().all())


def test_units_are_taken_and_left_out() -> None:
    x = normal()
    one, two = with_units(x), directions(6)
    two.take_units(one)
    assert two.settled
    assert two.same_units(one)
    assert torch.equal(two(x), one(x))
    two.leave_out()
    assert two.settled
    assert not projections(two, x).any()
    assert torch.equal(two(x)[:, :6], x)


@pytest.mark.parametrize("options", [{"filters": 0}, {"filters": 4, "raw": False}, {"filters": 4, "normalised": True}])
def test_values_of_known_units_need_none(options: dict[str, Any]) -> None:
    made = Directions((6,), **options)
    made.fit(seed=0)
    assert not made.needs_units
    assert made(normal()).shape == (FEW, made.width)
    assert bool(made(normal()).any())
