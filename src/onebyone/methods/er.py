"""Experience replay (Chaudhry et al., 2019): cross-entropy on incoming and on replayed samples."""

from __future__ import annotations

from typing import TypeVar

from torch import Tensor, nn

from onebyone.methods.base import Encoded, ReplayLearner, ReplayOptions
from onebyone.methods.losses import cross_entropy
from onebyone.methods.registry import register

R = TypeVar("R", bound=ReplayOptions)


class LinearReplay(ReplayLearner[R]):
    """Cross-entropy on both with a linear head: experience replay, and what MIR and DER++ begin with."""

    def build(self) -> None:
        self.head = nn.Linear(self.encoder.width, self.spec.num_classes)

    def logits(self, features: Tensor) -> Tensor:
        scores: Tensor = self.head(features)
        return scores

    def incoming_loss(self, incoming: Encoded, *drawn: Encoded) -> Tensor:
        return cross_entropy(self.logits(incoming.features), incoming.y, incoming.weight)

    def replay_loss(self, replay: Encoded, incoming: Encoded) -> Tensor:
        return cross_entropy(self.logits(replay.features), replay.y, replay.weight)


@register("er", ReplayOptions, section="tables 1 and 2, ER")
class ER(LinearReplay[ReplayOptions]):
    """Experience replay: cross-entropy on incoming and on replayed samples.

    >>> from onebyone.data import load
    >>> digits = load("digits")
    >>> learner = ER(ReplayOptions(memory_per_class=5), digits.spec)
    >>> loss = learner.observe(digits.train_x[:10], digits.train_y[:10])
    >>> int(learner.memory.filled.sum())
    10
    """
