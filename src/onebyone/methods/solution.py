"""How a learner that keeps statistics answers in one state of it."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from onebyone.memory import Moments
from onebyone.memory.sample import renewed
from onebyone.methods.discriminant import Measured, Member, mixed
from onebyone.methods.learner import LeftOut
from onebyone.methods.ridge import Strength
from onebyone.methods.temperature import ANY_FEATURES, PATCH_FEATURES, expected_temperature, fitted_temperature
from onebyone.methods.typicality import ClassScales, Distances, weight_of_ratio

if TYPE_CHECKING:
    from onebyone.methods.patch_lda import PatchLDA

LARGE = 150_000  # bytes of a tensor, beyond which a checksum is of its diagonal only
FIELDS = 2 + len(Strength._fields)  # of a member in ``Chosen``: weight, features, ridge


class Chosen(nn.Module):
    """The settings that were last chosen by the statistics: discriminants, factors of their features, and ridges.

    Choosing takes longer than learning a sample. So while samples come one by one, answers use settings that were
    chosen a few samples ago. They are part of the state, so that asking, copying and saving change no answer.
    """

    numbers: Tensor
    scales: Tensor

    def __init__(self, members: int, width: int) -> None:
        super().__init__()
        self.register_buffer("numbers", torch.zeros(3 + members * FIELDS, dtype=torch.float64))
        # Of one member after the other; one number if those of all features are equal.
        self.register_buffer("scales", torch.zeros(width, dtype=torch.float64))

    def drop(self) -> None:
        """Settings are chosen again before the next answer, and before the next change."""
        self.numbers.zero_()

    def keep(self, samples: int, members: Sequence[Member]) -> None:
        ridge = members[0][1].ridge
        numbers: list[float] = [samples, len(ridge.weights), ridge.freedom > 0]
        for weight, answer in members:
            numbers += [weight, answer.count, *answer.ridge.given]
        self.numbers.zero_()[: len(numbers)] = torch.tensor(numbers, dtype=torch.float64)
        scales = torch.cat([answer.scale for _, answer in members])
        self.scales.zero_()[: len(scales)] = scales[: len(self.scales)]

    def serve(self, samples: int, classes: int | None, growth: float) -> bool:
        """Whether settings are recent enough: for fewer than ``growth`` times the samples, and the same classes."""
        known, known_classes, varied = self.numbers[:3].tolist()
        return bool(varied) and samples < growth * known and classes in (None, known_classes)

    def settings(self) -> list[tuple[float, int, tuple[Tensor, Strength]]]:
        """Weight, number of features, and what else a discriminant is like, of each member."""
        found, scales = [], self.scales.clone()  # they stay as they are when others are chosen
        for weight, count, *strength in self.numbers[3:].view(-1, FIELDS).tolist():
            if weight:
                scale = scales.expand(int(count)) if len(scales) == 1 else scales[: int(count)]
                found.append((weight, int(count), (scale, Strength(*strength))))
                scales = scales if len(scales) == 1 else scales[int(count) :]
        return found


class Solution:
    """Discriminants for one state of a learner, what follows from them, and the samples that came since.

    Each discriminant is a member with a weight; their scores are added.
    """

    def __init__(
        self, members: Sequence[Member], known: Tensor, learner: PatchLDA, last: Solution | None = None
    ) -> None:
        self.members, self.known = members, known
        self.by_distance = members[0][1].by_distance
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

    def can_continue(self, known: Tensor) -> bool:
        """Whether the present classes are among these, which may be more."""
        return bool(torch.isin(self.known, known).all())

    def update(self, known: Tensor, weights: Tensor, means: Tensor) -> None:
        """Update the discriminants by the samples that came since; some of them may be the first of their class."""
        for _, answer in self.members:
            if len(known) > len(self.known):
                answer.make_room(torch.searchsorted(known, self.known), len(known))
            answer.update(torch.cat(self.pending), weights, means)

    @cached_property
    def features(self) -> Tensor:
        """[k, d] of kept samples; those that the last solution had are not computed again."""
        return renewed(self.before, self.keys, lambda new: self.compute(self.values[new]))

    @cached_property
    def usual(self) -> float:
        """Expected squared distance of a new sample from the mean of its own class."""
        return sum(weight * answer.ridge.noise for weight, answer in self.members)

    @cached_property
    def omitted(self) -> tuple[Measured, Tensor, Tensor]:
        """Answers for kept samples, each as if it had not been learnt; their classes; what scores were divided by."""
        found = [(weight, answer.leave_out(self.features, self.y, self.keys)) for weight, answer in self.members]
        _, (_, y, relative) = found[0]
        return mixed([(weight, omitted.measured) for weight, omitted in found]), y, relative

    @cached_property
    def temperature(self) -> float:
        ridge = self.members[0][1].ridge
        if len(ridge.weights) == 1:
            return 1.0
        if not ridge.freedom:  # no class has a second sample: nothing is known of the variance, and little of classes
            return 1.0 + ridge.means.shape[1] / float(ridge.weights.mean())
        known = PATCH_FEATURES if self.by_distance else ANY_FEATURES
        expected = math.exp(
            sum(
                weight * math.log(expected_temperature(each.ridge, each.mixing, known)) for weight, each in self.members
            )
        )
        measured, y, _ = self.omitted
        return fitted_temperature(expected, measured.scores, y, known.doubt)

    @cached_property
    def left_out_distances(self) -> Distances:
        return self.omitted[0].distances(self.usual)

    @cached_property
    def as_ratio(self) -> float:
        """How much typicality is a ratio of distances."""
        measured, y, relative = self.omitted
        return weight_of_ratio(self.left_out_distances, measured.scores * relative[:, None], y)

    @cached_property
    def scales(self) -> ClassScales:
        """By which typicality is divided."""
        return ClassScales.of(self.left_out_distances, self.as_ratio, self.omitted[1], len(self.known))

    @property
    def left_out(self) -> LeftOut:
        measured, y, _ = self.omitted
        return LeftOut(measured.scores, y, self.left_out_distances.typicality(self.as_ratio) / self.scales.left_out)

    def scores(self, features: Tensor) -> Tensor:
        """[n, d] -> [n, C]."""
        if len(self.members) == 1:
            return self.members[0][1].scores(features)
        return torch.stack([weight * answer.scores(features) for weight, answer in self.members]).sum(0)

    def distances(self, features: Tensor) -> Distances:
        """Of samples [n, d]."""
        return mixed([(weight, answer.measured(features)) for weight, answer in self.members]).distances(self.usual)

    def typicality(self, features: Tensor) -> Tensor:
        """[n, d] -> [n]."""
        found = self.distances(features)
        return found.typicality(self.as_ratio) / self.scales.every[found.closest]

    def typicality_readout(self) -> Callable[[Tensor, Tensor], Tensor]:
        """As :meth:`Learner.typicality_readout` returns it."""
        frozen = copy(self)
        frozen.members = [(weight, copy(answer)) for weight, answer in self.members]
        for _, answer in frozen.members:
            # Computed now, and not when the function is traced. A file holds tensors that are contiguous and no views.
            answer.inverse.matrix()
            answer.scale = answer.scale.clone()
        _ = frozen.as_ratio, frozen.scales, frozen.usual
        return lambda features, scores: frozen.typicality(features)


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
