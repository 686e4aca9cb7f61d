"""Replay done right: what experience replay lacks with one class at a time, each ingredient an option."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from onebyone.memory.policies import Policy
from onebyone.methods.base import Encoded, ReplayOptions
from onebyone.methods.heads import LinearReplay
from onebyone.methods.registry import register
from onebyone.options import option


@dataclass(frozen=True, kw_only=True)
class MixedReplayOptions(ReplayOptions):
    learning_rate: float = option(0.03, "step size of plain SGD", above=0)
    memory_policy: Policy = option("balanced", "which samples are kept: balanced between classes, or a reservoir")
    passes: Literal["separate", "joint"] = option(
        "joint", "incoming and replayed samples in one forward pass, so that BatchNorm sees a mixed batch, or in two"
    )
    average: float = option(
        0.99,
        "answers come from averaged weights, which keep this share of themselves a step; 0: no average",
        low=0,
        high=1,
    )
    readout: Literal["head", "ncm", "adjusted"] = option(  # type: ignore[assignment]
        "ncm",
        "answer by the nearest class mean of the memory, by the head, or by the head less what it owes to how often a "
        "class was shown of late",
    )


@register("replay", MixedReplayOptions)
class MixedReplay(LinearReplay[MixedReplayOptions]):
    """Experience replay with a mixed batch, averaged weights, a balanced memory and class means as its answer.

    With ``passes=separate average=0 memory_policy=reservoir readout=head`` it is ER, step by step.

    >>> from onebyone.data import load
    >>> digits = load("digits")
    >>> learner = MixedReplay(MixedReplayOptions(memory_per_class=5), digits.spec)
    >>> loss = learner.observe(digits.train_x[:10], digits.train_y[:10])
    """

    shown: Tensor

    def build(self) -> None:
        super().build()
        self.averaged = deepcopy(nn.Sequential(self.encoder, self.head)).requires_grad_(False)
        self.register_buffer("shown", torch.zeros(self.spec.num_classes))  # share of each class in the steps of late

    def embed(self, view: Tensor) -> Tensor:
        features: Tensor = (self.encoder if self.training else self.averaged[0])(view)
        return features

    def logits(self, features: Tensor) -> Tensor:
        scores: Tensor = (self.head if self.training else self.averaged[1])(features)
        return scores

    @torch.no_grad()
    def after_update(self, incoming: Encoded, replay: Encoded, *others: Encoded) -> None:
        now = [*self.encoder.parameters(), *self.head.parameters(), *self.encoder.buffers()]
        then = [*self.averaged.parameters(), *self.averaged[0].buffers()]
        numbers = [(old, new) for old, new in zip(then, now, strict=True) if new.is_floating_point()]
        follow = get_ema_multi_avg_fn(self.options.average)  # a closure: kept, it would be in the way of pickle
        follow([old for old, _ in numbers], [new for _, new in numbers], 0)
        weight = torch.cat([incoming.weight, replay.weight])
        share = (self.one_hot(torch.cat([incoming.y, replay.y])) * weight[:, None]).sum(0)
        self.shown.lerp_(share / share.sum(), 1 - self.options.average)

    def readout(self) -> Callable[[Tensor], Tensor]:
        if self.options.readout != "adjusted":
            return super().readout()
        prior = self.shown.clamp(min=1e-6).log()
        return lambda features: self.logits(features) - prior
