"""Statistics and a network under one budget of bytes; their scores are added."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from onebyone import memory
from onebyone.data import Spec
from onebyone.errors import UsageError
from onebyone.methods.options import BudgetOptions
from onebyone.methods.patch_lda import PatchLDA, PatchLDAOptions
from onebyone.methods.registry import register
from onebyone.methods.replay import MixedReplay, MixedReplayOptions
from onebyone.methods.warm_up import WarmUpLearner
from onebyone.options import option

TEMPERATURE = 0.1  # of cosines to class means, as in cosine heads: makes them comparable with log-probabilities


@dataclass(frozen=True, kw_only=True)
class HybridOptions(BudgetOptions, MixedReplayOptions):
    memory_samples: int = option(0, "samples kept for the network; 0: as statistics_share says", low=0)
    statistics_share: float = option(
        0.8, "share of the budget that goes to statistics; the rest holds samples for the network", low=0.01, high=0.99
    )
    network_weight: float = option(0.3, "weight of the network's scores relative to those of the statistics", low=0)

    def divided(self, spec: Spec) -> Self:
        """The same options with ``budget`` and ``memory_samples`` set, so that both stay the same with more classes."""
        options, share = self.budgeted(spec), 1 - self.statistics_share
        one, two = (
            memory.create(self.memory_policy, count, spec.shape, spec.dtype, spec.num_classes).nbytes
            for count in (1, 2)
        )
        row = two - one
        if not options.memory_samples and share * options.budget < 2 * row:  # one row is the blank row
            raise UsageError(
                f"budget is {options.budget} bytes, and the samples' share of it holds none; with statistics_share "
                f"{self.statistics_share} it must be at least {math.ceil(2 * row / share)}"
            )
        return replace(options, memory_samples=options.memory_samples or int(share * options.budget / row) - 1)


@register("hybrid", HybridOptions)
class Hybrid(WarmUpLearner[HybridOptions]):
    """`patch-lda` and `replay` side by side under one budget of bytes; their scores are added.

    Each learns as it would alone. Statistics forget nothing but cannot learn features; a network does, from the samples
    that are kept for it. Room for more classes reduces the statistics and keeps all samples.

    >>> from onebyone.data import load
    >>> digits = load("digits")
    >>> learner = Hybrid(HybridOptions(budget=50_000), digits.spec)
    >>> loss = learner.observe(digits.train_x[:300], digits.train_y[:300])
    >>> learner.memory_bytes <= 50_000, learner.network.memory.capacity
    (True, 130)
    """

    def __init__(self, options: HybridOptions, spec: Spec, seed: int = 0, device: torch.device | str = "cpu") -> None:
        options = options.divided(spec)
        super().__init__(options, spec, seed, device)
        self.network = MixedReplay(options, spec, seed, device)
        rest = options.budget - self.network.memory_bytes
        try:
            self.statistics = PatchLDA(PatchLDAOptions(budget=max(1, rest)), spec, seed, device)
        except UsageError as error:
            raise UsageError(
                f"budget is {options.budget} bytes, of which samples take {self.network.memory_bytes}, and the rest is "
                f"too little for statistics, whose {error}"
            ) from None
        self.warm_up = self.statistics.warm_up

    def ready(self) -> Self:
        statistics = self.statistics.ready()
        if statistics is self.statistics:
            return self
        copy = deepcopy(self)
        copy.statistics = statistics
        return copy

    def sample_counts(self) -> list[Tensor]:
        return [*super().sample_counts(), *self.statistics.sample_counts(), *self.network.sample_counts()]

    def kept_labels(self) -> list[Tensor]:
        return [*self.statistics.kept_labels(), *self.network.kept_labels()]

    @property
    def filters(self) -> int:
        return self.statistics.filters

    @property
    def memory_bytes(self) -> int:
        return self.statistics.memory_bytes + self.network.memory_bytes

    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        self.count(y)
        self.statistics.observe(x, y)
        return self.network.observe(x, y)

    def repeat(self, x: Tensor, y: Tensor) -> Tensor:
        self.steps += 1
        return self.network.repeat(x, y)

    def features(self, x: Tensor) -> Tensor:
        return torch.cat([self.statistics.features(x), self.network.features(x)], 1)

    def readout(self) -> Callable[[Tensor], Tensor]:
        statistics, network, width = self.statistics.readout(), self.network.readout(), self.network.encoder.width
        return lambda features: self.together(statistics(features[:, :-width]), network(features[:, -width:]))

    def scores(self, x: Tensor, chunk: int | None = None) -> Tensor:
        return self.together(self.statistics.scores(x, chunk), self.network.scores(x, chunk))

    def together(self, statistics: Tensor, network: Tensor) -> Tensor:
        """[n, C] the sum of both scores, each a log-probability up to a constant per sample.

        Class frequencies are in the statistics' scores, and in the network's only with ``readout=head``. Where the
        network has no score, because it has no sample of the class, its mean score is used.
        """
        weight = self.options.network_weight / (TEMPERATURE if self.options.readout == "ncm" else 1)
        known = network != float("-inf")  # NaN stays NaN: the network has diverged
        mean = network.where(known, 0).sum(1, keepdim=True) / known.sum(1, keepdim=True).clamp(min=1)
        return statistics + weight * network.where(known, mean)

    def take_over(self, old: Self) -> None:
        self.statistics.take_over(old.statistics)
        self.network.take_over(old.network)
        self.generator.set_state(old.generator.get_state())
        self.counts[: len(old.counts)] = old.counts
        self.steps.copy_(old.steps)
