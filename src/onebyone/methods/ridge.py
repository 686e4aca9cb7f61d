"""The regularised covariance of a discriminant, the strength of its ridge, and shrunk class means.

Notation: C classes with weights n_c (N in all), means m_c, scatter W of samples around their class mean, d features,
f = N - C degrees of freedom. The covariance is S = (W + r I) / (f + c d) with the ridge r = c tr(W) / f: the usual
shrinkage towards the mean variance, by the share c d / (f + c d).

Nothing here is a step function of the sums, and every quantity stays well conditioned where samples of a class are
equal: rounding errors of the sums, which differ after merging and forgetting, move an answer by rounding errors only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from onebyone.errors import UsageError
from onebyone.memory import moments

START, STEP = 0.1, 10**0.5  # of the search for the strength
STRONGEST = 1000.0
PROBES = 32  # random vectors that estimate a trace
PEAKED = 200.0  # how sharply the strength with the largest separation is preferred: 1 % less counts an eighth
NEAR = 0.9  # of the largest separation: strengths beyond one with less do not count
NO_SEPARATION = 0.01
# Features are standardised when fewer than this fraction of them carry the variance; between the two, partly.
UNEVEN, EVEN = 0.15, 0.25
FLOOR = 1e-6  # of the variance of all samples: the least that samples are taken to vary within classes
THIN = 1 / 8  # degrees of freedom per feature, below which the factorisation of the scatter is that of few samples
ROUNDING = 1e-14  # of the scatter, relative to its trace
LEAST_VARIANCE = 1e-4  # of class means, relative to samples
COUNTED = 0.5  # of the noise of a class mean, along the axes in which classes differ


class Statistics(NamedTuple):
    """What a discriminant is computed from."""

    weights: Tensor  # [C] of the classes with samples
    means: Tensor  # [C, d]
    scatter: Tensor  # [d, d]
    rounding: Tensor | None  # [d] of the scatter: less may be rounding errors; None if sums are exact

    def part(self, features: slice) -> Statistics:
        rounding = None if self.rounding is None else self.rounding[features]
        return Statistics(self.weights, self.means[:, features], self.scatter[features, features], rounding)


def ramp(value: float, start: float, end: float) -> float:
    """0 up to ``start``, 1 from ``end`` on, linear between them.

    >>> ramp(1, 2, 4), ramp(3, 2, 4), ramp(5, 2, 4)
    (0.0, 0.5, 1.0)
    """
    return min(max((value - start) / (end - start), 0.0), 1.0)


class Strength(NamedTuple):
    """What a ridge keeps while samples are added to the scatter."""

    strength: float  # c
    ridge: float  # r, and the floor
    floor: float  # scatter that is added to W in each direction


@dataclass
class Ridge:
    """The regularised covariance for one strength, and how well it separates the classes."""

    weights: Tensor  # [C]
    means: Tensor  # [C, d]
    strength: float  # c
    ridge: float  # r, and the floor
    floor: float  # scatter that is added to W in each direction
    freedom: float  # f
    root: Tensor  # Cholesky factor of W + r I; or, with few samples, [k, d] R so that its inverse is (I - R^T R) / r
    solved: Tensor  # [C, d] means times the inverse of W + r I
    probes: Tensor  # [k, d] vectors whose mean quadratic form estimates a trace
    answers: Tensor  # [k, d] these times the inverse

    @classmethod
    def of(cls, weights: Tensor, means: Tensor, scatter: Tensor, strength: float, thin: Tensor | None = None) -> Self:
        """With r that follows from the strength. ``thin`` is as in :meth:`solve`."""
        d, total, freedom = means.shape[1], float(weights.sum()), degrees_of_freedom(weights)
        between = (weights[:, None] * (means - weights @ means / total).square()).sum()
        trace = float(scatter.trace())
        floor = max(FLOOR * freedom * (trace + float(between)) / total - trace, 0.0) / d
        variance = (trace / d + floor) / freedom if freedom else 0.0
        ridge = strength * d * (variance if variance > 0 else 1.0) + floor
        return cls.solve(weights, means, scatter, Strength(strength, ridge, floor), thin)

    @classmethod
    def solve(
        cls, weights: Tensor, means: Tensor, scatter: Tensor, given: Strength, thin: Tensor | None = None
    ) -> Self:
        """``thin`` is what :func:`thin_root` returns for the scatter, if that is faster."""
        strength, ridge, floor = given
        probes = probe_vectors(means.shape[1]).to(scatter).T
        if thin is not None:
            inner = thin @ thin.T
            inner.diagonal().add_(ridge)
            root = torch.linalg.solve_triangular(torch.linalg.cholesky(inner), thin, upper=False)
            solved, answers = (torch.addmm(x, x @ root.T, root, alpha=-1) / ridge for x in (means, probes))
        else:
            regular = scatter.clone()
            regular.diagonal().add_(ridge)
            root, failed = torch.linalg.cholesky_ex(regular)
            if failed:
                raise UsageError("the covariance of the samples has no inverse; raise shrinkage or leave it out")
            solved, answers = (torch.cholesky_solve(x.T, root).T.contiguous() for x in (means, probes))
        freedom = degrees_of_freedom(weights)
        return cls(weights, means, strength, ridge, floor, freedom, root, solved, probes, answers)

    @property
    def given(self) -> Strength:
        return Strength(self.strength, self.ridge, self.floor)

    @property
    def trace(self) -> float:
        """Of the inverse of W + r I."""
        return float((self.answers * self.probes).sum() / len(self.probes))

    def inverse(self) -> Tensor:
        """[d, d] of W + r I."""
        if len(self.root) == self.root.shape[1]:
            return torch.cholesky_inverse(self.root)
        whole = torch.eye(self.root.shape[1]).to(self.root)
        return whole.addmm_(self.root.T, self.root, alpha=-1).div_(self.ridge)

    @property
    def scale(self) -> float:
        """The inverse of S is this number times the inverse of W + r I."""
        return self.freedom + self.strength * self.means.shape[1]

    @property
    def share(self) -> float:
        """Share of the degrees of freedom that the features use up, below 1."""
        used = self.means.shape[1] - (self.ridge - self.floor) * self.trace
        return min(max(used, 0.0) / self.freedom, 0.999) if self.freedom else 0.0

    @property
    def noise(self) -> float:
        """Expected square of a new sample's difference from the mean of its class, in units of S."""
        return self.scale * self.share / (1 - self.share)

    def signal_and_deviation(self, mixing: Tensor) -> tuple[Tensor, Tensor]:
        """[C] by how much the score of a new sample's own class exceeds its mean score, and the standard deviation.

        ``mixing`` [C, C] are the class means that are used, as combinations of those measured. Two corrections make
        both honest: class means are noisy, and the covariance was fitted to the samples of the same stream.
        """
        classes = len(self.weights)
        used = mixing - mixing.mean(0)
        gram = self.scale * (self.means @ self.solved.T)
        signal = (used @ gram).diagonal() - (used @ gram).mean(1)
        signal = signal * classes / max(classes - 1, 1) - mixing.diagonal() * self.noise / self.weights
        solved = used @ self.solved
        within = ((used @ self.means) * solved).sum(1) - (self.ridge - self.floor) * solved.square().sum(1)
        variance = self.scale**2 / max(self.freedom, 1.0) * within.clamp(min=0)
        return signal, variance.sqrt() / (1 - self.share)

    @property
    def separation(self) -> float:
        """Mean ratio of signal to standard deviation over classes: the larger, the fewer errors are expected."""
        signal, deviation = self.signal_and_deviation(identity(self.weights))
        return float((signal.clamp(min=0) / deviation.clamp(min=1e-30)).mean())


