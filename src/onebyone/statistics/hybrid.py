"""Statistics and a network under one budget of bytes; their scores are added."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from onebyone import memory, nets
from onebyone.data import Spec
from onebyone.errors import UsageError
from onebyone.methods.learner import Learner
from onebyone.methods.options import BudgetOptions
from onebyone.methods.registry import register
from onebyone.methods.replay import MixedReplay, MixedReplayOptions
from onebyone.nets import Adapted
from onebyone.options import option
from onebyone.statistics.lda import LDA, LDAOptions
from onebyone.statistics.patch_lda import PatchLDA, PatchLDAOptions


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
class Hybrid(Learner[HybridOptions]):
    """`patch-lda` and `replay` in parallel, within one budget of bytes; their predictions are combined.

    Each learns as it would alone. Statistics forget nothing but cannot learn features. The network learns features from
    stored samples. When the capacity for classes grows, the statistics become smaller, and all samples are kept.

    >>> from onebyone.data import load
    >>> digits = load("digits")
    >>> learner = Hybrid(HybridOptions(budget=50_000), digits.spec)
    >>> loss = learner.observe(digits.train_x[:300], digits.train_y[:300])
    >>> learner.memory_bytes <= 50_000, learner.network.memory.capacity
    (True, 130)
    """

    takes_weights = own_typicality = True

    def __init__(self, options: HybridOptions, spec: Spec, seed: int = 0, device: torch.device | str = "cpu") -> None:
        options = options.divided(spec)
        super().__init__(options, spec, seed, device)
        self.network = MixedReplay(options, spec, seed, device)
        rest = options.budget - self.network.memory_bytes
        try:
            self.statistics = self.build_statistics(max(1, rest))
        except UsageError as error:
            raise UsageError(
                f"budget is {options.budget} bytes, of which samples take {self.network.memory_bytes}, and the rest is "
                f"too little for statistics, whose {error}"
            ) from None

    def build_statistics(self, budget: int) -> PatchLDA:
        """Statistics of the encoder's features if it is pretrained or frozen; otherwise of patches or vectors."""
        given = self.options.encoder
        if nets.is_pretrained(given) or (isinstance(given, Adapted) and given.fixed):
            return LDA(LDAOptions(budget=budget, encoder=given), self.spec, self.seed, self.device)
        return PatchLDA(PatchLDAOptions(budget=budget), self.spec, self.seed, self.device)

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

    def observe(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        self.count(y)
        self.statistics.observe(x, y, weight)
        return self.network.observe(x, y, weight)

    def repeat(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        self.steps += 1
        return self.network.repeat(x, y, weight)

    def features(self, x: Tensor) -> Tensor:
        return torch.cat([self.statistics.features(x), self.network.features(x)], 1)

    def readout(self) -> Callable[[Tensor], Tensor]:
        statistics, network, width = self.statistics.readout(), self.network.readout(), self.network.encoder.width
        # Statistics of vectors have features in float64, and so have both together; those of a network are float32.
        return lambda features: self.together(statistics(features[:, :-width]), network(features[:, -width:].float()))

    def scores(self, x: Tensor, chunk: int | None = None) -> Tensor:
        return self.together(self.statistics.scores(x, chunk), self.network.scores(x, chunk))

    def together(self, statistics: Tensor, network: Tensor) -> Tensor:
        """[n, C] the sum of both scores, each a log-probability up to a constant per sample.

        Class frequencies are in the network's scores only with ``readout=head``. Where the network has no score, for
        want of a sample of the class, its mean score is used.
        """
        weight = self.options.network_weight / self.network.temperature()
        known = network != float("-inf")  # NaN stays NaN: the network has diverged
        mean = network.where(known, 0).sum(1, keepdim=True) / known.sum(1, keepdim=True).clamp(min=1)
        return statistics + weight * network.where(known, mean)

    @torch.no_grad()
    def forget(self, x: Tensor, y: Tensor) -> None:
        super().forget(x, y)
        self.statistics.forget(x, y)
        self.network.forget(x, y)

    @torch.no_grad()
    def forget_class(self, slot: int) -> None:
        self.statistics.forget_class(slot)
        self.network.forget_class(slot)
        self.counts[slot] = 0

    @torch.no_grad()
    def unite(self, slot: int, into: int) -> None:
        self.statistics.unite(slot, into)
        self.network.unite(slot, into)
        self.counts[into] += self.counts[slot]
        self.counts[slot] = 0

    def answer_interval(self, batch: int) -> int:
        return self.network.answer_interval(batch)

    def drop_solution(self) -> None:
        super().drop_solution()
        self.statistics.drop_solution()
        self.network.drop_solution()

    def settle(self, samples: int) -> None:
        self.statistics.settle(samples)

    def refresh(self) -> None:
        super().refresh()
        self.statistics.refresh()

    @property
    def leaving_out(self) -> Learner[Any]:
        return self.statistics

    def typicality(self, x: Tensor) -> Tensor:
        return self.statistics.typicality(x)

    def temperature(self) -> float:
        return self.statistics.temperature()

    def typical_values(self) -> Tensor | None:
        return self.statistics.typical_values()

    def typicality_readout(self) -> Callable[[Tensor, Tensor], Tensor]:
        statistics, width = self.statistics.typicality_readout(), self.network.encoder.width
        return lambda features, scores: statistics(features[:, :-width], scores)

    def take_over(self, old: Self) -> None:
        self.statistics.take_over(old.statistics)
        self.network.take_over(old.network)
        self.generator.set_state(old.generator.get_state())
        self.counts[: len(old.counts)] = old.counts
        self.steps.copy_(old.steps)
