"""How a learner that keeps statistics answers in one state of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from onebyone.methods.learner import LeftOut
from onebyone.statistics.criterion import SHRINKAGES, Setting
from onebyone.statistics.discriminant import Discriminant, Measured, added
from onebyone.statistics.sums import Moments
from onebyone.statistics.typicality import ClassScales, Distances, weight_of_ratio

if TYPE_CHECKING:
    from onebyone.statistics.patch_lda import PatchLDA

FIELDS = 3 + len(SHRINKAGES)  # of a setting in ``Chosen``


class Chosen(nn.Module):
    """The settings that were last chosen by the statistics, and the factors of features.

    Choosing takes longer than learning a sample. So while samples come one by one, answers use settings that were
    chosen a few samples ago. They are part of the state, so that asking, copying and saving change no answer.
    """

    numbers: Tensor
    scales: Tensor

    def __init__(self, sets: int, scales: int) -> None:
        super().__init__()
        self.register_buffer("numbers", torch.zeros(3 + sets * FIELDS, dtype=torch.float64))
        self.register_buffer("scales", torch.zeros(scales, dtype=torch.float64))

    def drop(self) -> None:
        """Settings are chosen again before the next answer, and before the next change."""
        self.numbers.zero_()

    def keep(self, samples: int, solution: Solution) -> None:
        numbers: list[float] = [samples, len(solution.known), solution.varied]
        for setting in solution.settings:
            share, gain, ridge, shrinkages = setting
            numbers += [share, gain, ridge, *shrinkages]
        self.numbers.zero_()[: len(numbers)] = torch.tensor(numbers, dtype=torch.float64)
        self.scales.copy_(solution.scales)

    def serve(self, samples: int, classes: int | None, growth: float) -> bool:
        """Whether settings are recent enough: for fewer than ``growth`` times the samples, and the same classes."""
        known, known_classes, varied = self.numbers[:3].tolist()
        return bool(varied) and samples < growth * known and classes in (None, known_classes)

    def settings(self) -> list[Setting]:
        found = self.numbers[3:].view(-1, FIELDS).tolist()
        return [Setting(share, gain, ridge, tuple(shrinkages)) for share, gain, ridge, *shrinkages in found]


class Solution:
    """Discriminants for one state of a learner, what follows from them, and the samples that came since.

    There is one for each set of features that counts; their scores are added.
    """

    def __init__(
        self,
        members: Sequence[Discriminant],
        settings: Sequence[Setting],
        scales: Tensor,
        known: Tensor,
        learner: PatchLDA,
    ) -> None:
        self.members, self.settings, self.scales, self.known = members, settings, scales, known
        weights = members[0].weights
        self.varied = float(weights.sum()) > len(weights) + 1e-9
        self.pending: list[Tensor] = []  # rows whose products are the growth of the scatter
        self.kept = learner.kept_samples

    def samples(self) -> int:
        return sum(len(rows) for rows in self.pending)

    def can_continue(self, known: Tensor) -> bool:
        """Whether the present classes are among these, which may be more."""
        return bool(torch.isin(self.known, known).all())

    def updated(self, known: Tensor, weights: Tensor, means: Tensor, learner: PatchLDA) -> Solution:
        """The solution with the samples that came since; some of them may be the first of their class."""
        for answer in self.members:
            if len(known) > len(self.known):
                answer.make_room(torch.searchsorted(known, self.known), len(known))
            answer.update(torch.cat(self.pending), weights, means)
        return Solution(self.members, self.settings, self.scales, known, learner)

    @cached_property
    def omitted(self) -> tuple[Measured, Tensor]:
        """Answers for kept samples, each as if it had not been learnt, and their classes."""
        features, y = self.kept(self.known)
        usable = self.members[0].weights[y] > 2 - 1e-9
        features, y = features[usable], y[usable]
        return added([(each.setting.share, each.leave_out(features, y)) for each in self.members]), y

    @cached_property
    def usual(self) -> float:
        """Expected squared distance of a new sample from the nearest class mean."""
        measured, y = self.omitted
        return float((measured.itself - 2 * measured.plain.amax(1)).mean()) if len(y) else 1.0

    @cached_property
    def left_out_distances(self) -> Distances:
        return self.omitted[0].distances(self.usual)

    @cached_property
    def as_ratio(self) -> float:
        """How much typicality is a ratio of distances."""
        measured, y = self.omitted
        return weight_of_ratio(self.left_out_distances, measured.plain, y)

    @cached_property
    def class_scales(self) -> ClassScales:
        """By which typicality is divided."""
        return ClassScales.of(self.left_out_distances, self.as_ratio, self.omitted[1], len(self.known))

    @property
    def left_out(self) -> LeftOut:
        measured, y = self.omitted
        typicality = self.left_out_distances.typicality(self.as_ratio) / self.class_scales.left_out
        return LeftOut(measured.scores, y, typicality)

    def scores(self, features: Tensor) -> Tensor:
        """[n, d] -> [n, C]."""
        return sum((each.scores(features) for each in self.members), start=torch.zeros(()))

    def typicality(self, features: Tensor) -> Tensor:
        """[n, d] -> [n]."""
        found = added([(each.setting.share, each.measured(features)) for each in self.members]).distances(self.usual)
        return found.typicality(self.as_ratio) / self.class_scales.every[found.closest]

    def typicality_readout(self) -> Callable[[Tensor, Tensor], Tensor]:
        """As :meth:`Learner.typicality_readout` returns it."""
        # Computed now, and not when the function is traced. A file holds tensors that are contiguous and no views.
        _ = self.as_ratio, self.class_scales, self.usual
        frozen = copy(self)
        frozen.members = [copy(answer) for answer in self.members]
        for answer in frozen.members:
            answer.inverse = answer.inverse.frozen()
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