def degrees_of_freedom(weights: Tensor) -> float:
    """Of the scatter. Weights may be sums of fractions, which are rounded."""
    freedom = float(weights.sum()) - len(weights)
    return freedom if freedom > 1e-9 else 0.0


def identity(weights: Tensor) -> Tensor:
    matrix: Tensor = torch.ones_like(weights).diag()
    return matrix


def probe_vectors(d: int) -> Tensor:
    """[d, k] vectors whose mean quadratic form estimates a trace; the exact ones if there are few."""
    if d <= PROBES:
        return torch.eye(d, dtype=torch.float64).mul_(math.sqrt(d))
    signs = torch.randint(2, (d, PROBES), generator=torch.Generator().manual_seed(d))
    return signs.double().mul_(2).sub_(1)


def best_ridge(weights: Tensor, means: Tensor, scatter: Tensor) -> Ridge:
    """The strength with the largest separation.

    From a usual strength, steps are taken in both directions while the separation stays near the largest one. The
    strength is the mean of those tried, and those with nearly the largest separation count: so it changes smoothly as
    samples are added. With fewer samples than features the estimate of the separation is unreliable for weak ridges:
    they are not tried. Nor are ridges below the rounding errors of the scatter, which would leave a covariance without
    an inverse after many samples with dependent features.
    """
    d, freedom = means.shape[1], max(degrees_of_freedom(weights), 1.0)
    thin = thin_root(scatter, int(freedom + 1e-9)) if freedom <= THIN * d else None

    def ridge(steps: float) -> Ridge:
        return Ridge.of(weights, means, scatter, START * STEP**steps, thin)

    least = math.log(max(min(1.0, d / freedom), ROUNDING * max(d, 10) * freedom / START), STEP)
    most = max(math.log(STRONGEST / START, STEP), least + 2)
    start = max(0, math.floor(least))
    found = ridge(start)
    if not found.freedom or len(weights) == 1:
        return found
    values = {start: found.separation + NO_SEPARATION}
    for step, end in ((1, math.ceil(most)), (-1, math.floor(least))):
        position = start
        while position != end and values[position] >= NEAR * max(values.values()):
            position += step
            values[position] = ridge(position).separation + NO_SEPARATION
    largest = max(values.values())
    # A position beyond the weakest strength counts the less, the farther it is beyond.
    counts = {k: (value / largest) ** PEAKED * ramp(k, least - 1, least) for k, value in values.items()}
    position = sum(k * count for k, count in counts.items()) / sum(counts.values())
    return ridge(min(max(position, least), most))


