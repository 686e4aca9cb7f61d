"""Linear discriminant analysis with class means, one covariance, and a setting from the criterion.

The notation is that of :mod:`onebyone.statistics.criterion`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

import torch
from torch import Tensor

from onebyone.errors import UsageError
from onebyone.statistics.criterion import Omission, Setting, Summary, mixture, shrunk
from onebyone.statistics.inverse import Inverse
from onebyone.statistics.typicality import Distances


class Measured(NamedTuple):
    """Scores of samples, and the products with the inverse from which their distances follow."""

    scores: Tensor  # [n, C]
    plain: Tensor  # [n, C] in units of the covariance
    itself: Tensor  # [n] squared Mahalanobis length
    centre: Tensor  # [n] squared Mahalanobis distance from the mean of all samples

    def distances(self, usual: float) -> Distances:
        best, closest = self.plain.max(1)
        return Distances(self.itself - 2 * best, closest, self.centre, usual)


def added(found: Sequence[tuple[float, Measured]]) -> Measured:
    """What several discriminants found: the sum of their scores, and the weighted mean of the products."""
    if len(found) == 1:
        return found[0][1]
    shares, each = zip(*found, strict=True)
    scores, *products = zip(*each, strict=True)
    return Measured(sum(scores), *(sum(map(mul, shares, values)) / sum(shares) for values in products))


class Discriminant:
    """Scores of samples, and how far they are from class means, for one set of features and one setting.

    ``scale`` [d] are the factors that make features comparable.
    """

    def __init__(self, summary: Summary, scale: Tensor, setting: Setting) -> None:
        weights, means, scatter = summary
        self.scale, self.setting = scale.clone(), setting  # a file of an exported program holds no views
        self.count = len(scale)
        means = means * scale
        # Scores are differences. Those of values far from zero would be lost in rounding errors of their squares.
        self.origin = means.mean(0)
        self.weights, self.means = weights, means - self.origin
        regular = scatter * scale[:, None] * scale
        regular.diagonal().add_(setting.ridge)
        root, failed = torch.linalg.cholesky_ex(regular)
        if failed:
            raise UsageError("the covariance of the samples has no inverse; raise shrinkage or leave it out")
        self.inverse = Inverse(torch.cholesky_inverse(root))
        self.solved = self.inverse.times(self.means)
        self.finish()

    def make_room(self, places: Tensor, classes: int) -> None:
        """Make the present classes those at ``places`` [C] of more classes, the others without samples."""
        wide = self.means.new_zeros(classes, self.count)
        self.means, self.solved = (wide.index_copy(0, places, values) for values in (self.means, self.solved))

    def finish(self) -> None:
        """Compute weights and offsets of the scores."""
        weights, total = self.weights, float(self.weights.sum())
        self.total = total
        self.middle = self.means.mean(0)  # of the class means
        self.apart, self.apart_solved = self.means - self.middle, self.solved - self.solved.mean(0)
        self.squares = (self.apart * self.apart_solved).sum(1)
        kept = self.kept_of(weights)
        kept_squares = mixture(lambda shrinkage: shrunk(weights, shrinkage).square(), self.setting.shrinkages)
        factor = self.setting.gain * total
        self.kept = kept
        self.linear = (factor * kept[:, None] * self.apart_solved).T.contiguous()  # [d, C]
        freedom = total - len(weights)
        self.noise = (self.count - self.setting.ridge * self.inverse.trace()) / freedom if freedom > 1e-9 else 0.0
        squares = self.squares - self.noise / weights.clamp(min=1e-300)
        self.plain = kept.square() * squares / 2
        self.offsets = -factor * kept_squares * squares / 2 - self.middle @ self.linear
        self.centre = weights @ self.apart / total  # of all samples, from the mean of the class means
        self.centre_solved = weights @ self.apart_solved / total

    @torch.no_grad()
    def update(self, rows: Tensor, weights: Tensor, means: Tensor) -> None:
        """Continue with more samples; ``rows`` [n, d] transposed times ``rows`` is the new scatter.

        This is exact, with the scale and the setting of before.
        """
        for row in rows[:, : self.count] * self.scale:
            solved, divisor = self.inverse.add(row)  # with the inverse of before
            self.solved.addr_(self.solved @ row, solved, alpha=-1 / divisor)
        moved = self.scaled(means) - self.means
        changed = moved.any(1).nonzero()[:, 0]
        if len(rows) == 1 and rows.any():  # the mean moves along the row, whose product with the new inverse is known
            along = rows[0, : self.count] * self.scale
            steps = (moved[changed] @ along / (along @ along).clamp(min=1e-300))[:, None]
            self.solved[changed] += steps * solved / divisor
        else:
            self.solved[changed] += self.inverse.times(moved[changed])
        self.means, self.weights = self.means + moved, weights
        self.finish()

    def scaled(self, features: Tensor) -> Tensor:
        """[n, d] features -> in comparable units, from the mean of the class means when this was computed."""
        return features[:, : self.count].double() * self.scale - self.origin

    def scores(self, features: Tensor) -> Tensor:
        """[n, d] -> [n, C] scores, up to a number per sample."""
        return self.scaled(features) @ self.linear + self.offsets

    def measured(self, features: Tensor) -> Measured:
        """Of samples [n, d]."""
        x = self.scaled(features) - self.middle
        on_means = x @ self.apart_solved.T
        itself = (self.inverse.times(x) * x).sum(1)
        centre = itself + (self.centre - 2 * x) @ self.centre_solved
        plain = self.kept * on_means - self.plain
        return Measured(self.scores(features), *(self.total * each for each in (plain, itself, centre)))

    def leave_out(self, features: Tensor, y: Tensor) -> Measured:
        """Of learnt samples [k, d] of classes [k], as if each had not been learnt.

        Each class has another sample.
        """
        x = self.scaled(features) - self.middle
        on_means, itself = x @ self.apart_solved.T, (self.inverse.times(x) * x).sum(1)
        between = self.apart[y] @ self.apart_solved.T
        weights, classes = self.weights[None], len(self.weights)
        omission = Omission(itself, on_means, between, self.squares[None], weights, y, classes, self.noise)
        factor = self.setting.gain * self.total
        scores = factor * mixture(omission.scores, self.setting.shrinkages)
        products, squares = omission.products(self.kept_of)
        itself, centre = omission.lengths(self.weights, self.centre @ self.centre_solved)
        return Measured(scores, *(self.total * each for each in (products - squares / 2, itself, centre)))

    def kept_of(self, weights: Tensor) -> Tensor:
        """How much of its distance from the mean of all classes a class mean of some weight keeps."""
        return mixture(lambda shrinkage: shrunk(weights, shrinkage), self.setting.shrinkages)
