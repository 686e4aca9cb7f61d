"""The discriminant of a learner that keeps statistics, for one state of it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from onebyone.memory import Moments
from onebyone.memory.sample import renewed
from onebyone.methods.discriminant import Discriminant, Omitted
from onebyone.methods.learner import LeftOut
from onebyone.methods.temperature import ANY_FEATURES, PATCH_FEATURES, fitted_temperature
from onebyone.methods.typicality import ClassScales, ratio_is_better

if TYPE_CHECKING:
    from onebyone.methods.patch_lda import PatchLDA

# Of the weight of all samples, after which a solution is computed again. That of vectors may use other features then.
GROWTH_OF_IMAGES, GROWTH_OF_VECTORS = 1.5, 1.1
LARGE = 150_000  # bytes of a tensor, beyond which a checksum is of its diagonal only


class Solution:
    """A discriminant for one state of a learner, what follows from it, and the samples that came since."""

    def __init__(
        self, discriminant: Discriminant, known: Tensor, learner: PatchLDA, last: Solution | None = None
    ) -> None:
        self.discriminant, self.known = discriminant, known
        self.key: tuple[int, ...] = learner.state_key() if last is None else last.key
        self.pending: list[Tensor] = []  # rows whose products are the growth of the scatter
        kept = learner.kept
        rows = kept.drawn()
        self.keys, labels = kept.keys[rows], kept.labels[rows].long()
        self.values, self.y = kept.values[rows], torch.searchsorted(known, labels)
        self.compute = learner.kept_features
        self.before = (last.keys, last.features) if last is not None and "features" in vars(last) else None

    def samples(self) -> int:
        return sum(len(rows) for rows in self.pending)

    def can_continue(self, known: Tensor, weights: Tensor) -> bool:
        """Whether the discriminant can be updated to these classes with these weights, from those that it has.

        It cannot before it knows how samples of a class differ, and should not when there are many more samples, or
        another class of vectors, whose values may vary in other units.
        """
        answer = self.discriminant
        if answer.by_distance:
            growth, alike = GROWTH_OF_IMAGES, bool(torch.isin(self.known, known).all())
        else:
            growth, alike = GROWTH_OF_VECTORS, torch.equal(self.known, known)
        return alike and float(weights.sum()) <= growth * answer.total and answer.ridge.freedom > 0

    def update(self, known: Tensor, weights: Tensor, means: Tensor) -> None:
        """Update the discriminant by the samples that came since; some of them may be the first of their class."""
        if len(known) > len(self.known):
            self.discriminant.make_room(torch.searchsorted(known, self.known), len(known))
        self.discriminant.update(torch.cat(self.pending), weights, means)

    @cached_property
    def features(self) -> Tensor:
        """[k, d] of kept samples; those that the last solution had are not computed again."""
        return renewed(self.before, self.keys, lambda new: self.compute(self.values[new]))

    @cached_property
    def omitted(self) -> Omitted:
        return self.discriminant.leave_out(self.features, self.y, self.keys)

    @cached_property
    def temperature(self) -> float:
        known = PATCH_FEATURES if self.discriminant.by_distance else ANY_FEATURES
        answer, found = self.discriminant, self.omitted
        return fitted_temperature(answer.ridge, answer.mixing, found.scores, found.y, known)

    @cached_property
    def as_ratio(self) -> bool:
        """Whether typicality is a ratio of distances."""
        scores = self.omitted.scores * self.omitted.relative[:, None]
        return ratio_is_better(self.omitted.distances, scores, self.omitted.y)

    @cached_property
    def scales(self) -> ClassScales:
        """By which typicality is divided."""
        return ClassScales.of(self.omitted.distances, self.as_ratio, self.omitted.y, len(self.known))

    @property
    def left_out(self) -> LeftOut:
        found = self.omitted
        return LeftOut(found.scores, found.y, found.distances.typicality(self.as_ratio) / self.scales.left_out)

    def typicality(self, features: Tensor) -> Tensor:
        """[n, d] -> [n]."""
        found = self.discriminant.distances(features)
        return found.typicality(self.as_ratio) / self.scales.every[found.closest]

    def typicality_readout(self) -> Callable[[Tensor, Tensor], Tensor]:
        """As :meth:`Learner.typicality_readout` returns it."""
        answer, as_ratio, scales = copy(self.discriminant), self.as_ratio, self.scales.every
        # Computed now, and not when the function is traced. A file holds tensors that are contiguous and no views.
        answer.inverse.matrix()
        answer.scale = answer.scale.clone()

        def typicality(features: Tensor, scores: Tensor) -> Tensor:
            found = answer.distances(features)
            return found.typicality(as_ratio) / scales[found.closest]

        return typicality


def new_scatter(moments: Moments, features: Tensor, y: Tensor) -> Tensor:
    """[n, d] rows whose transpose times themselves is by how much these samples [n, d] will increase the scatter.

    The squares of a class around its new mean are those around its old mean, those of the batch around its own, and
    those of the distance between both means, weighted. Adding a share of that distance to every sample of the batch
    gives the last two in one product, since the samples' differences from their mean sum to zero.
    """
    features = features.double()
    one_hot = (y[:, None] == torch.arange(len(moments.weights), device=y.device)).double()
    before, added = moments.weights, one_hot.sum(0)
    batch_means = (one_hot.T @ features) / added.clamp(min=1)[:, None]
    moved = (batch_means - moments.means()) * (added > 0)[:, None]
    share = (before / (before + added).clamp(min=1e-300)).sqrt()
    return features + (share[:, None] * moved - batch_means)[y]


def fingerprint(fixed: nn.Module, *parts: nn.Module) -> tuple[int, ...]:
    """Changes with every write to a buffer.

    PyTorch counts the operations that change a tensor. It does not count writes through ``.data`` or NumPy, so a
    checksum of the buffers of ``parts`` is added: of the diagonal, if a tensor is large. A write past PyTorch that
    changes none of these values is not seen.
    """
    versions, checksum = [], 0
    for part in (fixed, *parts):
        for tensor in part.buffers():
            uncounted = tensor.is_inference()  # created in inference mode, where nothing is counted
            versions.append(0 if uncounted else tensor._version)
            if uncounted or part is not fixed:
                large = tensor.nbytes > LARGE and tensor.dim() == 2 and not uncounted
                values = (tensor.diagonal() if large else tensor).contiguous().view(-1).view(torch.uint8)
                checksum = zlib.crc32(values.numpy().data, checksum)
    return (checksum, *versions)
