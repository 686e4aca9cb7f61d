"""Experience replay improved for one class at a time; each improvement is an option."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from onebyone.memory.policies import Policy
from onebyone.methods.heads import LinearReplay
from onebyone.methods.options import ReplayOptions
from onebyone.methods.registry import register
from onebyone.methods.replay_learner import Encoded
from onebyone.options import option

RECENT = 0.99  # decay per step of the share of each class in recent steps
RARE = 0.01  # a class with a smaller recent share and no sample in the memory is gone


@dataclass(frozen=True, kw_only=True)
class MixedReplayOptions(ReplayOptions):
    learning_rate: float = option(0.03, "step size of plain SGD", above=0)
    memory_policy: Policy = option("balanced", "which samples are kept: balanced between classes, or a reservoir")
    passes: Literal["separate", "joint"] = option(
        "joint", "incoming and replayed samples in one forward pass, so that BatchNorm sees a mixed batch, or in two"
    )
    average: float = option(
        0.99,
        "decay per step of the averaged weights that answer; 0: no average, 1: the plain mean of all steps",
        low=0,
        high=1,
    )
    readout: Literal["head", "ncm", "adjusted"] = option(  # type: ignore[assignment]
        "ncm",
        "answer by the nearest class mean of the memory, by the head, or by the head minus the log share of each class "
        "in recent steps",
    )


@register("replay", MixedReplayOptions)
class MixedReplay(LinearReplay[MixedReplayOptions]):
    """Experience replay with a mixed batch, averaged weights, a balanced memory and class means as readout.

    With ``learning_rate=0.1 memory_policy=reservoir passes=separate average=0 readout=head`` every step and every
    answer is that of ER with its default options.

    >>> from onebyone.data import load
    >>> digits = load("digits")
    >>> learner = MixedReplay(MixedReplayOptions(memory_per_class=5), digits.spec)
    >>> loss = learner.observe(digits.train_x[:10], digits.train_y[:10])
    """

    shown: Tensor

    def build(self) -> None:
        super().build()
        self.averaged = deepcopy(nn.Sequential(self.encoder, self.head)).requires_grad_(False)
        self.register_buffer("shown", torch.zeros(self.spec.num_classes))  # share of each class in recent steps

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
        average = [old for old, _ in numbers]
        # In the first steps it is the plain mean, without the initial random weights. (torch's own average needs a
        # plain number here, and the number of steps is a tensor.)
        rate = (1 / self.steps).clamp(min=1 - self.options.average)
        torch._foreach_mul_(average, 1 - rate)
        torch._foreach_add_(average, torch._foreach_mul([new for _, new in numbers], rate))
        weight = torch.cat([incoming.weight, replay.weight])
        share = (self.one_hot(torch.cat([incoming.y, replay.y])) * weight[:, None]).sum(0)
        self.shown.lerp_(share / share.sum(), (1 / self.steps).clamp(min=1 - RECENT))

    def readout(self) -> Callable[[Tensor], Tensor]:
        if self.options.readout != "adjusted":
            return super().readout()
        prior = self.shown.clamp(min=1e-6).log()
        # The recent share of a class that is gone falls towards zero, which would raise its score without bound. As
        # with class means it is no answer. (An incoming class may not be in a reservoir yet.)
        kept = (self.one_hot(self.memory.y[:-1]) & self.memory.filled[:, None]).any(0)
        gone = ~kept & (self.shown < RARE)
        return lambda features: (self.logits(features) - prior).masked_fill(gone, float("-inf"))
