"""How much a sample is like those that were learnt, from distances to class means."""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from torch import Tensor

FEWEST = 20  # left-out samples, with which a choice is made
MARGIN = 0.005  # of the area under the ROC curve, by which the ratio must be better to count half
TIE = 1e-6  # of the mean size: values that differ by less are partly equal
FAR = 2.0  # distance, relative to the usual one, from which a sample is less typical the farther away it is
SMALLEST = 1e-3  # distance, relative to the mean one: smaller ones count as this
PRIOR = 3.0  # samples that the mean of all counts at least, beside the left-out samples of a class
# Variance of the logarithm of scales: smaller differences cost more than they balance. Between the two, scales count
# in part.
EVEN, UNEVEN = 0.12, 0.2


def ramp(value: float, start: float, end: float) -> float:
    """0 up to ``start``, 1 from ``end`` on, linear between them.

    >>> ramp(1, 2, 4), ramp(3, 2, 4), ramp(5, 2, 4)
    (0.0, 0.5, 1.0)
    """
    return min(max((value - start) / (end - start), 0.0), 1.0)


class Distances(NamedTuple):
    """Squared Mahalanobis distances of samples."""

    nearest: Tensor  # [n] from the nearest class mean
    closest: Tensor  # [n] the class of that mean
    centre: Tensor  # [n] from the mean of all samples that were learnt
    usual: float  # expected for a new sample and the mean of its own class

    def typicality(self, as_ratio: float) -> Tensor:
        """[n] minus the distance from the nearest class, or minus its ratio to the distance from the centre.

        The distance depends on the contrast of an image, or the norm of an embedding, and these say little of its
        class. The ratio does not, and it is 1 for a sample that no class explains better than the mean of all. But the
        ratio is small for a sample that is far away in the direction of a class, so it grows with the distance from
        twice the usual one on. ``as_ratio`` from 0 to 1 is how much the ratio counts: the result is the geometric mean.
        """
        if not as_ratio:
            return -self.nearest
        ratio = self.nearest / self.centre.clamp(min=1e-300)
        ratio = ratio * (self.nearest / (FAR * self.usual)).clamp(min=1)
        if as_ratio == 1:
            return -ratio
        return -(self.nearest.clamp(min=0) ** (1 - as_ratio) * ratio.clamp(min=0) ** as_ratio)


class ClassScales(NamedTuple):
    """How large the distances of a class's own samples are: they differ, while the covariance is that of all classes.

    Without these scales, most known samples that are called unknown would be of the classes that vary most.
    """

    every: Tensor  # [C]
    left_out: Tensor  # [k] that of the nearest class for left-out samples, each without that sample

    @classmethod
    def of(cls, left_out: Distances, as_ratio: float, y: Tensor, classes: int) -> Self:
        """From left-out samples of classes ``y`` [k].

        The logarithm of a scale is the mean of the logarithms of the class, shrunk towards that of all samples as far
        as the variance between classes and that within classes, both estimated by moments, suggest (empirical Bayes).
        """
        values, count = -left_out.typicality(as_ratio), len(y)
        ones = torch.ones_like(values)
        number = values.new_zeros(classes).index_add(0, y, ones)
        present, mean = int((number > 0).sum()), float(values.mean()) if count else 0.0
        if count < FEWEST or present < 2 or count <= present or not mean > 0:
            return cls(values.new_ones(classes), ones)
        logs = values.clamp(min=SMALLEST * mean).log()
        logs = logs - logs.mean()
        sums = values.new_zeros(classes).index_add(0, y, logs)
        means = sums / number.clamp(min=1)
        within = (logs - means[y]).square().sum() / (count - present)
        size = (count - number.square().sum() / count) / (present - 1)  # of a class, as far as it counts
        between = ((sums * means).sum() / (present - 1) - within) / size
        counts = ramp(float(between), EVEN, UNEVEN)
        if not counts:
            return cls(values.new_ones(classes), ones)
        prior = (within / between).clamp(min=PRIOR)
        closest, own = left_out.closest, (y == left_out.closest).to(logs)
        without = (sums[closest] - own * logs) / (number[closest] - own + prior)
        return cls((counts * sums / (number + prior)).exp(), (counts * without).exp())


def weight_of_ratio(left_out: Distances, scores: Tensor, y: Tensor) -> float:
    """1 if the ratio tells samples of known classes from those of unknown ones better than the distance, 0 if not.

    Known are left-out samples of classes ``y`` [k] with ``scores`` [k, C]. The same samples without the score of their
    class are as if that class were unknown.
    """
    if len(y) < FEWEST or scores.shape[1] == 1 or not left_out.usual > 0:
        return 0.0
    others = scores.scatter(1, y[:, None], -torch.inf).amax(1)
    unknown = left_out._replace(nearest=left_out.nearest + 2 * (scores.amax(1) - others))

    def area(as_ratio: float) -> float:
        known, new = left_out.typicality(as_ratio), unknown.typicality(as_ratio)
        tie = TIE * known.abs().mean().clamp(min=1e-300)
        return float(((known[:, None] - new) / tie + 0.5).clamp(0, 1).mean())

    return ramp(area(1) - area(0), MARGIN / 2, 3 * MARGIN / 2)
