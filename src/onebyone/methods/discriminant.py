"""Linear discriminant analysis from class means and scatter, regularised by what these say themselves.

The notation is that of :mod:`onebyone.methods.ridge`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

import torch
from torch import Tensor

from onebyone.memory.sample import renewed
from onebyone.methods.inverse import Inverse
from onebyone.methods.ridge import (
    Ridge,
    Statistics,
    Strength,
    best_ridge,
    commonness,
    degrees_of_freedom,
    feature_scale,
    shrunk_means,
)
from onebyone.methods.temperature import gaussian_temperature
from onebyone.methods.typicality import Distances

FAVOUR = 0.5  # of the temperature, for the score of a class that has hardly any samples; measured on held-out images
NEAREST = 0.1  # distance from the mean of all samples, relative to the usual one: nearer counts as this


class Measured(NamedTuple):
    """Scores of samples, and the products with the inverse from which their distances follow."""

    scores: Tensor  # [n, C]
    plain: Tensor  # [n, C] not raised for rare classes, and not divided by a distance
    itself: Tensor  # [n] squared Mahalanobis length
    centre: Tensor  # [n] squared Mahalanobis distance from the mean of all samples

    def distances(self, usual: float) -> Distances:
        best, closest = self.plain.max(1)
        return Distances(self.itself - 2 * best, closest, self.centre, usual)


def mixed(found: Sequence[tuple[float, Measured]]) -> Measured:
    """The weighted sum of what several discriminants found."""
    if len(found) == 1:
        return found[0][1]
    weights, each = zip(*found, strict=True)
    return Measured(*(sum(map(mul, weights, values)) for values in zip(*each, strict=True)))


class Omitted(NamedTuple):
    """Answers for learnt samples, each as if it had not been learnt."""

    measured: Measured
    y: Tensor  # [k]
    relative: Tensor  # [k] the distance by which the scores were divided, or 1


class Kept(NamedTuple):
    """Kept samples, for the next call."""

    keys: Tensor  # [k]
    x: Tensor  # [k, d]
    forms: Tensor  # [k] of each sample and itself, the product with the inverse between


class Discriminant:
    """Scores of samples, and how far they can be trusted, from one set of statistics.

    The statistics are of the classes with samples. The first ``values`` features are the values of samples, and the
    others were computed from them. The two kinds are scaled separately, unless ``one_unit`` says that all features have
    the same unit. ``shrinkage`` is chosen by the statistics if it is 0. The factors of the features and the ridge are
    those of ``like``, if given: of a discriminant of fewer samples.

    With ``by_distance``, the scores of a sample are divided by the distance of its features from the mean of all
    samples, relative to the usual distance. Of an image with twice the contrast in its features, all differences
    between scores are twice as large, but it is not easier to recognise. The division makes one temperature fit all
    images. It does not change which class has the largest score. It suits many features of similar variance. Of a few
    features, the distance does say how certain a class is.

    Class means are shrunk (empirical Bayes). A mean of few samples is mostly noise, and the noise makes a class look
    distant from everything. So each mean is moved towards the mean of all samples, by a factor that follows from its
    weight and from the variance of class means. A class with less weight than the average class keeps more along the
    axes in which the better known classes differ. Its score is raised by up to half a temperature, so that a new
    class of five samples is found, at the cost of about a point of the accuracy on the others.
    """

    def __init__(
        self,
        statistics: Statistics,
        values: int,
        shrinkage: float = 0.0,
        by_distance: bool = False,
        one_unit: bool = False,
        like: tuple[Tensor, Strength] | None = None,
    ) -> None:
        weights, means, scatter, _ = statistics
        both = values < means.shape[1] and not one_unit
        kinds = [slice(values), slice(values, None)] if both else [slice(None)]
        scales = [feature_scale(statistics.part(kind), by_distance, one_unit) for kind in kinds] if like is None else []
        self.scale = scale = torch.cat(scales) if like is None else like[0]
        means, scatter = means * scale, scatter * scale[:, None] * scale
        # Scores are differences. Those of values far from zero would be lost in rounding errors of their squares.
        self.origin = weights @ means / weights.sum()
        means = means - self.origin
        self.count = len(scale)
        if like is not None:
            self.ridge = Ridge.solve(weights, means, scatter, like[1])
        elif shrinkage:
            strength = shrinkage / max(1 - shrinkage, 1e-9) * max(degrees_of_freedom(weights), 1.0) / self.count
            self.ridge = Ridge.of(weights, means, scatter, strength)
        else:
            self.ridge = best_ridge(weights, means, scatter)
        self.by_distance = by_distance
        self.within = float(scatter.diagonal().sum())  # sum of squared distances from class means
        self._inverse: Inverse | None = None
        self._kept: Kept | None = None
        self.finish()

    @property
    def inverse(self) -> Inverse:
        if self._inverse is None:
            self._inverse = Inverse(self.ridge.inverse())
        return self._inverse

    def make_room(self, places: Tensor, classes: int) -> None:
        """Make the present classes those at ``places`` [C] of more classes, the others without samples."""
        ridge = self.ridge
        wide = ridge.means.new_zeros(classes, self.count)
        ridge.means, ridge.solved = (wide.index_copy(0, places, values) for values in (ridge.means, ridge.solved))

    def finish(self) -> None:
        """Shrink the class means, and compute weights and offsets of the scores."""
        ridge = self.ridge
        self.mixing = shrunk_means(ridge)
        self.used, used_solved = self.mixing @ ridge.means, self.mixing @ ridge.solved
        self.squares = (self.used * used_solved).sum(1)
        self.favour = FAVOUR * gaussian_temperature(ridge, self.mixing, 1.0) * (1 - commonness(ridge.weights))
        share = ridge.weights / ridge.weights.sum()
        self.centre, self.centre_solved = share @ ridge.means, share @ ridge.solved
        between = (ridge.weights[:, None] * (ridge.means - self.centre).square()).sum()
        self.spread = self.within + between  # sum of squared distances of all samples from their mean
        self.usual = self.spread / ridge.weights.sum()
        self.linear = (ridge.scale * used_solved).T.contiguous()  # [d, C]
        self.offsets = self.favour - ridge.scale * self.squares / 2

    @torch.no_grad()
    def update(self, rows: Tensor, weights: Tensor, means: Tensor) -> None:
        """Continue with more samples; ``rows`` [n, d] transposed times ``rows`` is the new scatter.

        This is exact, with the scale and the ridge of before.
        """
        inverse, ridge = self.inverse, self.ridge
        for row in rows[:, : self.count] * self.scale:
            solved, divisor = inverse.add(row)
            self.within += float(row @ row)
            # The inverse of before, times the row, is ``solved``.
            for known in (ridge.solved, ridge.answers):
                known.addr_(known @ row, solved, alpha=-1 / divisor)
            if self._kept is not None:
                self._kept.forms.sub_((self._kept.x @ solved).square_(), alpha=1 / divisor)
        moved = self.scaled(means) - ridge.means
        changed = moved.any(1).nonzero()[:, 0]
        if len(rows) == 1 and rows.any():  # the mean moves along the row, whose product with the new inverse is known
            along = rows[0, : self.count] * self.scale
            steps = (moved[changed] @ along / (along @ along).clamp(min=1e-300))[:, None]
            ridge.solved[changed] += steps * solved / divisor
        else:
            ridge.solved[changed] += inverse.times(moved[changed])
        ridge.means, ridge.weights = ridge.means + moved, weights
        ridge.freedom = degrees_of_freedom(weights)
        self.finish()

    def scaled(self, features: Tensor) -> Tensor:
        """[n, d] features -> in comparable units, from the mean of all samples when this was computed."""
        return features[:, : self.count].double() * self.scale - self.origin

    def scores(self, features: Tensor) -> Tensor:
        """[n, d] -> [n, C] scores, up to a number per sample."""
        scores = self.linear_scores(features)
        if not self.by_distance:
            return scores
        squares = (self.scaled(features) - self.centre).square().sum(1)
        return scores / relative_distance(squares, self.usual)[:, None]

    def linear_scores(self, features: Tensor) -> Tensor:
        """[n, d] -> [n, C] scores that are not divided by a distance."""
        return self.scaled(features) @ self.linear + self.offsets

    def measured(self, features: Tensor) -> Measured:
        """Of samples [n, d]."""
        x = self.scaled(features)
        itself = self.ridge.scale * (self.inverse.times(x) * x).sum(1)
        centre = itself + self.ridge.scale * (self.centre - 2 * x) @ self.centre_solved
        return Measured(self.scores(features), self.linear_scores(features) - self.favour, itself, centre)

    def leave_out(self, features: Tensor, y: Tensor, keys: Tensor) -> Omitted:
        """Answers for learnt samples [k, d] of classes [k], as if each had not been learnt.

        Without a sample x of a class with weight n and mean m, the difference r = x - m is taken from the scatter
        n / (n - 1) times, and the mean becomes m - r / (n - 1). All products with the changed inverse follow from
        those of x, r and class means with the present one. A sample that is alone in its class is not among the
        answers. ``keys`` [k], in ascending order, tell which samples are the same as in the last call.
        """
        kept = self._kept = self.with_forms(features, keys)
        ridge = self.ridge
        x, own, known = kept.x, kept.forms[:, None], ridge.weights[y] > 2 - 1e-9
        if not known.all():
            x, y, own = x[known], y[known], own[known]
        rest, total = ridge.weights[y, None] - 1, ridge.weights.sum()
        gram, share = ridge.means @ ridge.solved.T, ridge.weights / total
        on_measured = x @ ridge.solved.T  # products of x and the measured means, with the inverse between
        on_own_mean = on_measured.gather(1, y[:, None])
        change = own - on_own_mean  # of x and r
        along = change - on_own_mean + gram.diagonal()[y, None]  # of r and r
        ratio = (rest + 1) / rest
        gain = ratio / (1 - ratio * along).clamp(min=1e-6)
        moved = self.mixing.T[y] / rest  # [k, C] how far each class mean in use moves, in units of -r
        on_used = on_measured @ self.mixing.T
        change_on_used = on_used - (gram @ self.mixing.T)[y]  # of r and the means in use
        on_means = change_on_used - moved * along
        products = on_used - moved * change + gain * on_means * change
        squares = self.squares - 2 * moved * change_on_used + moved.square() * along + gain * on_means.square()
        scale = max(ridge.scale - 1, 1e-9)
        plain = scale * (products - squares / 2)
        scores = plain + self.favour
        itself = scale * (own + gain * change.square())[:, 0]
        on_centre = on_measured @ share
        on_away = change[:, 0] - on_centre + (gram @ share)[y]  # of r and the difference from the centre
        centre = own[:, 0] - 2 * on_centre + share @ gram @ share + gain[:, 0] * on_away.square()
        centre = scale * centre * (total / (total - 1)).square()
        if not self.by_distance:
            return Omitted(Measured(scores, plain, itself, centre), y, torch.ones_like(centre))
        away = torch.cdist(x, self.centre[None], compute_mode="donot_use_mm_for_euclid_dist")[:, 0].square()
        growth = total / (total - 1)
        usual = (self.spread - growth * away).clamp(min=0) / (total - 1)
        relative = relative_distance(growth.square() * away, usual)
        return Omitted(Measured(scores / relative[:, None], plain, itself, centre), y, relative)

    def with_forms(self, features: Tensor, keys: Tensor) -> Kept:
        """Kept samples [k, d] with their products; those of the last call are not computed again."""
        if self._kept is not None and torch.equal(self._kept.keys, keys):
            return self._kept
        x = self.scaled(features)
        last = None if self._kept is None else (self._kept.keys, self._kept.forms)
        forms = renewed(last, keys, lambda new: (self.inverse.times(x[new]) * x[new]).sum(1))
        return Kept(keys.clone(), x, forms)


def relative_distance(squares: Tensor, usual: Tensor) -> Tensor:
    """[n] the square root of the ratio of squared distances [n] to the usual one, but not nearly 0."""
    return (squares / usual.where(usual > 0, 1)).sqrt().where(usual > 0, 1).clamp(min=NEAREST)


Member = tuple[float, Discriminant]  # with a weight
