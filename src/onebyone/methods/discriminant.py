"""Linear discriminant analysis from class means and scatter, regularised by what these say themselves.

Notation: C classes with weights n_c (N in all), means m_c, scatter W of samples around their class mean, d features,
f = N - C degrees of freedom. The covariance is S = (W + r I) / (f + c d) with the ridge r = c tr(W) / f: the usual
shrinkage towards the mean variance, by the share c d / (f + c d).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from onebyone.errors import UsageError
from onebyone.memory.sample import renewed
from onebyone.methods.typicality import Distances

START, STEP = 0.1, 10**0.5  # of the search for the strength
STRONGEST = 1000.0
PROBES = 32  # random vectors that estimate a trace
UNEVEN = 0.2  # share of the features that hold the variance, below which features are standardised
GAIN = 1.25  # by which further features must improve the separation of classes to be used
TOO_FEW = 2  # samples per feature, below which further features are not used
LEAST_VARIANCE = 1e-4  # of class means, relative to samples
HEAVY_TAILS = 2.2  # temperature of real features, relative to normally distributed ones
TEMPERATURES = torch.logspace(-1.0, 1.5, 36, dtype=torch.float64)  # relative to the expected one
DOUBT = 0.5  # standard deviation of the logarithm of the temperature around the expected one


@dataclass
class Ridge:
    """The regularised covariance for one strength, and how well it separates the classes."""

    weights: Tensor  # [C]
    means: Tensor  # [C, d]
    strength: float  # c
    ridge: float  # r
    freedom: float  # f
    root: Tensor  # Cholesky factor of W + r I
    solved: Tensor  # [C, d] means times the inverse of W + r I
    trace: float  # of that inverse

    @classmethod
    def of(cls, weights: Tensor, means: Tensor, scatter: Tensor, strength: float) -> Self:
        d = means.shape[1]
        freedom = max(float(weights.sum()) - len(weights), 0.0)
        variance = float(scatter.trace()) / d / freedom if freedom else 0.0
        ridge = strength * d * (variance if variance > 0 else 1.0)
        regular = scatter.clone()
        regular.diagonal().add_(ridge)
        root, failed = torch.linalg.cholesky_ex(regular)
        if failed:
            raise UsageError("the covariance of the samples has no inverse; raise shrinkage or leave it out")
        solved = torch.cholesky_solve(means.T, root).T.contiguous()
        probes = probe_vectors(d).to(root)
        trace = float((torch.cholesky_solve(probes, root) * probes).sum() / probes.shape[1])
        return cls(weights, means, strength, ridge, freedom, root, solved, trace)

    @property
    def scale(self) -> float:
        """The inverse of S is this number times the inverse of W + r I."""
        return self.freedom + self.strength * self.means.shape[1]

    @property
    def share(self) -> float:
        """Share of the degrees of freedom that the features use up, below 1."""
        used = self.means.shape[1] - self.ridge * self.trace
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
        within = ((used @ self.means) * solved).sum(1) - self.ridge * solved.square().sum(1)
        variance = self.scale**2 / max(self.freedom, 1.0) * within.clamp(min=0)
        return signal, variance.sqrt() / (1 - self.share)

    @property
    def separation(self) -> float:
        """Mean ratio of signal to standard deviation over classes: the larger, the fewer errors are expected."""
        signal, deviation = self.signal_and_deviation(identity(self.weights))
        return float((signal.clamp(min=0) / deviation.clamp(min=1e-30)).mean())


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
    """The strength with the largest separation, found by steps from a usual one in the direction that improves it.

    With fewer samples than features the estimate of the separation is unreliable for weak ridges: they are not tried.
    """
    freedom = max(float(weights.sum()) - len(weights), 1.0)
    weakest = START * min(1.0, means.shape[1] / freedom)
    start = best = Ridge.of(weights, means, scatter, START)
    if not best.freedom or len(weights) == 1:
        return best
    for factor in (STEP, 1 / STEP):
        while 0.999 * weakest < best.strength * factor < STRONGEST:
            other = Ridge.of(weights, means, scatter, best.strength * factor)
            if not other.separation > best.separation:
                break
            best = other
        if best is not start:
            break
    return best


def feature_scale(weights: Tensor, means: Tensor, scatter: Tensor) -> Tensor:
    """[d] factors that make features comparable: 1, or if few features hold most of the variance, by their variance.

    The variance is that within classes, with that over all samples as one more sample.
    """
    total = weights.sum()
    between = (weights[:, None] * (means - weights @ means / total).square()).sum(0)
    variance = (scatter.diagonal() + between).clamp(min=0) / total
    even = variance.sum() ** 2 / (len(variance) * variance.square().sum()).clamp(min=1e-300)
    if not float(variance.sum()) > 0 or float(even) >= UNEVEN:
        return torch.full_like(variance, 1 / math.sqrt(float(variance.mean()) or 1.0))
    within = (scatter.diagonal().clamp(min=0) + variance) / (total - len(weights) + 1)
    varies = variance > 1e-12 * (means.square().mean(0) + variance)  # less is rounding error of a constant
    return within.where(varies, 1.0).rsqrt() * varies


class Omitted(NamedTuple):
    """Answers for learnt samples, each as if it had not been learnt."""

    scores: Tensor  # [k, C]
    y: Tensor  # [k]
    distances: Distances


class Discriminant:
    """Scores of samples, and how far they can be trusted, from one set of statistics.

    ``weights`` [C], ``means`` [C, d] and ``scatter`` [d, d] are of the classes with samples. The first ``always``
    features are always used, the others only if they improve the separation of classes by the factor ``gain``.
    ``shrinkage`` is chosen by the statistics if it is 0.

    Class means are shrunk (empirical Bayes). A mean of few samples is mostly noise, and the noise makes a class look
    distant from everything. So each mean is moved towards the mean of all samples, by a factor that follows from its
    weight and from the variance of class means. A class with less weight than the average class keeps more along the
    axes in which the better known classes differ.
    """

    def __init__(
        self,
        weights: Tensor,
        means: Tensor,
        scatter: Tensor,
        always: int,
        shrinkage: float = 0.0,
        gain: float = GAIN,
    ) -> None:
        scale = feature_scale(weights, means, scatter)
        means, scatter = means * scale, scatter * scale[:, None] * scale
        total, every = float(weights.sum()), len(scale)

        def fitted(count: int) -> Ridge:
            part, square = means[:, :count].contiguous(), scatter[:count, :count]
            if shrinkage:
                strength = shrinkage / max(1 - shrinkage, 1e-9) * max(total - len(weights), 1.0) / count
                return Ridge.of(weights, part, square, strength)
            return best_ridge(weights, part, square)

        self.ridge = fitted(always)
        if always < every and total > TOO_FEW * every:
            other = fitted(every)
            if other.separation > gain * self.ridge.separation:
                self.ridge = other
        self.count = self.ridge.means.shape[1]
        self.scale = scale[: self.count]
        self.total = total  # weight of all samples at the last complete solution
        self._inverse: Tensor | None = None
        self._kept: tuple[Tensor, Tensor] | None = None  # keys of kept samples, and these samples times the inverse
        self.finish()

    @property
    def inverse(self) -> Tensor:
        if self._inverse is None:
            self._inverse = torch.cholesky_inverse(self.ridge.root)
        return self._inverse

    def finish(self) -> None:
        """Shrink the class means, and compute weights and offsets of the scores."""
        ridge = self.ridge
        self.mixing = shrunk_means(ridge)
        self.used, used_solved = self.mixing @ ridge.means, self.mixing @ ridge.solved
        self.squares = (self.used * used_solved).sum(1)
        share = ridge.weights / ridge.weights.sum()
        self.centre, self.centre_solved = share @ ridge.means, share @ ridge.solved
        self.linear = (ridge.scale * used_solved * self.scale).T.contiguous()  # [d, C]
        self.offsets = -ridge.scale * self.squares / 2

    @torch.no_grad()
    def update(self, rows: Tensor, weights: Tensor, means: Tensor) -> None:
        """Continue with more samples of the same classes; ``rows`` [n, d] transposed times ``rows`` is the new scatter.

        This is exact, except that scale, strength and ridge stay those of the last complete solution.
        """
        inverse, ridge = self.inverse, self.ridge
        for row in rows[:, : self.count] * self.scale:
            solved = inverse @ row
            divisor = 1 + float(row @ solved)
            inverse.addr_(solved, solved, alpha=-1 / divisor)
            ridge.trace -= float(solved @ solved) / divisor
            for known in [ridge.solved] if self._kept is None else [ridge.solved, self._kept[1]]:
                known.addr_(known @ row, solved, alpha=-1 / divisor)  # inverse of before, times row, is solved
        moved = means[:, : self.count] * self.scale - ridge.means
        changed = moved.any(1).nonzero()[:, 0]
        if len(rows) == 1:  # the mean moves along the row, for which the product with the new inverse is known
            along = rows[0, : self.count] * self.scale
            steps = (moved[changed] @ along / (along @ along).clamp(min=1e-300))[:, None]
            ridge.solved[changed] += steps * solved / divisor
        else:
            ridge.solved[changed] += moved[changed] @ inverse
        ridge.means, ridge.weights = ridge.means + moved, weights
        ridge.freedom = max(float(weights.sum()) - len(weights), 0.0)
        self.finish()

    def scores(self, features: Tensor) -> Tensor:
        """[n, d] -> [n, C] scores, up to a number per sample."""
        return features[:, : self.count].double() @ self.linear + self.offsets

    def distances(self, features: Tensor) -> Distances:
        """Of samples [n, d]."""
        x = features[:, : self.count].double() * self.scale
        own = self.ridge.scale * ((x @ self.inverse) * x).sum(1)
        centre = own + self.ridge.scale * (self.centre - 2 * x) @ self.centre_solved
        return Distances(own - 2 * self.scores(features).amax(1), centre, self.ridge.noise)

    def leave_out(self, features: Tensor, y: Tensor, keys: Tensor) -> Omitted:
        """Answers for learnt samples [k, d] of classes [k], as if each had not been learnt.

        Without a sample x of a class with weight n and mean m, the difference r = x - m is taken from the scatter
        n / (n - 1) times, and the mean becomes m - r / (n - 1). All products with the changed inverse follow from those
        with the present one. A sample that is alone in its class is not among the answers. ``keys`` [k], in ascending
        order, tell which samples are the same as in the last call.
        """
        x = features[:, : self.count].double() * self.scale
        solved = self.solve_kept(x, keys)
        known = self.ridge.weights[y] >= 2
        x, y, solved = x[known], y[known], solved[known]
        rest = self.ridge.weights[y, None] - 1
        change = solved - self.ridge.solved[y]  # the inverse times r
        own, along = (x * change).sum(1, keepdim=True), ((x - self.ridge.means[y]) * change).sum(1, keepdim=True)
        ratio = (rest + 1) / rest
        gain = ratio / (1 - ratio * along).clamp(min=1e-6)
        moved = self.mixing.T[y] / rest  # [k, C] how far each class mean in use moves, in units of -r
        change_on_means = change @ self.used.T
        on_means = change_on_means - moved * along
        products = solved @ self.used.T - moved * own + gain * on_means * own
        squares = self.squares - 2 * moved * change_on_means + moved.square() * along + gain * on_means.square()
        scale = max(self.ridge.scale - 1, 1e-9)
        scores = scale * (products - squares / 2)
        itself = scale * ((x * solved).sum(1) + gain[:, 0] * own[:, 0].square())
        away, total = x - self.centre, self.ridge.weights.sum()
        on_away = (away * change).sum(1)
        centre = (away * (solved - self.centre_solved)).sum(1) + gain[:, 0] * on_away.square()
        centre = scale * centre * (total / (total - 1)).square()
        return Omitted(scores, y, Distances(itself - 2 * scores.amax(1), centre, self.ridge.noise))

    def solve_kept(self, x: Tensor, keys: Tensor) -> Tensor:
        """[k, d] x times the inverse; samples of the last call are not computed again."""
        solved = renewed(self._kept, keys, lambda new: x[new] @ self.inverse)
        self._kept = keys.clone(), solved
        return solved

    def temperature(self, left_out: Omitted) -> float:
        """The number by which scores are divided to make their softmax a probability.

        The likelihood of left-out samples decides, together with an expectation that counts as much as a few of them.
        """
        if len(self.ridge.weights) == 1:
            return 1.0
        expected = HEAVY_TAILS * expected_temperature(self.ridge, self.mixing)
        scores, y = left_out.scores.cpu(), left_out.y.cpu()
        logs = (scores[None] / (TEMPERATURES * expected)[:, None, None]).log_softmax(2)
        likelihood = logs[:, torch.arange(len(y)), y].sum(1)
        prior = (TEMPERATURES.log() / DOUBT).square() / 2
        return float(TEMPERATURES[(likelihood - prior).argmax()]) * expected


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
    kept_along = variances / (variances + (1 / weights + ridge.noise / total)[:, None])
    along = (gram @ axes * kept_along) @ axes.T
    average = (weights * classes / total).clamp(max=1)[:, None]
    mixing: Tensor = (average * kept.diag() + (1 - average) * along) @ centred + share
    return mixing


def expected_temperature(ridge: Ridge, mixing: Tensor) -> float:
    """The temperature if features were normally distributed: variance of the scores over their signal.

    Before any class has a second sample nothing is known of the variance: probabilities are nearly equal.
    """
    if not ridge.freedom:
        return 1.0 + ridge.means.shape[1] / float(ridge.weights.mean())
    signal, deviation = ridge.signal_and_deviation(mixing)
    return max(float(deviation.square().sum() / signal.sum().clamp(min=1e-9)), 1e-3)
