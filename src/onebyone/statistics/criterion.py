"""Which features, which ridge and how much shrinkage: the discriminant's own leave-one-out loss decides.

Notation: C classes with weights n_c (N in all) and means m_c, g the mean of the class means, W the scatter of samples
around the mean of their class, d features whose mean square is u. A candidate has a ridge r and a shrinkage k. It
scores samples by the inverse B of W + r N u I, and by the class means g + n_c / (n_c + k) (m_c - g).

Every candidate answers for kept samples, each as if it had not been learnt, in closed form. With the loss of n such
answers, candidates are mixed with weights exp(-n loss / 2). So the result is continuous in the sums: rounding errors,
which differ after merging and forgetting, move it by rounding errors only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from onebyone.methods.temperature import fitted_temperature

RIDGES = 10.0 ** torch.arange(-4, 4, dtype=torch.float64, device="cpu")  # relative to the mean square of a feature
# Before any answer is known: a ridge of a tenth of the features per sample, give or take so many powers of ten.
EXPECTED, UNSURE = 0.1, 1.0
SHRINKAGES = (0.0, 0.5, 4.0, 32.0)  # samples that the mean of all classes counts, beside those of a class
SHARPNESS = 2 ** torch.arange(
    -2, 6.5, 0.5, dtype=torch.float64, device="cpu"
)  # of the softmax, relative to the scores' deviation
RIVALS = 50  # classes that a kept sample is compared with: the nearest ones
ROWS = 64  # kept samples that are compared with their rivals at once
LEAST = 0.01  # share of all candidates, up to which a set of features does not count
THIN = 1 / 4  # samples per feature, up to which the space of the samples is used
ROUNDING = 1e-14  # of a scatter, relative to its trace
EVEN = 1e-3  # weight of all directions beside those of the class means, where candidates become one


class Summary(NamedTuple):
    """Sums of the classes with samples, in comparable units."""

    weights: Tensor  # [C]
    means: Tensor  # [C, d]
    scatter: Tensor  # [d, d]

    def part(self, features: slice) -> Summary:
        return Summary(self.weights, self.means[:, features], self.scatter[features, features])


class Setting(NamedTuple):
    """All candidates of one set of features, as one discriminant."""

    share: float  # of the weight of all candidates, beyond ``LEAST``
    gain: float  # of the scores, times N
    ridge: float  # added to W
    shrinkages: tuple[float, ...]  # how much each of ``SHRINKAGES`` counts; the sum is 1


NOTHING = Setting(0.0, 0.0, 0.0, (0.0,) * len(SHRINKAGES))


class Omission:
    """Products from which scores of samples follow, each as if it had not been learnt.

    Products of two vectors are taken with B between them, and m_c relative to g. Without a sample x of class y with
    weight n, the difference r = x - m_y is taken from W n / (n - 1) times, m_y becomes m_y - r / (n - 1), and g moves
    by a C-th of that. All products with the inverse of the changed matrix follow from those with B.
    """

    def __init__(
        self,
        xx: Tensor,
        xm: Tensor,
        ym: Tensor,
        mm: Tensor,
        weights: Tensor,
        own: Tensor,
        classes: int,
        noise: float,
    ) -> None:
        """``xx`` [k], ``xm`` [k, m] of x and class means, ``ym`` [k, m] of m_y and class means, ``mm`` [k or 1, m].

        ``weights`` [k or 1, m] are those of the classes, and ``own`` [k] the column of the class of each sample. The
        mean of one sample, as far as it is noise, has the product ``noise`` with itself.
        """
        self.noise = noise
        column = own[:, None]
        self.weights, self.own = weights.expand_as(xm), column
        self.xm, self.rm, self.mm = xm, xm - ym, mm.expand_as(xm)
        n = self.weights.gather(1, column)
        self.step = 1 / (n - 1)  # by which the mean of the class moves, in units of -r
        self.common = self.step / classes  # the same of g
        on_own = xm.gather(1, column)
        self.xr = xx[:, None] - on_own
        self.rr = self.xr - on_own + self.mm.gather(1, column)
        ratio = n / (n - 1)
        self.gain = ratio / (1 - ratio * self.rr).clamp(min=1e-9)
        self.xx = xx

    def scores(self, shrinkage: float) -> Tensor:
        """[k, m] for unit gain, up to a number per sample."""
        products, squares = self.products(lambda weights: shrunk(weights, shrinkage))
        return products - squares / 2

    def products(self, kept: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """[k, m] products of samples with the class means in use, and of these with themselves, all relative to g.

        ``kept`` returns how much of its distance from g a class mean of some weight keeps.
        """
        own = self.own
        keeps = kept(self.weights)
        rest = self.weights.gather(1, own) - 1
        keeps = keeps.scatter(1, own, kept(rest))
        # A mean in use is ``keeps`` m + ``moved`` r, relative to g without the sample. So is x, with ``common`` r.
        moved = keeps * self.common
        moved = moved.scatter_add(1, own, -keeps.gather(1, own) * self.step)
        on_r = keeps * self.rm + moved * self.rr
        products = keeps * self.xm + moved * self.xr + self.common * on_r
        # The mean of few samples is mostly noise, which makes it look far from everything.
        squares = keeps.square() * (self.mm - self.noise / self.weights.scatter(1, own, rest))
        squares = squares + 2 * keeps * moved * self.rm + moved.square() * self.rr
        xr = self.xr + self.common * self.rr
        return products + self.gain * xr * on_r, squares + self.gain * on_r.square()

    def lengths(self, weights: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
        """[k] products of samples, relative to g, with themselves; the same relative to the mean of all samples.

        ``weights`` [C] are those of all classes, which are the columns, and ``square`` is the product of the mean of
        all samples with itself.
        """
        total = weights.sum()
        itself = self.xx[:, None] + 2 * self.common * self.xr + self.common.square() * self.rr
        itself = itself + self.gain * (self.xr + self.common * self.rr).square()
        on_middle, r_on_middle = self.xm @ weights / total, self.rm @ weights / total
        away = (self.xx - 2 * on_middle + square)[:, None] + self.gain * (self.xr - r_on_middle[:, None]).square()
        return itself[:, 0], away[:, 0] * (total / (total - 1)).square()


def shrunk(weights: Tensor, shrinkage: float) -> Tensor:
    """How much of its distance from g the mean of a class keeps."""
    return weights / (weights + shrinkage).clamp(min=1e-300)


class Spectrum:
    """One set of features: the eigenvectors of W, with which products for all ridges are cheap."""

    def __init__(self, summary: Summary, x: Tensor, y: Tensor, shrinkage: float = 0.0) -> None:
        """``x`` [k, d] and ``y`` [k] are kept samples, each of a class with more than one.

        ``shrinkage`` of the covariance towards the mean variance, if it is not 0, gives the one ridge that is tried.
        """
        weights, means, scatter = summary
        self.weights, self.y = weights, y
        self.total, self.features = float(weights.sum()), means.shape[1]
        self.centre = means.mean(0)
        means, x = means - self.centre, x - self.centre
        middle = weights @ means / self.total
        squares = float(scatter.trace() + (weights[:, None] * (means - middle).square()).sum())
        self.unit = squares / self.total / means.shape[1] or 1.0
        self.ridges = RIDGES.to(means)
        if shrinkage:
            within = float(scatter.trace()) / self.total / means.shape[1] / self.unit
            self.ridges = self.ridges.new_tensor([max(within * shrinkage / max(1 - shrinkage, 1e-9), float(RIDGES[0]))])
        rank = round(self.total)
        root = thin_root(scatter, rank) if rank <= THIN * means.shape[1] else None
        if root is not None:  # all samples are in the space of fewer vectors than there are features
            space = torch.linalg.qr(torch.cat([root, means]).T).Q
            means, x, root = means @ space, x @ space, root @ space
            scatter = root.T @ root
        values, vectors = torch.linalg.eigh(scatter)
        self.values, self.means, self.x = values.clamp(min=0), means @ vectors, x @ vectors
        self.near: Tensor | None = None  # [k, m] the classes that samples are compared with, if not with all

    def omissions(self, ridges: Tensor) -> Iterator[Omission]:
        """One for each of the ridges [R]."""
        factors = 1 / (self.values + self.total * self.unit * ridges[:, None])  # [R, d]
        x, means, y, near, classes = self.x, self.means, self.y, self.near, len(self.weights)
        xx, mm = factors @ x.square().T, factors @ means.square().T
        freedom = self.total - classes
        noises = (factors @ self.values / freedom).tolist() if freedom > 0 else [0.0] * len(ridges)
        if near is None:
            for f, each, squares, noise in zip(factors, xx, mm, noises, strict=True):
                xm, ym = ((of * f) @ means.T for of in (x, means[y]))
                yield Omission(each, xm, ym, squares[None], self.weights[None], y, classes, noise)
            return
        rows = torch.arange(len(x)).split(ROWS)
        xm, ym = (
            torch.cat([(of[part, None] * means[near[part]]) @ factors.T for part in rows]) for of in (x, means[y])
        )
        for i, each in enumerate(xx):  # the class of a sample is the first of its rivals
            weights, own = self.weights[near], torch.zeros_like(y)
            yield Omission(each, xm[:, :, i], ym[:, :, i], mm[i][near], weights, own, classes, noises[i])

    @property
    def expectation(self) -> Tensor:
        """[R] the logarithm of the weight of each ridge before any answer is known."""
        powers = (self.ridges * self.total / (EXPECTED * self.features)).log10()
        return -(powers / UNSURE).square() / 2

    @property
    def own(self) -> Tensor:
        """[k] the columns of the classes of the samples in an omission."""
        return self.y if self.near is None else torch.zeros_like(self.y)

    def pole(self, gains: Tensor) -> tuple[float, float]:
        """Gain and ridge of the discriminant that is nearly the sum of those with ``ridges`` and these gains [R].

        Along an eigenvector with value L, the sum is g(L) = sum of gain / (L + r). One term a / (L + b) takes its
        place: with the same sum over the directions, and the same mean of L, both weighted by how far class means are
        apart.
        The mean grows with b, so there is one solution.
        """
        energy = self.means.square().sum(0)
        energy = energy / energy.sum().clamp(min=1e-300) + EVEN / self.features
        rest = energy.new_tensor([EVEN * (1 - len(energy) / self.features)])  # directions without scatter, left out
        energy = torch.cat([energy, rest])
        values = torch.cat([self.values / (self.total * self.unit), rest.new_zeros(1)])
        wanted = (gains[:, None] / (values + self.ridges[:, None])).sum(0) * energy
        scale = (values @ energy).clamp(min=1e-12)
        target, usual = values @ wanted / wanted.sum(), float(gains @ self.ridges.log() / gains.sum())
        low, high = (math.log(float(self.ridges[end])) for end in (0, -1))
        for _ in range(60):
            middle = (low + high) / 2
            found = energy / (values + math.exp(middle))
            # The second term decides where samples vary alike in all directions, and any ridge gives the same scores.
            above = (values @ found / found.sum() - target) / scale + EVEN * (middle - usual)
            low, high = (low, middle) if float(above) > 0 else (middle, high)
        found = energy / (values + math.exp(low))
        return float(wanted.sum() / found.sum()), math.exp(low)


def choose(summaries: Sequence[Summary], samples: Sequence[Tensor], y: Tensor, shrinkage: float = 0.0) -> list[Setting]:
    """The settings of each set of features, from kept samples [k, d] of it and their classes [k].

    Scores of all sets are added, and their softmax are probabilities. A set that hardly counts has the gain 0.
    ``shrinkage`` is as in :class:`Spectrum`.
    """
    weights = summaries[0].weights
    known = weights[y] > 2 - 1e-9
    y = y[known]
    if not len(y) or len(weights) == 1:
        return [without_samples(summaries[0]), *(NOTHING for _ in summaries[1:])]
    sets = [Spectrum(summary, x[known], y, shrinkage) for summary, x in zip(summaries, samples, strict=True)]
    if len(weights) > RIVALS:
        near = rivals(sets)
        for each in sets:
            each.near = near
    losses, sizes = zip(*(candidate_losses(each) for each in sets), strict=True)
    before = torch.stack([each.expectation[:, None, None] for each in sets])
    candidates = (before - len(y) / 2 * torch.stack(losses)).flatten().softmax(0).view(len(sets), *losses[0].shape)
    settings, scores = [], torch.zeros(())
    for each, found, size in zip(sets, candidates, sizes, strict=True):
        counts = found.sum(2)  # [ridges, shrinkages]
        whole = float(counts.sum())
        share = max(whole - LEAST, 0.0)
        logs = (found @ SHARPNESS.log().to(found)) / counts.clamp(min=1e-300)
        gains = counts * logs.exp() / size * (share / max(whole, LEAST))
        if not gains.any():
            settings.append(NOTHING)
            continue
        gain, ridge = each.pole(gains.sum(1))
        shrinkages = tuple((gains.sum(0) / gains.sum()).tolist())
        settings.append(Setting(share, gain / each.total, ridge * each.total * each.unit, shrinkages))
        (omission,) = each.omissions(torch.tensor([ridge], dtype=torch.float64, device=found.device))
        scores = scores + gain * mixture(omission.scores, shrinkages)
    temperature = fitted_temperature(1.0, scores, sets[0].own)
    return [setting._replace(gain=setting.gain / temperature) for setting in settings]


def rivals(sets: Sequence[Spectrum]) -> Tensor:
    """[k, RIVALS] the classes nearest to each sample, its own one first, by the sum of the scores of all sets.

    They are the same for all sets, whose scores are added class by class.
    """
    scores = torch.zeros(())
    for each in sets:
        (omission,) = each.omissions(each.ridges.new_tensor([0.1]))
        found = omission.scores(0.5)
        scores = scores + found / found.var(1, correction=0).mean().sqrt().clamp(min=1e-300)
    return scores.scatter(1, sets[0].y[:, None], torch.inf).topk(RIVALS).indices


def candidate_losses(spectrum: Spectrum) -> tuple[Tensor, Tensor]:
    """[R, S, T] mean losses for all ridges, shrinkages and sharpnesses, and [R, S] the deviations of the scores."""
    own, losses, sizes = spectrum.own[:, None], [], []
    sharpness = SHARPNESS.to(spectrum.x)[:, None, None]
    for omission in spectrum.omissions(spectrum.ridges):
        for shrinkage in SHRINKAGES:
            scores = omission.scores(shrinkage)
            size = scores.var(1, correction=0).mean().sqrt().clamp(min=1e-300)
            above = (scores - scores.gather(1, own)) / size
            losses.append((sharpness * above).logsumexp(2).mean(1))
            sizes.append(size)
    shape = len(spectrum.ridges), len(SHRINKAGES)
    return torch.stack(losses).view(*shape, -1), torch.stack(sizes).view(shape)


def without_samples(summary: Summary) -> Setting:
    """The setting if no sample can be left out: hardly anything is known of how much samples vary."""
    weights, means, scatter = summary
    total, d = float(weights.sum()), means.shape[1]
    unit = float(scatter.trace() + (weights[:, None] * (means - weights @ means / total).square()).sum()) / total / d
    return Setting(1.0, 1 / (1 + d / float(weights.mean())), 0.1 * total * (unit or 1.0), (0.0, 1.0, 0.0, 0.0))


def mixture(compute: Callable[[float], Tensor], shrinkages: Sequence[float]) -> Tensor:
    """The weighted sum of what is computed for each shrinkage that counts."""
    parts = (share * compute(shrinkage) for shrinkage, share in zip(SHRINKAGES, shrinkages, strict=True) if share)
    return sum(parts, start=torch.zeros(()))


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
    return rows if float(left.max()) <= ROUNDING * total else None