def peak(left: float, middle: float, right: float) -> float:
    """Where a parabola through values at -1, 0 and 1 is highest, from -1 to 1.

    >>> peak(2, 3, 3), peak(3, 3, 2), peak(1, 2, 4)
    (0.5, -0.5, 1.0)
    """
    curvature = left - 2 * middle + right
    if curvature >= 0:
        return 0.0 if middle >= max(left, right) else 1.0 if right > left else -1.0
    return min(max((left - right) / (2 * curvature), -1.0), 1.0)


def thin_root(scatter: Tensor, rank: int) -> Tensor | None:
    """[k, d] rows whose transpose times themselves is the scatter of few samples; None if it has a higher rank.

    This is a Cholesky factorisation with pivots, which ends when nothing is left.
    """
    rows, left = scatter.new_zeros(rank, len(scatter)), scatter.diagonal().clone()
    total = float(left.sum())
    for step in range(rank):
        pivot = int(left.argmax())
        value = float(left[pivot])
        if value <= ROUNDING * total:
            return rows[:step]
        rows[step] = (scatter[pivot] - rows[:step, pivot] @ rows[:step]) / math.sqrt(value)
        left -= rows[step].square()
    return rows if float(left.max()) <= 1e3 * ROUNDING * total else None


def feature_scale(statistics: Statistics, alike: bool = False, one_unit: bool = False) -> Tensor:
    """[d] factors that make features comparable: by the mean variance, or by their own if few hold most of it.

    The variance is that within classes, with that over all samples as one more sample. If all features have one unit,
    the mean variance counts as much as d samples: some of an encoder's features are nearly 0 in all of a few images,
    and divided by their small deviation, these would make any new image distant from everything. A feature that varies
    by rounding errors only gets the factor 0. With ``alike``, features are known to vary alike.
    """
    weights, means, scatter, rounding = statistics
    total = weights.sum()
    between = (weights[:, None] * (means - weights @ means / total).square()).sum(0)
    squares = (scatter.diagonal() + between).clamp(min=0)
    varies = torch.ones_like(squares)
    if rounding is not None:
        varies = ((squares / rounding.clamp(min=moments.TINY)).log10() / 2 + 0.5).clamp(0, 1)
    variance = squares * varies / total
    common = torch.full_like(variance, 1 / math.sqrt(float(variance.mean()) or 1.0)) * varies
    if alike:
        return common
    relative = variance / variance.max().clamp(min=1e-300)
    number = float(relative.sum() ** 2 / relative.square().sum().clamp(min=1e-300))  # of features with variance
    even = ramp((number - 1) / max(len(variance) - 1, 1), UNEVEN, EVEN)
    count = degrees_of_freedom(weights) + 1  # weights of samples may be small
    within = (scatter.diagonal().clamp(min=0) + variance) / count
    if one_unit:
        within = (count * within + len(within) * within.mean()) / (count + len(within))
    own = within.where(within > 0, 1.0).rsqrt() * varies
    return even * common + (1 - even) * own


def shrunk_means(ridge: Ridge) -> Tensor:
    """[C, C] the class means to use, as combinations of the measured ones."""
    weights, classes = ridge.weights, len(ridge.weights)
    total, every = weights.sum(), identity(ridge.weights)
    if classes == 1 or not ridge.noise > 0:
        return every
    signal, _ = ridge.signal_and_deviation(every)
    variance = ((weights * signal).sum() / (total * ridge.noise)).clamp(min=LEAST_VARIANCE)
    kept = weights * variance / (1 + weights * variance)

    share = weights / total
    centred = every - share  # [C, C], times the means: their differences from the mean of all samples
    gram = ridge.scale * centred @ (ridge.means @ ridge.solved.T) @ centred.T
    root = share.sqrt()
    values, vectors = torch.linalg.eigh((root[:, None] * gram * root).nan_to_num())
    values, vectors = values.clamp(min=1e-10 * float(values.max().clamp(min=1e-300))), vectors * root[:, None]
    axes = vectors / values.sqrt()  # [C, J] combinations of centred means
    variances = (values - ridge.noise / total).clamp(min=0)
    kept_along = variances / (variances + COUNTED * (1 / weights + ridge.noise / total)[:, None])
    along = (gram @ axes * kept_along) @ axes.T
    common = commonness(weights)[:, None]
    mixing: Tensor = (common * kept.diag() + (1 - common) * along) @ centred + share
    return mixing


def commonness(weights: Tensor) -> Tensor:
    """[C] the weight of each class relative to the average class, at most 1."""
    return (weights * len(weights) / weights.sum()).clamp(max=1)
