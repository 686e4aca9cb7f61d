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

Solve = Callable[[Tensor, Tensor, Tensor], Discriminant]


def more_than_normal(
    plain: Discriminant,
    other: Discriminant,
    statistics: tuple[Tensor, Tensor, Tensor],
    features: Callable[[Tensor], Tensor],
    solve: Solve,
) -> bool:
    """Whether projections improve the separation of classes by more than they would for normal distributions.

    Projections separate the means of normally distributed classes better too, although no discriminant is better than
    the linear one of their values. So samples are drawn from normal distributions with the same means and covariance,
    and the same numbers of samples, and the improvement is compared with theirs. This depends on sums alone, so it is
    the same after merging and forgetting.

    Parameters
    ----------
    plain, other
        The discriminants of the values, and of values and projections.
    statistics
        Weights [C], means [C, v] and scatter [v, v] of the values.
    features
        From values [n, v] to values and projections [n, d].
    solve
        From weights, means and scatter of features to a discriminant.
    """
    separation, improved = plain.ridge.separation, other.ridge.separation
    if improved <= GAIN * separation:
        return False
    weights, drawn_means, drawn_scatter = drawn_statistics(*statistics, features, other.count)
    values = plain.count
    normal = solve(weights, drawn_means[:, :values], drawn_scatter[:values, :values]).ridge.separation
    normal_improved = solve(weights, drawn_means, drawn_scatter).ridge.separation
    return improved / max(separation, LEAST) > SURPRISE * normal_improved / max(normal, LEAST)


def drawn_statistics(
    weights: Tensor, means: Tensor, scatter: Tensor, features: Callable[[Tensor], Tensor], count: int
) -> tuple[Tensor, Tensor, Tensor]:
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
