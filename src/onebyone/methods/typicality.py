"""How much a sample is like those that were learnt, from distances to class means."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

FEWEST = 20  # left-out samples, with which a choice is made
MARGIN = 0.005  # of the area under the ROC curve, by which the ratio must be better
FAR = 2.0  # distance, relative to the usual one, from which a sample is less typical the farther away it is


class Distances(NamedTuple):
    """Squared Mahalanobis distances of samples."""

    nearest: Tensor  # [n] from the nearest class mean
    centre: Tensor  # [n] from the mean of all samples that were learnt
    usual: float  # expected for a new sample and the mean of its own class

    def typicality(self, as_ratio: bool) -> Tensor:
        """[n] minus the distance from the nearest class, or minus its ratio to the distance from the centre.

        The distance depends on the contrast of an image, or the norm of an embedding, and these say little of its
        class. The ratio does not, and it is 1 for a sample that no class explains better than the mean of all. But the
        ratio is small for a sample that is far away in the direction of a class, so it grows with the distance from
        twice the usual one on.
        """
        if not as_ratio:
            return -self.nearest
        ratio = self.nearest / self.centre.clamp(min=1e-300)
        return -ratio * (self.nearest / (FAR * self.usual)).clamp(min=1)


def ratio_is_better(left_out: Distances, scores: Tensor, y: Tensor) -> bool:
    """Whether the ratio tells samples of known classes from those of unknown ones better than the distance does.

    Known are left-out samples of classes ``y`` [k] with ``scores`` [k, C]. The same samples without the score of their
    class are as if that class were unknown.
    """
    if len(y) < FEWEST or scores.shape[1] == 1 or not left_out.usual > 0:
        return False
    others = scores.scatter(1, y[:, None], -torch.inf).amax(1)
    unknown = left_out._replace(nearest=left_out.nearest + 2 * (scores.amax(1) - others))

    def area(as_ratio: bool) -> float:
        known, new = left_out.typicality(as_ratio), unknown.typicality(as_ratio)
        return float((known[:, None] > new).double().mean())

    return area(True) > area(False) + MARGIN
