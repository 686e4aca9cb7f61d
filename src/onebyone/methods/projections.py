"""Whether projections of vectors help to tell classes apart."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onebyone.methods.discriminant import Discriminant

GAIN = 1.25  # by which projections must improve the separation of classes
SURPRISE = 1.22  # the same, relative to the improvement for normally distributed classes; measured on 12 such sets
SAMPLES = 2  # per feature, so that projections can be used
DRAWN = 2000  # samples that are drawn at most, or SAMPLES per feature
LEAST = 0.05  # separation that counts as none
ROUNDING = 1e-9  # of a variance

Statistics = tuple[Tensor, Tensor, Tensor]  # weights [C], means [C, d] and scatter [d, d] of features
Features = Callable[[Tensor], Tensor]  # from values [n, v] to values and projections [n, d]
Solve = Callable[[Tensor, Tensor, Tensor], Discriminant]  # from statistics


def with_useful_projections(
    statistics: Statistics, values: int, features: Features, solve: Solve, gain: float | None = None
) -> Discriminant:
    """The discriminant of the values, which are the first features, or also of projections if these help.

    As many projections are tried as there are samples for. Features of an encoder are not normally distributed: for
    them, ``gain`` is the factor by which all projections together must improve the separation.
    """
    plain, width = part(statistics, values), statistics[1].shape[1]
    answer, count = solve(*plain), min(width, int(float(statistics[0].sum()) / SAMPLES))
    if count <= values or (gain and count < width):
        return answer
    other = solve(*part(statistics, count))
    if gain:
        useful = other.ridge.separation > gain * answer.ridge.separation
    else:
        useful = more_than_normal(answer, other, plain, lambda x: features(x)[:, :count], solve)
    return other if useful else answer


def part(statistics: Statistics, count: int) -> Statistics:
    """The statistics of the first features."""
    weights, means, scatter = statistics
    return weights, means[:, :count], scatter[:count, :count]


def more_than_normal(
    plain: Discriminant, other: Discriminant, statistics: Statistics, features: Features, solve: Solve
) -> bool:
    """Whether projections improve the separation of classes by more than they would for normal distributions.

    ``plain`` and ``other`` are the discriminants of the values, and of values and projections. ``statistics`` are those
    of the values.

    Projections separate the means of normally distributed classes better too, although no discriminant is better than
    the linear one of their values. So samples are drawn from normal distributions with the same means and covariance,
    and the same numbers of samples, and the improvement is compared with theirs. This depends on sums alone, so it is
    the same after merging and forgetting.
    """
    separation, improved = plain.ridge.separation, other.ridge.separation
    if improved <= GAIN * separation:
        return False
    drawn = drawn_statistics(*statistics, features, other.count)
    normal, normal_improved = (solve(*part(drawn, count)).ridge.separation for count in (plain.count, other.count))
    return improved / max(separation, LEAST) > SURPRISE * normal_improved / max(normal, LEAST)


def drawn_statistics(weights: Tensor, means: Tensor, scatter: Tensor, features: Features, count: int) -> Statistics:
    """Weights, means and scatter of the features of samples from normal distributions.

    The order of the classes does not matter: samples are drawn in the order of their means along a random axis.
    """
    generator = torch.Generator().manual_seed(0)
    axis = torch.randn(means.shape[1], generator=generator, dtype=torch.float64).to(means)
    order = (means @ axis).argsort()
    weights, means, total = weights[order], means[order], float(weights.sum())
    numbers = (weights * min(1.0, max(DRAWN, SAMPLES * count) / total)).round().clamp(min=2)
    covariance = scatter / max(total - len(weights), 1.0)
    variance = covariance.diagonal()
    covariance = covariance + (ROUNDING * variance + 1e-300).diag()  # of dependent values, it has no root otherwise
    # This root hardly changes with rounding errors of the sums, where eigenvectors could be others.
    root = torch.linalg.cholesky_ex(covariance).L.T.nan_to_num()
    found, within = [], means.new_zeros(count, count)
    for mean, number in zip(means, numbers.tolist(), strict=True):
        draw = torch.randn(int(number), len(mean), generator=generator, dtype=torch.float64).to(mean)
        x = features(mean + draw @ root)
        found.append(x.mean(0))
        within.addmm_((x - found[-1]).T, x - found[-1])
    return numbers, torch.stack(found), within
