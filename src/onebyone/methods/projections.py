"""How much projections of vectors help to tell classes apart."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from onebyone.memory import moments
from onebyone.methods.discriminant import Discriminant, Member
from onebyone.methods.ridge import Statistics, ramp

GAIN = 1.25  # by which projections must improve the separation of classes
SURPRISE = 1.22  # the same, relative to the improvement for normally distributed classes; measured on 12 such sets
SAMPLES = 2  # per feature, so that projections can be used
DRAWN = 2000  # samples that are drawn at most, or SAMPLES per feature
LEAST, MOST = 0.05, 20.0  # separations that count as none, and as perfect
ROUNDING = 1e-9  # of a variance

Features = Callable[[Tensor], Tensor]  # from values [n, v] to values and projections [n, d]
Solve = Callable[[Statistics], Discriminant]


def with_projections(
    statistics: Statistics, values: int, features: Features, solve: Solve, gain: float | None = None
) -> list[Member]:
    """The discriminant of the values, which are the first features, and that of projections too, as far as they count.

    As many projections are tried as there are samples for. Features of an encoder are not normally distributed: for
    them, ``gain`` is the factor by which all projections together must improve the separation.

    The weight of the projections, from 0 to 1, is continuous in the statistics. With a step, rounding errors of the
    sums would decide between two classifiers.
    """
    plain, width = solve(statistics.part(slice(values))), statistics.means.shape[1]
    count = min(width, int(float(statistics.weights.sum()) / SAMPLES + 1e-6))  # weights may be sums of fractions
    if count <= values or not plain.ridge.freedom or (gain and count < width):
        return [(1.0, plain)]
    other = solve(statistics.part(slice(count)))
    improvement = ratio(other, plain)
    weight = exceeds(improvement, gain or GAIN)
    if weight and not gain:
        drawn = drawn_statistics(statistics.part(slice(values)), lambda x: features(x)[:, :count], count)
        normal = ratio(*(solve(drawn.part(slice(some))) for some in (count, values)))
        weight = min(weight, exceeds(improvement / normal, SURPRISE))
    return [(part, answer) for part, answer in ((1 - weight, plain), (weight, other)) if part]


def ratio(other: Discriminant, plain: Discriminant) -> float:
    """By which factor the first separates classes better than the second."""
    one, two = (min(max(answer.ridge.separation, LEAST), MOST) for answer in (other, plain))
    return one / two


def exceeds(value: float, threshold: float) -> float:
    """0 up to the threshold to the power of 0.8, 1 from 1.2 on, and 1/2 at the threshold."""
    return ramp(math.log(value) / math.log(threshold), 0.8, 1.2)


def drawn_statistics(statistics: Statistics, features: Features, count: int) -> Statistics:
    """Those of ``count`` features of samples from normal distributions with the same means, covariance and weights.

    Projections separate the means of normally distributed classes better too, although no discriminant is better than
    the linear one of their values. So the improvement is compared with theirs. This depends on sums alone, so it is
    the same after merging and forgetting.

    The order of the classes does not matter: samples are drawn in the order of their means and weights along a random
    axis. Classes that are equal in both may change places.
    """
    weights, means, scatter, rounding = statistics
    generator = torch.Generator().manual_seed(0)
    axis = torch.randn(means.shape[1], generator=generator, dtype=torch.float64).to(means)
    total = float(weights.sum())
    centred = means - weights @ means / total
    along = centred @ axis
    order = (along / along.abs().max().clamp(min=1e-300) + weights / total).argsort()
    weights, means = weights[order], means[order]
    numbers = (weights * min(1.0, max(DRAWN, SAMPLES * count) / total) + 1e-6).round().clamp(min=2)
    covariance = scatter / max(total - len(weights), 1.0)
    known = torch.zeros_like(axis) if rounding is None else rounding / total
    # Of dependent or constant values, it has no root otherwise.
    variance = covariance.diagonal()
    least = known + moments.TINY
    covariance = covariance + (torch.where(variance > least, ROUNDING * variance, least - variance)).diag()
    # This root hardly changes with rounding errors of the sums, where eigenvectors could be others.
    root = torch.linalg.cholesky_ex(covariance).L.T.nan_to_num()
    found, within, squares = [], means.new_zeros(count, count), means.new_zeros(count)
    for mean, number in zip(means, numbers.tolist(), strict=True):
        draw = torch.randn(int(number), len(mean), generator=generator, dtype=torch.float64).to(mean)
        x = features(mean + draw @ root)
        found.append(x.mean(0))
        within.addmm_((x - found[-1]).T, x - found[-1])
        squares += x.square().sum(0)
    values = len(axis)
    # What was added to the covariance of a constant value counts as rounding error, too.
    known = torch.cat([100 * known * numbers.sum(), moments.ROUNDING * squares[values:]])
    return Statistics(numbers, torch.stack(found), within, known)
